//! The metrics of the HTTP surface: their names, and the handles that the hot path keeps, registered once per provider
//! and not looked up per request. The recorder must be installed before a provider is registered.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};

use crate::{adapters::Sender, domain::OUTBOX, store::Accepted};

/// Events stored for the first time. Labels: `provider`.
pub const ACCEPTED: &str = "cerca_events_accepted_total";
/// Events that were there already. Labels: `provider`.
pub const DUPLICATES: &str = "cerca_events_duplicate_total";
/// Dead deliveries that got a new life because their sender sent the event again. Labels: `provider`.
pub const REVIVED: &str = "cerca_deliveries_revived_total";
/// Events whose id was there already with another body. Labels: `provider`.
pub const CONFLICTS: &str = "cerca_events_conflict_total";
/// Stored events that no handler wants. Labels: `provider`.
pub const UNROUTED: &str = "cerca_events_unrouted_total";
/// Ownership challenges answered. Labels: `provider`.
pub const HANDSHAKES: &str = "cerca_handshakes_total";
/// Verified requests. Labels: `provider`, `secret` (0 is the newest, as listed).
pub const SECRET_USED: &str = "cerca_secret_used_total";
/// Requests answered 4xx. Labels: `provider` (`unknown` where there is none), `reason`.
pub const REJECTED: &str = "cerca_requests_rejected_total";
/// Requests answered 503. Labels: `provider`, `cause`.
pub const UNAVAILABLE: &str = "cerca_requests_unavailable_total";
/// Seconds from the request's head to the commit of its events. Labels: `provider`.
pub const ACK_SECONDS: &str = "cerca_ack_seconds";
/// Refused requests that quarantine keeps.
pub const QUARANTINED: &str = "cerca_quarantined_total";
/// Refused requests that quarantine does not keep. Labels: `cause` (`over_rate`, `queue_full`, `store`).
pub const NOT_QUARANTINED: &str = "cerca_quarantine_dropped_total";
/// Bytes of request bodies in memory.
pub const BODY_BYTES: &str = "cerca_body_bytes_in_flight";

/// Calls of URLs that confirm subscriptions. Labels: `provider`, `outcome` (`confirmed`, `failed`, `given_up`).
pub const CONFIRMATIONS: &str = "cerca_confirmations_total";

/// How long the sender waits for an answer, where that is known. Labels: `provider`.
pub const SENDER_TIMEOUT: &str = "cerca_sender_timeout_seconds";
/// How long the sender tries one event, at least, where that is known; 0 where it does not try again. Labels: `provider`.
pub const SENDER_RETRIES: &str = "cerca_sender_retries_seconds";
/// How long the sender fails until it turns its webhook off, where that is known. Labels: `provider`.
pub const SENDER_DISABLES: &str = "cerca_sender_disables_seconds";
/// How often the sender fails until it turns its webhook off, where that is known. Labels: `provider`.
pub const SENDER_FAILURES: &str = "cerca_sender_disables_failures";

/// Events by status, read from the store at scrape. Labels: `status`.
pub const EVENTS: &str = "cerca_events";
/// Conflicts recorded, read from the store at scrape.
pub const CONFLICTS_STORED: &str = "cerca_conflicts";
/// Deliveries in the work list, read from the store at scrape. Labels: `handler`, `state`.
pub const DELIVERIES: &str = "cerca_deliveries";
/// Age of the oldest delivery that is due and not claimed, read from the store at scrape. Labels: `handler`.
pub const OLDEST_DUE_SECONDS: &str = "cerca_oldest_due_seconds";
/// Rows of the outbox, read from the store at scrape. Labels: `state` (`waiting`, `refused`).
pub const OUTBOX_ROWS: &str = "cerca_outbox_rows";
/// Age of the oldest row of the outbox that waits, read from the store at scrape.
pub const OUTBOX_OLDEST_SECONDS: &str = "cerca_outbox_oldest_seconds";
/// 1 while the store answers, read at scrape.
pub const STORE_UP: &str = "cerca_store_up";

/// Gives every metric of this module its help text. Call once, after the recorder is installed.
pub fn describe() {
    use metrics::{Unit, describe_counter as counter, describe_gauge as gauge, describe_histogram as histogram};
    counter!(ACCEPTED, "Events stored for the first time");
    counter!(DUPLICATES, "Events that were stored already");
    counter!(
        REVIVED,
        "Dead deliveries that got a new life because their event came again"
    );
    counter!(CONFLICTS, "Events whose id was stored already with another body");
    counter!(UNROUTED, "Stored events that no handler wants");
    counter!(HANDSHAKES, "Ownership challenges answered");
    counter!(
        SECRET_USED,
        "Verified requests by the secret that verified them, 0 is the newest"
    );
    counter!(REJECTED, "Requests answered 4xx, by reason");
    counter!(UNAVAILABLE, "Requests answered 503, by cause");
    counter!(CONFIRMATIONS, "Calls of URLs that confirm subscriptions, by outcome");
    counter!(QUARANTINED, "Refused requests that quarantine keeps");
    counter!(
        NOT_QUARANTINED,
        "Refused requests that quarantine does not keep, by cause"
    );
    histogram!(ACK_SECONDS, Unit::Seconds, "Time from request head to commit");
    gauge!(BODY_BYTES, Unit::Bytes, "Bytes of request bodies in memory");
    gauge!(SENDER_TIMEOUT, Unit::Seconds, "How long the sender waits for an answer");
    gauge!(SENDER_RETRIES, Unit::Seconds, "How long the sender tries one event");
    gauge!(
        SENDER_DISABLES,
        Unit::Seconds,
        "How long the sender fails until it turns its webhook off"
    );
    gauge!(
        SENDER_FAILURES,
        "How often the sender fails until it turns its webhook off"
    );
    gauge!(EVENTS, "Events by status");
    gauge!(CONFLICTS_STORED, "Conflicts recorded");
    gauge!(DELIVERIES, "Deliveries in the work list by handler and state");
    gauge!(
        OLDEST_DUE_SECONDS,
        Unit::Seconds,
        "Age of the oldest delivery that is due"
    );
    gauge!(OUTBOX_ROWS, "Rows of the outbox that wait, or were refused");
    gauge!(
        OUTBOX_OLDEST_SECONDS,
        Unit::Seconds,
        "Age of the oldest row of the outbox"
    );
    gauge!(STORE_UP, "1 while the store answers");
}

/// The handles of one provider.
#[derive(Clone)]
pub struct ProviderMetrics {
    pub accepted: Counter,
    pub duplicates: Counter,
    pub revived: Counter,
    pub conflicts: Counter,
    pub unrouted: Counter,
    pub handshakes: Counter,
    /// By secret, as listed.
    pub secrets: Box<[Counter]>,
    pub ack_seconds: Histogram,
}

impl ProviderMetrics {
    #[must_use]
    pub fn register(provider: &str, secrets: usize) -> Self {
        let provider = provider.to_owned();
        let used = |i: usize| metrics::counter!(SECRET_USED, "provider" => provider.clone(), "secret" => i.to_string());
        Self {
            secrets: (0..secrets).map(used).collect(),
            accepted: metrics::counter!(ACCEPTED, "provider" => provider.clone()),
            duplicates: metrics::counter!(DUPLICATES, "provider" => provider.clone()),
            revived: metrics::counter!(REVIVED, "provider" => provider.clone()),
            conflicts: metrics::counter!(CONFLICTS, "provider" => provider.clone()),
            unrouted: metrics::counter!(UNROUTED, "provider" => provider.clone()),
            handshakes: metrics::counter!(HANDSHAKES, "provider" => provider.clone()),
            ack_seconds: metrics::histogram!(ACK_SECONDS, "provider" => provider),
        }
    }
}

/// Tells what is known of how the provider's sender delivers, for rules that compare with it.
pub(super) fn tell_sender(provider: &str, sender: &Sender) {
    let seconds = |duration: Option<Duration>| duration.map(|duration| duration.as_secs_f64());
    for (name, value) in [
        (SENDER_TIMEOUT, seconds(sender.timeout)),
        (SENDER_RETRIES, seconds(sender.retries_for)),
        (SENDER_DISABLES, seconds(sender.disables_after)),
        (SENDER_FAILURES, sender.disables_failures.map(f64::from)),
    ] {
        if let Some(value) = value {
            metrics::gauge!(name, "provider" => provider.to_owned()).set(value);
        }
    }
}

/// Counts a request that was answered 4xx. Off the hot path, so it is looked up.
pub fn count_rejected(provider: &str, reason: &'static str) {
    metrics::counter!(REJECTED, "provider" => provider.to_owned(), "reason" => reason).increment(1);
}

/// Counts a request that was answered 503.
pub fn count_unavailable(provider: &str, cause: &'static str) {
    metrics::counter!(UNAVAILABLE, "provider" => provider.to_owned(), "cause" => cause).increment(1);
}

/// Counts a call of a URL that confirms a subscription.
pub fn count_confirmation(provider: &str, outcome: &'static str) {
    metrics::counter!(CONFIRMATIONS, "provider" => provider.to_owned(), "outcome" => outcome).increment(1);
}

/// Counts refused requests that are kept.
pub fn count_quarantined(count: u64) {
    metrics::counter!(QUARANTINED).increment(count);
}

/// Counts a refused request that is not kept.
pub fn count_quarantine(cause: &'static str) {
    metrics::counter!(NOT_QUARANTINED, "cause" => cause).increment(1);
}

/// The gauge of the bodies in memory.
pub fn body_bytes() -> Gauge {
    metrics::gauge!(BODY_BYTES)
}

/// Counts an event that was published through the API. Off the hot path, so it is looked up.
pub fn count_published(accepted: Accepted, is_routed: bool) {
    let name = match accepted {
        Accepted::Stored => ACCEPTED,
        Accepted::Duplicate => DUPLICATES,
        Accepted::Conflict => CONFLICTS,
    };
    metrics::counter!(name, "provider" => OUTBOX).increment(1);
    if accepted == Accepted::Stored && !is_routed {
        metrics::counter!(UNROUTED, "provider" => OUTBOX).increment(1);
    }
}
