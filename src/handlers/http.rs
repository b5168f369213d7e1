//! Forwards an event to a URL: the exact bytes, the sender's allowed headers, our idempotency key, and our signature in
//! the manner of Standard Webhooks (<https://github.com/standard-webhooks/standard-webhooks>, read 2026-11-30).
//!
//! 2xx is done, 410 gives up, everything else is tried again, not before the time in `Retry-After`. A request that was sent
//! and not answered has an unknown outcome. Redirects are not followed: a body that was vouched for to one address is not
//! sent to another. Certificates are checked against the system's roots, or Mozilla's where the system has none.
//! `HTTPS_PROXY` and its kin are honoured.

use std::{error::Error as _, sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures_util::future::BoxFuture;
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{
    Body, Client, Method, RequestBuilder, Response, StatusCode, Url,
    header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER},
};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;

use super::{
    AllowPrivate, BreakerSpec, BreakerState, Failure, Handler, Outgoing, Probed,
    breaker::{Breaker, Pass},
    encode,
    guard::Guard,
    http_client::{Watched, client},
    idempotency_key,
};
use crate::domain::{Claim, StoredEvent};

/// Characters of an answer that go into the history.
const EXCERPT: usize = 200;
/// An answer is read up to here so that its connection can be used again; a longer one costs the connection.
const READ: usize = 64 << 10;
/// Where a probe's URL gets the key.
const PLACE: &str = "{idempotency_key}";
/// What may stand in a segment of a path or a value of a query as it is.
const IN_URL: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

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

/// What a handler is made of.
pub(super) struct Target<'a> {
    /// The handler's.
    pub(super) name: &'a str,
    pub(super) url: &'a str,
    pub(super) secret: Option<&'a SecretString>,
    pub(super) timeout: Duration,
    pub(super) concurrency: usize,
    pub(super) allow_private: Option<&'a AllowPrivate>,
    /// Certificates in PEM that are trusted too.
    pub(super) trusted: Option<Vec<u8>>,
    pub(super) probe: Option<&'a str>,
    pub(super) breaker: BreakerSpec,
    /// Whether a connection may be used again. One that the target closes just as it is used leaves an unknown outcome.
    pub(super) reuse: bool,
}

pub(super) struct Http {
    client: Client,
    url: Url,
    key: Option<Key>,
    breaker: Arc<Breaker>,
    probe: Option<Probe>,
}

struct Probe {
    /// A URL with `PLACE` in it.
    url: String,
    breaker: Arc<Breaker>,
}

impl Http {
    pub(super) fn new(target: Target<'_>) -> Result<Self, String> {
        let url = parse("url", target.url)?;
        let probe_url = target.probe.map(Probe::check).transpose()?;
        let hosts = [Some(&url), probe_url.as_ref()];
        let guard = Guard::new(
            hosts.into_iter().flatten().filter_map(Url::host_str),
            target.allow_private,
        )?;
        let probe = match (target.probe, probe_url) {
            (Some(text), Some(url)) => Some(Probe {
                url: text.into(),
                breaker: Breaker::new(target.name, destination(&url), target.breaker),
            }),
            _ => None,
        };
        Ok(Self {
            key: target.secret.map(Key::new).transpose()?,
            breaker: Breaker::new(target.name, destination(&url), target.breaker),
            client: client(&target, guard)?,
            url,
            probe,
        })
    }

    async fn send(&self, outgoing: &Outgoing<'_>) -> Result<(), Failure> {
        let pass = pass(&self.breaker)?;
        let headers = self.headers(outgoing, Timestamp::now());
        let sent = outgoing.sent_mark();
        let body = Body::wrap(Watched::new(outgoing.body.clone(), sent.clone()));
        let request = self.client.post(self.url.clone()).headers(headers).body(body);
        let (status, after, body) = match exchange(request, pass).await {
            Ok(answer) => answer,
            // An empty body is never asked for, so it does not tell when it was sent.
            Err(error) if sent.is_set() || (outgoing.body.is_empty() && !error.is_connect()) => {
                return Err(Failure::Unknown(format!(
                    "sent, but no answer came: {}; whether it had its effect is unknown",
                    text_of(&error)
                )));
            }
            Err(error) => return Err(Failure::Retry(text_of(&error))),
        };
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

    async fn ask(&self, claim: &Claim) -> Result<Probed, Failure> {
        let Some(probe) = &self.probe else {
            return Ok(Probed::Nothing);
        };
        let pass = pass(&probe.breaker)?;
        let unsure =
            |error: String| Failure::Unknown(format!("{error}; whether an earlier try had its effect is unknown"));
        let key = idempotency_key(claim);
        let url = probe.url.replace(PLACE, &utf8_percent_encode(&key, IN_URL).to_string());
        let url = Url::parse(&url).map_err(|error| unsure(format!("the probe has no URL: {error}")))?;
        let mut headers = HeaderMap::new();
        self.name(&mut headers, claim, &[], Timestamp::now());
        let request = self.client.request(Method::GET, url).headers(headers);
        let answer = exchange(request, pass).await;
        match answer {
            Ok((status, ..)) if status.is_success() => Ok(Probed::Effect),
            Ok((StatusCode::NOT_FOUND, ..)) => Ok(Probed::Nothing),
            Ok((status, _, body)) => Err(unsure(format!("the probe {}", describe(status, &body)))),
            Err(error) => Err(unsure(format!("the probe had no answer: {}", text_of(&error)))),
        }
    }

    fn headers(&self, outgoing: &Outgoing<'_>, now: Timestamp) -> HeaderMap {
        let claim = outgoing.claim;
        let mut headers = stored(&claim.event);
        if let Some(content_type) = outgoing.content_type {
            set(&mut headers, "content-type", content_type);
        }
        self.name(&mut headers, claim, &outgoing.body, now);
        headers
    }

    /// The headers that name the delivery, and the signature that vouches for them.
    fn name(&self, headers: &mut HeaderMap, claim: &Claim, body: &[u8], now: Timestamp) {
        let event = &claim.event;
        let key = idempotency_key(claim);
        let key = encode(&key);
        set(headers, "idempotency-key", &key);
        set(headers, "cerca-event-id", &encode(&event.provider_event_id));
        set(headers, "cerca-provider", &encode(&event.provider));
        set(headers, "cerca-attempt", &claim.attempt.to_string());
        if let Some(event_type) = &event.event_type {
            set(headers, "cerca-event-type", &encode(event_type));
        }
        if let Some(signing) = &self.key {
            let timestamp = now.as_second().to_string();
            set(headers, "webhook-id", &key);
            set(headers, "webhook-timestamp", &timestamp);
            set(headers, "webhook-signature", &signing.sign(&key, &timestamp, body));
        }
    }
}

fn set(headers: &mut HeaderMap, name: &'static str, value: &str) {
    // What `encode` gives is always a value; a text that is none is left out.
    if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
        headers.insert(HeaderName::from_static(name), value);
    }
}

impl Probe {
    /// The URL as it will be with some key.
    fn check(text: &str) -> Result<Url, String> {
        if !text.contains(PLACE) {
            return Err(format!(
                "`probe` must hold {PLACE}, such as https://example.com/effects/{PLACE}"
            ));
        }
        let url = parse("probe", &text.replace(PLACE, "key"))?;
        let with_another = parse("probe", &text.replace(PLACE, "another"))?;
        match url.origin() == with_another.origin() {
            true => Ok(url),
            false => Err(format!("`probe` must hold {PLACE} in its path or query")),
        }
    }
}

fn parse(key: &str, text: &str) -> Result<Url, String> {
    let expected = format!("`{key}` must be http://… or https://…");
    let url = Url::parse(text).map_err(|e| format!("{expected}: {e}"))?;
    match matches!(url.scheme(), "http" | "https") && url.has_host() {
        true => Ok(url),
        false => Err(expected),
    }
}

/// `host:port`.
fn destination(url: &Url) -> String {
    let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default());
    format!("{host}:{}", port.unwrap_or_default())
}

fn pass(breaker: &Arc<Breaker>) -> Result<Pass, Failure> {
    breaker.pass().map_err(|after| Failure::NotNow {
        after,
        error: format!(
            "the target at {} does not answer and is left alone for a while",
            breaker.destination()
        ),
    })
}

/// Sends a request, and reads the beginning of what is answered. A gateway's word that nobody is behind it is no answer to
/// the breaker.
async fn exchange(
    request: RequestBuilder,
    pass: Pass,
) -> Result<(StatusCode, Option<Duration>, Vec<u8>), reqwest::Error> {
    let answer = request.send().await.map_err(reqwest::Error::without_url)?;
    let (status, after) = (answer.status(), retry_after(answer.headers(), Timestamp::now()));
    if !matches!(
        status,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
    ) {
        pass.answered();
    }
    Ok((status, after, read(answer).await))
}

impl Handler for Http {
    fn handle<'a>(&'a self, outgoing: &'a Outgoing<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(self.send(outgoing))
    }

    fn room(&self) -> usize {
        self.breaker.room()
    }

    fn breaker(&self) -> Option<BreakerState> {
        self.breaker.shown()
    }

    fn probe<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Probed, Failure>> {
        Box::pin(self.ask(claim))
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

/// When the target wants to be asked again: seconds, or a date of HTTP in any of its three forms. `None` for anything else, and
/// for a time that has passed. The worker keeps it within its limits.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let date = Timestamp::try_from(httpdate::parse_http_date(text).ok()?).ok()?;
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
pub(super) fn text_of(error: &reqwest::Error) -> String {
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

#[cfg(test)]
#[path = "http_away_tests.rs"]
mod away_tests;
