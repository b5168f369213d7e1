//! Text of strangers, made fit to be read: no character that hides, reorders or moves others, and not too long. The
//! templates escape it for HTML.

use std::fmt::Write as _;

use jiff::Timestamp;

/// At most this many characters, with what cannot be seen written out.
pub(super) fn visible(text: &str, most: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(most * 2));
    let mut characters = text.chars();
    for c in characters.by_ref().take(most) {
        push(&mut shown, c);
    }
    let rest = characters.count();
    if rest > 0 {
        let _ = write!(shown, "… ({rest} more)");
    }
    shown
}

/// The same for many lines: line feeds and tabs stay.
pub(super) fn visible_lines(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            c => push(&mut shown, c),
        }
    }
    shown
}

fn push(shown: &mut String, c: char) {
    match c {
        '\n' => shown.push_str("\\n"),
        '\r' => shown.push_str("\\r"),
        '\t' => shown.push_str("\\t"),
        c if hides(c) => {
            let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
        }
        c => shown.push(c),
    }
}

/// Controls, marks of direction, joiners, spaces of no width, tags, and code points that mean nothing to anybody.
fn hides(c: char) -> bool {
    c.is_control()
        || matches!(u32::from(c),
            0xad | 0x34f | 0x61c | 0x115f | 0x1160 | 0x17b4 | 0x17b5 | 0x180b..=0x180f
            | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0x3164 | 0xfe00..=0xfe0f | 0xfeff | 0xffa0
            | 0xfff0..=0xfffb | 0xfffe | 0xffff | 0xe000..=0xf8ff | 0xe0000..=0xe0fff | 0xf0000..=0x10_ffff)
}

/// How long ago, in one unit.
fn ago(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second() - at.as_second();
    match seconds {
        ..0 => format!("in {}", span(seconds.unsigned_abs())),
        0..5 => "just now".to_owned(),
        _ => format!("{} ago", span(seconds.unsigned_abs())),
    }
}

/// A time in its largest unit.
pub(super) fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// What templates call with `|`.
pub(super) mod filters {
    #![allow(unreachable_pub, reason = "what `filter_fn` makes of a function is public")]

    use std::fmt::Display;

    use askama::{Result, Values, filter_fn};
    use jiff::Timestamp;
    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

    /// Text of strangers in one line.
    #[filter_fn]
    pub(in super::super) fn show(text: impl Display, _: &dyn Values, #[optional(200)] most: usize) -> Result<String> {
        Ok(super::visible(&text.to_string(), most))
    }

    /// For a place in a query.
    #[filter_fn]
    pub(in super::super) fn query(text: impl Display, _: &dyn Values) -> Result<String> {
        Ok(utf8_percent_encode(&text.to_string(), NON_ALPHANUMERIC).to_string())
    }

    /// A time to the second, in UTC.
    #[filter_fn]
    pub(in super::super) fn when(at: impl Display, _: &dyn Values) -> Result<String> {
        let text = at.to_string();
        Ok(match text.parse::<Timestamp>() {
            Ok(at) => at.strftime("%Y-%m-%d %H:%M:%S").to_string(),
            Err(_) => super::visible(&text, 40),
        })
    }

    /// How long ago it is.
    #[filter_fn]
    pub(in super::super) fn ago(at: impl Display, _: &dyn Values) -> Result<String> {
        let text = at.to_string();
        Ok(match text.parse::<Timestamp>() {
            Ok(at) => super::ago(at, Timestamp::now()),
            Err(_) => super::visible(&text, 40),
        })
    }

    /// A number with its thousands apart.
    #[filter_fn]
    pub(in super::super) fn number(number: impl Display, _: &dyn Values) -> Result<String> {
        let digits = number.to_string();
        let mut text = String::with_capacity(digits.len() * 4 / 3);
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                text.push('\u{202f}');
            }
            text.push(digit);
        }
        Ok(text)
    }

    /// Bytes, roughly.
    #[filter_fn]
    pub(in super::super) fn size(bytes: impl Display, _: &dyn Values) -> Result<String> {
        let bytes: u64 = bytes.to_string().parse().unwrap_or(0);
        Ok(match bytes {
            0..10_240 => format!("{bytes} bytes"),
            10_240..10_485_760 => format!("{} KiB", bytes >> 10),
            _ => format!("{} MiB", bytes >> 20),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_written_out() {
        assert_eq!(visible("evt_1 é 😀 שלום", 50), "evt_1 é 😀 שלום");
        assert_eq!(
            visible("a\u{202e}b\u{200b}\0\r\n\t\u{7f}", 50),
            "a\\u{202e}b\\u{200b}\\u{0}\\r\\n\\t\\u{7f}"
        );
        assert_eq!(visible(&"x".repeat(10_000), 5), "xxxxx… (9995 more)");
        assert_eq!(visible("\u{feff}\u{2066}\u{e0041}", 3), "\\u{feff}\\u{2066}\\u{e0041}");
        assert_eq!(visible_lines("a\r\nb\tc\u{1b}[31m"), "a\\r\nb\tc\\u{1b}[31m");
    }

    #[test]
    fn ages_are_in_their_largest_unit() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        for (at, text) in [
            ("2026-01-02T00:00:00Z", "just now"),
            ("2026-01-01T23:59:00Z", "60 s ago"),
            ("2026-01-01T23:00:00Z", "60 min ago"),
            ("2026-01-01T00:00:00Z", "24 h ago"),
            ("2025-12-01T00:00:00Z", "32 d ago"),
            ("2026-01-02T00:05:00Z", "in 5 min"),
        ] {
            assert_eq!(ago(at.parse().unwrap(), now), text);
        }
    }
}
