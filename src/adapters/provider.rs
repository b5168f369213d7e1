//! A registered provider: a name, an adapter with its overrides applied, secrets, options.

use std::{collections::BTreeMap, sync::Arc};

use secrecy::SecretString;

/// What the operator says of a provider; secrets are resolved already.
#[derive(Debug, Clone, Default)]
pub struct ProviderSpec {
    /// The last part of its URL, `/webhooks/{name}`: `[a-z0-9_-]{1,64}`.
    pub name: String,
    /// The adapter's name; the provider's own name when absent.
    pub adapter: Option<String>,
    /// Newest first; any of them suffices.
    pub secrets: Vec<SecretString>,
    /// Overrides every signature's tolerance: a duration, or `none`.
    pub tolerance: Option<String>,
    /// Scheme, host and port that senders call, without a trailing slash.
    pub public_url: String,
    /// Largest body in bytes.
    pub max_body: usize,
    /// The status of a conflict (same id, other body): 200 or 409.
    pub on_conflict: u16,
    /// Names of the signature rules that count; all when absent.
    pub accept: Option<Vec<String>>,
    /// `none` switches verification off.
    pub verify: Option<String>,
    /// Values for `config:name`.
    pub options: BTreeMap<String, String>,
    /// Fields that override those of the adapter's signatures and event.
    pub signature: toml::Table,
    pub event: toml::Table,
}

/// A registered provider, ready to verify.
#[derive(Debug)]
pub struct Provider {
    pub name: Arc<str>,
    pub public_url: String,
    pub max_body: usize,
    pub on_conflict: u16,
}
