//! The routes of the gateway, ready to serve.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use metrics::{Counter, Gauge};
use percent_encoding::percent_decode_str;
use reqwest::{Url, header::HeaderName};
use secrecy::{ExposeSecret as _, SecretString};

use super::{
    IN_PROGRESS, REQUESTS,
    decision::Policy,
    principal::{JwtKey, Principal},
    refusal::Refusal,
    spec::{GatewaySpec, OnUpstreamDown, check_methods, check_path, check_upstream},
    upstream::{Probe, client, is_one_hop},
};

/// Beyond the upstream's time: for the store, and for a late answer to be written down.
const LEASE_MARGIN: Duration = Duration::from_secs(15);

/// A connection's silence ends it after 150 s, so nothing may take that long.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(120);
const LARGEST_ANSWER: usize = 32 << 20;
const LONGEST_EXPIRY: Duration = Duration::from_secs(365 * 86_400);

/// Headers of an answer that are kept, and given again.
const KEPT_HEADERS: [&str; 18] = [
    "allow",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-location",
    "content-type",
    "deprecation",
    "etag",
    "expires",
    "last-modified",
    "link",
    "location",
    "retry-after",
    "sunset",
    "vary",
    "www-authenticate",
    "x-content-type-options",
];

/// Headers that hold credentials; like those of one hop they are never kept.
const NEVER_KEPT: [&str; 2] = ["set-cookie", "set-cookie2"];

/// A `[[gateway]]` that cannot work: the key, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {message}")]
pub struct GatewayError {
    pub key: &'static str,
    pub message: String,
}

/// One route.
pub struct Gateway {
    /// What its keys are kept under.
    pub path: Arc<str>,
    pub methods: Vec<String>,
    pub required: bool,
    pub principal: Principal,
    /// `None`: that of the server.
    pub max_body: Option<usize>,
    pub timeout: Duration,
    pub expiry: Duration,
    pub lease: Duration,
    pub(super) upstream: Url,
    pub(super) client: reqwest::Client,
    pub(super) probe: Option<Probe>,
    pub(super) max_answer: usize,
    pub(super) on_upstream_down: OnUpstreamDown,
    pub(super) policy: Policy,
    keep_headers: Vec<String>,
    metrics: OnceLock<GatewayMetrics>,
}

/// Registered once, not looked up for each request.
pub(super) struct GatewayMetrics {
    pub(super) first: Counter,
    pub(super) replayed: Counter,
    pub(super) in_progress: Gauge,
}

impl Gateway {
    /// `resolve` fetches the secret of a reference.
    ///
    /// # Errors
    /// The first key that is wrong.
    pub fn new(
        spec: &GatewaySpec,
        resolve: impl Fn(&str) -> Result<SecretString, String>,
    ) -> Result<Self, GatewayError> {
        let wrong = |key, message: String| GatewayError { key, message };
        let path = check_path(&spec.path).map_err(|message| wrong("path", message))?;
        let upstream = check_upstream(&spec.upstream).map_err(|message| wrong("upstream", message))?;
        let methods = check_methods(&spec.methods).map_err(|message| wrong("methods", message))?;
        let mut principal: Principal = spec.principal.parse().map_err(|message| wrong("principal", message))?;
        match (&mut principal, &spec.jwt_key) {
            (Principal::Jwt { key, .. }, Some(reference)) => {
                let text = resolve(reference).map_err(|message| wrong("jwt_key", message))?;
                let parsed = JwtKey::parse(text.expose_secret()).map_err(|message| wrong("jwt_key", message))?;
                *key = Some(parsed);
            }
            (_, Some(_)) => {
                return Err(wrong("jwt_key", "belongs to principal = \"jwt:CLAIM\"".to_owned()));
            }
            (_, None) => {}
        }
        let authorization = spec
            .probe_authorization
            .as_ref()
            .map(|reference| resolve(reference))
            .transpose();
        let authorization = authorization.map_err(|message| wrong("probe_authorization", message))?;
        let probe = match &spec.probe {
            Some(template) => {
                Some(Probe::new(template, authorization.as_ref()).map_err(|message| wrong("probe", message))?)
            }
            None if authorization.is_some() => {
                return Err(wrong("probe_authorization", "there is no `probe`".to_owned()));
            }
            None => None,
        };
        if spec.timeout.is_zero() || spec.timeout > LONGEST_TIMEOUT {
            return Err(wrong("timeout", "expected more than zero and at most 2m".to_owned()));
        }
        if spec.max_answer > LARGEST_ANSWER {
            return Err(wrong("max_answer", "expected at most 32MiB".to_owned()));
        }
        if spec.expiry < spec.timeout + LEASE_MARGIN || spec.expiry > LONGEST_EXPIRY {
            let message = "expected at least the timeout and 15 s, and at most 365d".to_owned();
            return Err(wrong("expiry", message));
        }
        if let Some(bad) = spec
            .not_kept
            .iter()
            .flatten()
            .find(|status| !(300..=599).contains(*status))
        {
            let message =
                format!("{bad} is not a status from 300 to 599 (a success that is not kept would happen again)");
            return Err(wrong("not_kept", message));
        }
        let keep_headers: Vec<String> = spec.keep_headers.iter().map(|name| name.to_ascii_lowercase()).collect();
        for name in &keep_headers {
            if HeaderName::from_bytes(name.as_bytes()).is_err() {
                let message = format!("`{name}` is not the name of a header, such as X-Request-Id");
                return Err(wrong("keep_headers", message));
            }
            if NEVER_KEPT.contains(&name.as_str()) || is_one_hop(name, &[]) {
                return Err(wrong("keep_headers", format!("`{name}` is never kept")));
            }
        }
        let client = client(spec.timeout).map_err(|error| wrong("upstream", error.to_string()))?;
        Ok(Self {
            metrics: OnceLock::new(),
            path: path.into(),
            methods,
            required: spec.required,
            principal,
            max_body: spec.max_body,
            timeout: spec.timeout,
            expiry: spec.expiry,
            lease: spec.timeout + LEASE_MARGIN,
            upstream,
            client,
            probe,
            max_answer: spec.max_answer,
            on_upstream_down: spec.on_upstream_down,
            policy: spec.not_kept.clone().map_or_else(Policy::default, Policy::all_but),
            keep_headers,
        })
    }

    /// What deserves a look, by key.
    #[must_use]
    pub fn warnings(spec: &GatewaySpec) -> Vec<(&'static str, String)> {
        let mut warnings = Vec::new();
        if spec.principal.starts_with("jwt:") && spec.jwt_key.is_none() {
            warnings.push((
                "principal",
                "without `jwt_key` the token is not verified here: whoever writes another's name into a token of their \
                 own, and guesses a key, reads the answer that is kept under it"
                    .to_owned(),
            ));
        }
        if spec.probe.is_none() {
            warnings.push((
                "probe",
                "without one, a request that was sent and not answered stays 409 until its key expires".to_owned(),
            ));
        }
        warnings
    }

    /// Made at the first use: routes are made ready before the recorder is there.
    pub(super) fn metrics(&self) -> &GatewayMetrics {
        self.metrics.get_or_init(|| GatewayMetrics {
            first: metrics::counter!(REQUESTS, "route" => self.path.to_string(), "outcome" => "first"),
            replayed: metrics::counter!(REQUESTS, "route" => self.path.to_string(), "outcome" => "replayed"),
            in_progress: metrics::gauge!(IN_PROGRESS, "route" => self.path.to_string()),
        })
    }

    /// Counts a request that was not run.
    pub fn count_refusal(&self, refusal: &Refusal) {
        metrics::counter!(REQUESTS, "route" => self.path.to_string(), "outcome" => refusal.code()).increment(1);
    }

    pub fn count_replay(&self) {
        self.metrics().replayed.increment(1);
    }

    /// For requests that are passed on.
    #[must_use]
    pub fn client(&self) -> &reqwest::Client {
        &self.client
    }

    /// Whether keys protect this method.
    #[must_use]
    pub fn protects(&self, method: &str) -> bool {
        self.methods.iter().any(|known| known == method)
    }

    /// Where a request goes.
    ///
    /// # Errors
    /// [`Refusal::BadPath`]: a path that a URL library would resolve to one outside of this route.
    pub fn target(&self, path: &str, query: Option<&str>) -> Result<Url, Refusal> {
        let rest = path.strip_prefix(&*self.path).ok_or(Refusal::BadPath)?;
        let is_dots = |segment: &str| {
            let decoded: Vec<u8> = percent_decode_str(segment).collect();
            // An encoded slash is a slash to some servers.
            let mut parts = decoded.split(|byte| *byte == b'/');
            parts.any(|part| part == b"." || part == b"..") || decoded.contains(&b'\\')
        };
        // `;` begins parameters, which some servers drop before they resolve.
        if rest
            .split('/')
            .any(|segment| is_dots(segment) || is_dots(segment.split(';').next().unwrap_or_default()))
        {
            return Err(Refusal::BadPath);
        }
        let mut url = self.upstream.clone();
        let base = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{base}{rest}"));
        url.set_query(query);
        Ok(url)
    }

    /// Whether a header of an answer is kept; the name in lower case.
    pub(super) fn keeps_header(&self, name: &str) -> bool {
        KEPT_HEADERS.contains(&name) || self.keep_headers.iter().any(|kept| kept == name)
    }
}

/// Whether a header of an answer is kept without a word in the configuration.
pub(super) fn is_kept_by_default(name: &str) -> bool {
    KEPT_HEADERS.contains(&name)
}

/// All routes; the longest path that fits serves.
#[derive(Default)]
pub struct Gateways(Vec<Arc<Gateway>>);

impl Gateways {
    #[must_use]
    pub fn new(mut gateways: Vec<Gateway>) -> Self {
        gateways.sort_by_key(|gateway| std::cmp::Reverse(gateway.path.len()));
        Self(gateways.into_iter().map(Arc::new).collect())
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The route of a path as it was sent.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<&Arc<Gateway>> {
        self.0.iter().find(|gateway| {
            let rest = path.strip_prefix(&*gateway.path);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// The route that keys of this name belong to.
    pub(super) fn by_route(&self, route: &str) -> Option<&Arc<Gateway>> {
        self.0.iter().find(|gateway| *gateway.path == *route)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(toml: &str) -> GatewaySpec {
        toml::from_str(toml).unwrap()
    }

    fn gateway(path: &str) -> Gateway {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let spec = spec(&format!(
            "path = \"{path}\"\nupstream = \"http://127.0.0.1:3000/v2/orders\""
        ));
        Gateway::new(&spec, |_| Err("none".to_owned())).unwrap()
    }

    #[test]
    fn a_path_leads_to_its_own_part_of_the_upstream_and_nowhere_else() {
        let gateway = gateway("/api/orders");
        let to = |path: &str| gateway.target(path, None).map(|url| url.to_string());
        assert_eq!(to("/api/orders").unwrap(), "http://127.0.0.1:3000/v2/orders");
        assert_eq!(
            to("/api/orders/7/pay").unwrap(),
            "http://127.0.0.1:3000/v2/orders/7/pay"
        );
        assert_eq!(
            to("/api/orders/a%2Fb").unwrap(),
            "http://127.0.0.1:3000/v2/orders/a%2Fb"
        );
        let with_query = gateway.target("/api/orders", Some("a=1&b=%20")).unwrap();
        assert_eq!(with_query.as_str(), "http://127.0.0.1:3000/v2/orders?a=1&b=%20");
        for bad in [
            "/../admin",
            "/%2e%2e/admin",
            "/.%2E/x",
            "/x/./y",
            "/a\\..\\b",
            "/a%5Cb",
            "/..;x/admin",
            "/..%2Fadmin",
            "/x/%2e%2e%2fadmin",
            "/x%2F..%2f..;y/admin",
        ] {
            assert!(gateway.target(&format!("/api/orders{bad}"), None).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_longest_path_serves_and_names_end_at_a_slash() {
        let gateways = Gateways::new(vec![gateway("/api"), gateway("/api/orders")]);
        let path = |path: &str| gateways.find(path).map(|gateway| gateway.path.to_string());
        assert_eq!(path("/api/orders/1").as_deref(), Some("/api/orders"));
        assert_eq!(path("/api/orders2").as_deref(), Some("/api"));
        assert_eq!(path("/apis"), None);
    }

    #[test]
    fn mistakes_name_their_key() {
        let fine = "path = \"/a\"\nupstream = \"http://h\"\n";
        for (key, text) in [
            ("path", "path = \"/webhooks/x\"\nupstream = \"http://h\""),
            ("path", "path = \"/a/\"\nupstream = \"http://h\""),
            ("path", "path = \"a\"\nupstream = \"http://h\""),
            ("upstream", "path = \"/a\"\nupstream = \"ftp://h\""),
            ("upstream", "path = \"/a\"\nupstream = \"http://u:p@h\""),
            ("methods", &format!("{fine}methods = [\"GET\"]")),
            ("principal", &format!("{fine}principal = \"cookie:x\"")),
            ("jwt_key", &format!("{fine}jwt_key = \"env:X\"")),
            ("probe", &format!("{fine}probe = \"http://h/no-place\"")),
            ("timeout", &format!("{fine}timeout = \"10m\"")),
            ("not_kept", &format!("{fine}not_kept = [99]")),
            ("not_kept", &format!("{fine}not_kept = [409, 200]")),
            ("keep_headers", &format!("{fine}keep_headers = [\"a b\"]")),
            ("keep_headers", &format!("{fine}keep_headers = [\"\"]")),
            ("keep_headers", &format!("{fine}keep_headers = [\"Keep-Alive\"]")),
            ("keep_headers", &format!("{fine}keep_headers = [\"Set-Cookie\"]")),
            ("expiry", &format!("{fine}expiry = \"1s\"")),
        ] {
            let made = Gateway::new(&spec(text), |_| Err("none".to_owned()));
            assert_eq!(made.err().map(|error| error.key), Some(key), "{text}");
        }
    }
}
