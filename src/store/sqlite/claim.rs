//! Claims, their renewal, and the end of those that ran out.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use rusqlite::{Connection, Row, params};

use super::{
    super::{AttemptLimit, ClaimRequest, Lease, Swept},
    connect::{micros, now, timestamp},
    settle::remember,
};
use crate::domain::{AttemptOutcome, Claim, StoredEvent};

pub(super) fn claim(db: &Connection, request: &ClaimRequest) -> rusqlite::Result<Vec<Claim>> {
    let mut due = db.prepare_cached(
        "SELECT d.event_id, e.size FROM deliveries d CROSS JOIN webhook_events e
         WHERE d.state = 'ready' AND d.handler = ?1 AND d.run_at <= ?2 AND e.id = d.event_id
         ORDER BY d.run_at, d.event_id LIMIT ?3",
    )?;
    let mut take = db.prepare_cached(
        "UPDATE deliveries SET state = 'claimed', attempts = attempts + 1, lease_token = ?3, lease_until = ?4
         WHERE event_id = ?1 AND handler = ?2 RETURNING attempts",
    )?;
    let mut read = db.prepare_cached(
        "SELECT id, provider, provider_event_id, event_type, content_type, body_sha256, ordering_key, occurred_at,
                created_at, headers, payload
         FROM webhook_events WHERE id = ?1 AND payload IS NOT NULL",
    )?;
    let now = now();
    let until = now.saturating_add(micros(request.lease));
    let token: i64 = rand::random();
    let (mut claims, mut bytes) = (Vec::new(), 0_usize);
    for (handler, limit) in &request.wants {
        let mut ids = Vec::new();
        let mut rows = due.query(params![&**handler, now, limit])?;
        while let Some(row) = rows.next()? {
            bytes = bytes.saturating_add(row.get::<_, u32>(1)? as usize);
            if bytes > request.max_bytes && !(claims.is_empty() && ids.is_empty()) {
                break;
            }
            ids.push(row.get::<_, i64>(0)?);
        }
        drop(rows);
        for id in ids {
            let attempt = take.query_row(params![id, &**handler, token, until], |row| row.get(0))?;
            // Bytes that are gone cannot be delivered: the lease runs out, and in the end the delivery is dead.
            let mut event = read.query(params![id])?;
            if let Some(row) = event.next()? {
                claims.push(Claim {
                    event: Arc::new(stored(row)?),
                    handler: Arc::clone(handler),
                    attempt,
                    token,
                });
            }
        }
        if bytes > request.max_bytes {
            break;
        }
    }
    Ok(claims)
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

/// Ends at most `limit` leases.
pub(super) fn sweep(db: &Connection, limits: &[AttemptLimit], limit: u32) -> rusqlite::Result<Swept> {
    let now = now();
    let expired: Vec<(i64, String, u32, i64)> = db
        .prepare_cached(
            "SELECT event_id, handler, attempts, lease_until FROM deliveries
             WHERE state = 'claimed' AND lease_until < ?1 ORDER BY lease_until LIMIT ?2",
        )?
        .query_map(params![now, limit], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })?
        .collect::<rusqlite::Result<_>>()?;
    let mut end = db.prepare_cached(
        "UPDATE deliveries SET state = ?3, run_at = ?4, last_error = 'lease expired',
                lease_token = NULL, lease_until = NULL
         WHERE event_id = ?1 AND handler = ?2",
    )?;
    let mut swept = Swept::default();
    for (id, handler, attempts, until) in expired {
        let is_last = limits.iter().any(|l| *l.handler == *handler && attempts >= l.attempts);
        let state = if is_last { "dead" } else { "ready" };
        end.execute(params![id, handler, state, now])?;
        remember(
            db,
            (id, &handler, attempts),
            until,
            0,
            AttemptOutcome::Lost,
            Some("lease expired"),
        )?;
        if is_last {
            swept.dead += 1;
        } else {
            swept.ready += 1;
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
