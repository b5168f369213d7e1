//! The outbox: rows become events and go, in one transaction.

use std::{mem, sync::Arc, time::Duration};

use sqlx::{Connection as _, PgConnection, PgPool, Row as _, postgres::PgRow};

use super::{
    super::{
        Backlog, Relayed, StoreError,
        batch::{Batch, HandoffSlot, RowOutcome},
        outbox::{self, BYTES, Order, ROWS, Routes, Row, Sorted},
    },
    actor::Actor,
    connect::read_error,
    ingest,
    lanes::Lanes,
    notify::Notifier,
    time,
};
use crate::domain::{Intent, OrderedHandler};

/// Names the lock that lets one process at a time relay, so that the events of one ordering key keep the order of their
/// rows. It ends with its transaction.
const LOCK: i64 = 0x6365_7263_616f_7574;

/// What an event of the outbox meets on its way in.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) order: Arc<Order>,
    pub(super) handoff: HandoffSlot,
    pub(super) ordered: Arc<[OrderedHandler]>,
    pub(super) lanes: Lanes,
    pub(super) notifier: Notifier,
}

/// Moves one batch. Where the database refuses the event of one row, the row is found by halving and marked.
pub(super) async fn run(actor: &Actor, routes: Routes, way: Way) -> Result<Relayed, StoreError> {
    let mut limit = ROWS;
    loop {
        let (routes, way) = (Arc::clone(&routes), way.clone());
        let moved = actor
            .ask(move |db| Box::pin(async move { relay(db, &routes, &way, limit).await }))
            .await;
        let why = match moved {
            Err(StoreError::Refused(_)) if limit > 1 => {
                limit /= 2;
                continue;
            }
            Err(StoreError::Refused(why)) => why,
            Err(error) => return Err(error),
            Ok(moved) => {
                return moved.map(|moved| Relayed {
                    more: moved.more || limit < ROWS,
                    ..moved
                });
            }
        };
        let reason = why.clone();
        let refused = actor
            .ask(move |db| Box::pin(async move { refuse_first(db, &reason).await }))
            .await?;
        outbox::report(refused.map(|id| (id, why)).as_slice());
        return Ok(Relayed {
            refused: u64::from(refused.is_some()),
            more: true,
            ..Relayed::default()
        });
    }
}

/// Moves at most `limit` rows.
async fn relay(
    db: &mut PgConnection,
    routes: &Routes,
    way: &Way,
    limit: usize,
) -> sqlx::Result<Result<Relayed, StoreError>> {
    if !is_waiting(db).await? {
        return Ok(Ok(Relayed::default()));
    }
    let mut tx = db.begin().await?;
    let is_ours: bool = sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1)")
        .bind(LOCK)
        .fetch_one(&mut *tx)
        .await?;
    if !is_ours {
        tx.rollback().await?;
        return Ok(Ok(Relayed::default()));
    }
    let (rows, more) = read(&mut tx, limit).await?;
    let mut sorted = outbox::sort(rows, &way.order, &**routes);
    remove(&mut tx, &sorted).await?;
    let mut on_its_way = OnItsWay::new(&mut sorted, way);
    let mut outcomes = Vec::new();
    if let Some(batch) = &on_its_way.0 {
        outcomes = ingest::insert(&mut tx, batch, &way.ordered).await?;
        ingest::compare(&mut tx, batch, &mut outcomes).await?;
    }
    if outcomes.iter().any(|outcome| matches!(outcome, RowOutcome::Unknown)) {
        // Retention removed what the insert met. Next time it is new.
        tx.rollback().await?;
        return Ok(Err(StoreError::Unavailable(
            "an event went while it was compared".to_owned(),
        )));
    }
    tx.commit().await?;
    on_its_way.arrive(&outcomes, way);
    outbox::report(&sorted.refused);
    let relayed = Relayed {
        refused: sorted.refused.len() as u64,
        more,
        ..Relayed::default()
    };
    Ok(outbox::count(sorted.answers, relayed))
}

/// A batch whose transaction is open. Whatever ends it early, by an error or by time, gives its room at the local worker
/// back.
struct OnItsWay(Option<Batch>);

impl OnItsWay {
    fn new(sorted: &mut Sorted, way: &Way) -> Self {
        let requests = mem::take(&mut sorted.requests);
        Self((!requests.is_empty()).then(|| Batch::new(requests, &way.handoff, &way.ordered)))
    }

    fn arrive(&mut self, outcomes: &[RowOutcome], way: &Way) {
        if let Some(batch) = self.0.take() {
            way.lanes.advance(batch.lanes(outcomes));
            if batch.finish(outcomes, true) {
                way.notifier.notify();
            }
        }
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        if let Some(batch) = self.0.take() {
            batch.fail(&StoreError::Unavailable("the outbox was not relayed".to_owned()));
        }
    }
}

/// The oldest rows that nobody holds, locked, and whether there may be more.
async fn read(db: &mut PgConnection, limit: usize) -> sqlx::Result<(Vec<Row>, bool)> {
    let found: Vec<(i64, i32)> = sqlx::query_as(
        "SELECT id, octet_length(payload) FROM outbox WHERE error IS NULL ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED",
    )
    .bind(i64::try_from(limit).unwrap_or(1))
    .fetch_all(&mut *db)
    .await?;
    let (mut ids, mut bytes) = (Vec::with_capacity(found.len()), 0_usize);
    for (id, size) in &found {
        bytes = bytes.saturating_add(size.unsigned_abs() as usize);
        if bytes > BYTES && !ids.is_empty() {
            break;
        }
        ids.push(*id);
    }
    let more = ids.len() < found.len() || found.len() >= limit;
    let rows = sqlx::query(
        "SELECT id, idempotency_key, topic, payload, content_type, headers, ordering_key, created_at
         FROM outbox WHERE id = ANY ($1) AND error IS NULL",
    )
    .bind(&ids)
    .fetch_all(db)
    .await?;
    let mut rows: Vec<Row> = rows.iter().map(row).collect::<sqlx::Result<_>>()?;
    rows.sort_unstable_by_key(|row| row.id);
    Ok((rows, more))
}

/// Removes the rows that become events, and marks those that were refused.
async fn remove(db: &mut PgConnection, sorted: &Sorted) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM outbox WHERE id = ANY ($1) AND error IS NULL")
        .bind(&sorted.taken)
        .execute(&mut *db)
        .await?;
    for (id, why) in &sorted.refused {
        refuse(db, *id, why).await?;
    }
    Ok(())
}

async fn refuse(db: &mut PgConnection, id: i64, why: &str) -> sqlx::Result<()> {
    sqlx::query("UPDATE outbox SET error = $2 WHERE id = $1 AND error IS NULL")
        .bind(id)
        .bind(why.replace('\0', "\u{fffd}"))
        .execute(db)
        .await
        .map(drop)
}

/// Marks the first row, whose event the database itself refuses.
async fn refuse_first(db: &mut PgConnection, why: &str) -> sqlx::Result<Option<i64>> {
    let first: Option<i64> =
        sqlx::query_scalar("SELECT id FROM outbox WHERE error IS NULL ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED")
            .fetch_optional(&mut *db)
            .await?;
    if let Some(id) = first {
        refuse(db, id, why).await?;
    }
    Ok(first)
}

fn row(row: &PgRow) -> sqlx::Result<Row> {
    Ok(Row {
        id: row.try_get(0)?,
        intent: Intent {
            idempotency_key: row.try_get(1)?,
            topic: row.try_get(2)?,
            payload: outbox::payload(row.try_get(3)?),
            content_type: row.try_get(4)?,
            headers: row.try_get(5)?,
            ordering_key: row.try_get(6)?,
            created_at: row.try_get::<time::Instant, _>(7)?.0,
        },
    })
}

async fn is_waiting(db: &mut PgConnection) -> sqlx::Result<bool> {
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM outbox WHERE error IS NULL ORDER BY id LIMIT 1)")
        .fetch_one(db)
        .await
}

pub(super) async fn backlog(db: &PgPool) -> Result<Backlog, StoreError> {
    let (all, waiting, oldest): (i64, i64, Option<i64>) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM outbox), (SELECT count(*) FROM outbox WHERE error IS NULL),
                (SELECT greatest(extract(epoch FROM clock_timestamp() - created_at) * 1000000, 0)::bigint
                 FROM outbox WHERE error IS NULL ORDER BY id LIMIT 1)",
    )
    .fetch_one(db)
    .await
    .map_err(|error| read_error(&error))?;
    Ok(Backlog {
        rows: waiting.unsigned_abs(),
        refused: (all - waiting).unsigned_abs(),
        oldest: oldest.map(|micros| Duration::from_micros(micros.unsigned_abs())),
    })
}
