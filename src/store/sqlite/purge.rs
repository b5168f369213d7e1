//! Retention: walks the ledger from its oldest event, a chunk at a time.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use rusqlite::{Connection, params};

use super::{
    super::{PurgePolicy, Purged},
    connect::{micros, now},
};

/// Pages given back to the file system after a chunk, so that the file shrinks without a pause.
const VACUUM_PAGES: u32 = 1000;

/// Where the walks of this process are; a walk that came to its end begins anew.
#[derive(Default)]
pub(super) struct Cursors {
    real: AtomicI64,
    dry: AtomicI64,
}

impl Cursors {
    pub(super) fn start(&self, dry_run: bool) -> i64 {
        self.of(dry_run).load(Relaxed)
    }

    pub(super) fn advance(&self, dry_run: bool, next: i64) {
        self.of(dry_run).store(next, Relaxed);
    }

    fn of(&self, dry_run: bool) -> &AtomicI64 {
        if dry_run { &self.dry } else { &self.real }
    }
}

pub(super) struct Walked {
    pub(super) purged: Purged,
    /// The id after which the next chunk begins; zero at the end.
    pub(super) next: i64,
}

struct Aged {
    id: i64,
    created_at: i64,
    has_payload: bool,
    is_pending: bool,
    is_dead: bool,
}

/// One chunk. The ledger is in order of arrival, so the walk ends at the first event that is too young for any rule.
pub(super) fn purge(
    db: &Connection,
    policy: PurgePolicy,
    dry_run: bool,
    from: i64,
    chunk: u32,
) -> rusqlite::Result<Walked> {
    let now = now();
    let before = |age| now.saturating_sub(micros(age));
    let youngest = before(policy.done.min(policy.failed));
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
    let is_full = rows.len() == chunk as usize;
    let mut purged = Purged::default();
    let mut next = 0;
    for row in rows {
        if row.created_at >= youngest {
            next = 0;
            break;
        }
        next = row.id;
        let age = if row.is_dead { policy.failed } else { policy.done };
        if row.is_pending || row.created_at >= before(age) {
            continue;
        }
        if row.created_at < before(policy.dedupe) {
            purged.events += 1;
            purged.payloads += u64::from(row.has_payload);
            if !dry_run {
                forget(db, row.id)?;
            }
        } else if row.has_payload {
            purged.payloads += 1;
            if !dry_run {
                strip(db, row.id)?;
            }
        }
    }
    if !is_full {
        next = 0;
    }
    purged.more = next != 0;
    if !dry_run && purged.events + purged.payloads > 0 {
        db.execute_batch(&format!("PRAGMA incremental_vacuum({VACUUM_PAGES})"))?;
    }
    Ok(Walked { purged, next })
}

fn strip(db: &Connection, id: i64) -> rusqlite::Result<()> {
    db.prepare_cached("UPDATE webhook_events SET payload = NULL, headers = NULL WHERE id = ?1")?
        .execute(params![id])?;
    db.prepare_cached("DELETE FROM attempts WHERE event_id = ?1")?
        .execute(params![id])?;
    db.prepare_cached("DELETE FROM deliveries WHERE event_id = ?1 AND state = 'dead'")?
        .execute(params![id])?;
    Ok(())
}

fn forget(db: &Connection, id: i64) -> rusqlite::Result<()> {
    for sql in [
        "DELETE FROM webhook_events WHERE id = ?1",
        "DELETE FROM deliveries WHERE event_id = ?1",
        "DELETE FROM attempts WHERE event_id = ?1",
        "DELETE FROM conflicts WHERE event_id = ?1",
    ] {
        db.prepare_cached(sql)?.execute(params![id])?;
    }
    Ok(())
}
