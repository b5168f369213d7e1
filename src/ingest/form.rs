//! `name=value` pairs of queries and form bodies, decoded to bytes: what is no UTF-8 stays as it was sent.

use std::borrow::Cow;

use percent_encoding::percent_decode;

/// A decoded pair.
pub(crate) type Pair<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// Whether a content type says that the body is a form.
pub(crate) fn is_form(content_type: &[u8]) -> bool {
    const FORM: &[u8] = b"application/x-www-form-urlencoded";
    let word = content_type.trim_ascii_start().get(..FORM.len());
    word.is_some_and(|word| word.eq_ignore_ascii_case(FORM))
}

/// The first value of a name in a form of either kind, by the content type.
pub(crate) fn field<'a>(content_type: &[u8], body: &'a [u8], name: &str) -> Option<Cow<'a, [u8]>> {
    match is_form(content_type) {
        true => first(body, name),
        false => super::multipart::field(content_type, body, name).map(Cow::Owned),
    }
}

/// All pairs, in the order sent.
pub(crate) fn pairs(text: &[u8]) -> impl Iterator<Item = Pair<'_>> {
    text.split(|byte| *byte == b'&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let at = pair.iter().position(|byte| *byte == b'=');
            let (name, value) = at.map_or((pair, &b""[..]), |at| (&pair[..at], &pair[at + 1..]));
            (decode(name), decode(value))
        })
}

/// The first value of a name.
pub(crate) fn first<'a>(text: &'a [u8], name: &str) -> Option<Cow<'a, [u8]>> {
    pairs(text)
        .find(|(key, _)| **key == *name.as_bytes())
        .map(|(_, value)| value)
}

/// All pairs sorted by name, then value; equal ones once; each name followed by its value.
pub(crate) fn sorted(text: &[u8]) -> Vec<u8> {
    let mut all: Vec<Pair<'_>> = pairs(text).collect();
    all.sort();
    all.dedup();
    let mut out = Vec::with_capacity(text.len());
    for (name, value) in all {
        out.extend_from_slice(&name);
        out.extend_from_slice(&value);
    }
    out
}

/// All pairs but those of some names, sorted by name, as `name=value` joined by `&`.
pub(crate) fn joined(text: &[u8], except: &[String]) -> Vec<u8> {
    let other = |(name, _): &Pair<'_>| except.iter().all(|except| except.as_bytes() != &**name);
    let mut all: Vec<Pair<'_>> = pairs(text).filter(other).collect();
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    let all: Vec<_> = all
        .into_iter()
        .map(|(name, value)| [&*name, b"=", &*value].concat())
        .collect();
    all.join(&b'&')
}

/// Decodes `+` and percent escapes; borrowed where there are none.
pub(crate) fn decode(text: &[u8]) -> Cow<'_, [u8]> {
    if text.contains(&b'+') {
        let spaced: Vec<u8> = text
            .iter()
            .map(|byte| if *byte == b'+' { b' ' } else { *byte })
            .collect();
        return Cow::Owned(percent_decode(&spaced).collect());
    }
    percent_decode(text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_decoded_to_bytes() {
        let text = b"a=1&b=%ff+%2B&&c&a=2&=x";
        assert_eq!(&*first(text, "a").unwrap(), b"1");
        assert_eq!(&*first(text, "b").unwrap(), b"\xff +");
        assert_eq!(&*first(text, "c").unwrap(), b"");
        assert_eq!(first(text, "d"), None);
        assert_eq!(
            joined(b"c=&b=%202&sign=x&a=1&b=1", &["sign".into()]),
            b"a=1&b= 2&b=1&c="
        );
        assert_eq!(sorted(b"b=2&a=%201&b=1&b=2"), b"a 1b1b2");
    }
}
