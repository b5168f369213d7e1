//! The steps of native handlers. Everything here runs on the writer, where a claim cannot end meanwhile.

use rusqlite::{Connection, OptionalExtension as _, params};
use sqlx::SqlitePool;

use super::{
    super::{Lease, NewStep, Step},
    connect::{now, timestamp},
};

/// The steps of a delivery; `None` when the claim has ended.
pub(super) fn list(db: &Connection, claim: &Lease) -> rusqlite::Result<Option<Vec<Step>>> {
    if !is_held(db, claim)? {
        return Ok(None);
    }
    db.prepare_cached(
        "SELECT step, attempt, recorded_at, result FROM steps WHERE event_id = ?1 AND handler = ?2
         ORDER BY recorded_at, step",
    )?
    .query_map(params![claim.event_id, &*claim.handler], |row| {
        Ok(Step {
            handler: claim.handler.to_string(),
            name: row.get(0)?,
            attempt: row.get(1)?,
            recorded_at: timestamp(row.get(2)?),
            result: row.get(3)?,
        })
    })?
    .collect::<rusqlite::Result<_>>()
    .map(Some)
}

/// Keeps a step, if the claim still holds.
pub(super) fn record(db: &Connection, step: &NewStep) -> rusqlite::Result<bool> {
    if !is_held(db, &step.claim)? {
        return Ok(false);
    }
    db.prepare_cached(
        "INSERT INTO steps (event_id, handler, step, attempt, recorded_at, result) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT DO NOTHING",
    )?
    .execute(params![
        step.claim.event_id,
        &*step.claim.handler,
        step.name,
        step.attempt,
        now(),
        step.result
    ])?;
    Ok(true)
}

/// Forgets what was done of a delivery that is about to be given a new life.
pub(super) fn forget(db: &Connection, event_id: i64, handler: &str) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM steps WHERE event_id = ?1 AND handler = ?2")?
        .execute(params![event_id, handler])?;
    Ok(())
}

/// The steps of all handlers of an event, for people.
pub(super) async fn of_event(db: &SqlitePool, event_id: i64) -> sqlx::Result<Vec<Step>> {
    let rows: Vec<(String, String, u32, i64, String)> = sqlx::query_as(
        "SELECT handler, step, attempt, recorded_at, result FROM steps WHERE event_id = ?1
         ORDER BY recorded_at, handler, step",
    )
    .bind(event_id)
    .fetch_all(db)
    .await?;
    let step = |(handler, name, attempt, recorded_at, result)| Step {
        handler,
        name,
        attempt,
        recorded_at: timestamp(recorded_at),
        result,
    };
    Ok(rows.into_iter().map(step).collect())
}

fn is_held(db: &Connection, claim: &Lease) -> rusqlite::Result<bool> {
    let held = db
        .prepare_cached(
            "SELECT 1 FROM deliveries WHERE event_id = ?1 AND handler = ?2 AND lease_token = ?3 AND state = 'claimed'",
        )?
        .query_row(params![claim.event_id, &*claim.handler, claim.token], |_| Ok(()))
        .optional()?;
    Ok(held.is_some())
}
