//! What every broker is given of an event: what `transform` and `format` made of it, or the exact bytes, and the same headers
//! that the http handler sends.

use std::collections::BTreeMap;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use crate::{
    domain::Claim,
    handlers::{Outgoing, encode, http::may_travel, idempotency_key},
};

/// Longer names and values of a sender's headers stay behind: brokers have limits, and 8 KiB is the usual one of HTTP.
const LONGEST_VALUE: usize = 8 << 10;
const LONGEST_NAME: usize = 200;

/// One event as a message. Names and values are visible ASCII and spaces.
pub(super) struct Message<'a> {
    pub(super) payload: &'a Bytes,
    pub(super) content_type: Option<String>,
    /// Percent-encoded where an id holds what a header cannot.
    pub(super) key: String,
    /// Ours, `Content-Type` and `Idempotency-Key` among them.
    pub(super) headers: Vec<(&'static str, String)>,
}

impl<'a> Message<'a> {
    pub(super) fn new(outgoing: &'a Outgoing<'_>) -> Self {
        let claim = outgoing.claim;
        let event = &claim.event;
        let key = encode(&idempotency_key(claim)).into_owned();
        let content_type = outgoing.content_type.map(printable);
        let mut headers = vec![
            ("Idempotency-Key", key.clone()),
            ("Cerca-Event-Id", encode(&event.provider_event_id).into_owned()),
            ("Cerca-Provider", encode(&event.provider).into_owned()),
            ("Cerca-Attempt", claim.attempt.to_string()),
        ];
        if let Some(event_type) = &event.event_type {
            headers.push(("Cerca-Event-Type", encode(event_type).into_owned()));
        }
        if let Some(content_type) = &content_type {
            headers.push(("Content-Type", content_type.clone()));
        }
        Self {
            payload: &outgoing.body,
            content_type,
            key,
            headers,
        }
    }

    /// SHA-256 of the idempotency key as 64 hex digits, where a broker limits how long a key may be.
    pub(super) fn hashed_key(&self) -> String {
        hash(&self.key)
    }
}

/// SHA-256 as 64 hex digits.
pub(super) fn hash(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}

/// The sender's headers that may travel on, in small letters.
pub(super) fn of_sender(claim: &Claim) -> BTreeMap<String, String> {
    let stored: BTreeMap<String, String> = serde_json::from_str(&claim.event.headers).unwrap_or_default();
    stored
        .into_iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .filter(|(name, value)| {
            let ours = name.starts_with("cerca-") || name.starts_with("nats-") || name == "idempotency-key";
            may_travel(name) && !ours && is_name(name) && value.len() <= LONGEST_VALUE && is_printable(value)
        })
        .collect()
}

fn is_name(name: &str) -> bool {
    let good = |c: u8| c.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&c);
    !name.is_empty() && name.len() <= LONGEST_NAME && name.bytes().all(good)
}

fn is_printable(text: &str) -> bool {
    text.bytes().all(|c| matches!(c, b' '..=b'~'))
}

fn printable(text: &str) -> String {
    if is_printable(text) {
        text.to_owned()
    } else {
        encode(text).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::handlers::testing::claim;

    #[test]
    fn ids_become_what_a_header_can_hold() {
        let mut claim = claim("a b\r\nc\u{e9}%", &b"\xff\0"[..]);
        Arc::make_mut(&mut claim.event).content_type = Some("text/plain\r\nX: y".into());
        let outgoing = Outgoing::raw(&claim);
        let message = Message::new(&outgoing);
        assert_eq!(&message.payload[..], b"\xff\0");
        assert_eq!(message.key, "stripe:a%20b%0D%0Ac%C3%A9%25:h");
        assert_eq!(message.content_type.as_deref(), Some("text/plain%0D%0AX:%20y"));
        assert_eq!(message.hashed_key().len(), 64);
        let named = |name| {
            message
                .headers
                .iter()
                .find(|(n, _)| *n == name)
                .map(|(_, v)| v.as_str())
        };
        assert_eq!(named("Cerca-Attempt"), Some("2"));
        assert_eq!(named("Cerca-Event-Type"), Some("invoice.paid"));
        assert_eq!(named("Idempotency-Key"), Some(&*message.key));
    }

    #[test]
    fn what_was_made_of_the_payload_is_sent_in_its_place() {
        let claim = claim("evt_1", &b"received"[..]);
        let outgoing = Outgoing::new(
            &claim,
            Bytes::from_static(b"made"),
            Some("application/cloudevents+json"),
        );
        let message = Message::new(&outgoing);
        assert_eq!(&message.payload[..], b"made");
        assert_eq!(message.content_type.as_deref(), Some("application/cloudevents+json"));
        let said = message.headers.iter().find(|(name, _)| *name == "Content-Type");
        assert_eq!(said.map(|(_, value)| &**value), Some("application/cloudevents+json"));
    }

    #[test]
    fn only_harmless_headers_travel() {
        let mut claim = claim("evt_1", &b""[..]);
        Arc::make_mut(&mut claim.event).headers =
            r#"{"X-Trace":"a","authorization":"s","Nats-Msg-Id":"x","cerca-attempt":"9",
            "idempotency-key":"x","bad name":"x","x-line":"a\nb","cookie":"c","content-type":"t"}"#
                .into();
        let names: Vec<_> = of_sender(&claim).into_keys().collect();
        assert_eq!(names, ["x-trace"]);
    }
}
