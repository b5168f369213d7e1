//! Speaking to the service behind: the client, headers of one hop, and the question how a request ended.

use std::{sync::Once, time::Duration};

use bytes::{Bytes, BytesMut};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{
    Client, Response, StatusCode, Url,
    header::{AUTHORIZATION, CONNECTION, HeaderMap, HeaderName, HeaderValue},
};
use secrecy::{ExposeSecret as _, SecretString};

use crate::store::KeptAnswer;

const CONNECT: Duration = Duration::from_secs(5);
/// Shorter than the keep-alive of any usual server: a request on a connection that is being closed might have been read.
const IDLE: Duration = Duration::from_secs(1);
/// Headers of an answer: where the client stops reading, what was done is not known. Twice what most servers can send.
const MAX_HEADERS: usize = 512;
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Headers that belong to one hop, beside those that `Connection` names.
const ONE_HOP: [&str; 11] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "expect",
];

/// Headers that say whose request it is, and which. `Connection` cannot take them away: the upstream, and a later probe,
/// would see another request than the key was given for.
const WHOLE_WAY: [&str; 2] = ["authorization", "idempotency-key"];

/// Whether a header is not passed on; `connection` holds the values of that header. Names in lower case.
#[must_use]
pub(crate) fn is_one_hop(name: &str, connection: &[String]) -> bool {
    ONE_HOP.contains(&name) || (!WHOLE_WAY.contains(&name) && connection.iter().any(|named| named == name))
}

/// The names that `Connection` lists, in lower case.
pub(crate) fn named_by_connection<'a>(values: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    values
        .flat_map(|value| value.split(|byte| *byte == b','))
        .map(|name| String::from_utf8_lossy(name).trim().to_ascii_lowercase())
        .filter(|name| !name.is_empty())
        .collect()
}

/// A client for one upstream. It is spoken to directly, follows nothing, and decodes nothing.
pub(super) fn client(timeout: Duration) -> Result<Client, reqwest::Error> {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // An error means that there is one already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    let builder = || {
        Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            // Shorter than the whole, so that it is known when nothing was sent.
            .connect_timeout(CONNECT.min(timeout / 2))
            .timeout(timeout)
            .pool_idle_timeout(IDLE)
            .http1_max_headers(MAX_HEADERS)
            .tcp_nodelay(true)
    };
    // Without roots of the system, those of Mozilla.
    builder().build().or_else(|_| {
        let roots = rustls::RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        let tls = rustls::ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        builder().tls_backend_preconfigured(tls).build()
    })
}

/// An answer, up to a size.
pub(super) enum Body {
    Whole(Bytes),
    /// What was read, and the rest.
    TooLarge(Bytes, Box<Response>),
}

/// Reads an answer to its end, or until it is larger than `limit`.
pub(super) async fn read(mut response: Response, limit: usize) -> Result<Body, reqwest::Error> {
    let Some(first) = response.chunk().await? else {
        return Ok(Body::Whole(Bytes::new()));
    };
    if first.len() > limit {
        return Ok(Body::TooLarge(first, Box::new(response)));
    }
    // Most answers are one chunk, which is not copied.
    let Some(mut chunk) = response.chunk().await? else {
        return Ok(Body::Whole(first));
    };
    let mut body = BytesMut::from(first);
    loop {
        body.extend_from_slice(&chunk);
        if body.len() > limit {
            return Ok(Body::TooLarge(body.freeze(), Box::new(response)));
        }
        match response.chunk().await? {
            Some(next) => chunk = next,
            None => return Ok(Body::Whole(body.freeze())),
        }
    }
}

/// How the upstream is asked what became of a request.
#[derive(Debug, Clone)]
pub struct Probe {
    before: String,
    after: String,
    authorization: Option<HeaderValue>,
}

/// What it says.
#[derive(Debug)]
pub(super) enum Probed {
    /// It happened, and this is its answer.
    Happened(KeptAnswer),
    /// It never happened.
    Never,
    /// It cannot say now.
    Undecided,
}

impl Probe {
    /// # Errors
    /// What is wrong with the template.
    pub fn new(template: &str, authorization: Option<&SecretString>) -> Result<Self, String> {
        let (before, after) = template.split_once("{key}").ok_or_else(|| {
            format!("`{template}` has no {{key}}, such as http://127.0.0.1:3000/orders/by-key/{{key}}")
        })?;
        let url =
            Url::parse(&format!("{before}x{after}")).map_err(|error| format!("`{template}` is not a URL ({error})"))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() || !url.username().is_empty() {
            return Err(format!("`{template}` is not an http or https URL without a user"));
        }
        let is_in_host = Url::parse(&format!("{before}y{after}")).is_ok_and(|other| other.host_str() != url.host_str());
        if is_in_host {
            return Err(format!("`{template}` has {{key}} in its host"));
        }
        let authorization = authorization.map(|secret| {
            let mut value =
                HeaderValue::from_str(secret.expose_secret()).map_err(|_| "the authorization is no header value")?;
            value.set_sensitive(true);
            Ok::<_, String>(value)
        });
        Ok(Self {
            before: before.to_owned(),
            after: after.to_owned(),
            authorization: authorization.transpose()?,
        })
    }

    /// Asks. `client_authorization` is used where the configuration has none.
    pub(super) async fn ask(
        &self,
        client: &Client,
        key: &str,
        client_authorization: Option<&HeaderValue>,
        limit: usize,
        keeps: impl Fn(&str) -> bool,
    ) -> Probed {
        let encoded = utf8_percent_encode(key, NON_ALPHANUMERIC);
        let Ok(url) = Url::parse(&format!("{}{encoded}{}", self.before, self.after)) else {
            return Probed::Undecided;
        };
        let mut headers = HeaderMap::new();
        if let Some(value) = self.authorization.as_ref().or(client_authorization) {
            headers.insert(AUTHORIZATION, value.clone());
        }
        if let Ok(value) = HeaderValue::from_str(key) {
            headers.insert(HeaderName::from_static("idempotency-key"), value);
        }
        let asked = client.get(url).headers(headers).timeout(PROBE_TIMEOUT).send().await;
        let response = match asked {
            Ok(response) => response,
            Err(error) => {
                tracing::warn!(error = %error.without_url(), "the upstream could not be asked how a request ended");
                return Probed::Undecided;
            }
        };
        let status = response.status();
        if matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE) {
            return Probed::Never;
        }
        if !status.is_success() || status == StatusCode::ACCEPTED {
            tracing::warn!(status = status.as_u16(), "the upstream did not say how a request ended");
            return Probed::Undecided;
        }
        let headers = kept_headers(response.headers(), keeps);
        match read(response, limit).await {
            Ok(Body::Whole(body)) => Probed::Happened(kept(status.as_u16(), headers, Some(body))),
            Ok(Body::TooLarge(..)) => Probed::Happened(kept(status.as_u16(), headers, None)),
            Err(_) => Probed::Undecided,
        }
    }
}

pub(super) fn kept_headers(headers: &HeaderMap, keeps: impl Fn(&str) -> bool) -> Vec<(String, Vec<u8>)> {
    let named = named_by_connection(headers.get_all(CONNECTION).iter().map(HeaderValue::as_bytes));
    headers
        .iter()
        .filter(|(name, _)| keeps(name.as_str()) && !is_one_hop(name.as_str(), &named))
        .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
        .collect()
}

/// Larger JSON is not searched for an id.
const SEARCHED: usize = 64 << 10;

/// An answer with what it says of the thing that it made: the last part of `Location`, or `id` of a JSON object.
pub(super) fn kept(status: u16, headers: Vec<(String, Vec<u8>)>, body: Option<Bytes>) -> KeptAnswer {
    let header = |wanted: &str| {
        headers
            .iter()
            .find(|(name, _)| name == wanted)
            .map(|(_, value)| value.as_slice())
    };
    let by_location = header("location").and_then(|location| {
        let text = std::str::from_utf8(location).ok()?;
        let path = text.split(['?', '#']).next()?.trim_end_matches('/');
        let id = path.rsplit_once('/').map_or(path, |(_, id)| id);
        (!id.is_empty()).then(|| id.to_owned())
    });
    let is_json = header("content-type").is_some_and(|ty| ty.starts_with(b"application/json"));
    let by_body = || {
        let body = body.as_ref().filter(|body| is_json && body.len() <= SEARCHED)?;
        let object: serde_json::Value = serde_json::from_slice(body).ok()?;
        match object.get("id")? {
            serde_json::Value::String(id) => Some(id.clone()),
            serde_json::Value::Number(id) => Some(id.to_string()),
            _ => None,
        }
    };
    let is_success = (200..300).contains(&status);
    let resource_id = is_success.then(|| by_location.or_else(by_body)).flatten();
    KeptAnswer {
        status,
        resource_id: resource_id.filter(|id| id.len() <= 255 && !id.contains('\0')),
        headers,
        body,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_one_hop_are_known() {
        let named = named_by_connection([&b"close, X-Private"[..], b"keep-alive"].into_iter());
        let hostile = named_by_connection([&b"close, Authorization, Idempotency-Key"[..]].into_iter());
        assert!(!is_one_hop("authorization", &hostile) && !is_one_hop("idempotency-key", &hostile));
        assert!(is_one_hop("x-private", &named) && is_one_hop("te", &named) && is_one_hop("connection", &[]));
        assert!(!is_one_hop("content-type", &named));
    }

    #[test]
    fn a_probe_has_a_place_for_the_key() {
        assert!(Probe::new("http://h/by-key/{key}?x=1", None).is_ok());
        for bad in ["http://h/by-key", "{key}", "ftp://h/{key}", "http://{key}.h/"] {
            assert!(Probe::new(bad, None).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_thing_that_was_made_is_named() {
        let id = |headers: &[(&str, &str)], body: &'static str| {
            let headers = headers
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()));
            kept(201, headers.collect(), Some(Bytes::from(body))).resource_id
        };
        assert_eq!(id(&[("location", "https://h/orders/7?x=1")], "").as_deref(), Some("7"));
        assert_eq!(
            id(&[("content-type", "application/json")], r#"{"id":12}"#).as_deref(),
            Some("12")
        );
        assert_eq!(id(&[("content-type", "text/plain")], r#"{"id":12}"#), None);
    }
}
