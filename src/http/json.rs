//! Events, pages and counts as JSON: one form for the API and the command line. The order of the fields is part of it.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::{
    adapters::Normalize,
    domain::{Attempt, Delivery},
    handlers::BreakerState,
    ingest::{Normalized, Original},
    store::{EventDetail, EventRow, HandlerStats, Page, Received, Stats, Step},
};

/// An event. Lists leave `attempts` out.
#[derive(Debug, Serialize)]
pub struct EventJson<'a> {
    pub id: i64,
    pub provider: &'a str,
    /// `null` when the provider is not registered any more.
    pub adapter: Option<String>,
    pub provider_event_id: &'a str,
    pub event_type: Option<&'a str>,
    pub status: &'static str,
    pub occurred_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub processed_at: Option<Timestamp>,
    pub ordering_key: Option<&'a str>,
    pub content_type: Option<&'a str>,
    /// Bytes of the payload as received.
    pub size: u64,
    pub body_sha256: String,
    pub conflicts: u64,
    pub deliveries: Vec<DeliveryJson<'a>>,
    /// Handlers whose `when` did not want it; left out where there is none.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub filtered: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<Vec<AttemptJson<'a>>>,
    /// What native handlers have recorded, in that order; absent where there is nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepJson<'a>>,
    /// What the event says in common words; `null` where its adapter has none, absent from lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normalized: Option<Option<Normalized>>,
}

#[derive(Debug, Serialize)]
pub struct DeliveryJson<'a> {
    pub handler: &'a str,
    pub state: &'static str,
    pub attempts: u32,
    pub run_at: Option<Timestamp>,
    pub last_error: Option<&'a str>,
}

#[derive(Debug, Serialize)]
pub struct AttemptJson<'a> {
    pub handler: &'a str,
    pub attempt: u32,
    pub started_at: Timestamp,
    pub duration_ms: u64,
    pub outcome: &'static str,
    pub detail: Option<&'a str>,
}

/// A step that a native handler has done.
#[derive(Debug, Serialize)]
pub struct StepJson<'a> {
    pub handler: &'a str,
    pub step: &'a str,
    /// Number of the attempt that did it.
    pub attempt: u32,
    pub recorded_at: Timestamp,
    /// As it was recorded.
    pub result: Option<&'a RawValue>,
}

impl<'a> From<&'a Step> for StepJson<'a> {
    fn from(step: &'a Step) -> Self {
        Self {
            handler: &step.handler,
            step: &step.name,
            attempt: step.attempt,
            recorded_at: step.recorded_at,
            result: serde_json::from_str(&step.result).ok(),
        }
    }
}

impl<'a> EventJson<'a> {
    /// An event as lists show it. `adapter` is that of its provider.
    #[must_use]
    pub fn row(event: &'a EventRow, adapter: Option<&str>) -> Self {
        Self {
            id: event.id,
            provider: &event.provider,
            adapter: adapter.map(str::to_owned),
            provider_event_id: &event.provider_event_id,
            event_type: event.event_type.as_deref(),
            status: event.status.as_str(),
            occurred_at: event.occurred_at,
            created_at: event.created_at,
            processed_at: event.processed_at,
            ordering_key: event.ordering_key.as_deref(),
            content_type: event.content_type.as_deref(),
            size: event.size,
            body_sha256: hex::encode(event.body_sha256),
            conflicts: event.conflicts,
            deliveries: event.deliveries.iter().map(DeliveryJson::from).collect(),
            filtered: &event.filtered,
            attempts: None,
            steps: Vec::new(),
            normalized: None,
        }
    }

    /// An event with its history.
    #[must_use]
    pub fn detail(detail: &'a EventDetail, adapter: Option<&str>, normalized: Option<Normalized>) -> Self {
        Self {
            normalized: Some(normalized),
            attempts: Some(detail.attempts.iter().map(AttemptJson::from).collect()),
            steps: detail.steps.iter().map(StepJson::from).collect(),
            ..Self::row(&detail.event, adapter)
        }
    }
}

/// What a stored event says in common words. `None` also once retention has removed its bytes.
#[must_use]
pub fn normalized(normalize: &Normalize, event: &EventRow, received: &Received) -> Option<Normalized> {
    normalize.read(Original {
        event_type: event.event_type.as_deref(),
        content_type: received.content_type.as_deref(),
        headers: received.headers.as_deref().unwrap_or_default(),
        payload: received.bytes.as_deref()?,
        occurred_at: event.occurred_at,
    })
}

impl<'a> From<&'a Delivery> for DeliveryJson<'a> {
    fn from(delivery: &'a Delivery) -> Self {
        Self {
            handler: &delivery.handler,
            state: delivery.state.as_str(),
            attempts: delivery.attempts,
            run_at: delivery.run_at,
            last_error: delivery.last_error.as_deref(),
        }
    }
}

impl<'a> From<&'a Attempt> for AttemptJson<'a> {
    fn from(attempt: &'a Attempt) -> Self {
        Self {
            handler: &attempt.handler,
            attempt: attempt.attempt,
            started_at: attempt.started_at,
            duration_ms: attempt.duration_ms,
            outcome: attempt.outcome.as_str(),
            detail: attempt.detail.as_deref(),
        }
    }
}

/// `{"events":[…],"next":"cursor or null"}`
#[derive(Debug, Serialize)]
pub struct PageJson<'a> {
    pub events: Vec<EventJson<'a>>,
    pub next: Option<String>,
}

impl<'a> PageJson<'a> {
    /// `adapter` gives the adapter of a provider.
    pub fn new(page: &'a Page, adapter: impl Fn(&str) -> Option<String>) -> Self {
        Self {
            events: page
                .events
                .iter()
                .map(|event| EventJson::row(event, adapter(&event.provider).as_deref()))
                .collect(),
            next: page.next.map(super::query::write_cursor),
        }
    }
}

/// Counts for people and programs.
#[derive(Debug, Serialize)]
pub struct StatsJson<'a> {
    pub events: u64,
    pub pending: u64,
    pub failed: u64,
    pub unrouted: u64,
    pub discarded: u64,
    pub conflicts: u64,
    pub handlers: Vec<HandlerStatsJson<'a>>,
    pub providers: Vec<ProviderStatsJson<'a>>,
}

#[derive(Debug, Serialize)]
pub struct HandlerStatsJson<'a> {
    pub handler: &'a str,
    pub ready: u64,
    pub claimed: u64,
    pub blocked: u64,
    pub dead: u64,
    /// Age of the oldest delivery that is due and not claimed; `null` when none is.
    pub oldest_due_seconds: Option<f64>,
    /// How the circuit breaker of its URL stands in the process that answers: `closed`, `half_open` or `open`; `null` where
    /// there is none, or where that process runs no handlers.
    pub breaker: Option<&'static str>,
}

#[derive(Debug, Serialize)]
pub struct ProviderStatsJson<'a> {
    pub provider: &'a str,
    pub events: u64,
}

impl<'a> From<&'a Stats> for StatsJson<'a> {
    fn from(stats: &'a Stats) -> Self {
        Self {
            events: stats.events,
            pending: stats.pending,
            failed: stats.failed,
            unrouted: stats.unrouted,
            discarded: stats.discarded,
            conflicts: stats.conflicts,
            handlers: stats.handlers.iter().map(HandlerStatsJson::from).collect(),
            providers: stats
                .providers
                .iter()
                .map(|(provider, events)| ProviderStatsJson {
                    provider,
                    events: *events,
                })
                .collect(),
        }
    }
}

impl StatsJson<'_> {
    /// Says how the circuit breakers of handlers stand.
    #[must_use]
    pub fn with_breakers(mut self, of: impl Fn(&str) -> Option<BreakerState>) -> Self {
        for handler in &mut self.handlers {
            handler.breaker = of(handler.handler).map(BreakerState::as_str);
        }
        self
    }
}

/// Adds the configured handlers that have nothing to do.
pub fn add_idle<'a>(stats: &mut Stats, handlers: impl IntoIterator<Item = &'a str>) {
    for handler in handlers {
        if !stats.handlers.iter().any(|known| known.handler == handler) {
            stats.handlers.push(HandlerStats {
                handler: handler.to_owned(),
                ..HandlerStats::default()
            });
        }
    }
    stats.handlers.sort_by(|a, b| a.handler.cmp(&b.handler));
}

impl<'a> From<&'a HandlerStats> for HandlerStatsJson<'a> {
    fn from(stats: &'a HandlerStats) -> Self {
        Self {
            handler: &stats.handler,
            ready: stats.ready,
            claimed: stats.claimed,
            blocked: stats.blocked,
            dead: stats.dead,
            oldest_due_seconds: stats.oldest_due.map(|age| age.as_secs_f64()),
            breaker: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::domain::{AttemptOutcome, DeliveryState, EventStatus};

    use super::*;

    #[test]
    fn an_event_has_the_agreed_form() {
        let time: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let detail = EventDetail {
            event: EventRow {
                id: 1,
                provider: "stripe".into(),
                provider_event_id: "evt_1".into(),
                event_type: Some("invoice.paid".into()),
                status: EventStatus::Done,
                occurred_at: Some(time),
                created_at: time,
                processed_at: Some(time),
                ordering_key: None,
                content_type: Some("application/json".into()),
                size: 2048,
                body_sha256: [0xab; 32],
                conflicts: 0,
                deliveries: vec![Delivery {
                    handler: "ledger".into(),
                    state: DeliveryState::Done,
                    attempts: 1,
                    run_at: None,
                    last_error: None,
                }],
                filtered: Vec::new(),
            },
            attempts: vec![Attempt {
                handler: "ledger".into(),
                attempt: 1,
                started_at: time,
                duration_ms: 3,
                outcome: AttemptOutcome::Done,
                detail: None,
            }],
            steps: vec![Step {
                handler: "ledger".into(),
                name: "charge".into(),
                attempt: 1,
                recorded_at: time,
                result: r#"{"id":1.50}"#.into(),
            }],
        };
        let expected = format!(
            concat!(
                r#"{{"id":1,"provider":"stripe","adapter":"stripe","provider_event_id":"evt_1","event_type":"invoice.paid","#,
                r#""status":"done","occurred_at":"2026-01-02T03:04:05Z","created_at":"2026-01-02T03:04:05Z","#,
                r#""processed_at":"2026-01-02T03:04:05Z","ordering_key":null,"content_type":"application/json","size":2048,"#,
                r#""body_sha256":"{}","conflicts":0,"#,
                r#""deliveries":[{{"handler":"ledger","state":"done","attempts":1,"run_at":null,"last_error":null}}],"#,
                r#""attempts":[{{"handler":"ledger","attempt":1,"started_at":"2026-01-02T03:04:05Z","duration_ms":3,"#,
                r#""outcome":"done","detail":null}}],"steps":[{{"handler":"ledger","step":"charge","attempt":1,"#,
                r#""recorded_at":"2026-01-02T03:04:05Z","result":{{"id":1.50}}}}],"normalized":null}}"#
            ),
            "ab".repeat(32)
        );
        let json = serde_json::to_string(&EventJson::detail(&detail, Some("stripe"), None)).unwrap();
        assert_eq!(json, expected);
        let row = serde_json::to_string(&EventJson::row(&detail.event, None)).unwrap();
        assert!(
            row.contains(r#""adapter":null"#) && !row.contains(r#""outcome""#) && !row.contains("normalized"),
            "{row}"
        );
    }
}
