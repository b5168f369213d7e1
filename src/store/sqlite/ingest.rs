//! Inserts the events of waiting requests with their deliveries.

use std::sync::Arc;

use rusqlite::{Connection, params};

use super::{
    super::{
        batch::{Batch, HandoffSlot, Pending, RowOutcome},
        ordering::{holds, lane_of, share},
    },
    connect::{self, micros, now, timestamp},
    job::in_savepoint,
    lanes,
};
use crate::domain::OrderedHandler;

/// A batch that is in the transaction, and what to say once that is committed.
pub(super) struct Flushed {
    batch: Batch,
    outcomes: Vec<RowOutcome>,
}

impl Flushed {
    pub(super) fn finish(self) {
        let _ = self.batch.finish(&self.outcomes, true);
    }

    pub(super) fn fail(self, error: &super::StoreError) {
        self.batch.fail(error);
    }
}

/// Inserts the requests together; where the values of one are at fault, only that one is refused.
pub(super) fn insert(
    db: &Connection,
    requests: Vec<Pending>,
    worker: (&HandoffSlot, &Arc<[OrderedHandler]>),
) -> Vec<Flushed> {
    if requests.is_empty() {
        return Vec::new();
    }
    let (handoff, ordered) = worker;
    let batch = Batch::new(requests, handoff, ordered);
    match in_savepoint(db, |db| insert_batch(db, &batch, ordered)) {
        Ok(outcomes) => vec![Flushed { batch, outcomes }],
        Err(error) => {
            let mut requests = batch.dissolve();
            if requests.len() == 1 || !connect::is_data(&error) {
                for request in requests {
                    request.fail(connect::error(&error));
                }
                return Vec::new();
            }
            let rest = requests.split_off(requests.len() / 2);
            let mut flushed = insert(db, requests, worker);
            flushed.extend(insert(db, rest, worker));
            flushed
        }
    }
}

fn insert_batch(db: &Connection, batch: &Batch, ordered: &[OrderedHandler]) -> rusqlite::Result<Vec<RowOutcome>> {
    let mut event = db.prepare_cached(
        "INSERT INTO webhook_events (provider, provider_event_id, event_type, content_type, size, body_sha256,
                                     ordering_key, occurred_at, routes, created_at, headers, payload)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
         ON CONFLICT (provider, provider_event_id) DO NOTHING",
    )?;
    let mut delivery = db.prepare_cached(
        "INSERT INTO deliveries (event_id, handler, state, run_at, attempts, lease_token, lease_until, ordering_key, share)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING",
    )?;
    let mut in_line = db.prepare_cached(
        "INSERT INTO deliveries (event_id, handler, state, run_at, ordering_key, share, lane, lane_at, dead_holds)
         VALUES (?1, ?2, 'blocked', ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING",
    )?;
    let mut known = db.prepare_cached(concat!(
        "SELECT id, CASE WHEN headers LIKE '{\"cerca-backfilled\":%' THEN NULL ELSE body_sha256 END",
        " FROM webhook_events WHERE provider = ?1 AND provider_event_id = ?2"
    ))?;
    let created = now();
    let lease_until = created.saturating_add(micros(batch.lease));
    let mut outcomes = Vec::with_capacity(batch.events().len());
    for new in batch.events() {
        let inserted = event.execute(params![
            &*new.provider,
            new.provider_event_id,
            new.event_type,
            new.content_type,
            i64::try_from(new.payload.len()).unwrap_or(i64::MAX),
            new.body_sha256,
            new.ordering_key,
            new.occurred_at.map(|at| at.as_microsecond()),
            &*new.routes,
            created,
            new.headers,
            &*new.payload,
        ])?;
        if inserted == 0 {
            outcomes.push(known.query_row(params![&*new.provider, new.provider_event_id], |row| {
                Ok(RowOutcome::Existing {
                    id: row.get(0)?,
                    body_sha256: row.get(1)?,
                })
            })?);
            continue;
        }
        let id = db.last_insert_rowid();
        let share = share(&new.provider);
        for handler in new.handlers() {
            if let Some(lane) = lane_of(ordered, new, handler) {
                let lane_at = new.occurred_at.map_or(created, |at| at.as_microsecond());
                let holds = holds(ordered, handler);
                in_line.execute(params![
                    id,
                    handler,
                    created,
                    new.ordering_key,
                    share,
                    lane,
                    lane_at,
                    holds
                ])?;
            } else if batch.is_handed(handler) {
                let token = batch.token;
                delivery.execute(params![
                    id,
                    handler,
                    "claimed",
                    created,
                    1,
                    token,
                    lease_until,
                    new.ordering_key,
                    share
                ])?;
            } else {
                let none = None::<i64>;
                delivery.execute(params![
                    id,
                    handler,
                    "ready",
                    created,
                    0,
                    none,
                    none,
                    new.ordering_key,
                    share
                ])?;
            }
        }
        outcomes.push(RowOutcome::Inserted {
            id,
            created_at: timestamp(created),
        });
    }
    for (handler, lane) in batch.lanes(&outcomes) {
        lanes::advance(db, &handler, lane)?;
    }
    let mut conflict = db.prepare_cached(
        "INSERT INTO conflicts (event_id, body_sha256, first_seen, last_seen, seen) VALUES (?1, ?2, ?3, ?3, ?4)
         ON CONFLICT (event_id, body_sha256) DO UPDATE SET last_seen = excluded.last_seen, seen = seen + excluded.seen",
    )?;
    for other in batch.conflicts(&outcomes) {
        conflict.execute(params![other.event_id, other.body_sha256, created, other.seen])?;
    }
    Ok(outcomes)
}
