//! What a handler makes of a payload before its effect: `when` decides whether it wants the event, `transform` makes another
//! payload, `format` wraps it. Worked out for each attempt, never at ingest.

use std::sync::Arc;

use bytes::Bytes;
use jaq_json::Val;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    Failure, FormFields, HandlerSpec, Normalizers, Outgoing, envelope,
    jq::{self, Jq, Pace},
    normalized,
};
use crate::{
    domain::{Claim, StoredEvent},
    ingest::form,
};

/// Variables of every filter: the event without its payload, and what it says in common words.
const VARIABLES: [&str; 2] = ["$event", "$normalized"];
const JSON: &str = "application/json";

/// How the payload is wrapped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Not at all.
    #[default]
    Raw,
    /// In an object with what is known of the event.
    Json,
    /// As a `CloudEvent` in structured mode.
    CloudEvents,
}

/// The `when`, `transform` and `format` of one handler.
pub struct Shape {
    filters: Option<Arc<Filters>>,
    pace: Arc<Pace>,
    format: Format,
    normalizers: Arc<Normalizers>,
}

/// What became of a payload.
pub enum Shaped<'a> {
    Send(Outgoing<'a>),
    /// The handler does not want the event; the text says what the filter gave.
    Filtered(String),
}

struct Filters {
    when: Option<Jq>,
    transform: Option<Jq>,
    form_fields: Arc<FormFields>,
    normalizers: Arc<Normalizers>,
}

/// What the filters gave.
enum Given {
    /// The payload is not wanted.
    Nothing(&'static str),
    /// It is wanted as it is.
    Same,
    Other(Vec<u8>),
}

impl Shape {
    /// `None` where a handler asks for nothing.
    ///
    /// # Errors
    /// A filter that cannot be compiled, with its key and place.
    pub(super) fn new(
        spec: &HandlerSpec,
        form_fields: &Arc<FormFields>,
        normalizers: &Arc<Normalizers>,
    ) -> Result<Option<Self>, String> {
        let compile = |key, code: &Option<String>| {
            let compiled = code.as_deref().map(|code| Jq::compile(key, code, &VARIABLES));
            compiled.transpose()
        };
        let when = compile("when", &spec.when)?;
        let transform = compile("transform", &spec.transform)?;
        let filters = (when.is_some() || transform.is_some()).then(|| {
            Arc::new(Filters {
                when,
                transform,
                form_fields: form_fields.clone(),
                normalizers: normalizers.clone(),
            })
        });
        let format = spec.format.unwrap_or_default();
        Ok((filters.is_some() || format != Format::Raw).then(|| Self {
            filters,
            pace: Arc::default(),
            format,
            normalizers: normalizers.clone(),
        }))
    }

    /// The payload that this handler is to be given.
    ///
    /// # Errors
    /// A payload that is not JSON stays so, and is given up. A filter that fails or never ends can be put right in the
    /// configuration, so it is tried by the policy.
    pub async fn apply<'a>(&self, claim: &'a Claim) -> Result<Shaped<'a>, Failure> {
        let mut outgoing = Outgoing::raw(claim);
        if let Some(filters) = &self.filters {
            let (filters, its_claim) = (filters.clone(), claim.clone());
            let given = jq::run_apart(&self.pace, move || filters.run(&its_claim)).await;
            let unrun = || Err(Failure::Retry("the filter could not be run".into()));
            match given.unwrap_or_else(unrun)? {
                Given::Nothing(value) => return Ok(Shaped::Filtered(format!("`when` gave {value}"))),
                Given::Same => {}
                Given::Other(text) => outgoing = Outgoing::new(claim, text.into(), Some(JSON)),
            }
        }
        let unwritable = |error| Failure::Retry(format!("the event cannot be written as JSON: {error}"));
        let (text, content_type) = match self.format {
            Format::Raw => return Ok(Shaped::Send(outgoing)),
            Format::Json => (envelope::envelope(&outgoing, &self.normalizers, None), JSON),
            Format::CloudEvents => (envelope::cloud_event(&outgoing), "application/cloudevents+json"),
        };
        let body = Bytes::from(text.map_err(unwritable)?);
        Ok(Shaped::Send(Outgoing::new(claim, body, Some(content_type))))
    }
}

impl Filters {
    fn run(&self, claim: &Claim) -> Result<Given, Failure> {
        let event = &claim.event;
        let field = self.form_fields.get(&*event.provider);
        let text =
            field.and_then(|field| form::field(event.content_type.as_deref()?.as_bytes(), &event.payload, field));
        let text = text.as_deref().unwrap_or(&event.payload);
        let payload = jq::read(text).map_err(|error| Failure::GiveUp(format!("the body is not JSON: {error}")))?;
        let variables = vec![
            about(event).map_err(Failure::Retry)?,
            self.normalized(claim).map_err(Failure::Retry)?,
        ];
        if let Some(when) = &self.when {
            match when.run(payload.clone(), variables.clone()).map_err(Failure::Retry)? {
                Val::Null => return Ok(Given::Nothing("null")),
                Val::Bool(false) => return Ok(Given::Nothing("false")),
                _ => {}
            }
        }
        match &self.transform {
            None => Ok(Given::Same),
            Some(transform) => {
                let made = transform.run(payload, variables).map_err(Failure::Retry)?;
                let text = jq::write(&made).map_err(|error| Failure::Retry(format!("`transform` failed: {error}")))?;
                Ok(Given::Other(text))
            }
        }
    }

    fn normalized(&self, claim: &Claim) -> Result<Val, String> {
        match normalized::read(&self.normalizers, claim) {
            Some(normalized) => value(&normalized),
            None => Ok(Val::Null),
        }
    }
}

/// `$event`.
#[derive(Serialize)]
struct About<'a> {
    id: i64,
    provider: &'a str,
    provider_event_id: &'a str,
    event_type: Option<&'a str>,
    content_type: Option<&'a str>,
    ordering_key: Option<&'a str>,
    occurred_at: Option<jiff::Timestamp>,
    created_at: jiff::Timestamp,
    headers: Option<&'a RawValue>,
}

fn about(event: &StoredEvent) -> Result<Val, String> {
    value(&About {
        id: event.id,
        provider: &event.provider,
        provider_event_id: &event.provider_event_id,
        event_type: event.event_type.as_deref(),
        content_type: event.content_type.as_deref(),
        ordering_key: event.ordering_key.as_deref(),
        occurred_at: event.occurred_at,
        created_at: event.created_at,
        headers: serde_json::from_str(&event.headers).ok(),
    })
}

fn value(known: &impl Serialize) -> Result<Val, String> {
    let text = serde_json::to_vec(known).map_err(|error| error.to_string())?;
    jq::read(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::testing::claim;

    async fn shaped(keys: &str, payload: &'static [u8]) -> Result<Result<String, String>, Failure> {
        let spec = format!("name = \"h\"\nevents = [\"*\"]\nkind = \"http\"\n{keys}");
        let spec: HandlerSpec = toml::from_str(&spec).unwrap();
        let shape = Shape::new(&spec, &Arc::default(), &Arc::default()).unwrap().unwrap();
        let claim = claim("evt_1", payload);
        shape.apply(&claim).await.map(|shaped| match shaped {
            Shaped::Filtered(why) => Err(why),
            Shaped::Send(outgoing) => Ok(format!(
                "{} {}",
                outgoing.content_type.unwrap_or("-"),
                String::from_utf8_lossy(&outgoing.body)
            )),
        })
    }

    #[tokio::test]
    async fn a_filter_decides_and_a_transform_makes_another_payload() {
        let body = br#"{"id": 7, "amount": 10.50}"#;
        let text = |text: &str| Ok(Ok(text.to_owned()));
        let filtered = |text: &str| Ok(Err(text.to_owned()));
        for (keys, expected) in [
            (
                "when = '.amount > 10'",
                text(r#"application/json {"id": 7, "amount": 10.50}"#),
            ),
            ("when = '.amount > 11'", filtered("`when` gave false")),
            ("when = '.missing'", filtered("`when` gave null")),
            (
                "when = '$event.provider == \"stripe\" and $normalized == null and .id'",
                text(r#"application/json {"id": 7, "amount": 10.50}"#),
            ),
            (
                "transform = '{amount, type: $event.event_type}'",
                text(r#"application/json {"amount":10.50,"type":"invoice.paid"}"#),
            ),
            (
                "when = '.id == 8'\ntransform = '.nope.nope[]'",
                filtered("`when` gave false"),
            ),
        ] {
            assert_eq!(shaped(keys, body).await, expected, "{keys}");
        }
        let wrapped = shaped("transform = '.id'\nformat = 'cloudevents'", body)
            .await
            .unwrap()
            .unwrap();
        assert!(
            wrapped.starts_with("application/cloudevents+json {\"specversion\":\"1.0\"")
                && wrapped.ends_with(",\"data\":7}"),
            "{wrapped}"
        );
        let wrapped = shaped("format = 'json'", b"\xff").await.unwrap().unwrap();
        assert!(wrapped.starts_with("application/json {\"id\":7,"), "{wrapped}");
        assert!(
            wrapped.contains(r#""payload":null,"payload_base64":"/w==""#),
            "{wrapped}"
        );
    }

    #[tokio::test]
    async fn what_cannot_be_filtered_is_a_failed_attempt() {
        for (keys, payload, expected) in [
            ("when = '.id'", &b"\xff not json"[..], "the body is not JSON: "),
            (
                "when = '.id, .id'",
                &b"{}"[..],
                "`when` failed: it gives several values",
            ),
            (
                "when = '.a.b'",
                &b"{\"a\":[\"hush\"]}"[..],
                "`when` failed: cannot index ",
            ),
            (
                "transform = 'empty'",
                &b"{}"[..],
                "`transform` failed: it gives nothing",
            ),
            (
                "transform = 'nan'",
                &b"{}"[..],
                "`transform` failed: it gives what is not JSON",
            ),
        ] {
            let (error, is_final) = match shaped(keys, payload).await {
                Err(Failure::Retry(error)) => (error, false),
                Err(Failure::GiveUp(error)) => (error, true),
                other => panic!("{keys} should fail: {other:?}"),
            };
            assert_eq!(is_final, error.starts_with("the body is not JSON"), "{keys}: {error}");
            assert!(
                error.starts_with(expected) && !error.contains("hush"),
                "{keys}: {error}"
            );
        }
    }

    #[test]
    fn a_wrong_filter_is_found_at_the_start() {
        let spec: HandlerSpec =
            toml::from_str("name = \"h\"\nevents = [\"*\"]\nkind = \"log\"\nwhen = '.a ='").unwrap();
        let error = Shape::new(&spec, &Arc::default(), &Arc::default()).err().unwrap();
        assert!(error.starts_with("`when`: line 1, column 5: "), "{error}");
    }
}
