//! Which request headers are stored with an event: those that say what it is, never those that prove who sent it.

use actix_web::http::header::HeaderMap;

use crate::adapters::ADDED;

/// Headers that say something about the content and are sent by everyone.
const COMMON: [&str; 10] = [
    "content-type",
    "content-language",
    "user-agent",
    "accept",
    "accept-language",
    "date",
    "idempotency-key",
    "x-idempotency-key",
    "traceparent",
    "tracestate",
];

/// Prefixes of headers that belong to proxies, browsers and transport, whatever they carry.
const TRANSPORT: [&str; 8] = [
    "x-forwarded",
    "x-real-",
    "x-amzn-",
    "x-envoy",
    "x-original-",
    "x-csrf",
    "x-client-",
    "x-cluster-",
];

/// Words in a name that mean a credential or a proof.
const SECRET_WORDS: [&str; 13] = [
    "token",
    "secret",
    "signature",
    "key",
    "hmac",
    "digest",
    "auth",
    "password",
    "passwd",
    "credential",
    "cookie",
    "session",
    "jwt",
];

/// Bytes of a value that is kept; longer ones are left out, because such a header is no name, id or time.
const MAX_VALUE: usize = 2048;

/// Bytes of names and values that are kept in all.
const MAX_TOTAL: usize = 8 * 1024;

/// Whether the header `name` (lower case) may be stored. `proofs` are the headers that the adapter reads signatures or
/// tokens from, lower case.
///
/// Kept are [`COMMON`] and the sender's own: `x-…`, `webhook-…`, `svix-…`, `ce-…` and any other name with a hyphen
/// whose last words say id, event, topic, type, timestamp and the like. A name that could be a credential is dropped
/// first, whatever else it says; and what an adapter keeps of a batch is stored under names that no sender can use.
#[must_use]
pub(super) fn is_stored(name: &str, proofs: &[Box<str>]) -> bool {
    if proofs.iter().any(|proof| **proof == *name) || name.starts_with(ADDED) {
        return false;
    }
    if COMMON.contains(&name) {
        return true;
    }
    // The cheapest question first: few headers are the sender's own.
    is_senders_own(name) && !is_secret(name) && !is_transport(name)
}

/// Whether the name (lower case) means a credential or a proof.
pub(super) fn is_secret(name: &str) -> bool {
    SECRET_WORDS.iter().any(|word| name.contains(word)) || is_signed(name)
}

fn is_transport(name: &str) -> bool {
    name.starts_with("proxy-") || TRANSPORT.iter().any(|prefix| name.starts_with(prefix))
}

/// `sign` as a word (`x-sign`), but not in `x-design-id`.
fn is_signed(name: &str) -> bool {
    name.split(['-', '_', '.'])
        .any(|word| matches!(word, "sign" | "signed" | "sig"))
}

fn is_senders_own(name: &str) -> bool {
    const TELLING: [&str; 16] = [
        "id",
        "ids",
        "event",
        "events",
        "topic",
        "type",
        "action",
        "timestamp",
        "time",
        "version",
        "delivery",
        "attempt",
        "retry",
        "source",
        "resource",
        "kind",
    ];
    const PREFIXES: [&str; 4] = ["x-", "webhook-", "svix-", "ce-"];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || name
            .rsplit_once(['-', '_'])
            .is_some_and(|(_, last)| TELLING.contains(&last))
}

/// The stored headers as a JSON object of strings, sorted by name; the values of a repeated name are joined by
/// `, `. A value that is not UTF-8 is left out: the object is for people and handlers, the proof is over already.
#[must_use]
pub(super) fn to_json(headers: &HeaderMap, proofs: &[Box<str>]) -> String {
    let mut json = String::with_capacity(256);
    json.push('{');
    let mut total = 0;
    let mut names: Vec<&str> = headers.keys().map(|name| name.as_str()).collect();
    names.retain(|name| is_stored(name, proofs));
    names.sort_unstable();
    for name in names {
        let mut all = headers
            .get_all(name)
            .filter_map(|value| std::str::from_utf8(value.as_bytes()).ok());
        let Some(first) = all.next() else { continue };
        let rest: Vec<&str> = all.collect();
        let length = first.len() + rest.iter().map(|value| value.len() + 2).sum::<usize>();
        if length > MAX_VALUE || total + name.len() + length > MAX_TOTAL {
            continue;
        }
        total += name.len() + length;
        if json.len() > 1 {
            json.push(',');
        }
        push_string(&mut json, [name].into_iter());
        json.push(':');
        push_string(&mut json, std::iter::once(first).chain(rest));
    }
    json.push('}');
    json
}

/// Appends the parts, joined by `, `, as one JSON string.
fn push_string<'a>(json: &mut String, parts: impl Iterator<Item = &'a str>) {
    json.push('"');
    for (i, part) in parts.enumerate() {
        if i > 0 {
            json.push_str(", ");
        }
        for c in part.chars() {
            match c {
                '"' => json.push_str("\\\""),
                '\\' => json.push_str("\\\\"),
                // HTTP values hold no control characters but the tab.
                c if c.is_control() => json.push_str(&format!("\\u{:04x}", u32::from(c))),
                c => json.push(c),
            }
        }
    }
    json.push('"');
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn what_tells_is_stored_and_what_proves_is_not() {
        let proofs = ["x-odd-proof".into(), "x-event-id".into()];
        for name in [
            "content-type",
            "user-agent",
            "x-github-event",
            "x-github-delivery",
            "x-shopify-topic",
            "x-shopify-shop-domain",
            "webhook-id",
            "webhook-timestamp",
            "svix-id",
            "paypal-transmission-id",
            "paypal-transmission-time",
            "ce-type",
            "x-design-id",
            "x-request-id",
            "traceparent",
            "x-slack-request-timestamp",
            "idempotency-key",
        ] {
            assert!(is_stored(name, &proofs), "{name}");
        }
        for name in [
            "authorization",
            "proxy-authorization",
            "cookie",
            "set-cookie",
            "x-forwarded-for",
            "x-forwarded-host",
            "forwarded",
            "x-real-ip",
            "stripe-signature",
            "x-hub-signature-256",
            "webhook-signature",
            "asaas-access-token",
            "x-gitlab-token",
            "x-api-key",
            "apikey",
            "x-apikey",
            "x-wc-webhook-signature",
            "x-shopify-hmac-sha256",
            "x-auth-id",
            "x-password-id",
            "x-odd-proof",
            "x-event-id",
            "x-client-secret",
            "host",
            "connection",
            "via",
            "content-length",
            "transfer-encoding",
            "accept-encoding",
            "proxy-event-id",
            "x-session-id",
            "x-key-id",
            "x-sign",
            "x-monkey",
            "paypal-auth-algo",
            "digest",
            "signature-input",
            "x-csrf-id",
            "origin",
            "referer",
            "x-batch-realm-id",
        ] {
            assert!(!is_stored(name, &proofs), "{name}");
        }
    }

    #[test]
    fn stored_headers_are_valid_json_whatever_they_hold() {
        let mut headers = HeaderMap::new();
        let mut add = |name: &'static str, value: &[u8]| {
            headers.append(
                HeaderName::from_static(name),
                HeaderValue::from_bytes(value).expect("a header value"),
            );
        };
        add("x-topic", b"a \"quoted\" \\ tab\t");
        add("x-topic", "grüße".as_bytes());
        add("x-binary", b"\xff\xfe");
        add("x-long", "y".repeat(MAX_VALUE + 1).as_bytes());
        add("authorization", b"Bearer s3cret");
        let json: serde_json::Value = serde_json::from_str(&to_json(&headers, &[])).expect("valid JSON");
        assert_eq!(json, serde_json::json!({"x-topic": "a \"quoted\" \\ tab\t, grüße"}));
    }

    #[test]
    fn stored_headers_have_a_bounded_size() {
        let mut headers = HeaderMap::new();
        for i in 0..90 {
            let name = HeaderName::try_from(format!("x-h{i}")).expect("a name");
            headers.insert(name, HeaderValue::from_bytes(&[b'v'; 1000]).expect("a value"));
        }
        assert!(to_json(&headers, &[]).len() < MAX_TOTAL + 2048);
    }
}
