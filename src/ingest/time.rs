//! Times as senders write them.

use std::iter;

use jiff::{Timestamp, civil::DateTime, fmt::rfc2822, tz::Offset};

use crate::adapters::TimeFormat;

/// At or above this, a number is milliseconds: as seconds it would lie in the year 5138.
const MILLISECONDS_FROM: i64 = 100_000_000_000;

static HTTP_DATE: rfc2822::DateTimeParser = rfc2822::DateTimeParser::new();
static HTTP_DATE_PRINTER: rfc2822::DateTimePrinter = rfc2822::DateTimePrinter::new();

/// Reads a signed time.
pub(crate) fn signed(text: &[u8], format: TimeFormat) -> Option<Timestamp> {
    let text = std::str::from_utf8(text).ok()?.trim();
    match format {
        TimeFormat::Unix => number(text, Unit::Seconds),
        TimeFormat::UnixMs => number(text, Unit::Milliseconds),
        TimeFormat::Auto => number(text, Unit::ByMagnitude),
        TimeFormat::Rfc3339 => text.parse().ok(),
        TimeFormat::Http => HTTP_DATE.parse_timestamp(text).ok(),
    }
}

/// Reads an event's own time: RFC 3339, date and time at `offset`, RFC 2822, or a number of either unit.
pub(crate) fn event(text: &[u8], offset: Offset) -> Option<Timestamp> {
    let text = std::str::from_utf8(text).ok()?.trim();
    number(text, Unit::ByMagnitude)
        .or_else(|| text.parse().ok())
        .or_else(|| {
            let civil: DateTime = text.parse().ok()?;
            offset.to_timestamp(civil).ok()
        })
        .or_else(|| HTTP_DATE.parse_timestamp(text).ok())
}

/// Writes a time the way [`signed`] reads it.
pub(crate) fn write(time: Timestamp, format: TimeFormat) -> String {
    match format {
        TimeFormat::Unix | TimeFormat::Auto => time.as_second().to_string(),
        TimeFormat::UnixMs => time.as_millisecond().to_string(),
        TimeFormat::Rfc3339 => time.to_string(),
        TimeFormat::Http => HTTP_DATE_PRINTER.timestamp_to_rfc9110_string(&time).unwrap_or_default(),
    }
}

#[derive(Clone, Copy)]
enum Unit {
    Seconds,
    Milliseconds,
    ByMagnitude,
}

/// Reads decimal digits with an optional fraction; no sign beyond `-`, no exponent.
fn number(text: &str, unit: Unit) -> Option<Timestamp> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !plain(whole) || !plain(fraction) {
        return None;
    }
    let whole: i64 = whole.parse().ok()?;
    let digits = fraction.bytes().chain(iter::repeat(b'0')).take(9);
    let nanos = digits.fold(0, |nanos, digit| nanos * 10 + i128::from(digit - b'0'));
    let milliseconds = match unit {
        Unit::Seconds => false,
        Unit::Milliseconds => true,
        Unit::ByMagnitude => whole >= MILLISECONDS_FROM,
    };
    let scale: i128 = if milliseconds { 1_000_000 } else { 1_000_000_000 };
    let total = i128::from(whole) * scale + nanos * scale / 1_000_000_000;
    Timestamp::from_nanosecond(if negative { -total } else { total }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_are_read() {
        let second = |text: &str| event(text.as_bytes(), Offset::UTC).map(Timestamp::as_second);
        assert_eq!(second("1767225600"), Some(1_767_225_600));
        assert_eq!(second("Thu, 01 Jan 2026 00:00:00 +0000"), Some(1_767_225_600));
        assert_eq!(second("Thu, 01 Jan 2026 00:00:00 GMT"), Some(1_767_225_600));
        assert_eq!(second("1767225600123"), Some(1_767_225_600));
        assert_eq!(second("1767225600.5"), Some(1_767_225_600));
        assert_eq!(second("2026-01-01T00:00:00Z"), Some(1_767_225_600));
        assert_eq!(second("2026-01-01T01:00:00+01:00"), Some(1_767_225_600));
        assert_eq!(second("2026-01-01 00:00:00"), Some(1_767_225_600));
        assert_eq!(second("-1"), Some(-1));
        let fraction = signed(b"1.000000001", TimeFormat::Unix).unwrap();
        assert_eq!(fraction.as_nanosecond(), 1_000_000_001);
        let fraction = |text: &str| signed(text.as_bytes(), TimeFormat::Unix).unwrap().as_nanosecond();
        assert_eq!(
            [fraction("1.5"), fraction("1.0000000019")],
            [1_500_000_000, 1_000_000_001]
        );
        assert_eq!(signed(b"1500", TimeFormat::UnixMs).unwrap().as_millisecond(), 1500);
    }

    #[test]
    fn nonsense_is_no_time() {
        for text in [
            "",
            "1e400",
            "99999999999999999999",
            "9223372036854775807",
            "--1",
            "1.",
            ".5",
            "NaN",
            "+1",
            "\u{661}",
            "2026-13-01",
        ] {
            assert_eq!(event(text.as_bytes(), Offset::UTC), None, "{text}");
        }
        assert_eq!(signed(b"\xff", TimeFormat::Auto), None);
    }
}
