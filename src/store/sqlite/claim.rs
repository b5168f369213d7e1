//! Claims, their renewal, and the end of those that ran out.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Row, params};

use super::{
    super::{AttemptLimit, ClaimRequest, Lease, Swept},
    connect::{micros, now, timestamp},
    lanes,
    settle::remember,
};
use crate::domain::{AttemptOutcome, Claim, StoredEvent};

/// Shares of one handler that take turns in one claim, at most; the claim after it takes what is left.
const MOST_SHARES: usize = 1_000;

pub(super) fn claim(db: &Connection, request: &ClaimRequest) -> rusqlite::Result<Vec<Claim>> {
    let mut due = db.prepare_cached(
        "SELECT d.event_id, e.size FROM deliveries d CROSS JOIN webhook_events e
         WHERE d.state = 'ready' AND d.handler = ?1 AND d.run_at <= ?2 AND d.lost = 0 AND e.id = d.event_id
         ORDER BY d.run_at, d.event_id LIMIT ?3",
    )?;
    let now = now();
    let mut taker = Taker::new(db, request.lease)?;
    let (mut claims, mut bytes) = (Vec::new(), 0_usize);
    for (handler, limit) in &request.wants {
        let mut ids = Vec::new();
        let mut add = |id: i64, size: u32, is_first: bool| {
            bytes = bytes.saturating_add(size as usize);
            let fits = bytes <= request.max_bytes || (is_first && ids.is_empty());
            if fits {
                ids.push(id);
            }
            fits
        };
        if request.fair {
            for (id, size) in fair(db, handler, now, *limit)? {
                if !add(id, size, claims.is_empty()) {
                    break;
                }
            }
        } else {
            let mut rows = due.query(params![&**handler, now, limit])?;
            while let Some(row) = rows.next()? {
                if !add(row.get(0)?, row.get(1)?, claims.is_empty()) {
                    break;
                }
            }
        }
        for id in ids {
            claims.extend(taker.take(id, handler)?);
        }
        if bytes > request.max_bytes {
            break;
        }
    }
    Ok(claims)
}

/// Due deliveries of one handler with their sizes: the first of each share, then the second of each, and so on.
fn fair(db: &Connection, handler: &str, now: i64, limit: u32) -> rusqlite::Result<Vec<(i64, u32)>> {
    let mut next = db.prepare_cached(
        "SELECT share FROM deliveries WHERE state = 'ready' AND handler = ?1 AND share > ?2 ORDER BY share LIMIT 1",
    )?;
    let mut due = db.prepare_cached(
        "SELECT d.event_id, e.size FROM deliveries d CROSS JOIN webhook_events e
         WHERE d.state = 'ready' AND d.handler = ?1 AND d.share = ?2 AND d.run_at <= ?3 AND d.lost = 0
           AND e.id = d.event_id
         ORDER BY d.run_at, d.event_id LIMIT ?4",
    )?;
    let mut shares: Vec<i64> = Vec::new();
    let mut last = i64::MIN;
    while let Some(share) = next.query_row(params![handler, last], |row| row.get(0)).optional()? {
        shares.push(share);
        last = share;
        if shares.len() >= MOST_SHARES {
            break;
        }
    }
    let part = limit.div_ceil(u32::try_from(shares.len().max(1)).unwrap_or(u32::MAX));
    let mut found = Vec::new();
    for share in shares {
        let rows = due.query_map(params![handler, share, now, part], |row| Ok((row.get(0)?, row.get(1)?)))?;
        for (nth, row) in rows.enumerate() {
            found.push((nth, row?));
        }
    }
    found.sort_by_key(|(nth, _)| *nth);
    Ok(found.into_iter().map(|(_, row)| row).collect())
}

pub(super) fn claim_suspect(
    db: &Connection,
    handlers: &[Arc<str>],
    lease: Duration,
) -> rusqlite::Result<Option<Claim>> {
    let mut suspects = db.prepare_cached(
        "SELECT event_id, handler FROM deliveries WHERE state = 'ready' AND lost > 0 AND run_at <= ?1
         ORDER BY run_at, event_id",
    )?;
    let mut rows = suspects.query(params![now()])?;
    let mut found = None;
    while let Some(row) = rows.next()? {
        let name: String = row.get(1)?;
        if let Some(handler) = handlers.iter().find(|handler| ***handler == *name) {
            found = Some((row.get(0)?, handler));
            break;
        }
    }
    drop(rows);
    match found {
        Some((id, handler)) => Taker::new(db, lease)?.take(id, handler),
        None => Ok(None),
    }
}

/// Claims deliveries one by one, all with one token.
struct Taker<'db> {
    take: CachedStatement<'db>,
    read: CachedStatement<'db>,
    token: i64,
    until: i64,
}

impl<'db> Taker<'db> {
    fn new(db: &'db Connection, lease: Duration) -> rusqlite::Result<Self> {
        Ok(Self {
            take: db.prepare_cached(
                "UPDATE deliveries SET state = 'claimed', attempts = attempts + 1, lease_token = ?3, lease_until = ?4
                 WHERE event_id = ?1 AND handler = ?2 RETURNING attempts",
            )?,
            read: db.prepare_cached(
                "SELECT id, provider, provider_event_id, event_type, content_type, body_sha256, ordering_key,
                        occurred_at, created_at, headers, payload
                 FROM webhook_events WHERE id = ?1 AND payload IS NOT NULL",
            )?,
            token: rand::random(),
            until: now().saturating_add(micros(lease)),
        })
    }

    /// Bytes that are gone cannot be delivered: the lease runs out, and in the end the delivery is dead.
    fn take(&mut self, id: i64, handler: &Arc<str>) -> rusqlite::Result<Option<Claim>> {
        let row = params![id, &**handler, self.token, self.until];
        let attempt = self.take.query_row(row, |row| row.get(0))?;
        let mut event = self.read.query(params![id])?;
        let Some(row) = event.next()? else { return Ok(None) };
        Ok(Some(Claim {
            event: Arc::new(stored(row)?),
            handler: Arc::clone(handler),
            attempt,
            token: self.token,
        }))
    }
}

pub(super) fn renew(db: &Connection, leases: &[Lease], lease: Duration) -> rusqlite::Result<Vec<bool>> {
    let until = now().saturating_add(micros(lease));
    let mut extend = db.prepare_cached(
        "UPDATE deliveries SET lease_until = ?4
         WHERE event_id = ?1 AND handler = ?2 AND lease_token = ?3 AND state = 'claimed'",
    )?;
    leases
        .iter()
        .map(|l| Ok(extend.execute(params![l.event_id, &*l.handler, l.token, until])? == 1))
        .collect()
}

/// A claim whose lease has run out.
struct Expired {
    id: i64,
    handler: String,
    attempts: u32,
    until: i64,
    lane: Option<i64>,
    discard: bool,
}

/// Ends at most `limit` leases.
pub(super) fn sweep(db: &Connection, limits: &[AttemptLimit], limit: u32) -> rusqlite::Result<Swept> {
    let now = now();
    let expired: Vec<Expired> = db
        .prepare_cached(
            "SELECT event_id, handler, attempts, lease_until, lane, discard FROM deliveries
             WHERE state = 'claimed' AND lease_until < ?1 ORDER BY lease_until LIMIT ?2",
        )?
        .query_map(params![now, limit], |row| {
            Ok(Expired {
                id: row.get(0)?,
                handler: row.get(1)?,
                attempts: row.get(2)?,
                until: row.get(3)?,
                lane: row.get(4)?,
                discard: row.get(5)?,
            })
        })?
        .collect::<rusqlite::Result<_>>()?;
    let mut end = db.prepare_cached(
        "UPDATE deliveries SET state = ?3, run_at = ?4, last_error = 'lease expired', lost = lost + ?5, share = share | 1,
                discard = 0, lease_token = NULL, lease_until = NULL
         WHERE event_id = ?1 AND handler = ?2",
    )?;
    let mut swept = Swept::default();
    for Expired {
        id,
        handler,
        attempts,
        until,
        lane,
        discard,
    } in expired
    {
        let known = limits.iter().find(|l| *l.handler == *handler);
        let is_last = known.is_some_and(|l| attempts >= l.attempts);
        let lost = u32::from(known.is_some_and(|l| l.isolate));
        let state = match (discard, is_last) {
            (true, _) => "discarded",
            (false, true) => "dead",
            (false, false) => "ready",
        };
        end.execute(params![id, handler, state, now, lost])?;
        remember(
            db,
            (id, &handler, attempts),
            until,
            0,
            AttemptOutcome::Lost,
            Some("lease expired"),
        )?;
        if let Some(lane) = lane {
            lanes::advance(db, &handler, lane)?;
        }
        match state {
            "dead" => swept.dead += 1,
            "ready" => swept.ready += 1,
            _ => {}
        }
    }
    Ok(swept)
}

fn stored(row: &Row<'_>) -> rusqlite::Result<StoredEvent> {
    Ok(StoredEvent {
        id: row.get(0)?,
        provider: row.get::<_, Arc<str>>(1)?,
        provider_event_id: row.get(2)?,
        event_type: row.get(3)?,
        content_type: row.get(4)?,
        body_sha256: row.get(5)?,
        ordering_key: row.get(6)?,
        occurred_at: row.get::<_, Option<i64>>(7)?.map(timestamp),
        created_at: timestamp(row.get(8)?),
        headers: row.get(9)?,
        payload: Bytes::from(row.get::<_, Vec<u8>>(10)?),
    })
}
