//! An event as one JSON text: what exec programs read, and what `format = "json"` and `format = "cloudevents"` send.

use std::borrow::Cow;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Normalizers, Outgoing, encode, idempotency_key, normalized};
use crate::ingest::Normalized;

/// An event with its payload.
#[derive(Serialize)]
struct Envelope<'a> {
    id: i64,
    provider: &'a str,
    provider_event_id: &'a str,
    event_type: Option<&'a str>,
    content_type: Option<&'a str>,
    ordering_key: Option<&'a str>,
    occurred_at: Option<jiff::Timestamp>,
    created_at: jiff::Timestamp,
    headers: Option<&'a RawValue>,
    handler: &'a str,
    /// Left out where a repetition must be the same text.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    /// As in the header and the variable: percent-encoded where a header could not hold it.
    idempotency_key: &'a str,
    /// The exact text of the payload where it is JSON, so that numbers keep their digits; else null.
    payload: Option<&'a RawValue>,
    payload_base64: String,
    /// What it says in common words, where its adapter knows.
    normalized: Option<Normalized>,
}

/// # Errors
/// What cannot be written as JSON.
pub(super) fn envelope(
    outgoing: &Outgoing<'_>,
    normalizers: &Normalizers,
    attempt: Option<u32>,
) -> Result<Vec<u8>, serde_json::Error> {
    let (claim, event) = (outgoing.claim, &outgoing.claim.event);
    serde_json::to_vec(&Envelope {
        id: event.id,
        provider: &event.provider,
        provider_event_id: &event.provider_event_id,
        event_type: event.event_type.as_deref(),
        content_type: outgoing.content_type,
        ordering_key: event.ordering_key.as_deref(),
        occurred_at: event.occurred_at,
        created_at: event.created_at,
        headers: serde_json::from_str(&event.headers).ok(),
        handler: &claim.handler,
        attempt,
        idempotency_key: &encode(&idempotency_key(claim)),
        payload: serde_json::from_slice(&outgoing.body).ok(),
        payload_base64: BASE64_STANDARD.encode(&outgoing.body),
        normalized: normalized::read(normalizers, claim),
    })
}

/// `CloudEvents` 1.0, structured mode
/// (<https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md>, read 2026-11-30).
#[derive(Serialize)]
struct CloudEvent<'a> {
    specversion: &'static str,
    id: Cow<'a, str>,
    source: String,
    #[serde(rename = "type")]
    event_type: Cow<'a, str>,
    time: jiff::Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<Cow<'a, str>>,
    /// An extension of ours.
    idempotencykey: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    datacontenttype: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_base64: Option<String>,
}

/// Source and id together name the event, as the specification asks; the ordering key is the subject.
///
/// # Errors
/// What cannot be written as JSON.
pub(super) fn cloud_event(outgoing: &Outgoing<'_>) -> Result<Vec<u8>, serde_json::Error> {
    let (claim, event) = (outgoing.claim, &outgoing.claim.event);
    let data: Option<&RawValue> = serde_json::from_slice(&outgoing.body).ok();
    serde_json::to_vec(&CloudEvent {
        specversion: "1.0",
        id: text(&event.provider_event_id),
        source: format!("/webhooks/{}", event.provider),
        // It must not be empty.
        event_type: match event.event_type.as_deref().filter(|name| !name.is_empty()) {
            Some(name) => text(name),
            None => text(&event.provider),
        },
        time: event.occurred_at.unwrap_or(event.created_at),
        subject: event.ordering_key.as_deref().filter(|key| !key.is_empty()).map(text),
        idempotencykey: &encode(&idempotency_key(claim)),
        datacontenttype: match (outgoing.content_type, data) {
            (Some(name), _) => Some(name),
            (None, Some(_)) => Some("application/json"),
            (None, None) => None,
        },
        data_base64: data.is_none().then(|| BASE64_STANDARD.encode(&outgoing.body)),
        data,
    })
}

/// The specification's strings have no control characters and no noncharacters.
fn text(text: &str) -> Cow<'_, str> {
    let is_refused = |c: char| {
        c.is_control() || matches!(u32::from(c) & 0xffff, 0xfffe | 0xffff) || ('\u{fdd0}'..='\u{fdef}').contains(&c)
    };
    match text.contains(is_refused) {
        true => encode(text),
        false => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use serde_json::json;

    use super::*;
    use crate::{domain::Claim, handlers::testing::claim};

    fn cloud(claim: &Claim) -> serde_json::Value {
        serde_json::from_slice(&cloud_event(&Outgoing::raw(claim)).unwrap()).unwrap()
    }

    #[test]
    fn a_cloud_event_names_the_event_and_carries_json_as_it_is() {
        let mut claim = claim("evt_1", "{\"n\": 12345678901234567890.10}");
        Arc::make_mut(&mut claim.event).ordering_key = Some("cus_1".into());
        assert_eq!(
            String::from_utf8(cloud_event(&Outgoing::raw(&claim)).unwrap()).unwrap(),
            concat!(
                r#"{"specversion":"1.0","id":"evt_1","source":"/webhooks/stripe","type":"invoice.paid","#,
                r#""time":"2026-01-02T03:04:05Z","subject":"cus_1","idempotencykey":"stripe:evt_1:h","#,
                r#""datacontenttype":"application/json","data":{"n": 12345678901234567890.10}}"#
            )
        );
    }

    #[test]
    fn what_is_not_json_is_base64_and_strange_names_are_encoded() {
        let mut claim = claim("a\nb", &b"\xff\0"[..]);
        let event = Arc::make_mut(&mut claim.event);
        (event.event_type, event.occurred_at, event.content_type) = (None, None, None);
        let value = cloud(&claim);
        assert_eq!(
            value,
            json!({"specversion": "1.0", "id": "a%0Ab", "source": "/webhooks/stripe", "type": "stripe",
                "time": "2026-01-02T03:04:06.5Z", "idempotencykey": "stripe:a%0Ab:h", "data_base64": "/wA="})
        );
    }

    #[test]
    fn an_envelope_is_the_same_in_every_try_unless_the_attempt_is_asked_for() {
        let mut claim = claim("a b", "{\"n\": 1.00}");
        let text = |claim: &Claim, attempt| {
            let outgoing = Outgoing::new(claim, Bytes::from("{\"n\": 1.00}"), Some("application/json"));
            String::from_utf8(envelope(&outgoing, &Normalizers::default(), attempt).unwrap()).unwrap()
        };
        let first = text(&claim, None);
        claim.attempt += 1;
        assert_eq!(text(&claim, None), first);
        assert!(text(&claim, Some(3)).contains(r#""attempt":3"#));
        assert!(
            first.contains(r#""payload":{"n": 1.00}"#) && first.contains(r#""idempotency_key":"stripe:a%20b:h""#),
            "{first}"
        );
    }
}
