//! Reads for people, on connections that cannot write.

use std::time::{Duration, Instant};

use bytes::Bytes;
use jiff::Timestamp;
use sqlx::{QueryBuilder, Row as _, Sqlite, SqlitePool, sqlite::SqliteRow};

use super::{
    super::{
        EventDetail, EventFilter, HandlerStats, Page, Received, Stats, StoreError,
        assemble::{Head, Parts, assemble},
        filter::{Bounds, FEW, Search, Wanted, period, select},
        walk::Walk,
    },
    connect::{now, read_error, timestamp},
    steps,
};
use crate::domain::{Attempt, AttemptOutcome, Delivery, DeliveryState};

type Read<T> = Result<T, StoreError>;

pub(super) async fn events(db: &SqlitePool, filter: &EventFilter, cursor: Option<i64>, limit: u32) -> Read<Page> {
    let (ids, next) = page(db, filter, cursor, limit).await?;
    let events = details(db, &ids)
        .await?
        .into_iter()
        .map(|detail| detail.event)
        .collect();
    Ok(Page { events, next })
}

/// Ids of a page of events, newest first, and where the next one begins.
pub(super) async fn page(
    db: &SqlitePool,
    filter: &EventFilter,
    cursor: Option<i64>,
    limit: u32,
) -> Read<(Vec<i64>, Option<i64>)> {
    let bounds = bounds(db, filter).await?;
    let (first, last): (i64, i64) = sqlx::query_as(
        "SELECT coalesce((SELECT min(id) FROM webhook_events), 1), coalesce((SELECT max(id) FROM webhook_events), 0)",
    )
    .fetch_one(db)
    .await
    .map_err(|error| read_error(&error))?;
    let high = [cursor, bounds.high, Some(last + 1)].into_iter().flatten().min();
    let (low, high) = (first.max(bounds.low.unwrap_or(first)), high.unwrap_or(first));
    if let Some(all) = few_of(db, filter).await? {
        let limit = limit.max(1);
        let bounds = Bounds {
            low: Some(low),
            high: Some(high),
            among: Some(all),
            ..Bounds::default()
        };
        let wanted = Wanted::Ids {
            limit: limit.saturating_add(1),
        };
        let mut ids = found(db, wanted, filter, bounds).await?;
        let has_more = ids.len() > limit as usize;
        ids.truncate(limit as usize);
        let next = ids.last().copied().filter(|_| has_more);
        return Ok((ids, next));
    }
    let mut walk = Walk::new(low, high, limit);
    while let Some((low, high, wanted)) = walk.window() {
        let started = Instant::now();
        let window = Bounds {
            low: Some(low),
            high: Some(high),
            provider: Some("+e.provider"),
            ..Bounds::default()
        };
        let ids = found(db, Wanted::Ids { limit: wanted }, filter, window).await?;
        walk.learn(ids, started.elapsed());
    }
    Ok(walk.end())
}

async fn found(db: &SqlitePool, wanted: Wanted, filter: &EventFilter, bounds: Bounds) -> Read<Vec<i64>> {
    select(wanted, filter, None, bounds, bind_time)
        .build_query_scalar()
        .fetch_all(db)
        .await
        .map_err(|error| read_error(&error))
}

/// All ids of the filter's provider, where it has few: a walk would look at everyone's events to find them.
async fn few_of(db: &SqlitePool, filter: &EventFilter) -> Read<Option<Vec<i64>>> {
    let Some(provider) = &filter.provider else {
        return Ok(None);
    };
    let ids: Vec<i64> = sqlx::query_scalar("SELECT id FROM webhook_events WHERE provider = ?1 LIMIT ?2")
        .bind(provider)
        .bind(i64::try_from(FEW).unwrap_or(i64::MAX))
        .fetch_all(db)
        .await
        .map_err(|error| read_error(&error))?;
    Ok(Some(ids).filter(|ids| ids.len() < FEW))
}

/// Ids of the events that match, newest first.
pub(super) async fn ids(db: &SqlitePool, filter: &EventFilter, cursor: Option<i64>, limit: u32) -> Read<Vec<i64>> {
    let bounds = bounds(db, filter).await?;
    select(Wanted::Ids { limit }, filter, cursor, bounds, bind_time)
        .build_query_scalar()
        .fetch_all(db)
        .await
        .map_err(|error| read_error(&error))
}

pub(super) async fn count(db: &SqlitePool, filter: &EventFilter) -> Read<u64> {
    let bounds = bounds(db, filter).await?;
    let count: i64 = select(Wanted::Count, filter, None, bounds, bind_time)
        .build_query_scalar()
        .fetch_one(db)
        .await
        .map_err(|error| read_error(&error))?;
    Ok(count.unsigned_abs())
}

pub(super) async fn id(db: &SqlitePool, provider: &str, provider_event_id: &str) -> Read<Option<i64>> {
    sqlx::query_scalar("SELECT id FROM webhook_events WHERE provider = ?1 AND provider_event_id = ?2")
        .bind(provider)
        .bind(provider_event_id)
        .fetch_optional(db)
        .await
        .map_err(|error| read_error(&error))
}

pub(super) async fn event(db: &SqlitePool, provider: &str, provider_event_id: &str) -> Read<Option<EventDetail>> {
    match id(db, provider, provider_event_id).await? {
        Some(id) => {
            let mut detail = details(db, &[id]).await?.pop();
            if let Some(detail) = &mut detail {
                detail.steps = steps::of_event(db, id).await.map_err(|error| read_error(&error))?;
            }
            Ok(detail)
        }
        None => Ok(None),
    }
}

pub(super) async fn payload(db: &SqlitePool, provider: &str, provider_event_id: &str) -> Read<Option<Received>> {
    type Row = (Option<String>, Option<String>, Option<Vec<u8>>);
    let row: Option<Row> = sqlx::query_as(
        "SELECT content_type, headers, payload FROM webhook_events WHERE provider = ?1 AND provider_event_id = ?2",
    )
    .bind(provider)
    .bind(provider_event_id)
    .fetch_optional(db)
    .await
    .map_err(|error| read_error(&error))?;
    Ok(row.map(|(content_type, headers, bytes)| Received {
        content_type,
        headers,
        bytes: bytes.map(Bytes::from),
    }))
}

pub(super) async fn stats(db: &SqlitePool) -> Read<Stats> {
    read_stats(db).await.map_err(|error| read_error(&error))
}

async fn read_stats(db: &SqlitePool) -> sqlx::Result<Stats> {
    let providers: Vec<(String, i64)> =
        sqlx::query_as("SELECT provider, count(*) FROM webhook_events GROUP BY provider ORDER BY provider")
            .fetch_all(db)
            .await?;
    let counts: (i64, i64, i64, i64, i64) = sqlx::query_as(
        "SELECT (SELECT count(DISTINCT event_id) FROM deliveries WHERE state IN ('ready', 'claimed', 'blocked')),
                (SELECT count(DISTINCT event_id) FROM deliveries d WHERE state = 'dead'
                 AND NOT EXISTS (SELECT 1 FROM deliveries o WHERE o.event_id = d.event_id
                                 AND o.state IN ('ready', 'claimed', 'blocked'))),
                (SELECT count(*) FROM webhook_events e WHERE routes = ''
                 AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id)
                 AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.event_id = e.id)),
                (SELECT count(DISTINCT event_id) FROM deliveries d WHERE state = 'discarded'
                 AND NOT EXISTS (SELECT 1 FROM deliveries o WHERE o.event_id = d.event_id
                                 AND o.state <> 'discarded')),
                (SELECT coalesce(sum(seen), 0) FROM conflicts)",
    )
    .fetch_one(db)
    .await?;
    let now = now();
    let handlers = sqlx::query(
        "SELECT handler, sum(state = 'ready'), sum(state = 'claimed'), sum(state = 'blocked'), sum(state = 'dead'),
                min(CASE WHEN state = 'ready' AND run_at <= ?1 THEN run_at END)
         FROM deliveries WHERE handler <> '*' GROUP BY handler ORDER BY handler",
    )
    .bind(now)
    .fetch_all(db)
    .await?;
    Ok(Stats {
        events: providers.iter().map(|(_, n)| n.unsigned_abs()).sum(),
        pending: counts.0.unsigned_abs(),
        failed: counts.1.unsigned_abs(),
        unrouted: counts.2.unsigned_abs(),
        discarded: counts.3.unsigned_abs(),
        conflicts: counts.4.unsigned_abs(),
        handlers: handlers
            .iter()
            .map(|row| {
                Ok(HandlerStats {
                    handler: row.try_get(0)?,
                    ready: number(row, 1)?,
                    claimed: number(row, 2)?,
                    blocked: number(row, 3)?,
                    dead: number(row, 4)?,
                    oldest_due: row
                        .try_get::<Option<i64>, _>(5)?
                        .map(|due| Duration::from_micros(now.saturating_sub(due).unsigned_abs())),
                })
            })
            .collect::<sqlx::Result<_>>()?,
        providers: providers
            .into_iter()
            .map(|(name, n)| (name, n.unsigned_abs()))
            .collect(),
    })
}

/// The ids between which a filter's period lies.
async fn bounds(db: &SqlitePool, filter: &EventFilter) -> Read<Bounds> {
    let (since, until) = period(filter);
    Ok(Bounds {
        low: first_id_at(db, since).await?,
        high: first_id_at(db, until).await?,
        ..Bounds::default()
    })
}

async fn first_id_at(db: &SqlitePool, at: Option<i64>) -> Read<Option<i64>> {
    let Some(at) = at else { return Ok(None) };
    search(db, at).await.map(Some).map_err(|error| read_error(&error))
}

/// The first id and the one after the last. Apart, because SQLite reads all rows for both in one SELECT.
const ENDS: &str =
    "SELECT coalesce((SELECT min(id) FROM webhook_events), 0), coalesce((SELECT max(id) FROM webhook_events), 0) + 1";

async fn search(db: &SqlitePool, at: i64) -> sqlx::Result<i64> {
    let (low, high) = sqlx::query_as(ENDS).fetch_one(db).await?;
    let mut search = Search { low, high, at };
    while let Some((low, high)) = search.probe() {
        let found =
            sqlx::query_as("SELECT id, created_at FROM webhook_events WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT 1")
                .bind(low)
                .bind(high)
                .fetch_optional(db)
                .await?;
        search.learn(found);
    }
    Ok(search.low)
}

pub(super) async fn details(db: &SqlitePool, ids: &[i64]) -> Read<Vec<EventDetail>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    // A list of numbers is JSON as Rust prints it.
    let (heads, parts) = rows(db, &format!("{ids:?}"))
        .await
        .map_err(|error| read_error(&error))?;
    Ok(assemble(heads, parts))
}

async fn rows(db: &SqlitePool, ids: &str) -> sqlx::Result<(Vec<Head>, Parts)> {
    // One transaction, so that the four tables agree.
    let mut db = db.begin().await?;
    let heads = sqlx::query(
        "SELECT id, provider, provider_event_id, event_type, content_type, size, body_sha256, ordering_key,
                    occurred_at, created_at, routes
             FROM webhook_events WHERE id IN (SELECT value FROM json_each(?1)) ORDER BY id DESC",
    )
    .bind(ids)
    .fetch_all(&mut *db)
    .await?;
    let deliveries = sqlx::query(
        "SELECT event_id, handler, state, attempts, run_at, last_error
             FROM deliveries WHERE event_id IN (SELECT value FROM json_each(?1))",
    )
    .bind(ids)
    .fetch_all(&mut *db)
    .await?;
    let attempts = sqlx::query(
        "SELECT event_id, handler, attempt, started_at, duration_ms, outcome, detail
             FROM attempts WHERE event_id IN (SELECT value FROM json_each(?1)) ORDER BY rowid",
    )
    .bind(ids)
    .fetch_all(&mut *db)
    .await?;
    let conflicts: Vec<(i64, i64)> = sqlx::query_as(
        "SELECT event_id, sum(seen) FROM conflicts
             WHERE event_id IN (SELECT value FROM json_each(?1)) GROUP BY event_id",
    )
    .bind(ids)
    .fetch_all(&mut *db)
    .await?;
    db.commit().await?;
    let parts = Parts {
        deliveries: deliveries.iter().map(delivery).collect::<sqlx::Result<_>>()?,
        attempts: attempts.iter().map(attempt).collect::<sqlx::Result<_>>()?,
        conflicts: conflicts.into_iter().map(|(id, n)| (id, n.unsigned_abs())).collect(),
    };
    Ok((heads.iter().map(head).collect::<sqlx::Result<_>>()?, parts))
}

fn head(row: &SqliteRow) -> sqlx::Result<Head> {
    Ok(Head {
        id: row.try_get(0)?,
        provider: row.try_get(1)?,
        provider_event_id: row.try_get(2)?,
        event_type: row.try_get(3)?,
        content_type: row.try_get(4)?,
        size: number(row, 5)?,
        body_sha256: row.try_get::<&[u8], _>(6)?.try_into().unwrap_or_default(),
        ordering_key: row.try_get(7)?,
        occurred_at: row.try_get::<Option<i64>, _>(8)?.map(timestamp),
        created_at: timestamp(row.try_get(9)?),
        routes: row.try_get(10)?,
    })
}

fn delivery(row: &SqliteRow) -> sqlx::Result<(i64, Delivery)> {
    let state = DeliveryState::parse(row.try_get(2)?).unwrap_or(DeliveryState::Ready);
    let delivery = Delivery {
        handler: row.try_get(1)?,
        state,
        attempts: row.try_get(3)?,
        run_at: (state == DeliveryState::Ready)
            .then(|| row.try_get(4).map(timestamp))
            .transpose()?,
        last_error: row.try_get(5)?,
    };
    Ok((row.try_get(0)?, delivery))
}

fn attempt(row: &SqliteRow) -> sqlx::Result<(i64, Attempt)> {
    let attempt = Attempt {
        handler: row.try_get(1)?,
        attempt: row.try_get(2)?,
        started_at: timestamp(row.try_get(3)?),
        duration_ms: number(row, 4)?,
        outcome: AttemptOutcome::parse(row.try_get(5)?).unwrap_or(AttemptOutcome::Lost),
        detail: row.try_get(6)?,
    };
    Ok((row.try_get(0)?, attempt))
}

fn number(row: &SqliteRow, column: usize) -> sqlx::Result<u64> {
    Ok(row.try_get::<i64, _>(column)?.unsigned_abs())
}

fn bind_time(sql: &mut QueryBuilder<Sqlite>, at: Timestamp) {
    sql.push_bind(at.as_microsecond());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_the_ledger_are_looked_up() {
        let db = rusqlite::Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE TABLE webhook_events (id INTEGER PRIMARY KEY)")
            .unwrap();
        let mut plan = db.prepare(&format!("EXPLAIN QUERY PLAN {ENDS}")).unwrap();
        let steps = plan.query_map([], |row| row.get::<_, String>(3)).unwrap();
        let steps: Vec<String> = steps.map(Result::unwrap).collect();
        assert!(!steps.iter().any(|step| step == "SCAN webhook_events"), "{steps:?}");
        assert_eq!(steps.iter().filter(|step| *step == "SEARCH webhook_events").count(), 2);
    }
}
