//! The text of JSON values, decoded where it has escapes and borrowed where it has none.

use std::borrow::Cow;

/// A JSON value as expressions see it: a string is decoded, `null` is no value, anything else is its exact text.
/// A lone surrogate stays the escape that was sent, since no text can hold it.
pub(crate) fn value(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    match text {
        b"null" => None,
        [b'"', inner @ .., b'"'] => Some(unescape(inner)),
        other => Some(Cow::Borrowed(other)),
    }
}

/// Decodes the inside of a valid JSON string.
pub(crate) fn unescape(inner: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = inner.iter().position(|b| *b == b'\\') else {
        return Cow::Borrowed(inner);
    };
    let mut out = Vec::with_capacity(inner.len());
    out.extend_from_slice(&inner[..first]);
    let mut rest = &inner[first..];
    while let [byte, tail @ ..] = rest {
        rest = tail;
        if *byte != b'\\' {
            out.push(*byte);
            continue;
        }
        let [escape, tail @ ..] = rest else { break };
        rest = tail;
        match escape {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'u' => rest = unescape_unicode(rest, &mut out),
            other => out.push(*other),
        }
    }
    Cow::Owned(out)
}

/// Decodes what follows `\u`, with its second half where it is a surrogate pair, and gives what is left.
fn unescape_unicode<'a>(rest: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
    let Some(unit) = hex4(rest) else { return rest };
    let mut after = &rest[4..];
    let mut code = unit;
    if let (0xD800..0xDC00, Some(low)) = (unit, after.strip_prefix(b"\\u").and_then(hex4))
        && (0xDC00..0xE000).contains(&low)
    {
        code = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
        after = &after[6..];
    }
    match char::from_u32(code) {
        Some(c) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        None => {
            out.extend_from_slice(b"\\u");
            out.extend_from_slice(&rest[..4]);
        }
    }
    after
}

/// The number that four hex digits write.
pub(crate) fn hex4(text: &[u8]) -> Option<u32> {
    let digits = text.get(..4)?;
    digits
        .iter()
        .try_fold(0, |value, digit| Some(value << 4 | char::from(*digit).to_digit(16)?))
}
