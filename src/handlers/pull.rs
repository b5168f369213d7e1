//! Deliveries that consumers take themselves: the token that stands for a claim outside of this process, and what a
//! consumer's word means for the delivery.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;

use crate::domain::{Claim, Outcome, RetryPolicy};

/// Characters of a consumer's words that the history keeps.
const DETAIL_CHARS: usize = 2_000;

/// Longest pause that a consumer may ask for.
const LONGEST_AFTER: Duration = Duration::from_secs(30 * 86_400);

/// A claim as its consumer names it: opaque, and good for one attempt of one delivery. The claim's own random number in it
/// is what the store compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullToken {
    pub event_id: i64,
    pub token: i64,
    pub attempt: u32,
    /// When it was taken, in whole microseconds.
    pub taken_at: Timestamp,
}

impl PullToken {
    #[must_use]
    pub fn new(claim: &Claim, now: Timestamp) -> Self {
        Self {
            event_id: claim.event.id,
            token: claim.token,
            attempt: claim.attempt,
            taken_at: Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now),
        }
    }

    #[must_use]
    pub fn write(&self) -> String {
        let mut bytes = [0; 28];
        bytes[..8].copy_from_slice(&self.event_id.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.token.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.attempt.to_be_bytes());
        bytes[20..].copy_from_slice(&self.taken_at.as_microsecond().to_be_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// `None` for what no pull ever gave.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let bytes: [u8; 28] = URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()?;
        let eight = |from: usize| <[u8; 8]>::try_from(&bytes[from..from + 8]).ok().map(i64::from_be_bytes);
        let attempt = <[u8; 4]>::try_from(&bytes[16..20]).ok().map(u32::from_be_bytes)?;
        Some(Self {
            event_id: eight(0)?,
            token: eight(8)?,
            // The database counts in 31 bits.
            attempt: (1..=i32::MAX.unsigned_abs()).contains(&attempt).then_some(attempt)?,
            taken_at: Timestamp::from_microsecond(eight(20)?).ok()?,
        })
    }
}

/// What a consumer says of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    Done,
    Retry,
    Dead,
}

/// The outcome of an attempt. `after` is the consumer's wish; without one the policy decides. Either way the last attempt
/// is the last. `random` is in `0.0..1.0`.
#[must_use]
pub fn judge(
    said: Said,
    after: Option<Duration>,
    detail: Option<&str>,
    attempt: u32,
    policy: &RetryPolicy,
    random: f64,
) -> Outcome {
    let error = cut(detail.unwrap_or(match said {
        Said::Done => "",
        Said::Retry => "the consumer asked for another try",
        Said::Dead => "the consumer gave up",
    }));
    match (said, policy.delay(attempt, random)) {
        (Said::Done, _) => Outcome::Done,
        (Said::Dead, _) | (Said::Retry, None) => Outcome::Dead { error },
        (Said::Retry, Some(delay)) => Outcome::Retry {
            after: after.map_or(delay, |after| after.min(LONGEST_AFTER)),
            error,
        },
    }
}

fn cut(detail: &str) -> String {
    detail
        .chars()
        .take(DETAIL_CHARS)
        .map(|c| if c == '\0' { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_and_nothing_else_is_one() {
        let claim = crate::handlers::testing::claim("evt_1", "{}");
        let now = "2026-01-02T03:04:05.123456789Z".parse().unwrap();
        let token = PullToken::new(&claim, now);
        assert_eq!(token.taken_at.as_nanosecond() % 1_000, 0);
        assert_eq!(PullToken::read(&token.write()), Some(token));
        let none = PullToken { attempt: 0, ..token };
        let long = format!("{}AA", token.write());
        for text in ["", "AAAA", "not base64!", &none.write(), &long, &"/".repeat(38)] {
            assert_eq!(PullToken::read(text), None, "{text}");
        }
    }

    #[test]
    fn the_consumer_or_the_policy_decides_until_attempts_run_out() {
        let policy = RetryPolicy {
            attempts: 2,
            base: Duration::from_secs(4),
            cap: Duration::from_secs(60),
        };
        let says = |said, after: Option<u64>, detail, attempt| {
            judge(said, after.map(Duration::from_secs), detail, attempt, &policy, 0.0)
        };
        let retry = |seconds, error: &str| Outcome::Retry {
            after: Duration::from_secs(seconds),
            error: error.into(),
        };
        let dead = |error: &str| Outcome::Dead { error: error.into() };
        assert_eq!(says(Said::Done, None, None, 9), Outcome::Done);
        assert_eq!(says(Said::Retry, None, Some("busy"), 1), retry(2, "busy"));
        assert_eq!(says(Said::Retry, Some(7), Some("busy"), 1), retry(7, "busy"));
        assert_eq!(
            says(Said::Retry, Some(0), None, 1),
            retry(0, "the consumer asked for another try")
        );
        assert_eq!(says(Said::Retry, Some(7), Some("a\0b"), 2), dead("a\u{fffd}b"));
        assert_eq!(says(Said::Dead, None, None, 1), dead("the consumer gave up"));
        let long = "é".repeat(5_000);
        let Outcome::Dead { error } = says(Said::Dead, None, Some(&long), 1) else {
            panic!("not dead")
        };
        assert_eq!(error.chars().count(), DETAIL_CHARS);
    }
}
