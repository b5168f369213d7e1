//! What people do by hand: reprocess and discard, each with its line in the audit.

use rusqlite::{Connection, OptionalExtension as _, params};
use sqlx::{Row as _, SqlitePool};

use super::{
    super::{
        AuditFilter, AuditRow, Discarded, Reprocessed, StoreError, Who,
        ordering::{holds, share},
        task::{Task, UNROUTED_MARK},
    },
    connect::{now, read_error, timestamp},
    lanes, steps,
};
use crate::domain::lane;

/// Gives deliveries of some events a new life. `audit` is the task's line from an earlier chunk.
pub(super) fn reprocess(
    db: &Connection,
    task: &Task,
    ids: &[i64],
    audit: Option<i64>,
) -> rusqlite::Result<(Reprocessed, Option<i64>)> {
    let mut total = Reprocessed::default();
    for &id in ids {
        // Without its bytes an event cannot be delivered again.
        let event: Option<Stored> = db
            .prepare_cached(
                "SELECT routes, ordering_key, provider, coalesce(occurred_at, created_at)
                 FROM webhook_events WHERE id = ?1 AND typeof(payload) <> 'null'",
            )?
            .query_row(params![id], |row| {
                Ok(Stored {
                    id,
                    routes: row.get(0)?,
                    ordering_key: row.get(1)?,
                    provider: row.get(2)?,
                    at: row.get(3)?,
                })
            })
            .optional()?;
        let Some(event) = event else { continue };
        total.events += 1;
        let handlers = match &task.handlers {
            Some(handlers) => handlers.clone(),
            None => given_up(db, id, &event.routes)?,
        };
        if !task.dry_run {
            db.prepare_cached("DELETE FROM deliveries WHERE event_id = ?1 AND handler = ?2")?
                .execute(params![id, UNROUTED_MARK])?;
        }
        for handler in handlers {
            if !task.dry_run && keep(db, id, &handler)? {
                total.deliveries += 1;
            } else if give_life(db, &event, &handler, task)? {
                total.deliveries += 1;
                if task.forget_steps && !task.dry_run {
                    steps::forget(db, id, &handler)?;
                }
            }
        }
    }
    if task.dry_run {
        return Ok((total, None));
    }
    let line = record(
        db,
        audit,
        "reprocess",
        &task.target,
        (&task.actor, task.reason.as_deref()),
        total.deliveries,
    )?;
    Ok((total, Some(line)))
}

/// Gives the dead deliveries of an event a new life.
pub(super) fn revive(db: &Connection, id: i64, task: &Task) -> rusqlite::Result<u64> {
    let dead: Vec<String> = db
        .prepare_cached("SELECT handler FROM deliveries WHERE event_id = ?1 AND state = 'dead'")?
        .query_map(params![id], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    if dead.is_empty() {
        return Ok(0);
    }
    Ok(reprocess(db, &task.for_handlers(dead), &[id], None)?.0.deliveries)
}

/// What a new life needs of an event.
struct Stored {
    id: i64,
    routes: String,
    ordering_key: Option<String>,
    provider: String,
    /// The provider's own time, else that of the arrival.
    at: i64,
}

/// Gives up every delivery of an event that is not done; one in flight when its attempt has ended.
pub(super) fn discard(db: &Connection, id: i64, target: &str, who: &Who) -> rusqlite::Result<Option<Discarded>> {
    let given_up: Vec<(String, Option<i64>, bool)> = db
        .prepare_cached(
            "UPDATE deliveries
             SET state = CASE state WHEN 'claimed' THEN state ELSE 'discarded' END, discard = (state = 'claimed')
             WHERE event_id = ?1 AND state <> 'discarded' AND NOT discard RETURNING handler, lane, discard",
        )?
        .query_map(params![id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let discarded = Discarded {
        deliveries: given_up.len() as u64,
        in_flight: given_up.iter().filter(|(.., in_flight)| *in_flight).count() as u64,
    };
    for (handler, lane, in_flight) in given_up {
        if let Some(lane) = lane
            && !in_flight
        {
            lanes::advance(db, &handler, lane)?;
        }
    }
    db.prepare_cached(
        "INSERT INTO deliveries (event_id, handler, state, run_at)
         SELECT id, ?2, 'discarded', ?3 FROM webhook_events e
         WHERE id = ?1 AND routes = ''
           AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id)
           AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.event_id = e.id)",
    )?
    .execute(params![id, UNROUTED_MARK, now()])?;
    record(
        db,
        None,
        "discard",
        target,
        (&who.actor, who.reason.as_deref()),
        discarded.deliveries,
    )?;
    Ok(Some(discarded))
}

/// The dead and discarded deliveries of an event, or its routes where it has none.
fn given_up(db: &Connection, id: i64, routes: &str) -> rusqlite::Result<Vec<String>> {
    let handlers: Vec<String> = db
        .prepare_cached(
            "SELECT handler FROM deliveries WHERE event_id = ?1 AND (state IN ('dead', 'discarded') OR discard)",
        )?
        .query_map(params![id], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    if handlers.is_empty() {
        return Ok(routes
            .split(',')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect());
    }
    Ok(handlers.into_iter().filter(|name| name != UNROUTED_MARK).collect())
}

/// What is in flight is not to be discarded after all; says whether it was.
fn keep(db: &Connection, id: i64, handler: &str) -> rusqlite::Result<bool> {
    let kept = db
        .prepare_cached("UPDATE deliveries SET discard = 0 WHERE event_id = ?1 AND handler = ?2 AND discard")?
        .execute(params![id, handler])?;
    Ok(kept == 1)
}

fn give_life(db: &Connection, event: &Stored, handler: &str, task: &Task) -> rusqlite::Result<bool> {
    if task.dry_run {
        return db
            .prepare_cached(
                "SELECT NOT EXISTS (SELECT 1 FROM deliveries WHERE event_id = ?1 AND handler = ?2
                                    AND state IN ('ready', 'claimed', 'blocked') AND NOT discard)",
            )?
            .query_row(params![event.id, handler], |row| row.get(0));
    }
    let key = event.ordering_key.as_deref();
    let lane = key
        .filter(|_| task.is_ordered(handler))
        .map(|key| lane(&event.provider, key));
    let before = lanes::of(db, event.id, handler)?;
    let changed = db
        .prepare_cached(
            "INSERT INTO deliveries (event_id, handler, state, run_at, ordering_key, lane, lane_at, dead_holds, share)
             VALUES (?1, ?2, CASE WHEN ?5 IS NULL THEN 'ready' ELSE 'blocked' END, ?3, ?4, ?5, ?6, ?7, ?8 | 1)
             ON CONFLICT (event_id, handler)
             DO UPDATE SET state = excluded.state, run_at = excluded.run_at, attempts = 0, last_error = NULL, lost = 0,
                           lane = excluded.lane, lane_at = excluded.lane_at, dead_holds = excluded.dead_holds,
                           share = excluded.share
             WHERE state IN ('dead', 'discarded')",
        )?
        .execute(params![
            event.id,
            handler,
            now(),
            key,
            lane,
            lane.map(|_| event.at),
            holds(&task.ordered, handler),
            share(&event.provider),
        ])?;
    for lane in [before, lane].into_iter().flatten() {
        lanes::advance(db, handler, lane)?;
    }
    Ok(changed == 1)
}

/// Writes a line of the audit, or adds to the one of an earlier chunk.
pub(super) fn record(
    db: &Connection,
    line: Option<i64>,
    action: &str,
    target: &str,
    (actor, reason): (&str, Option<&str>),
    deliveries: u64,
) -> rusqlite::Result<i64> {
    let count = i64::try_from(deliveries).unwrap_or(i64::MAX);
    if let Some(line) = line {
        db.prepare_cached("UPDATE audit SET deliveries = deliveries + ?2 WHERE id = ?1")?
            .execute(params![line, count])?;
        return Ok(line);
    }
    db.prepare_cached(
        "INSERT INTO audit (at, actor, action, target, reason, deliveries) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![now(), actor, action, target, reason, count])?;
    Ok(db.last_insert_rowid())
}

/// Lines of the audit, newest first.
pub(super) async fn audit(db: &SqlitePool, filter: &AuditFilter) -> Result<Vec<AuditRow>, StoreError> {
    let rows = sqlx::query(
        "SELECT id, at, actor, action, target, reason, deliveries FROM audit
         WHERE (?1 IS NULL OR actor = ?1) AND (?2 IS NULL OR action = ?2) AND (?3 IS NULL OR id < ?3)
         ORDER BY id DESC LIMIT ?4",
    )
    .bind(&filter.actor)
    .bind(&filter.action)
    .bind(filter.before)
    .bind(filter.limit)
    .fetch_all(db)
    .await
    .map_err(|error| read_error(&error))?;
    let row = |row: &sqlx::sqlite::SqliteRow| {
        Ok(AuditRow {
            id: row.try_get(0)?,
            at: timestamp(row.try_get(1)?),
            actor: row.try_get(2)?,
            action: row.try_get(3)?,
            target: row.try_get(4)?,
            reason: row.try_get(5)?,
            deliveries: row.try_get::<i64, _>(6)?.unsigned_abs(),
        })
    };
    let rows: sqlx::Result<_> = rows.iter().map(row).collect();
    rows.map_err(|error| read_error(&error))
}
