//! Adapters as data: the manifest language, the embedded folders, and the registered providers that use them.
//!
//! Reading order: `manifest` (what is written), `compile` (what it means, as `rules`), `adapter` and `registry` (the
//! folders), `provider` (an adapter with secrets). What is done with a request is in [`crate::ingest`].

mod adapter;
mod backfill;
mod chain;
mod check_answers;
mod check_signature;
mod choices;
mod compile;
mod compile_handshake;
mod compile_keys;
mod compile_selectors;
mod compile_signature;
mod confirm;
mod coverage;
mod decrypt;
mod der;
mod digest;
mod expr;
mod facts;
mod fetched;
mod gap;
mod jwe;
mod jwk;
mod jwt;
mod keys;
mod lint;
mod manifest;
mod mistakes;
mod needs;
mod normalize;
mod parser;
mod pattern;
mod pieces;
mod pins;
mod private_key;
mod provider;
mod provider_keys;
mod public_key;
mod refresh;
mod registry;
mod rules;
mod sample_provider;
mod secrets;
mod sender;
mod template;
mod uses;

pub use adapter::{Adapter, AdapterError};
pub use backfill::Backfill;
pub use confirm::Called;
pub use gap::{Gap, Place, Uncovered};
pub use needs::{Needs, SecretNeed};
pub use normalize::Normalize;
pub use provider::{Provider, ProviderError, ProviderSpec};
pub use refresh::{FetchError, Refresher, fetch};
pub use registry::{Registry, RegistryError};
pub use sender::Sender;

pub(crate) use backfill::{Auth, Paging, Pointer, Range, RangeFormat};
pub(crate) use chain::is_trusted;
pub(crate) use compile::ADDED;
pub(crate) use decrypt::Cipher;
pub(crate) use digest::{Digester, Tag, hash};
pub(crate) use expr::{Doc, Expr, Function};
pub(crate) use fetched::{Fetched, KeySource};
pub(crate) use jwt::JwtAlgorithm;
pub(crate) use keys::{BASE64, BASE64_URL, Key, Material, key};
pub(crate) use normalize::Fields;
pub(crate) use pattern::Pattern;
pub(crate) use pieces::{Piece, Pieces};
pub(crate) use pins::is_pinned;
pub(crate) use public_key::KeySet;
pub(crate) use rules::{Bind, Encoding, Handshake, Hash, ItemPath, KeyStep, Scheme, Selector, Signature, TimeFormat};
pub(crate) use template::{Condition, Operand, Part, Template, Test};

#[cfg(test)]
mod coverage_tests;
