//! What one handler counts.

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

/// Handles taken once: looking a metric up costs more than a cheap handler.
pub(super) struct Metrics {
    pub(super) done: Counter,
    pub(super) retry: Counter,
    pub(super) dead: Counter,
    pub(super) released: Counter,
    pub(super) filtered: Counter,
    pub(super) postponed: Counter,
    /// Sent, and no answer came.
    pub(super) unknown: Counter,
    /// The store did not say what became of an effect of its own; the claim is left to its lease.
    pub(super) stale: Counter,
    pub(super) seconds: Histogram,
    pub(super) in_flight: Gauge,
}

impl Metrics {
    pub(super) fn new(handler: &str) -> Self {
        let attempts = |outcome: &'static str| counter!("cerca_attempts_total", "handler" => handler.to_owned(), "outcome" => outcome);
        Self {
            done: attempts("done"),
            retry: attempts("retry"),
            dead: attempts("dead"),
            released: attempts("released"),
            filtered: attempts("filtered"),
            postponed: attempts("postponed"),
            unknown: attempts("unknown"),
            stale: counter!("cerca_claims_stale_total", "handler" => handler.to_owned()),
            seconds: histogram!("cerca_attempt_seconds", "handler" => handler.to_owned()),
            in_flight: gauge!("cerca_attempts_in_flight", "handler" => handler.to_owned()),
        }
    }
}
