//! One form for all texts of the same JSON value: for comparing, not for reading.

use super::{JsonError, Scanner, text::unescape};

/// Deeper values are compared by their bytes; this bounds the stack.
const MAX_DEPTH: usize = 128;

/// Equal for two texts exactly when they say the same: the order of keys, spaces, escapes and the spelling of numbers
/// (`1`, `1.0`, `1e0`) do not matter, and no digit of any number is lost. `None` where the text is no JSON, where a key
/// occurs twice in an object (readers disagree on what that means), or where it is too deep.
pub(crate) fn canonical(text: &[u8]) -> Option<Vec<u8>> {
    let mut scanner = Scanner::new(text);
    let mut out = Vec::with_capacity(text.len() + text.len() / 8);
    value(&mut scanner, 0, &mut out).ok()?;
    scanner.space();
    (scanner.at == text.len()).then_some(out)
}

fn value(scanner: &mut Scanner<'_>, depth: usize, out: &mut Vec<u8>) -> Result<(), JsonError> {
    if depth > MAX_DEPTH {
        return scanner.fail("nesting too deep");
    }
    scanner.space();
    let start = scanner.at;
    match scanner.peek() {
        Some(b'{') => {
            let mut members: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            scanner.raw_object(|scanner, raw| {
                let (mut key, mut member) = (Vec::new(), Vec::new());
                string(raw, &mut key);
                value(scanner, depth + 1, &mut member)?;
                members.push((key, member));
                Ok(())
            })?;
            members.sort();
            if members.windows(2).any(|pair| pair[0].0 == pair[1].0) {
                return scanner.fail("a key occurs twice");
            }
            out.push(b'{');
            for (key, member) in members {
                out.extend_from_slice(&key);
                out.extend_from_slice(&member);
            }
            out.push(b'}');
        }
        Some(b'[') => {
            out.push(b'[');
            scanner.array(|scanner, _| value(scanner, depth + 1, out))?;
            out.push(b']');
        }
        Some(b'"') => {
            let range = scanner.string()?;
            string(&scanner.text[range], out);
        }
        Some(b'-' | b'0'..=b'9') => {
            scanner.number()?;
            number(&scanner.text[start..scanner.at], out);
        }
        _ => {
            scanner.skip(depth)?;
            out.extend_from_slice(&scanner.text[start..scanner.at]);
        }
    }
    Ok(())
}

/// With its length before it, so that no text can pass for two.
fn string(raw: &[u8], out: &mut Vec<u8>) {
    let text = unescape(raw);
    // A lone surrogate stays an escape, which a text of backslash and letters must not equal.
    let is_odd = raw.contains(&b'\\') && text.windows(2).any(|pair| pair == b"\\u");
    let (tag, text) = if is_odd { ('r', raw) } else { ('s', &*text) };
    out.extend_from_slice(format!("{tag}{}:", text.len()).as_bytes());
    out.extend_from_slice(text);
}

/// Sign, the digits without zeros at either end, and the power of ten of the last one.
fn number(text: &[u8], out: &mut Vec<u8>) {
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        text => (false, text),
    };
    let at = text.iter().position(|b| matches!(b, b'e' | b'E')).unwrap_or(text.len());
    let (mantissa, exponent) = (&text[..at], text.get(at + 1..).unwrap_or_default());
    let exponent = std::str::from_utf8(exponent).unwrap_or_default();
    let point = mantissa.iter().position(|b| *b == b'.').unwrap_or(mantissa.len());
    let mut digits: Vec<u8> = mantissa.iter().copied().filter(u8::is_ascii_digit).collect();
    let mut power = -i128::try_from(mantissa.len().saturating_sub(point + 1)).unwrap_or_default();
    while digits.last() == Some(&b'0') {
        digits.pop();
        power += 1;
    }
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    digits.drain(..zeros);
    let exponent: i128 = match exponent.trim_start_matches('+') {
        "" => 0,
        text => match text.parse() {
            Ok(number) => number,
            // A power that no machine can hold: the text stands for itself.
            Err(_) if !digits.is_empty() => {
                let sign = if negative { "-" } else { "" };
                out.extend_from_slice(format!("x{sign}").as_bytes());
                out.extend_from_slice(mantissa);
                out.extend_from_slice(format!("e{text};").as_bytes());
                return;
            }
            Err(_) => 0,
        },
    };
    out.push(b'n');
    if digits.is_empty() {
        out.extend_from_slice(b"0;");
        return;
    }
    if negative {
        out.push(b'-');
    }
    out.extend_from_slice(&digits);
    out.extend_from_slice(format!("e{};", power.saturating_add(exponent)).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(a: &str, b: &str) -> bool {
        let (a, b) = (canonical(a.as_bytes()), canonical(b.as_bytes()));
        a.is_some() && a == b
    }

    #[test]
    fn spelling_does_not_matter() {
        for (a, b) in [
            (
                r#"{"a":1,"b":[true,null]}"#,
                " {\n\"b\" : [ true , null ] , \"a\" : 1.0 } ",
            ),
            ("1", "1.0"),
            ("1", "1e0"),
            ("100", "1E+2"),
            ("0.05", "5e-2"),
            ("0", "-0.00e7"),
            ("120", "12e1"),
            (r#""A/\u00e9""#, "\"\\u0041\\/é\""),
            (r#""\ud83d\ude00""#, "\"😀\""),
            ("123456789012345678901234567890", "12345678901234567890123456789e1"),
        ] {
            assert!(same(a, b), "{a} {b}");
        }
    }

    #[test]
    fn what_differs_is_told_apart() {
        for (a, b) in [
            ("1", "-1"),
            ("1", "10"),
            ("1", "\"1\""),
            ("9007199254740992", "9007199254740993"),
            ("123456789012345678901234567890", "123456789012345678901234567891"),
            (
                "1e99999999999999999999999999999999999999999",
                "1e99999999999999999999999999999999999999998",
            ),
            (r#"["ab","c"]"#, r#"["a","bc"]"#),
            (r#"["as1:b"]"#, r#"["a","b"]"#),
            (r#"{"a":{"b":1}}"#, r#"{"a":{},"b":1}"#),
            ("[1,2]", "[2,1]"),
            ("[12]", "[1,2]"),
            ("null", "\"null\""),
            (r#""\ud800""#, r#""\\ud800""#),
            ("[]", "{}"),
        ] {
            assert!(!same(a, b), "{a} {b}");
        }
    }

    #[test]
    fn what_is_ambiguous_has_no_form() {
        for text in ["", "{", "1 2", "01", r#"{"a":1,"a":1}"#, r#"{"a":1,"\u0061":2}"#, "nul"] {
            assert_eq!(canonical(text.as_bytes()), None, "{text}");
        }
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        assert_eq!(canonical(deep.as_bytes()), None);
    }
}
