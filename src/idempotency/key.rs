//! The `Idempotency-Key` header, whose request it names, and whose key it is. Pure.

use std::{fmt::Write as _, sync::Arc};

use sha2::{Digest as _, Sha256};

use crate::json;

/// Longest key, in characters.
pub const MAX_KEY: usize = 255;

/// Why a key is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("Idempotency-Key is sent more than once")]
    Repeated,
    #[error("Idempotency-Key is empty")]
    Empty,
    #[error("Idempotency-Key is longer than 255 characters")]
    TooLong,
    #[error("Idempotency-Key holds a character that is not printable ASCII")]
    Unprintable,
    #[error("Idempotency-Key begins with a quote and is no quoted string (RFC 8941, section 3.3.3)")]
    Unquoted,
}

/// Reads the values of the header: bare, or as the quoted string of draft-ietf-httpapi-idempotency-key-header. Both
/// spellings are one key. `None`: the header is not sent.
///
/// # Errors
/// What is wrong with it.
pub fn parse_key<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Result<Option<Arc<str>>, KeyError> {
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(KeyError::Repeated);
    }
    let value = value.trim_ascii();
    let key = match value.strip_prefix(b"\"") {
        Some(rest) => quoted(rest)?,
        None => value.to_vec(),
    };
    if key.is_empty() {
        return Err(KeyError::Empty);
    }
    if key.iter().any(|byte| !matches!(byte, b' '..=b'~')) {
        return Err(KeyError::Unprintable);
    }
    if key.len() > MAX_KEY {
        return Err(KeyError::TooLong);
    }
    let key = String::from_utf8(key).map_err(|_| KeyError::Unprintable)?;
    Ok(Some(key.into()))
}

/// What follows the opening quote: the text, the closing quote, and parameters, which are ignored as the RFC wants.
fn quoted(rest: &[u8]) -> Result<Vec<u8>, KeyError> {
    let mut key = Vec::with_capacity(rest.len());
    let mut bytes = rest.iter();
    loop {
        match bytes.next() {
            Some(b'"') => break,
            Some(b'\\') => match bytes.next() {
                Some(escaped @ (b'"' | b'\\')) => key.push(*escaped),
                _ => return Err(KeyError::Unquoted),
            },
            Some(byte) => key.push(*byte),
            None => return Err(KeyError::Unquoted),
        }
    }
    match bytes.as_slice().trim_ascii() {
        [] | [b';', ..] => Ok(key),
        _ => Err(KeyError::Unquoted),
    }
}

/// The scope of a principal: its SHA-256, so that a credential that names it is not stored. `kind` keeps principals of
/// different kinds apart.
#[must_use]
pub fn scope(kind: &str, principal: &[u8]) -> Arc<str> {
    let mut hash = Sha256::new();
    hash.update(kind.as_bytes());
    hash.update([0]);
    hash.update(principal);
    let mut text = String::with_capacity(64);
    for byte in hash.finalize() {
        let _ = write!(text, "{byte:02x}");
    }
    text.into()
}

/// What makes two requests under one key the same: path, query, and body. JSON is compared by what it says, anything
/// else (also JSON that readers may take in different ways) by its bytes.
#[must_use]
pub fn request_hash(target: &str, content_type: Option<&[u8]>, body: &[u8]) -> [u8; 32] {
    let canonical = content_type
        .filter(|text| is_json(text))
        .and_then(|_| json::canonical(body));
    let (tag, body) = match &canonical {
        Some(canonical) => (b"json", canonical.as_slice()),
        None => (b"byte", body),
    };
    let mut hash = Sha256::new();
    hash.update((target.len() as u64).to_be_bytes());
    hash.update(target.as_bytes());
    hash.update(tag);
    hash.update(body);
    hash.finalize().into()
}

/// `application/json`, or anything that ends in `+json`, whatever its parameters.
fn is_json(content_type: &[u8]) -> bool {
    let end = content_type
        .iter()
        .position(|byte| *byte == b';')
        .unwrap_or(content_type.len());
    let media = content_type[..end].trim_ascii().to_ascii_lowercase();
    media == b"application/json" || media.ends_with(b"+json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(value: &str) -> Result<Option<Arc<str>>, KeyError> {
        parse_key(std::iter::once(value.as_bytes()))
    }

    #[test]
    fn bare_and_quoted_are_one_key() {
        for value in ["8e03-a", "\"8e03-a\"", "  \"8e03-a\"; v=1 "] {
            assert_eq!(key(value).unwrap().as_deref(), Some("8e03-a"), "{value}");
        }
        assert_eq!(key(r#""a\"b\\c d""#).unwrap().as_deref(), Some(r#"a"b\c d"#));
        assert_eq!(key(&"k".repeat(255)).unwrap().unwrap().len(), 255);
        assert_eq!(parse_key(std::iter::empty()), Ok(None));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for (value, error) in [
            ("", KeyError::Empty),
            ("\"\"", KeyError::Empty),
            ("\"open", KeyError::Unquoted),
            ("\"a\" b", KeyError::Unquoted),
            ("\"a\\x\"", KeyError::Unquoted),
            ("grüße", KeyError::Unprintable),
            ("a\tb", KeyError::Unprintable),
            (&*"k".repeat(256), KeyError::TooLong),
        ] {
            assert_eq!(key(value), Err(error), "{value}");
        }
        assert_eq!(parse_key([&b"a"[..], b"a"].into_iter()), Err(KeyError::Repeated));
    }

    #[test]
    fn a_request_is_its_target_and_what_its_body_says() {
        let json = Some(&b"application/json; charset=utf-8"[..]);
        let hash = |body: &str| request_hash("/orders", json, body.as_bytes());
        assert_eq!(hash(r#"{"a":1,"b":2}"#), hash(r#"{"b":2.0, "a":1e0}"#));
        assert_ne!(hash(r#"{"a":1}"#), hash(r#"{"a":2}"#));
        assert_ne!(hash("1"), request_hash("/orders?x=1", json, b"1"));
        let plain = |body: &[u8]| request_hash("/orders", Some(b"text/plain"), body);
        assert_ne!(plain(b"1"), plain(b"1.0"));
        // A key that occurs twice: only the same bytes are the same request.
        assert_ne!(hash(r#"{"a":1,"a":2}"#), hash(r#"{"a":1, "a":2}"#));
        assert_eq!(hash(r#"{"a":1,"a":2}"#), hash(r#"{"a":1,"a":2}"#));
    }

    #[test]
    fn principals_of_two_kinds_never_meet() {
        assert_ne!(scope("header:x", b"1"), scope("jwt:sub", b"1"));
        assert_eq!(scope("jwt:sub", b"1").len(), 64);
    }
}
