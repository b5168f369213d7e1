//! An [`EventFilter`] as SQL, for both engines. A status starts from the work list, which is short, and not from the
//! ledger, which is long.

use jiff::Timestamp;
use sqlx::{Database, Encode, QueryBuilder, Type};

use super::EventFilter;
use crate::domain::EventStatus;

const PENDING: &str = "('ready', 'claimed', 'blocked')";

/// Events were stored in the order of their ids but for this much: clocks are set, and batches overtake each other.
const DISORDER: i64 = 600_000_000;

/// Ids between which the events of a period are.
#[derive(Debug, Clone, Default)]
pub(super) struct Bounds {
    /// At or after.
    pub(super) low: Option<i64>,
    /// Before.
    pub(super) high: Option<i64>,
    /// Only these.
    pub(super) among: Option<Vec<i64>>,
    /// The provider's column in a form that has no index: a window of ids is shorter than a whole provider.
    pub(super) provider: Option<&'static str>,
}

/// A provider with fewer events is read by its index, whole.
pub(super) const FEW: usize = 1000;

/// The instants, in microseconds, whose ids bound a filter's period with room for disorder.
pub(super) fn period(filter: &EventFilter) -> (Option<i64>, Option<i64>) {
    let since = filter.since.map(|at| at.as_microsecond().saturating_sub(DISORDER));
    let until = filter.until.map(|at| at.as_microsecond().saturating_add(DISORDER));
    (since, until)
}

/// Finds the first id whose event was stored at or after an instant, by halving.
#[derive(Debug)]
pub(super) struct Search {
    pub(super) low: i64,
    pub(super) high: i64,
    pub(super) at: i64,
}

impl Search {
    /// The ids between which to look for the next event; `None` when `low` is the answer.
    pub(super) fn probe(&self) -> Option<(i64, i64)> {
        (self.low < self.high).then(|| (self.low + (self.high - self.low) / 2, self.high))
    }

    /// Takes id and time of the first event in the range probed.
    pub(super) fn learn(&mut self, found: Option<(i64, i64)>) {
        match found {
            Some((id, time)) if time < self.at => self.low = id + 1,
            _ => self.high = self.low + (self.high - self.low) / 2,
        }
    }
}

/// What to select of the events that match.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    /// Their ids, newest first, at most this many.
    Ids {
        limit: u32,
    },
    Count,
}

/// The query for the events that match, each once.
pub(super) fn select<DB>(
    wanted: Wanted,
    filter: &EventFilter,
    cursor: Option<i64>,
    bounds: Bounds,
    bind_time: fn(&mut QueryBuilder<DB>, Timestamp),
) -> QueryBuilder<DB>
where
    DB: Database,
    String: for<'q> Encode<'q, DB> + Type<DB>,
    i64: for<'q> Encode<'q, DB> + Type<DB>,
{
    let states = match filter.status {
        Some(EventStatus::Pending) => Some(format!("IN {PENDING}")),
        Some(EventStatus::Failed) => Some("= 'dead'".to_owned()),
        Some(EventStatus::Discarded) => Some("= 'discarded'".to_owned()),
        _ => None,
    };
    let key = if states.is_some() { "d.event_id" } else { "e.id" };
    let mut sql = QueryBuilder::new(match wanted {
        Wanted::Ids { .. } => format!("SELECT {key}"),
        Wanted::Count => "SELECT count(*)".to_owned(),
    });
    if let Some(states) = states {
        sql.push(format!(
            " FROM deliveries d CROSS JOIN webhook_events e
             WHERE e.id = d.event_id AND d.state {states}
               AND NOT EXISTS (SELECT 1 FROM deliveries p
                               WHERE p.event_id = d.event_id AND p.handler < d.handler AND p.state {states})"
        ));
    } else {
        sql.push(" FROM webhook_events e WHERE TRUE");
    }
    sql.push(match filter.status {
        Some(EventStatus::Failed) => {
            " AND NOT EXISTS (SELECT 1 FROM deliveries o
                              WHERE o.event_id = e.id AND o.state IN ('ready', 'claimed', 'blocked'))"
        }
        Some(EventStatus::Discarded) => {
            " AND NOT EXISTS (SELECT 1 FROM deliveries o WHERE o.event_id = e.id AND o.state <> 'discarded')"
        }
        Some(EventStatus::Unrouted) => {
            " AND e.routes = '' AND NOT EXISTS (SELECT 1 FROM deliveries o WHERE o.event_id = e.id)
              AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.event_id = e.id)"
        }
        Some(EventStatus::Done) => {
            " AND NOT EXISTS (SELECT 1 FROM deliveries o WHERE o.event_id = e.id)
              AND (e.routes <> '' OR EXISTS (SELECT 1 FROM attempts a WHERE a.event_id = e.id))"
        }
        Some(EventStatus::Pending) | None => "",
    });
    for (sign, id) in [(" < ", cursor), (" >= ", bounds.low), (" < ", bounds.high)] {
        if let Some(id) = id {
            sql.push(" AND ").push(key).push(sign).push_bind(id);
        }
    }
    if let Some(ids) = &bounds.among {
        // An empty list is no SQL.
        let ids: Vec<String> = ids.iter().chain([&-1]).map(i64::to_string).collect();
        sql.push(format!(" AND {key} IN ({})", ids.join(", ")));
    }
    if let Some(provider) = &filter.provider {
        sql.push(format!(" AND {} = ", bounds.provider.unwrap_or("e.provider")))
            .push_bind(provider.clone());
    }
    if let Some(event_type) = &filter.event_type {
        sql.push(" AND e.event_type = ").push_bind(event_type.clone());
    }
    if let Some(handler) = &filter.handler {
        sql.push(" AND EXISTS (SELECT 1 FROM deliveries h WHERE h.event_id = ")
            .push(key)
            .push(" AND h.handler = ")
            .push_bind(handler.clone())
            .push(")");
    }
    for (sign, time) in [(" >= ", filter.since), (" < ", filter.until)] {
        if let Some(time) = time {
            sql.push(" AND e.created_at").push(sign);
            bind_time(&mut sql, time);
        }
    }
    if let Some(q) = &filter.q {
        // Texts compare by bytes on both engines, so a prefix is a range.
        let after = format!("{q}{}", char::MAX);
        sql.push(" AND ((e.provider_event_id >= ").push_bind(q.clone());
        sql.push(" AND e.provider_event_id < ").push_bind(after.clone());
        sql.push(") OR (e.ordering_key >= ").push_bind(q.clone());
        sql.push(" AND e.ordering_key < ").push_bind(after).push("))");
    }
    if let Wanted::Ids { limit } = wanted {
        sql.push(" ORDER BY ")
            .push(key)
            .push(" DESC LIMIT ")
            .push_bind(i64::from(limit));
    }
    sql
}

/// The filter in words, for the audit.
pub(super) fn describe(filter: &EventFilter) -> String {
    let fields = [
        ("provider", filter.provider.clone()),
        ("type", filter.event_type.clone()),
        ("status", filter.status.map(|status| status.to_string())),
        ("handler", filter.handler.clone()),
        ("since", filter.since.map(|at| at.to_string())),
        ("until", filter.until.map(|at| at.to_string())),
        ("q", filter.q.clone()),
    ];
    let set: Vec<String> = fields
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", value?)))
        .collect();
    if set.is_empty() {
        "all events".to_owned()
    } else {
        set.join(" ")
    }
}
