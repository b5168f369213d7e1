//! Retention: walks the ledger from its oldest event, a chunk at a time.

use rusqlite::{Connection, params};

use super::{
    super::{
        PurgePolicy,
        retention::{Aged, Verdict, judge},
    },
    connect::now,
    lanes,
};

/// Pages given back to the file system after a chunk, so that the file shrinks without a pause.
const VACUUM_PAGES: u32 = 1000;

/// One chunk of the walk, after the event `from`.
pub(super) fn purge(
    db: &Connection,
    policy: PurgePolicy,
    dry_run: bool,
    from: i64,
    chunk: u32,
) -> rusqlite::Result<Verdict> {
    let rows: Vec<Aged> = db
        .prepare_cached(
            "SELECT id, created_at, typeof(payload) <> 'null',
                    EXISTS (SELECT 1 FROM deliveries d
                            WHERE d.event_id = e.id AND d.state IN ('ready', 'claimed', 'blocked')),
                    EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id AND d.state = 'dead')
             FROM webhook_events e WHERE id > ?1 ORDER BY id LIMIT ?2",
        )?
        .query_map(params![from, chunk], |row| {
            Ok(Aged {
                id: row.get(0)?,
                created_at: row.get(1)?,
                has_payload: row.get(2)?,
                is_pending: row.get(3)?,
                is_dead: row.get(4)?,
            })
        })?
        .collect::<rusqlite::Result<_>>()?;
    let verdict = judge(&rows, policy, now(), rows.len() == chunk as usize);
    if !dry_run {
        for &id in &verdict.strip {
            strip(db, id)?;
        }
        for &id in &verdict.forget {
            forget(db, id)?;
        }
        if !verdict.strip.is_empty() || !verdict.forget.is_empty() {
            db.execute_batch(&format!("PRAGMA incremental_vacuum({VACUUM_PAGES})"))?;
        }
    }
    Ok(verdict)
}

fn strip(db: &Connection, id: i64) -> rusqlite::Result<()> {
    db.prepare_cached("UPDATE webhook_events SET payload = NULL, headers = NULL WHERE id = ?1")?
        .execute(params![id])?;
    for sql in [
        "DELETE FROM attempts WHERE event_id = ?1",
        "DELETE FROM steps WHERE event_id = ?1",
    ] {
        db.prepare_cached(sql)?.execute(params![id])?;
    }
    leave(
        db,
        "UPDATE deliveries SET state = 'discarded', last_error = 'retention removed the payload; ' || coalesce(last_error, '')
         WHERE event_id = ?1 AND state = 'dead' RETURNING handler, lane",
        id,
    )
}

/// Removes or gives up deliveries, and lets those go that waited for them.
fn leave(db: &Connection, sql: &str, id: i64) -> rusqlite::Result<()> {
    let gone: Vec<(String, Option<i64>)> = db
        .prepare_cached(sql)?
        .query_map(params![id], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (handler, lane) in gone {
        if let Some(lane) = lane {
            lanes::advance(db, &handler, lane)?;
        }
    }
    Ok(())
}

fn forget(db: &Connection, id: i64) -> rusqlite::Result<()> {
    for sql in [
        "DELETE FROM webhook_events WHERE id = ?1",
        "DELETE FROM attempts WHERE event_id = ?1",
        "DELETE FROM steps WHERE event_id = ?1",
        "DELETE FROM conflicts WHERE event_id = ?1",
    ] {
        db.prepare_cached(sql)?.execute(params![id])?;
    }
    leave(
        db,
        "DELETE FROM deliveries WHERE event_id = ?1 RETURNING handler, lane",
        id,
    )
}
