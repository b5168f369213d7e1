//! `[[gateway]]` as the configuration file says it.

use std::time::Duration;

use reqwest::Url;
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

/// Paths of ours on the public listener.
const OURS: [&str; 3] = ["/webhooks", "/healthz", "/readyz"];

pub(super) fn check_path(path: &str) -> Result<&str, String> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.' | '~');
    let segments = path.strip_prefix('/').map(|rest| rest.split('/'));
    let is_path = segments.is_some_and(|mut segments| segments.all(|s| !matches!(s, "" | "." | "..")));
    if !is_path || !path.chars().all(fine) {
        return Err(format!(
            "`{path}` is not a path such as /api/orders (letters, digits, - _ . ~, no slash at the end)"
        ));
    }
    let is_ours = |ours: &&&str| path == **ours || path.strip_prefix(**ours).is_some_and(|rest| rest.starts_with('/'));
    match OURS.iter().find(|ours| is_ours(ours)) {
        Some(ours) => Err(format!("{ours} is Cerca's own")),
        None => Ok(path),
    }
}

pub(super) fn check_upstream(text: &str) -> Result<Url, String> {
    let expected = "expected a URL such as http://127.0.0.1:3000/orders";
    let url = Url::parse(text).map_err(|error| format!("`{text}` is not a URL ({error}); {expected}"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(format!("`{text}` is not an http or https URL; {expected}"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(format!("holds a user or a password; {expected}"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(format!("`{text}` has a query or a fragment; {expected}"));
    }
    Ok(url)
}

pub(super) fn check_methods(methods: &[String]) -> Result<Vec<String>, String> {
    const KNOWN: [&str; 4] = ["POST", "PUT", "PATCH", "DELETE"];
    if methods.is_empty() {
        return Err("is empty: nothing would be protected".to_owned());
    }
    match methods.iter().find(|method| !KNOWN.contains(&method.as_str())) {
        Some(other) => Err(format!("`{other}` is none of POST, PUT, PATCH and DELETE")),
        None => Ok(methods.to_vec()),
    }
}
