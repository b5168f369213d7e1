//! Inserts the events of waiting requests with their deliveries: one statement, one commit, for all that wait.

use std::{sync::Arc, time::Instant};

use sqlx::{PgConnection, postgres::PgBindIterExt as _};
use tokio::{
    sync::{Mutex, mpsc},
    time::timeout,
};

use super::{
    super::{
        Options,
        batch::{Batch, HandoffSlot, Pending, RowOutcome},
        budget::Budget,
        ordering::holds,
    },
    actor::Closing,
    connect::{Failed, Fault, Link},
    lanes::Lanes,
    micros,
    notify::Notifier,
    time,
};
use crate::domain::{NewEvent, OrderedHandler};

/// Tries of a batch that met a deadlock.
const TRIES: u32 = 3;

/// One of the tasks that take turns at the queue.
pub(super) struct Flusher {
    pub(super) queue: Arc<Mutex<mpsc::UnboundedReceiver<Pending>>>,
    pub(super) budget: Arc<Budget>,
    pub(super) link: Link,
    pub(super) handoff: HandoffSlot,
    pub(super) options: Options,
    pub(super) lanes: Lanes,
    pub(super) notifier: Notifier,
    pub(super) closing: Closing,
}

impl Flusher {
    pub(super) async fn run(mut self) {
        while let Some(requests) = self.gather().await {
            let start = Instant::now();
            let events: usize = requests.iter().map(|request| request.events.len()).sum();
            self.flush(requests).await;
            #[allow(clippy::cast_precision_loss, reason = "a batch is small")]
            metrics::histogram!("cerca_flush_events").record(events as f64);
            metrics::histogram!("cerca_flush_seconds").record(start.elapsed().as_secs_f64());
        }
    }

    /// What is waiting, up to the caps. Only one flusher gathers at a time; the other writes meanwhile.
    async fn gather(&self) -> Option<Vec<Pending>> {
        let mut queue = self.queue.lock().await;
        let first = self.closing.next(&mut queue).await?;
        let (mut events, mut bytes) = (first.events.len(), first.bytes());
        let mut requests = vec![first];
        while events < self.options.batch_events && bytes < self.options.batch_bytes {
            let Ok(next) = queue.try_recv() else { break };
            events += next.events.len();
            bytes += next.bytes();
            requests.push(next);
        }
        Some(requests)
    }

    /// Writes the requests together; where the values of one are at fault, only that one is refused.
    async fn flush(&mut self, requests: Vec<Pending>) {
        let mut waiting = vec![requests];
        while let Some(requests) = waiting.pop() {
            let start = Instant::now();
            let batch = Batch::new(requests, &self.handoff, &self.options.ordered);
            let failed = match self.insert(&batch).await {
                Ok(mut outcomes) => {
                    let are_conflicts_written = self.compare(&batch, &mut outcomes).await;
                    self.lanes.advance(batch.lanes(&outcomes));
                    self.budget.flushed(start.elapsed());
                    if batch.finish(&outcomes, are_conflicts_written) {
                        self.notifier.notify();
                    }
                    continue;
                }
                Err(failed) => failed,
            };
            if failed.fault == Fault::Data {
                let mut requests = batch.dissolve();
                if requests.len() > 1 {
                    waiting.push(requests.split_off(requests.len() / 2));
                    waiting.push(requests);
                } else {
                    requests
                        .into_iter()
                        .for_each(|request| request.fail(failed.error.clone()));
                }
                continue;
            }
            tracing::warn!(error = %failed.error, "a batch could not be stored");
            batch.fail(&failed.error);
            for requests in waiting.drain(..) {
                requests
                    .into_iter()
                    .for_each(|request| request.fail(failed.error.clone()));
            }
            self.link.back_off().await;
        }
    }

    async fn insert(&mut self, batch: &Batch) -> Result<Vec<RowOutcome>, Failed> {
        let limit = self.link.limit();
        let mut tries = 1;
        loop {
            let result = timeout(limit, insert(self.link.get().await?, batch, &self.options.ordered)).await;
            match self.link.end(result) {
                Err(failed) if failed.fault == Fault::Again && tries < TRIES => tries += 1,
                other => return other,
            }
        }
    }

    /// Reads what is stored under the keys that were not new, in a new statement, because the inserting one need not see
    /// the row that it met; and writes the conflicts down. What cannot be read stays unknown; `false`: conflicts that
    /// are known could not be written.
    async fn compare(&mut self, batch: &Batch, outcomes: &mut [RowOutcome]) -> bool {
        if !batch.has_repeats() && !outcomes.iter().any(|o| matches!(o, RowOutcome::Unknown)) {
            return true;
        }
        let limit = self.link.limit();
        let result = match self.link.get().await {
            Ok(db) => timeout(limit, compare(db, batch, outcomes)).await,
            Err(_) => return false,
        };
        let done = self.link.end(result);
        if let Err(failed) = &done {
            tracing::warn!(error = %failed.error, "conflicts could not be read or written");
        }
        done.is_ok()
    }
}

/// The new events as inserted, the others as unknown.
pub(super) async fn insert(
    db: &mut PgConnection,
    batch: &Batch,
    ordered: &[OrderedHandler],
) -> sqlx::Result<Vec<RowOutcome>> {
    let events = || batch.events();
    let is_ordered = batch.is_ordered();
    let sql = if is_ordered {
        include_str!("ingest_ordered.sql")
    } else {
        include_str!("ingest.sql")
    };
    let mut query = sqlx::query_as::<_, (i64, String, String, time::Instant)>(sql)
        .bind(events().map(|e| &*e.provider).bind_iter())
        .bind(events().map(|e| e.provider_event_id.as_str()).bind_iter())
        .bind(events().map(|e| e.event_type.as_deref()).bind_iter())
        .bind(events().map(|e| e.content_type.as_deref()).bind_iter())
        .bind(
            events()
                .map(|e| i32::try_from(e.payload.len()).unwrap_or(i32::MAX))
                .bind_iter(),
        )
        .bind(events().map(|e| e.body_sha256.as_slice()).bind_iter())
        .bind(events().map(|e| e.ordering_key.as_deref()).bind_iter())
        .bind(events().map(|e| e.occurred_at.map(time::Instant)).bind_iter())
        .bind(events().map(|e| &*e.routes).bind_iter())
        .bind(events().map(|e| e.headers.as_str()).bind_iter())
        .bind(events().map(|e| &*e.payload).bind_iter())
        .bind(batch.handed())
        .bind(batch.token)
        .bind(micros(batch.lease));
    if is_ordered {
        query = query
            .bind(ordered.iter().map(|o| &*o.name).bind_iter())
            .bind(ordered.iter().map(|o| holds(ordered, &o.name)).bind_iter());
    }
    let rows = query.fetch_all(db).await?;
    let keys: Vec<(&str, &str)> = events().map(key).collect();
    let mut outcomes = vec![RowOutcome::Unknown; keys.len()];
    for (id, provider, provider_event_id, created_at) in rows {
        if let Ok(at) = keys.binary_search(&(&provider, &provider_event_id)) {
            outcomes[at] = RowOutcome::Inserted {
                id,
                created_at: created_at.0,
            };
        }
    }
    Ok(outcomes)
}

/// Finds what is stored under the keys that were not new, and writes the conflicts down.
pub(super) async fn compare(db: &mut PgConnection, batch: &Batch, outcomes: &mut [RowOutcome]) -> sqlx::Result<()> {
    let unknown: Vec<(usize, &NewEvent)> = batch
        .events()
        .enumerate()
        .filter(|(at, _)| matches!(outcomes[*at], RowOutcome::Unknown))
        .collect();
    if !unknown.is_empty() {
        let rows: Vec<(i64, i64, Option<Vec<u8>>)> = sqlx::query_as(
            "SELECT k.nth, e.id, e.body_sha256
             FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k (provider, provider_event_id, nth)
             CROSS JOIN LATERAL (
                 SELECT id, CASE WHEN headers LIKE '{\"cerca-backfilled\":%' THEN NULL ELSE body_sha256 END AS body_sha256
                 FROM webhook_events
                 WHERE provider = k.provider AND provider_event_id = k.provider_event_id LIMIT 1
             ) e",
        )
        .bind(unknown.iter().map(|(_, e)| &*e.provider).bind_iter())
        .bind(unknown.iter().map(|(_, e)| e.provider_event_id.as_str()).bind_iter())
        .fetch_all(&mut *db)
        .await?;
        for (nth, id, hash) in rows {
            let at = usize::try_from(nth - 1).ok().and_then(|nth| unknown.get(nth));
            if let (Some((at, _)), Ok(body_sha256)) = (at, hash.map(TryInto::try_into).transpose()) {
                outcomes[*at] = RowOutcome::Existing { id, body_sha256 };
            }
        }
    }
    let conflicts = batch.conflicts(outcomes);
    if conflicts.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO conflicts (event_id, body_sha256, seen)
         SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bigint[])
         ON CONFLICT (event_id, body_sha256)
         DO UPDATE SET last_seen = now(), seen = conflicts.seen + excluded.seen",
    )
    .bind(conflicts.iter().map(|c| c.event_id).bind_iter())
    .bind(conflicts.iter().map(|c| c.body_sha256.as_slice()).bind_iter())
    .bind(conflicts.iter().map(|c| c.seen).bind_iter())
    .execute(db)
    .await?;
    Ok(())
}

fn key(event: &NewEvent) -> (&str, &str) {
    (&event.provider, &event.provider_event_id)
}
