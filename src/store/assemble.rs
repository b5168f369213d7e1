//! Puts an event together from its rows in the four tables, and derives its status.

use std::collections::{BTreeMap, HashMap};

use jiff::{SignedDuration, Timestamp};

use super::{EventDetail, EventRow};
use crate::domain::{Attempt, AttemptOutcome, Delivery, DeliveryState, EventStatus};

/// What the ledger says of an event, without its bytes.
pub(super) struct Head {
    pub(super) id: i64,
    pub(super) provider: String,
    pub(super) provider_event_id: String,
    pub(super) event_type: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) size: u64,
    pub(super) body_sha256: [u8; 32],
    pub(super) ordering_key: Option<String>,
    pub(super) occurred_at: Option<Timestamp>,
    pub(super) created_at: Timestamp,
    pub(super) routes: String,
}

/// The rows that belong to some heads, each with its event's id; attempts oldest first.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) deliveries: Vec<(i64, Delivery)>,
    pub(super) attempts: Vec<(i64, Attempt)>,
    pub(super) conflicts: Vec<(i64, u64)>,
}

pub(super) fn assemble(heads: Vec<Head>, parts: Parts) -> Vec<EventDetail> {
    let mut deliveries = by_event(parts.deliveries);
    let mut attempts = by_event(parts.attempts);
    let conflicts: HashMap<i64, u64> = parts.conflicts.into_iter().collect();
    heads
        .into_iter()
        .map(|head| {
            let deliveries = deliveries.remove(&head.id).unwrap_or_default();
            let attempts = attempts.remove(&head.id).unwrap_or_default();
            let conflicts = conflicts.get(&head.id).copied().unwrap_or(0);
            one(head, deliveries, attempts, conflicts)
        })
        .collect()
}

fn one(head: Head, mut deliveries: Vec<Delivery>, attempts: Vec<Attempt>, conflicts: u64) -> EventDetail {
    let status = status(&deliveries, head.routes.is_empty() && attempts.is_empty());
    let last = last_of_finished(&deliveries, &attempts);
    let filtered = last
        .iter()
        .filter(|a| a.outcome == AttemptOutcome::Filtered)
        .map(|a| a.handler.clone())
        .collect();
    deliveries.extend(finished(&last));
    deliveries.sort_by(|a, b| a.handler.cmp(&b.handler));
    let processed_at = attempts
        .iter()
        .filter(|_| status == EventStatus::Done)
        .filter(|a| matches!(a.outcome, AttemptOutcome::Done | AttemptOutcome::Filtered))
        .filter_map(|a| {
            let took = SignedDuration::from_millis(i64::try_from(a.duration_ms).ok()?);
            a.started_at.checked_add(took).ok()
        })
        .max();
    EventDetail {
        event: EventRow {
            id: head.id,
            provider: head.provider,
            provider_event_id: head.provider_event_id,
            event_type: head.event_type,
            status,
            occurred_at: head.occurred_at,
            created_at: head.created_at,
            processed_at,
            ordering_key: head.ordering_key,
            content_type: head.content_type,
            size: head.size,
            body_sha256: head.body_sha256,
            conflicts,
            deliveries,
            filtered,
        },
        attempts,
    }
}

/// The status by the rows of the work list; `is_untouched`: no route and no attempt.
fn status(deliveries: &[Delivery], is_untouched: bool) -> EventStatus {
    use DeliveryState::{Blocked, Claimed, Dead, Ready};
    let any = |states: &[DeliveryState]| deliveries.iter().any(|d| states.contains(&d.state));
    if any(&[Ready, Claimed, Blocked]) {
        EventStatus::Pending
    } else if any(&[Dead]) {
        EventStatus::Failed
    } else if !deliveries.is_empty() {
        EventStatus::Discarded
    } else if is_untouched {
        EventStatus::Unrouted
    } else {
        EventStatus::Done
    }
}

/// The last attempt of each handler whose delivery is not on the work list, by handler.
fn last_of_finished<'a>(unfinished: &[Delivery], attempts: &'a [Attempt]) -> Vec<&'a Attempt> {
    let mut last: BTreeMap<&str, &Attempt> = BTreeMap::new();
    for attempt in attempts {
        last.insert(&attempt.handler, attempt);
    }
    last.retain(|handler, _| unfinished.iter().all(|d| d.handler != *handler));
    last.into_values().collect()
}

/// Deliveries that left the work list with their effect: the last attempt of the handler was done.
fn finished(last: &[&Attempt]) -> Vec<Delivery> {
    last.iter()
        .filter(|a| a.outcome == AttemptOutcome::Done)
        .map(|a| Delivery {
            handler: a.handler.clone(),
            state: DeliveryState::Done,
            attempts: a.attempt,
            run_at: None,
            last_error: None,
        })
        .collect()
}

fn by_event<T>(rows: Vec<(i64, T)>) -> HashMap<i64, Vec<T>> {
    let mut map: HashMap<i64, Vec<T>> = HashMap::new();
    for (id, row) in rows {
        map.entry(id).or_default().push(row);
    }
    map
}
