//! `[[gateway]]` as the configuration file says it.

use std::time::Duration;

use serde::{Deserialize, Deserializer};

use crate::units::{duration, size};

/// One route of the gateway.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewaySpec {
    /// The path on the public listener, such as `/api/orders`; what lies below it belongs to it too.
    pub path: String,
    /// Where it leads, such as `http://127.0.0.1:3000/orders`; what follows `path` is appended.
    pub upstream: String,
    /// Methods that keys protect. Default POST and PATCH; others pass through.
    #[serde(default = "default_methods")]
    pub methods: Vec<String>,
    /// Whether a request of these methods needs a key. Default false: without one it passes through.
    #[serde(default)]
    pub required: bool,
    /// Whose request it is: `header:NAME`, `jwt:CLAIM`, `client-cert:HEADER` or `none`. Default `header:authorization`.
    #[serde(default = "default_principal")]
    pub principal: String,
    /// What verifies the token of `jwt:CLAIM`, by reference: a public key (PEM or JWK) or a shared secret.
    pub jwt_key: Option<String>,
    /// Asked how a request ended that was sent and not answered: a URL with `{key}` in it. 2xx is its answer, 404 or 410
    /// says that it never happened.
    pub probe: Option<String>,
    /// `Authorization` of the probe, by reference. Default: that of the client who asks.
    pub probe_authorization: Option<String>,
    /// How long the upstream may take. Default 30 s, at most 2 min.
    #[serde(default = "default_timeout", with = "duration")]
    pub timeout: Duration,
    /// Largest body of a request. Default: that of `[server]`.
    #[serde(default, deserialize_with = "optional_size")]
    pub max_body: Option<usize>,
    /// Largest answer that is kept. Default 1 MiB, at most 32 MiB. A larger one reaches the client, and is not given again.
    #[serde(default = "default_answer", with = "size")]
    pub max_answer: usize,
    /// What becomes of a key whose upstream could not be reached. Default `release`.
    #[serde(default)]
    pub on_upstream_down: OnUpstreamDown,
    /// How long a key is remembered. Default 24 h.
    #[serde(default = "default_expiry", with = "duration")]
    pub expiry: Duration,
    /// Statuses that are not kept. Default: conflicts, limits, and what says that nothing was begun.
    pub not_kept: Option<Vec<u16>>,
    /// Headers of the answer that are kept beside the usual ones.
    #[serde(default)]
    pub keep_headers: Vec<String>,
}

/// Nothing was sent, because the upstream could not be reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnUpstreamDown {
    /// The key is as good as new.
    #[default]
    Release,
    /// The key stays bound to its request, which may be sent again.
    Keep,
}

fn default_methods() -> Vec<String> {
    vec!["POST".to_owned(), "PATCH".to_owned()]
}

fn default_principal() -> String {
    "header:authorization".to_owned()
}

fn default_timeout() -> Duration {
    Duration::from_secs(30)
}

fn default_answer() -> usize {
    1 << 20
}

fn default_expiry() -> Duration {
    Duration::from_secs(86_400)
}

fn optional_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    size::deserialize(deserializer).map(Some)
}
