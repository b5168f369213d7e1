//! Adapters as data: the manifest language, the embedded folders, and the registered providers that use them.
//!
//! Reading order: `manifest` (what is written), `compile` (what it means, as `rules`), `adapter` and `registry` (the
//! folders), `provider` (an adapter with secrets). What is done with a request is in [`crate::ingest`].

mod adapter;
mod compile;
mod compile_signature;
mod digest;
mod expr;
mod keys;
mod lint;
mod manifest;
mod normalize;
mod pattern;
mod pointers;
mod provider;
mod registry;
mod rules;
mod template;

pub use adapter::{Adapter, AdapterError};
pub use manifest::Sender;
pub use normalize::Normalize;
pub use provider::{Provider, ProviderError, ProviderSpec};
pub use registry::{Registry, RegistryError};

pub(crate) use digest::{Digester, Tag, hash};
pub(crate) use expr::{Doc, Expr, Function};
pub(crate) use keys::{BASE64, BASE64_URL, Key, Material, key};
pub(crate) use normalize::Fields;
pub(crate) use pattern::Pattern;
pub(crate) use pointers::{Wanted, parse_pointer};
pub(crate) use rules::{Encoding, Handshake, Hash, ItemPath, KeyKind, Scheme, Signature, TimeFormat};
pub(crate) use template::{Condition, Operand, Part, Template, Test};
