//! What a loop does while the store is away: go on, ever more slowly, and say so once.

use std::time::Duration;

use crate::store::StoreError;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

pub(super) struct Outage {
    /// What cannot be done, for the log.
    what: &'static str,
    failures: u32,
}

impl Outage {
    pub(super) fn new(what: &'static str) -> Self {
        Self { what, failures: 0 }
    }

    /// How long to wait before the next try.
    pub(super) fn failed(&mut self, error: &StoreError) -> Duration {
        if self.failures == 0 {
            tracing::error!(%error, "the worker cannot {}; it tries until it can", self.what);
        }
        let full = FIRST.saturating_mul(1 << self.failures.min(10)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        full.mul_f64(0.5 + rand::random::<f64>() / 2.0)
    }

    pub(super) fn over(&mut self) {
        if self.failures > 0 {
            tracing::info!(tries = self.failures, "the worker can {} again", self.what);
            self.failures = 0;
        }
    }
}
