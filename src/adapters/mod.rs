//! Adapters as data: the manifest language, the embedded folders, and the registered providers that use them.

mod provider;

pub use provider::{Provider, ProviderSpec};
