//! The outbox: rows become events and go, in one transaction of the writer.

use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{Connection, params, types::ValueRef};
use sqlx::SqlitePool;
use tokio::sync::oneshot;

use super::{
    super::{
        Backlog, Relayed, StoreError,
        batch::HandoffSlot,
        outbox::{self, BYTES, Order, ROWS, Routes, Row, Sorted},
    },
    connect::{self, now, read_error, timestamp},
    ingest::{self, Flushed},
    job::{Job, in_savepoint},
};
use crate::domain::{Intent, OrderedHandler};

/// What the savepoint left, to be answered when the transaction is committed.
struct Moved {
    flushed: Vec<Flushed>,
    sorted: Sorted,
    more: bool,
}

/// A job of the writer, and where its answer comes.
pub(super) fn relay(
    routes: Routes,
    order: Arc<Order>,
    worker: (HandoffSlot, Arc<[OrderedHandler]>),
) -> (Job, oneshot::Receiver<Result<Relayed, StoreError>>) {
    let (reply, answer) = oneshot::channel();
    let job: Job = Box::new(move |db| {
        let moved = db.map(|db| in_savepoint(db, |db| take(db, &routes, &order, (&worker.0, &worker.1))));
        Box::new(move |committed| {
            let _ = reply.send(finish(moved, committed));
        })
    });
    (job, answer)
}

fn finish(moved: Option<rusqlite::Result<Moved>>, committed: Result<(), StoreError>) -> Result<Relayed, StoreError> {
    let moved = match moved {
        None => return Err(committed.err().unwrap_or(StoreError::Closed)),
        Some(Err(error)) => return Err(connect::error(&error)),
        Some(Ok(moved)) => moved,
    };
    for flushed in moved.flushed {
        match &committed {
            Ok(()) => flushed.finish(),
            Err(error) => flushed.fail(error),
        }
    }
    committed?;
    outbox::report(&moved.sorted.refused);
    let relayed = Relayed {
        refused: moved.sorted.refused.len() as u64,
        more: moved.more,
        ..Relayed::default()
    };
    outbox::count(moved.sorted.answers, relayed)
}

fn take(
    db: &Connection,
    routes: &Routes,
    order: &Order,
    worker: (&HandoffSlot, &Arc<[OrderedHandler]>),
) -> rusqlite::Result<Moved> {
    let (rows, mut refused, more) = read(db)?;
    let mut sorted = outbox::sort(rows, order, &**routes);
    sorted.refused.append(&mut refused);
    let flushed = ingest::insert(db, std::mem::take(&mut sorted.requests), worker);
    let moved = settle_rows(db, &mut sorted);
    if let Err(error) = moved {
        for flushed in flushed {
            flushed.fail(&connect::error(&error));
        }
        return Err(error);
    }
    Ok(Moved { flushed, sorted, more })
}

/// Removes the rows whose events are in the transaction, and marks those that were refused.
fn settle_rows(db: &Connection, sorted: &mut Sorted) -> rusqlite::Result<()> {
    let mut remove = db.prepare_cached("DELETE FROM outbox WHERE id = ?1")?;
    let mut answers = Vec::with_capacity(sorted.answers.len());
    for (id, mut answer) in sorted.taken.drain(..).zip(sorted.answers.drain(..)) {
        // Nothing is answered before the commit but a failure.
        match answer.try_recv() {
            Ok(Err(StoreError::Refused(why))) => sorted.refused.push((id, why)),
            Ok(_) | Err(oneshot::error::TryRecvError::Closed) => {
                let failed = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ABORT);
                return Err(rusqlite::Error::SqliteFailure(failed, None));
            }
            Err(oneshot::error::TryRecvError::Empty) => {
                remove.execute([id])?;
                answers.push(answer);
            }
        }
    }
    sorted.answers = answers;
    let mut mark = db.prepare_cached("UPDATE outbox SET error = ?2 WHERE id = ?1")?;
    for (id, why) in &sorted.refused {
        mark.execute(params![id, why])?;
    }
    Ok(())
}

type Oldest = (Vec<Row>, Vec<(i64, String)>, bool);

/// The oldest rows, those that hold no text where one is expected, and whether there may be more.
fn read(db: &Connection) -> rusqlite::Result<Oldest> {
    let mut oldest = db.prepare_cached(
        "SELECT id, octet_length(payload), idempotency_key, topic, content_type, headers, ordering_key, created_at, payload
         FROM outbox WHERE error IS NULL ORDER BY id LIMIT ?1",
    )?;
    let (mut rows, mut refused, mut bytes) = (Vec::new(), Vec::new(), 0_usize);
    let mut found = oldest.query([i64::try_from(ROWS).unwrap_or(1)])?;
    while let Some(row) = found.next()? {
        let id = row.get(0)?;
        bytes = bytes.saturating_add(row.get::<_, u32>(1)? as usize);
        if bytes > BYTES && !(rows.is_empty() && refused.is_empty()) {
            return Ok((rows, refused, true));
        }
        match intent(row) {
            Ok(intent) => rows.push(Row { id, intent }),
            // SQLite itself lets any bytes be a text.
            Err(error) => refused.push((id, error.to_string())),
        }
    }
    let more = rows.len() + refused.len() >= ROWS;
    Ok((rows, refused, more))
}

fn intent(row: &rusqlite::Row<'_>) -> rusqlite::Result<Intent> {
    Ok(Intent {
        idempotency_key: row.get(2)?,
        topic: row.get(3)?,
        content_type: row.get(4)?,
        headers: row.get(5)?,
        ordering_key: row.get(6)?,
        created_at: timestamp(row.get(7)?),
        payload: match row.get_ref(8)? {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Bytes::copy_from_slice(bytes),
            _ => Bytes::new(),
        },
    })
}

/// Whether a row waits. Asked on a connection that reads, so that an empty outbox costs the writer nothing.
pub(super) async fn is_waiting(db: &SqlitePool) -> Result<bool, StoreError> {
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM outbox WHERE error IS NULL)")
        .fetch_one(db)
        .await
        .map_err(|error| read_error(&error))
}

pub(super) async fn backlog(db: &SqlitePool) -> Result<Backlog, StoreError> {
    let (all, waiting, oldest): (i64, i64, Option<i64>) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM outbox), (SELECT count(*) FROM outbox WHERE error IS NULL),
                (SELECT created_at FROM outbox WHERE error IS NULL ORDER BY id LIMIT 1)",
    )
    .fetch_one(db)
    .await
    .map_err(|error| read_error(&error))?;
    Ok(Backlog {
        rows: waiting.unsigned_abs(),
        refused: (all - waiting).unsigned_abs(),
        oldest: oldest.map(|at| std::time::Duration::from_micros(now().saturating_sub(at).max(0).unsigned_abs())),
    })
}
