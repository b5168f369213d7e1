//! Durations (`250ms 30s 5m 2h 30d`) and sizes (`512B 64KiB 1MiB 1GiB`) as people write them.

use std::time::Duration;

/// Reads a duration such as `250ms`, `30s`, `5m`, `2h` or `30d`.
///
/// # Errors
/// Says what was expected.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(format!("`{text}` is not a duration such as 250ms, 30s, 5m, 2h or 30d")),
    };
    number
        .and_then(|n| n.checked_mul(millis))
        .map(Duration::from_millis)
        .ok_or_else(|| format!("`{text}` is not a duration such as 250ms, 30s, 5m, 2h or 30d"))
}

/// Writes a duration in the largest unit that keeps it whole.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)] {
        if millis > 0 && millis.is_multiple_of(size) {
            return format!("{}{unit}", millis / size);
        }
    }
    format!("{millis}ms")
}

/// Reads a size in bytes such as `512B`, `64KiB`, `1MiB` or `1GiB`.
///
/// # Errors
/// Says what was expected.
pub fn parse_size(text: &str) -> Result<usize, String> {
    let (number, unit) = split(text);
    let factor = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(format!("`{text}` is not a size such as 64KiB or 1MiB")),
    };
    number
        .and_then(|n| n.checked_mul(factor))
        .and_then(|n| usize::try_from(n).ok())
        .ok_or_else(|| format!("`{text}` is not a size such as 64KiB or 1MiB"))
}

/// Writes a size in the largest unit that keeps it whole.
#[must_use]
pub fn format_size(bytes: usize) -> String {
    for (unit, size) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes > 0 && bytes.is_multiple_of(size) {
            return format!("{}{unit}", bytes / size);
        }
    }
    format!("{bytes}B")
}

fn split(text: &str) -> (Option<u64>, &str) {
    let text = text.trim();
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    (text[..end].parse().ok(), text[end..].trim_start())
}

/// `#[serde(with = "crate::units::duration")]`
pub mod duration {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    /// # Errors
    /// Says what was expected.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        super::parse_duration(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }

    /// # Errors
    /// Only the serializer's own.
    pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::format_duration(*value))
    }
}

/// `#[serde(with = "crate::units::size")]`
pub mod size {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    /// # Errors
    /// Says what was expected.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
        super::parse_size(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }

    /// # Errors
    /// Only the serializer's own.
    pub fn serialize<S: Serializer>(value: &usize, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::format_size(*value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read_and_written() {
        for text in ["250ms", "30s", "5m", "2h", "30d"] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
        for text in ["512B", "64KiB", "1MiB", "2GiB"] {
            assert_eq!(format_size(parse_size(text).unwrap()), text);
        }
        for text in ["", "5", "m", "-5s", "5 weeks", "99999999999999999999d", "1e3s"] {
            assert!(parse_duration(text).is_err(), "{text}");
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
