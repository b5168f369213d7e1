//! Claims, their renewal, and the end of those that ran out.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use sqlx::{PgConnection, Row as _, postgres::PgBindIterExt as _, postgres::PgRow};

use super::{
    super::{AttemptLimit, ClaimRequest, Lease, Swept, ordering::Lane},
    micros, time,
};
use crate::domain::{Claim, StoredEvent};

pub(super) async fn claim(db: &mut PgConnection, request: &ClaimRequest) -> sqlx::Result<Vec<Claim>> {
    let token: i64 = rand::random();
    let sql = if request.fair {
        include_str!("claim_fair.sql")
    } else {
        include_str!("claim.sql")
    };
    let taken: Vec<(i64, String, i32)> = sqlx::query_as(sql)
        .bind(request.wants.iter().map(|(handler, _)| &**handler).bind_iter())
        .bind(
            request
                .wants
                .iter()
                .map(|(_, room)| i32::try_from(*room).unwrap_or(i32::MAX))
                .bind_iter(),
        )
        .bind(token)
        .bind(micros(request.lease))
        .bind(i64::try_from(request.max_bytes).unwrap_or(i64::MAX))
        .fetch_all(&mut *db)
        .await?;
    let names: Vec<&Arc<str>> = request.wants.iter().map(|(name, _)| name).collect();
    with_events(db, taken, &names, token).await
}

pub(super) async fn claim_suspect(
    db: &mut PgConnection,
    handlers: &[Arc<str>],
    lease: Duration,
) -> sqlx::Result<Option<Claim>> {
    let token: i64 = rand::random();
    let taken: Vec<(i64, String, i32)> = sqlx::query_as(
        "WITH suspect AS MATERIALIZED (
             SELECT ctid AS place FROM deliveries
             WHERE state = 'ready' AND lost > 0 AND run_at <= now() AND handler = ANY ($1)
             ORDER BY run_at, event_id LIMIT 1 FOR UPDATE SKIP LOCKED
         )
         UPDATE deliveries d
         SET state = 'claimed', attempts = d.attempts + 1, lease_token = $2,
             lease_until = now() + $3::bigint * interval '1 microsecond'
         FROM suspect s WHERE d.ctid = s.place
         RETURNING d.event_id, d.handler, d.attempts",
    )
    .bind(handlers.iter().map(|name| &**name).bind_iter())
    .bind(token)
    .bind(micros(lease))
    .fetch_all(&mut *db)
    .await?;
    let names: Vec<&Arc<str>> = handlers.iter().collect();
    Ok(with_events(db, taken, &names, token).await?.pop())
}

/// Reads the events of deliveries that were taken.
async fn with_events(
    db: &mut PgConnection,
    taken: Vec<(i64, String, i32)>,
    names: &[&Arc<str>],
    token: i64,
) -> sqlx::Result<Vec<Claim>> {
    if taken.is_empty() {
        return Ok(Vec::new());
    }
    // The bodies apart: joined to the claim they made it slower by a third.
    let mut ids: Vec<i64> = taken.iter().map(|(id, _, _)| *id).collect();
    ids.sort_unstable();
    ids.dedup();
    let events: HashMap<i64, Arc<StoredEvent>> = sqlx::query(
        "SELECT id, provider, provider_event_id, event_type, content_type, body_sha256, ordering_key, occurred_at,
                created_at, headers, payload
         FROM webhook_events WHERE id = ANY ($1) AND payload IS NOT NULL",
    )
    .bind(&ids)
    .fetch_all(db)
    .await?
    .iter()
    .map(|row| stored(row).map(|event| (event.id, Arc::new(event))))
    .collect::<sqlx::Result<_>>()?;
    // Bytes that are gone cannot be delivered: the lease runs out, and in the end the delivery is dead.
    let mut claims: Vec<Claim> = taken
        .into_iter()
        .filter_map(|(id, handler, attempts)| {
            let name = names.iter().find(|name| ****name == *handler)?;
            Some(Claim {
                event: Arc::clone(events.get(&id)?),
                handler: Arc::clone(*name),
                attempt: attempts.unsigned_abs(),
                token,
            })
        })
        .collect();
    claims.sort_by_key(|claim| claim.event.id);
    Ok(claims)
}

/// A row that an effect's transaction holds is left as it is: its claim holds, nobody can end it meanwhile, and its
/// lease is extended the next time.
pub(super) async fn renew(db: &mut PgConnection, leases: &[Lease], lease: Duration) -> sqlx::Result<Vec<bool>> {
    let held: Vec<i64> = sqlx::query_scalar(
        "WITH held AS MATERIALIZED (
             SELECT l.*
             FROM unnest($1::bigint[], $2::text[], $3::bigint[]) WITH ORDINALITY AS l (event_id, handler, token, nth)
             CROSS JOIN LATERAL (
                 SELECT 1 FROM deliveries
                 WHERE event_id = l.event_id AND handler = l.handler AND lease_token = l.token LIMIT 1
             ) d
         ),
         free AS MATERIALIZED (
             SELECT h.token, d.place
             FROM held h
             CROSS JOIN LATERAL (
                 SELECT ctid AS place FROM deliveries
                 WHERE event_id = h.event_id AND handler = h.handler AND lease_token = h.token
                 LIMIT 1 FOR UPDATE SKIP LOCKED
             ) d
         ),
         extended AS (
             UPDATE deliveries d SET lease_until = now() + $4::bigint * interval '1 microsecond'
             FROM free f WHERE d.ctid = f.place AND d.lease_token = f.token
         )
         SELECT nth FROM held",
    )
    .bind(leases.iter().map(|l| l.event_id).bind_iter())
    .bind(leases.iter().map(|l| &*l.handler).bind_iter())
    .bind(leases.iter().map(|l| l.token).bind_iter())
    .bind(micros(lease))
    .fetch_all(db)
    .await?;
    let mut holds = vec![false; leases.len()];
    for nth in held {
        if let Some(held) = usize::try_from(nth - 1).ok().and_then(|nth| holds.get_mut(nth)) {
            *held = true;
        }
    }
    Ok(holds)
}

/// Ends at most `limit` leases; gives the lanes of those that are ordered.
pub(super) async fn sweep(
    db: &mut PgConnection,
    limits: &[AttemptLimit],
    limit: u32,
) -> sqlx::Result<(Swept, Vec<Lane>)> {
    let ended: Vec<(String, String, Option<i64>)> = sqlx::query_as(
        "WITH expired AS MATERIALIZED (
             SELECT handler, attempts, lease_until, lease_token, ctid AS place FROM deliveries
             WHERE state = 'claimed' AND lease_until < now()
             ORDER BY lease_until LIMIT $3 FOR UPDATE SKIP LOCKED
         ),
         ended AS (
             UPDATE deliveries d
             SET state = CASE WHEN d.discard THEN 'discarded' WHEN x.attempts >= (SELECT max(l.attempts) FROM unnest($1::text[], $2::int4[])
                                                  AS l (handler, attempts) WHERE l.handler = x.handler)
                              THEN 'dead' WHEN d.lane IS NULL THEN 'ready' ELSE 'blocked' END,
                 run_at = now(), last_error = 'lease expired', lease_token = NULL, lease_until = NULL, discard = false,
                 lost = d.lost + CASE WHEN x.handler = ANY ($4) THEN 1 ELSE 0 END, share = d.share | 1
             FROM expired x WHERE d.ctid = x.place AND d.lease_token = x.lease_token
             RETURNING d.event_id, d.handler, d.attempts, x.lease_until, d.state, d.lane
         ),
         written AS (
             INSERT INTO attempts (event_id, handler, attempt, started_at, duration_ms, outcome, detail)
             SELECT event_id, handler, attempts, lease_until, 0, 'lost', 'lease expired' FROM ended
         )
         SELECT state, handler, lane FROM ended",
    )
    .bind(limits.iter().map(|l| &*l.handler).bind_iter())
    .bind(
        limits
            .iter()
            .map(|l| i32::try_from(l.attempts).unwrap_or(i32::MAX))
            .bind_iter(),
    )
    .bind(i64::from(limit))
    .bind(limits.iter().filter(|l| l.isolate).map(|l| &*l.handler).bind_iter())
    .fetch_all(db)
    .await?;
    let count = |states: &[&str]| {
        ended
            .iter()
            .filter(|(state, ..)| states.contains(&state.as_str()))
            .count() as u64
    };
    let swept = Swept {
        ready: count(&["ready", "blocked"]),
        dead: count(&["dead"]),
    };
    let lanes = ended
        .into_iter()
        .filter_map(|(_, handler, lane)| Some((handler, lane?)));
    Ok((swept, lanes.collect()))
}

fn stored(row: &PgRow) -> sqlx::Result<StoredEvent> {
    Ok(StoredEvent {
        id: row.try_get(0)?,
        provider: Arc::from(row.try_get::<&str, _>(1)?),
        provider_event_id: row.try_get(2)?,
        event_type: row.try_get(3)?,
        content_type: row.try_get(4)?,
        body_sha256: row.try_get::<&[u8], _>(5)?.try_into().unwrap_or_default(),
        ordering_key: row.try_get(6)?,
        occurred_at: row.try_get::<Option<time::Instant>, _>(7)?.map(|at| at.0),
        created_at: row.try_get::<time::Instant, _>(8)?.0,
        headers: row.try_get(9)?,
        payload: Bytes::from(row.try_get::<Vec<u8>, _>(10)?),
    })
}
