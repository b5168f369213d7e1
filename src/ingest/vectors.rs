//! Vectors: signed requests with what must come of them, one JSON object a line.

use base64::Engine as _;
use jiff::Timestamp;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Answer, Identified, Ingested, ingest, url};
use crate::{
    adapters::{Provider, ProviderError, ProviderSpec, Registry},
    domain::{HeaderList, RawRequest},
};

/// What came of one line, and whether it is what the line expects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VectorResult {
    /// From 1.
    pub line: usize,
    pub provider: String,
    pub case: String,
    pub verified: bool,
    /// The constant name of the rejection, or why there was no provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `event`, `challenge` or `rejected`.
    pub status: String,
    pub events: Vec<VectorEvent>,
    /// Whether the line says what must come of it.
    #[serde(skip)]
    pub expects: bool,
    /// What differs from the expectation; empty where nothing does, or nothing was expected.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<String>,
}

impl VectorResult {
    /// Whether the line is met.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.differences.is_empty()
    }
}

/// An event as vectors compare it: the sender's own id, and the type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VectorEvent {
    pub id: Option<String>,
    #[serde(rename = "type")]
    pub event_type: Option<String>,
}

impl VectorEvent {
    pub(super) fn of(event: Identified<'_>) -> Self {
        Self {
            id: Some(event.sender_id.unwrap_or(event.id)),
            event_type: event.event_type,
        }
    }
}

/// A line that is no vector.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct VectorError {
    /// From 1.
    pub line: usize,
    pub message: String,
}

#[derive(Deserialize)]
struct Line<'a> {
    provider: String,
    #[serde(default)]
    case: String,
    method: String,
    url: String,
    headers: Vec<(String, String)>,
    body_base64: String,
    #[serde(default)]
    secrets: Vec<String>,
    #[serde(default)]
    decryption_keys: Vec<String>,
    #[serde(default)]
    config: serde_json::Map<String, serde_json::Value>,
    now: i64,
    #[serde(borrow)]
    expect: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Expectation {
    verified: bool,
    status: String,
    events: Option<Vec<VectorEvent>>,
    response_body: Option<String>,
    #[serde(default)]
    response_headers: Vec<(String, String)>,
}

/// Runs each line of a file; empty lines are passed over.
///
/// # Errors
/// The first line that is no vector. A vector that is not met is a result, not an error.
pub fn run_vectors(text: &str, registry: &Registry) -> Result<Vec<VectorResult>, VectorError> {
    try_vectors(text, registry).collect()
}

/// The same, line by line: one that is no vector does not hold up the others.
pub fn try_vectors<'t>(
    text: &'t str,
    registry: &'t Registry,
) -> impl Iterator<Item = Result<VectorResult, VectorError>> + 't {
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    lines.map(|(text, line)| match run(text, registry) {
        Ok(result) => Ok(VectorResult { line, ..result }),
        Err(message) => Err(VectorError { line, message }),
    })
}

/// Every text is of one line, so only the column says where it breaks.
fn in_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((what, _)) => format!("{what}, at column {}", error.column()),
        None => text,
    }
}

fn run(text: &str, registry: &Registry) -> Result<VectorResult, String> {
    let line: Line<'_> = serde_json::from_str(text).map_err(|error| in_line(&error))?;
    let body = base64::engine::general_purpose::STANDARD
        .decode(&line.body_base64)
        .map_err(|error| format!("`body_base64`: {error}"))?;
    let now = Timestamp::from_second(line.now).map_err(|error| format!("`now`: {error}"))?;
    let mut outcome = Outcome::default();
    let provider = Provider::new(spec(&line), registry);
    match &provider {
        Ok(provider) => {
            put_keys(provider, &line, now)?;
            outcome.take(provider, &line, &body, now);
        }
        Err(error) => outcome.result.reason = Some(error.to_string()),
    }
    outcome.result.provider = line.provider;
    outcome.result.case = line.case;
    if let Some(expect) = line.expect {
        let expect: Expectation =
            serde_json::from_str(expect.get()).map_err(|error| format!("`expect`: {}", in_line(&error)))?;
        outcome.result.expects = true;
        outcome.result.differences = outcome.differences(&expect);
        // Whoever refuses everything proves nothing.
        if let Err(error @ ProviderError::UnknownAdapter { .. }) = &provider {
            outcome.result.differences.push(error.to_string());
        }
    }
    Ok(outcome.result)
}

/// `config.certs` holds what fetching would have given, by URL.
fn put_keys(provider: &Provider, line: &Line<'_>, now: Timestamp) -> Result<(), String> {
    let certs = line.config.get("certs").and_then(serde_json::Value::as_object);
    for (url, value) in certs.into_iter().flatten() {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        provider
            .put_keys(url, text.as_bytes(), now)
            .map_err(|problem| format!("`config.certs`: {url}: {problem}"))?;
    }
    Ok(())
}

fn spec(line: &Line<'_>) -> ProviderSpec {
    let parts = url::parts(&line.url);
    let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let secrets = |texts: &[String]| texts.iter().map(|text| SecretString::from(text.as_str())).collect();
    ProviderSpec {
        name: line.provider.clone(),
        secrets: secrets(&line.secrets),
        decryption_keys: secrets(&line.decryption_keys),
        public_url: format!("{}://{}", parts.scheme, parts.host),
        options: line
            .config
            .iter()
            .filter(|(name, _)| *name != "certs")
            .map(|(name, value)| (name.clone(), text(value)))
            .collect(),
        ..ProviderSpec::default()
    }
}

struct Outcome {
    result: VectorResult,
    answer: Option<Answer>,
}

impl Default for Outcome {
    fn default() -> Self {
        Self {
            result: VectorResult {
                line: 0,
                expects: false,
                provider: String::new(),
                case: String::new(),
                verified: false,
                reason: None,
                status: "rejected".into(),
                events: Vec::new(),
                differences: Vec::new(),
            },
            answer: None,
        }
    }
}

impl Outcome {
    fn take(&mut self, provider: &Provider, line: &Line<'_>, body: &[u8], now: Timestamp) {
        let pairs = line.headers.iter();
        let headers = HeaderList::new(pairs.map(|(name, value)| (name.as_str(), value.as_bytes())).collect());
        let request = RawRequest {
            method: &line.method,
            url: &line.url,
            headers: &headers,
            body,
        };
        match ingest(provider, &request, now) {
            Ok(Ingested::Events { events, .. }) => {
                self.result.verified = true;
                self.result.status = "event".into();
                self.result.events = events.into_iter().map(VectorEvent::of).collect();
                self.answer = Some(provider.response().clone());
            }
            Ok(Ingested::Handshake { answer, .. }) => {
                self.result.verified = true;
                self.result.status = "challenge".into();
                self.answer = Some(answer);
            }
            Err(rejection) => {
                self.result.verified = rejection.is_authentic();
                self.result.reason = Some(rejection.reason().into());
            }
        }
    }

    fn differences(&self, expect: &Expectation) -> Vec<String> {
        let result = &self.result;
        let mut differences = Vec::new();
        let mut compare = |what: &str, expected: String, found: String| {
            if expected != found {
                differences.push(format!("{what}: expected {expected}, found {found}"));
            }
        };
        compare("verified", expect.verified.to_string(), result.verified.to_string());
        compare("status", expect.status.clone(), result.status.clone());
        if let Some(events) = &expect.events {
            compare("events", events.len().to_string(), result.events.len().to_string());
            for (index, (expected, found)) in events.iter().zip(&result.events).enumerate() {
                for (what, expected, found) in [
                    ("id", &expected.id, &found.id),
                    ("type", &expected.event_type, &found.event_type),
                ] {
                    if expected.is_some() {
                        compare(&format!("{what} of event {index}"), shown(expected), shown(found));
                    }
                }
            }
        }
        let Some(answer) = &self.answer else {
            return differences;
        };
        let body = String::from_utf8_lossy(&answer.body);
        if let Some(expected) = &expect.response_body
            && !same_text(expected, &body)
        {
            compare("response_body", format!("{expected:?}"), format!("{body:?}"));
        }
        for (name, value) in &expect.response_headers {
            let found = answer
                .headers
                .iter()
                .find(|(known, _)| known.eq_ignore_ascii_case(name));
            compare(
                name,
                value.clone(),
                found.map_or_else(String::new, |(_, value)| value.clone()),
            );
        }
        differences
    }
}

/// Whether two bodies are equal, as JSON where both are.
fn same_text(a: &str, b: &str) -> bool {
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text);
    a == b || matches!((json(a), json(b)), (Ok(a), Ok(b)) if a == b)
}

fn shown(value: &Option<String>) -> String {
    value.as_ref().map_or_else(|| "none".into(), |text| format!("{text:?}"))
}

/// The vectors of a file that must verify, ready to be changed.
#[cfg(test)]
pub(super) fn valid(text: &str, registry: &Registry) -> Vec<(String, Provider, super::OwnedRequest, Timestamp)> {
    let ready = |text: &str| {
        let line: Line<'_> = serde_json::from_str(text).unwrap();
        let expect: Expectation = serde_json::from_str(line.expect?.get()).unwrap();
        let now = Timestamp::from_second(line.now).unwrap();
        let provider = Provider::new(spec(&line), registry).ok().filter(|_| expect.verified)?;
        put_keys(&provider, &line, now).unwrap();
        let body = base64::engine::general_purpose::STANDARD.decode(&line.body_base64);
        let request = super::OwnedRequest {
            method: line.method.clone(),
            url: line.url.clone(),
            headers: line
                .headers
                .iter()
                .map(|(name, value)| (name.clone(), value.clone().into_bytes()))
                .collect(),
            body: body.unwrap(),
        };
        Some((line.case, provider, request, now))
    };
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .filter_map(ready)
        .collect()
}
