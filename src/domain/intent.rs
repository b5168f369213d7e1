//! Events of our own: what an application, or a handler, wants told to the world. From a row of the outbox or a request
//! to publish to an event of the provider [`OUTBOX`].

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::NewEvent;

/// The provider of events of our own. No sender can be registered under this name.
pub const OUTBOX: &str = "outbox";

/// Longest key and topic in bytes. The key becomes the provider event id, the topic the event type.
pub const MAX_KEY_BYTES: usize = 2048;
pub const MAX_TOPIC_BYTES: usize = 1024;

/// Largest payload in bytes.
pub const MAX_INTENT_BYTES: usize = 32 << 20;

/// Headers that are never kept, whoever says them.
const NEVER: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "set-cookie"];

/// Something to publish.
#[derive(Debug, Clone)]
pub struct Intent {
    /// Names the event, for ever: a second one with the same key is a duplicate, or a conflict.
    pub idempotency_key: String,
    pub topic: String,
    pub payload: Bytes,
    /// `None`: by what the payload is.
    pub content_type: Option<String>,
    /// A JSON object, the values of which become text.
    pub headers: Option<String>,
    pub ordering_key: Option<String>,
    /// When it was written; orders the events of one ordering key.
    pub created_at: Timestamp,
}

impl Intent {
    /// The event, for the handlers named in `routes`.
    ///
    /// # Errors
    /// What no event can hold, in words for whoever wrote it.
    pub fn event(self, routes: Arc<str>) -> Result<NewEvent, String> {
        for (name, text, longest) in [
            ("idempotency_key", Some(&self.idempotency_key), MAX_KEY_BYTES),
            ("topic", Some(&self.topic), MAX_TOPIC_BYTES),
            ("ordering_key", self.ordering_key.as_ref(), MAX_KEY_BYTES),
            ("content_type", self.content_type.as_ref(), 256),
        ] {
            let Some(text) = text else { continue };
            if text.is_empty() || text.len() > longest {
                return Err(format!("`{name}` is {} bytes long, not 1 to {longest}", text.len()));
            }
            if text.contains('\0') {
                return Err(format!("`{name}` holds a NUL character"));
            }
        }
        if self.payload.len() > MAX_INTENT_BYTES {
            let size = self.payload.len();
            return Err(format!("`payload` is {size} bytes long, more than {MAX_INTENT_BYTES}"));
        }
        let headers = self.headers.as_deref().map(headers).transpose()?;
        let content_type = self
            .content_type
            .unwrap_or_else(|| content_type(&self.payload).to_owned());
        Ok(NewEvent {
            provider: OUTBOX.into(),
            provider_event_id: self.idempotency_key,
            event_type: Some(self.topic),
            body_sha256: Sha256::digest(&self.payload).into(),
            payload: self.payload,
            content_type: Some(content_type),
            headers: headers.unwrap_or_else(|| "{}".to_owned()),
            ordering_key: self.ordering_key,
            occurred_at: Some(self.created_at),
            routes,
        })
    }
}

/// Names in lower case, values as text, credentials left out.
fn headers(json: &str) -> Result<String, String> {
    let read: BTreeMap<String, Value> =
        serde_json::from_str(json).map_err(|error| format!("`headers` is not a JSON object: {error}"))?;
    let kept: BTreeMap<String, String> = read
        .into_iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .filter(|(name, _)| !NEVER.contains(&name.as_str()))
        .filter_map(|(name, value)| match value {
            Value::Null => None,
            Value::String(text) => Some((name, text)),
            other => Some((name, other.to_string())),
        })
        .collect();
    if kept
        .iter()
        .any(|(name, value)| name.contains('\0') || value.contains('\0'))
    {
        return Err("`headers` holds a NUL character".to_owned());
    }
    serde_json::to_string(&kept).map_err(|error| error.to_string())
}

fn content_type(payload: &[u8]) -> &'static str {
    if serde_json::from_slice::<serde::de::IgnoredAny>(payload).is_ok() {
        "application/json"
    } else if std::str::from_utf8(payload).is_ok() {
        "text/plain; charset=utf-8"
    } else {
        "application/octet-stream"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intent(payload: &'static [u8]) -> Intent {
        Intent {
            idempotency_key: "order-7".into(),
            topic: "order.paid".into(),
            payload: Bytes::from_static(payload),
            content_type: None,
            headers: None,
            ordering_key: None,
            created_at: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn an_intent_is_an_event_of_the_outbox() {
        for (payload, content_type) in [
            (&b"{\"id\": 7}"[..], "application/json"),
            (b"hello", "text/plain; charset=utf-8"),
            (b"\xff\x00", "application/octet-stream"),
        ] {
            let event = intent(payload).event("mail".into()).unwrap();
            assert_eq!((&*event.provider, &*event.provider_event_id), ("outbox", "order-7"));
            assert_eq!(event.event_type.as_deref(), Some("order.paid"));
            assert_eq!((&*event.payload, &*event.routes), (payload, "mail"));
            assert_eq!(event.content_type.as_deref(), Some(content_type));
            assert_eq!(event.occurred_at, Some(Timestamp::UNIX_EPOCH));
        }
    }

    #[test]
    fn headers_become_texts_and_credentials_are_left_out() {
        let mut wanted = intent(b"{}");
        wanted.headers = Some(r#"{"X-Trace":"a","X-Try":2,"Authorization":"Bearer x","x-none":null}"#.into());
        let event = wanted.event("".into()).unwrap();
        assert_eq!(event.headers, r#"{"x-trace":"a","x-try":"2"}"#);
    }

    #[test]
    fn what_no_event_can_hold_is_said() {
        let problem = |change: fn(&mut Intent)| {
            let mut intent = intent(b"{}");
            change(&mut intent);
            intent.event("".into()).unwrap_err()
        };
        assert!(problem(|i| i.idempotency_key.clear()).contains("`idempotency_key` is 0 bytes"));
        assert!(problem(|i| i.idempotency_key = "k".repeat(2049)).contains("`idempotency_key`"));
        assert!(problem(|i| i.topic = "a\0b".into()).contains("`topic` holds a NUL"));
        assert!(problem(|i| i.headers = Some("[1]".into())).contains("`headers`"));
        assert!(problem(|i| i.headers = Some("{\"a\":\"\\u0000\"}".into())).contains("`headers` holds a NUL"));
        assert!(problem(|i| i.payload = Bytes::from(vec![0; MAX_INTENT_BYTES + 1])).contains("`payload`"));
    }
}
