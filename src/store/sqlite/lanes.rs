//! Advances the lanes of ordered deliveries (`store::ordering`), in the transaction that changed them.

use std::{cell::Cell, sync::Arc};

use rusqlite::{Connection, OptionalExtension as _, params};

use super::super::ordering::{Lane, holds};
use crate::domain::OrderedHandler;

/// What the writer knows of lanes.
pub(super) struct Lanes {
    /// Some deliveries may be ordered. Where none are, the settle of one costs nothing for lanes.
    pub(super) are_used: bool,
    /// A delivery became ready in this transaction.
    pub(super) woken: Cell<bool>,
}

impl Lanes {
    /// Makes a change of one delivery, and lets the next one of its lane go if that was what it waited for.
    pub(super) fn around(
        &self,
        db: &Connection,
        (event_id, handler): (i64, &str),
        change: impl FnOnce() -> rusqlite::Result<bool>,
    ) -> rusqlite::Result<bool> {
        let lane = if self.are_used {
            of(db, event_id, handler)?
        } else {
            None
        };
        let is_changed = change()?;
        if let Some(lane) = lane
            && is_changed
            && advance(db, handler, lane)?
        {
            self.woken.set(true);
        }
        Ok(is_changed)
    }
}

/// Advances one lane; says whether a delivery became ready.
pub(super) fn advance(db: &Connection, handler: &str, lane: i64) -> rusqlite::Result<bool> {
    let first: Option<(i64, String)> = db
        .prepare_cached(
            "SELECT event_id, state FROM deliveries
             WHERE handler = ?1 AND lane = ?2 AND lane IS NOT NULL AND state <> 'discarded'
               AND (state <> 'dead' OR dead_holds)
             ORDER BY lane_at, event_id LIMIT 1",
        )?
        .query_row(params![handler, lane], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((first, state)) = first else { return Ok(false) };
    db.prepare_cached(
        "UPDATE deliveries SET state = 'blocked'
         WHERE handler = ?1 AND lane = ?2 AND lane IS NOT NULL AND state IN ('ready', 'claimed')
           AND state = 'ready' AND event_id <> ?3",
    )?
    .execute(params![handler, lane, first])?;
    if state != "blocked" {
        return Ok(false);
    }
    let woken = db
        .prepare_cached(
            "UPDATE deliveries SET state = 'ready'
             WHERE event_id = ?3 AND handler = ?1
               AND NOT EXISTS (SELECT 1 FROM deliveries
                               WHERE handler = ?1 AND lane = ?2 AND lane IS NOT NULL AND state IN ('ready', 'claimed'))",
        )?
        .execute(params![handler, lane, first])?;
    Ok(woken == 1)
}

/// The lane of a delivery, if it is ordered.
pub(super) fn of(db: &Connection, event_id: i64, handler: &str) -> rusqlite::Result<Option<i64>> {
    let lane = db
        .prepare_cached("SELECT lane FROM deliveries WHERE event_id = ?1 AND handler = ?2")?
        .query_row(params![event_id, handler], |row| row.get(0))
        .optional()?;
    Ok(lane.flatten())
}

/// Advances lanes that were left with blocked deliveries and none that runs, as an older version of the configuration
/// or a person with SQL could leave them: at most `limit` lanes after the one given. Gives the last one looked at, or
/// `None` at the end.
pub(super) fn repair(db: &Connection, after: Option<&Lane>, limit: usize) -> rusqlite::Result<(u64, Option<Lane>)> {
    let mut next = db.prepare_cached(
        "SELECT handler, lane FROM deliveries
         WHERE state = 'blocked' AND lane IS NOT NULL AND (handler, lane) > (?1, ?2) ORDER BY handler, lane LIMIT 1",
    )?;
    let (mut handler, mut lane) = after.cloned().unwrap_or((String::new(), i64::MIN));
    let mut woken = 0;
    for _ in 0..limit {
        let found = next.query_row(params![handler, lane], |row| Ok((row.get(0)?, row.get(1)?)));
        let Some(found) = found.optional()? else {
            return Ok((woken, None));
        };
        (handler, lane) = found;
        woken += u64::from(advance(db, &handler, lane)?);
    }
    Ok((woken, Some((handler, lane))))
}

/// Makes what is stored hold its lane or not, as the handlers are configured now.
pub(super) fn adopt(db: &Connection, ordered: &Arc<[OrderedHandler]>) -> rusqlite::Result<()> {
    for handler in &**ordered {
        let holds = holds(ordered, &handler.name);
        db.prepare_cached(
            "UPDATE deliveries SET dead_holds = ?2
             WHERE handler = ?1 AND lane IS NOT NULL AND state <> 'discarded' AND dead_holds <> ?2",
        )?
        .execute(params![&*handler.name, holds])?;
    }
    Ok(())
}

/// Whether any delivery is ordered; where none is and no handler is, nobody looks for lanes.
pub(super) fn exist(db: &Connection) -> rusqlite::Result<bool> {
    db.query_row(
        "SELECT EXISTS (SELECT 1 FROM deliveries WHERE lane IS NOT NULL AND state <> 'discarded')",
        [],
        |row| row.get(0),
    )
}
