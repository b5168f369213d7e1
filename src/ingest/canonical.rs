//! Canonical forms that single senders sign, and that no template gives.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use super::{form, url};
use crate::adapters::{Hash, hash};

/// What RFC 3986 leaves unescaped.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// What JavaScript's `encodeURIComponent` leaves unescaped.
const COMPONENT: &AsciiSet = &UNRESERVED
    .remove(b'!')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')');

/// Atlassian Connect: the hash, in hexadecimal, of `METHOD&path&query`, where the query is sorted and lacks `jwt`, and
/// the path is relative to the app's base URL.
pub(crate) fn qsh(method: &str, target: &str, base_url: Option<&[u8]>) -> Vec<u8> {
    let parts = url::parts(target);
    let base = base_url
        .and_then(|base| std::str::from_utf8(base).ok())
        .unwrap_or_default();
    let base = url::parts(base).path.trim_end_matches('/');
    let path = parts.path.strip_prefix(base).unwrap_or(parts.path);
    let path = match path.trim_end_matches('/') {
        "" => "/".to_owned(),
        path => path.replace('&', "%26"),
    };
    let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = form::pairs(parts.query.unwrap_or_default().as_bytes())
        .filter(|(name, _)| **name != *b"jwt")
        .map(|(name, value)| (escape(&name, UNRESERVED), escape(&value, UNRESERVED)))
        .collect();
    pairs.sort();
    let mut query: Vec<u8> = Vec::new();
    let mut last: Option<&[u8]> = None;
    for (name, value) in &pairs {
        if last == Some(name) {
            query.push(b',');
        } else {
            if last.is_some() {
                query.push(b'&');
            }
            query.extend_from_slice(name);
            query.push(b'=');
        }
        query.extend_from_slice(value);
        last = Some(name);
    }
    let mut text = format!("{}&{path}&", method.to_ascii_uppercase()).into_bytes();
    text.extend_from_slice(&query);
    hex::encode(hash(Hash::Sha256, &text).bytes()).into_bytes()
}

/// PHP's `serialize` of all form fields but one, sorted by name, each a string.
pub(crate) fn php(body: &[u8], except: &str) -> Vec<u8> {
    let mut pairs: Vec<form::Pair<'_>> = form::pairs(body)
        .filter(|(name, _)| **name != *except.as_bytes())
        .collect();
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    let mut out = format!("a:{}:{{", pairs.len()).into_bytes();
    for (name, value) in pairs {
        for text in [name, value] {
            out.extend_from_slice(format!("s:{}:\"", text.len()).as_bytes());
            out.extend_from_slice(&text);
            out.extend_from_slice(b"\";");
        }
    }
    out.push(b'}');
    out
}

/// Plivo: the URL with its query sorted, and the fields of a form, sorted, name and value without anything between. A
/// question mark stands there where there is a query or a form, a full stop where there is both.
pub(crate) fn plivo(target: &str, fields: Option<&[u8]>) -> Vec<u8> {
    let (base, query) = target.split_once('?').unwrap_or((target, ""));
    let mut query: Vec<form::Pair<'_>> = form::pairs(query.as_bytes()).collect();
    query.sort();
    let mut fields: Vec<form::Pair<'_>> = form::pairs(fields.unwrap_or_default()).collect();
    fields.sort();
    let mut out = base.as_bytes().to_vec();
    if !query.is_empty() || !fields.is_empty() {
        out.push(b'?');
    }
    for (index, (name, value)) in query.iter().enumerate() {
        if index > 0 {
            out.push(b'&');
        }
        out.extend_from_slice(name);
        out.push(b'=');
        out.extend_from_slice(value);
    }
    if !query.is_empty() && !fields.is_empty() {
        out.push(b'.');
    }
    for (name, value) in &fields {
        out.extend_from_slice(name);
        out.extend_from_slice(value);
    }
    out
}

/// A URL whose query was decoded and written again, as Node's `querystring` does.
pub(crate) fn requery(target: &[u8]) -> Vec<u8> {
    let Some(at) = target.iter().position(|byte| *byte == b'?') else {
        return target.to_vec();
    };
    let (base, query) = target.split_at(at + 1);
    let pairs: Vec<Vec<u8>> = form::pairs(query)
        .map(|(name, value)| [&escape(&name, COMPONENT)[..], b"=", &escape(&value, COMPONENT)].concat())
        .collect();
    [base, &pairs.join(&b'&')].concat()
}

fn escape(text: &[u8], set: &'static AsciiSet) -> Vec<u8> {
    percent_encode(text, set).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn php_counts_bytes() {
        assert_eq!(
            php("b=%C3%BC&p_signature=x&a=1".as_bytes(), "p_signature"),
            "a:2:{s:1:\"a\";s:1:\"1\";s:1:\"b\";s:2:\"ü\";}".as_bytes()
        );
    }

    #[test]
    fn plivo_glues_what_there_is() {
        let all = |url: &str, fields: Option<&[u8]>| String::from_utf8(plivo(url, fields)).unwrap();
        assert_eq!(all("https://h/p", None), "https://h/p");
        assert_eq!(all("https://h/p?b=2&a=1", None), "https://h/p?a=1&b=2");
        assert_eq!(all("https://h/p", Some(b"b=2&a=1")), "https://h/p?a1b2");
        assert_eq!(all("https://h/p?z=0", Some(b"b=2&a=1")), "https://h/p?z=0.a1b2");
    }

    #[test]
    fn a_query_is_canonical() {
        // The same request, its parameters in another order and the token among them.
        let one = qsh("post", "https://h/app/x/?b=2&a=1&a=0&jwt=t", Some(b"https://h/app"));
        assert_eq!(one, qsh("POST", "https://h/x?a=1&jwt=u&b=2&a=0", None));
        let text = hash(Hash::Sha256, b"POST&/x&a=0,1&b=2");
        assert_eq!(one, hex::encode(text.bytes()).into_bytes());
        assert_eq!(qsh("GET", "https://h", None), qsh("GET", "https://h/", None));
    }

    #[test]
    fn a_query_is_written_again() {
        assert_eq!(requery(b"https://h/p?a=%27x+y%27&b"), b"https://h/p?a='x%20y'&b=");
        assert_eq!(requery(b"https://h/p"), b"https://h/p");
    }
}
