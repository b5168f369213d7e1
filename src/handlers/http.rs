//! Forwards an event to a URL: the exact bytes, the sender's allowed headers, our idempotency key, and our signature in
//! the manner of Standard Webhooks (<https://github.com/standard-webhooks/standard-webhooks>, read 2026-11-30).
//!
//! 2xx is done, 410 gives up, everything else is tried again, not before the time in `Retry-After`. Redirects are not
//! followed: a body that was vouched for to one address is not sent to another. Certificates are checked against the
//! system's roots, or Mozilla's where the system has none. `HTTPS_PROXY` and its kin are honoured.

use std::{error::Error as _, sync::Once, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures_util::future::BoxFuture;
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::{Timestamp, fmt::rfc2822};
use reqwest::{
    Client, Response, StatusCode, Url,
    header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER},
};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;

use super::{Failure, Handler, encode, idempotency_key};
use crate::domain::{Claim, StoredEvent};

const CONNECT: Duration = Duration::from_secs(10);
/// Characters of an answer that go into the history.
const EXCERPT: usize = 200;
/// An answer is read up to here so that its connection can be used again; a longer one costs the connection.
const READ: usize = 64 << 10;

/// Headers of the stored event that are never sent: those of one hop, those that we set, and credentials.
const NEVER: &[&str] = &[
    "accept-encoding",
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

pub(super) struct Http {
    client: Client,
    url: Url,
    key: Option<Key>,
}

impl Http {
    pub(super) fn new(
        url: &str,
        secret: Option<&SecretString>,
        timeout: Duration,
        concurrency: usize,
    ) -> Result<Self, String> {
        let expected = "`url` must be http://… or https://…";
        let url = Url::parse(url).map_err(|e| format!("{expected}: {e}"))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(expected.into());
        }
        Ok(Self {
            client: client(timeout, concurrency).map_err(|e| format!("no HTTP client can be made: {}", text_of(&e)))?,
            url,
            key: secret.map(Key::new).transpose()?,
        })
    }

    async fn send(&self, claim: &Claim) -> Result<(), Failure> {
        let headers = self.headers(claim, Timestamp::now());
        let answer = self
            .client
            .post(self.url.clone())
            .headers(headers)
            .body(claim.event.payload.clone())
            .send()
            .await
            .map_err(|e| Failure::Retry(text_of(&e.without_url())))?;
        let (status, after) = (answer.status(), retry_after(answer.headers(), Timestamp::now()));
        let body = read(answer).await;
        if status.is_success() {
            return Ok(());
        }
        let error = describe(status, &body);
        Err(match (status, after) {
            (StatusCode::GONE, _) => Failure::GiveUp(error),
            (_, Some(after)) => Failure::RetryAfter { after, error },
            (_, None) => Failure::Retry(error),
        })
    }

    fn headers(&self, claim: &Claim, now: Timestamp) -> HeaderMap {
        let event = &claim.event;
        let mut headers = stored(event);
        let mut set = |name: &'static str, value: &str| {
            // What `encode` gives is always a value; a text that is none is left out.
            if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        if let Some(content_type) = &event.content_type {
            set("content-type", content_type);
        }
        let key = idempotency_key(claim);
        let key = encode(&key);
        set("idempotency-key", &key);
        set("cerca-event-id", &encode(&event.provider_event_id));
        set("cerca-provider", &encode(&event.provider));
        set("cerca-attempt", &claim.attempt.to_string());
        if let Some(event_type) = &event.event_type {
            set("cerca-event-type", &encode(event_type));
        }
        if let Some(signing) = &self.key {
            let timestamp = now.as_second().to_string();
            set("webhook-id", &key);
            set("webhook-timestamp", &timestamp);
            set("webhook-signature", &signing.sign(&key, &timestamp, &event.payload));
        }
        headers
    }
}

impl Handler for Http {
    fn handle<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(self.send(claim))
    }
}

/// The key that signs what we send.
struct Key(Hmac<Sha256>);

impl Key {
    fn new(secret: &SecretString) -> Result<Self, String> {
        let expected = "`secret` must be whsec_ and the base64 of 24 to 64 bytes";
        let encoded = secret.expose_secret().trim().strip_prefix("whsec_").ok_or(expected)?;
        let key = BASE64_STANDARD.decode(encoded).map_err(|_| expected)?;
        if !(24..=64).contains(&key.len()) {
            return Err(expected.into());
        }
        Hmac::new_from_slice(&key).map(Self).map_err(|_| expected.into())
    }

    fn sign(&self, id: &str, timestamp: &str, body: &[u8]) -> String {
        let mut mac = self.0.clone();
        for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
            mac.update(part);
        }
        format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
    }
}

fn client(timeout: Duration, concurrency: usize) -> Result<Client, reqwest::Error> {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // An error means that there is one already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    let builder = || {
        Client::builder()
            .user_agent(concat!("Cerca/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT.min(timeout))
            .timeout(timeout)
            .pool_max_idle_per_host(concurrency)
    };
    // Minimal containers have no roots at all, and would fail for http:// URLs too.
    builder().build().or_else(|_| {
        let roots = rustls::RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        let tls = rustls::ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        builder().tls_backend_preconfigured(tls).build()
    })
}

/// Whether a header of the sender's may be sent on by a handler of any kind.
pub(super) fn may_travel(name: &str) -> bool {
    !NEVER.iter().any(|never| name.eq_ignore_ascii_case(never))
}

/// The headers of the event that may travel on.
fn stored(event: &StoredEvent) -> HeaderMap {
    let stored: std::collections::BTreeMap<String, String> = serde_json::from_str(&event.headers).unwrap_or_default();
    stored
        .into_iter()
        .filter(|(name, _)| may_travel(name))
        .filter_map(|(name, value)| Some((name.parse::<HeaderName>().ok()?, value.parse::<HeaderValue>().ok()?)))
        .collect()
}

/// When the target wants to be asked again: seconds, or a date of HTTP.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Duration::try_from(date.duration_since(now)).ok()
}

/// The beginning of the answer; all of it is read if it is short.
async fn read(mut answer: Response) -> Vec<u8> {
    let (mut body, mut seen) = (Vec::new(), 0);
    while let Ok(Some(chunk)) = answer.chunk().await {
        seen += chunk.len();
        let room = (4 * EXCERPT).saturating_sub(body.len());
        body.extend_from_slice(&chunk[..room.min(chunk.len())]);
        if seen > READ {
            break;
        }
    }
    body
}

fn describe(status: StatusCode, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let excerpt: String = text
        .trim()
        .chars()
        .take(EXCERPT)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let hint = if status.is_redirection() {
        " (redirects are not followed)"
    } else {
        ""
    };
    if excerpt.is_empty() {
        format!("answered {status}{hint}")
    } else {
        format!("answered {status}{hint}: {excerpt}")
    }
}

/// The error and its causes; reqwest says little at the top.
fn text_of(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
