//! When a failed delivery is tried again, or that it is not.

use std::time::Duration;

/// Exponential backoff: `base`, twice that, and so on up to `cap`, each times a random 0.5 to 1.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts in total, the first included.
    pub attempts: u32,
    pub base: Duration,
    pub cap: Duration,
}

impl RetryPolicy {
    /// How long to wait after attempt number `attempt` (from 1) failed, or `None` when it was the last.
    /// `random` is in `0.0..1.0`: the jitter keeps deliveries that failed together from coming back together.
    #[must_use]
    pub fn delay(&self, attempt: u32, random: f64) -> Option<Duration> {
        if attempt >= self.attempts {
            return None;
        }
        let doublings = attempt.saturating_sub(1).min(31);
        let full = self.base.saturating_mul(1 << doublings).min(self.cap);
        Some(full.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0))
    }
}

impl Default for RetryPolicy {
    /// 15 attempts over about four hours and a half.
    fn default() -> Self {
        Self {
            attempts: 15,
            base: Duration::from_secs(2),
            cap: Duration::from_secs(3600),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_cap_and_end() {
        let policy = RetryPolicy {
            attempts: 4,
            base: Duration::from_secs(2),
            cap: Duration::from_secs(5),
        };
        let full: Vec<_> = (1..=4).map(|n| policy.delay(n, 1.0)).collect();
        let secs = |s| Some(Duration::from_secs(s));
        assert_eq!(full, [secs(2), secs(4), secs(5), None]);
        assert_eq!(policy.delay(1, 0.0), secs(1));
        assert_eq!(policy.delay(u32::MAX, 0.5), None);
    }
}
