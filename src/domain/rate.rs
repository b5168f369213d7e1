//! Rates: how many of something in how long, and the bucket that keeps to it.

use std::{fmt, num::NonZero, sync::Mutex, time::Duration};

use serde::{Deserialize, Deserializer, de};

/// So many in each second, minute, hour or day: `100/s`, `600/m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    count: u32,
    unit: Unit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Second,
    Minute,
    Hour,
    Day,
}

impl Rate {
    /// Reads `100/s`, `600/m`, `5000/h` or `1/d`.
    ///
    /// # Errors
    /// Says what was expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let read = || {
            let (count, unit) = text.trim().split_once('/')?;
            let unit = match unit.trim() {
                "s" => Unit::Second,
                "m" => Unit::Minute,
                "h" => Unit::Hour,
                "d" => Unit::Day,
                _ => return None,
            };
            let count = count.trim();
            let count = count
                .bytes()
                .all(|b| b.is_ascii_digit())
                .then(|| count.parse().ok())??;
            (1..=1_000_000).contains(&count).then_some(Self { count, unit })
        };
        read().ok_or_else(|| {
            format!("`{text}` is not a rate such as 100/s, 600/m, 5000/h or 1/d, with a count from 1 to 1000000")
        })
    }

    /// The time from one to the next when they come evenly.
    #[must_use]
    pub fn interval(self) -> Duration {
        let unit = Duration::from_secs(match self.unit {
            Unit::Second => 1,
            Unit::Minute => 60,
            Unit::Hour => 3_600,
            Unit::Day => 86_400,
        });
        unit / self.count
    }

    /// How many may come at once after a pause: what one second brings, at least one.
    #[must_use]
    pub fn burst(self) -> u32 {
        let seconds = match self.unit {
            Unit::Second => 1,
            Unit::Minute => 60,
            Unit::Hour => 3_600,
            Unit::Day => 86_400,
        };
        (self.count / seconds).max(1)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            Unit::Second => "s",
            Unit::Minute => "m",
            Unit::Hour => "h",
            Unit::Day => "d",
        };
        write!(f, "{}/{unit}", self.count)
    }
}

/// A text, or a plain number, which is that many a second.
impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Rate;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a rate such as \"100/s\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Rate, E> {
                Rate::parse(text).map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, count: i64) -> Result<Rate, E> {
                Rate::parse(&format!("{count}/s")).map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, count: u64) -> Result<Rate, E> {
                self.visit_i64(i64::try_from(count).unwrap_or(i64::MAX))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// So many a second: `100/s`, or `100` alone. What reprocessing goes by.
///
/// # Errors
/// Says what was expected.
pub fn per_second(text: &str) -> Result<NonZero<u32>, String> {
    let count = text.strip_suffix("/s").unwrap_or(text).trim();
    let digits = !count.is_empty() && count.bytes().all(|b| b.is_ascii_digit());
    let count = digits.then(|| count.parse().ok()).flatten();
    count.ok_or_else(|| format!("`{text}` is not a rate such as 100/s"))
}

/// A token bucket: full at first, filled evenly, empty after a burst.
#[derive(Debug)]
pub struct Bucket {
    interval: Duration,
    /// How far the next token may lie ahead: a burst less one.
    slack: Duration,
    /// When the bucket is full again, since the caller's beginning of time.
    full_at: Mutex<Duration>,
}

impl Bucket {
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Self {
            interval: rate.interval(),
            slack: rate.interval() * (rate.burst() - 1),
            full_at: Mutex::default(),
        }
    }

    /// Takes a token. `now` counts from any fixed instant.
    ///
    /// # Errors
    /// How long to wait for the next token.
    pub fn take(&self, now: Duration) -> Result<(), Duration> {
        // A panic while this lock is held leaves no half-done change behind.
        let mut full_at = self.full_at.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let from = (*full_at).max(now);
        match (from - now).checked_sub(self.slack) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => {
                *full_at = from + self.interval;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_written() {
        for text in ["100/s", "600/m", "1/h", "1000000/d"] {
            assert_eq!(Rate::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "100",
            "0/s",
            "-1/s",
            "+1/s",
            "1.5/s",
            "1/w",
            "1/",
            "/s",
            "1000001/s",
            "99999999999/s",
        ] {
            let error = Rate::parse(text).unwrap_err();
            assert!(error.contains("is not a rate such as 100/s"), "{text}: {error}");
        }
    }

    #[test]
    fn numbers_in_a_file_are_by_the_second() {
        #[derive(Deserialize)]
        struct File {
            rate: Rate,
        }
        let read = |text: &str| toml::from_str::<File>(&format!("rate = {text}")).map(|file| file.rate.to_string());
        assert_eq!(read("50").unwrap(), "50/s");
        assert_eq!(read("\"50/m\"").unwrap(), "50/m");
        for wrong in ["0", "-5", "1.5", "true", "\"fast\""] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_by_the_second_are_read() {
        assert_eq!(per_second("100/s").map(NonZero::get), Ok(100));
        assert_eq!(per_second("7").map(NonZero::get), Ok(7));
        for wrong in ["0/s", "0", "", "/s", "1.5/s", "-1", "+1", "100/m", "99999999999/s"] {
            assert!(per_second(wrong).unwrap_err().contains("not a rate"), "{wrong}");
        }
    }

    #[test]
    fn a_bucket_gives_a_burst_and_then_keeps_to_the_rate() {
        let bucket = Bucket::new(Rate::parse("10/s").unwrap());
        let at = |millis| Duration::from_millis(millis);
        for _ in 0..10 {
            assert_eq!(bucket.take(at(5_000)), Ok(()));
        }
        assert_eq!(bucket.take(at(5_000)), Err(at(100)));
        assert_eq!(bucket.take(at(5_040)), Err(at(60)));
        assert_eq!(bucket.take(at(5_100)), Ok(()));
        assert_eq!(bucket.take(at(5_100)), Err(at(100)));
        // After a long pause there is one burst, not the tokens of the whole pause.
        let given = (0..100).filter(|_| bucket.take(at(3_600_000)).is_ok()).count();
        assert_eq!(given, 10);
    }

    #[test]
    fn a_slow_rate_gives_one_at_a_time() {
        let bucket = Bucket::new(Rate::parse("6/m").unwrap());
        assert_eq!(bucket.take(Duration::ZERO), Ok(()));
        assert_eq!(bucket.take(Duration::from_secs(4)), Err(Duration::from_secs(6)));
        assert_eq!(bucket.take(Duration::from_secs(10)), Ok(()));
    }
}
