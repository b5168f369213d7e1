//! Idempotency keys: jobs of the writer, which many share in one transaction.

use std::{sync::Arc, time::Duration};

use rusqlite::{Connection, params};
use sqlx::{AssertSqlSafe, SqlitePool, sqlite::SqliteRow};

use super::{
    super::{
        HeldKey, KeptAnswer, KeyFilter, KeyName, KeyRow, KeyStats, KeyStep, NewKey, Reserved, StoreError,
        keys::{answer, recovery_point, state, write_headers},
    },
    connect::{micros, now, read_error, timestamp},
};

pub(super) fn reserve(db: &Connection, new: &NewKey) -> rusqlite::Result<Reserved> {
    let name = &new.name;
    let now = now();
    let token: i64 = rand::random();
    let until = now.saturating_add(micros(new.lease));
    let expires = now.saturating_add(micros(new.expiry));
    let hash = new.request_hash.as_slice();
    let inserted = db
        .prepare_cached(
            "INSERT INTO api_idempotency_keys
                 (scope, method, route, key, request_hash, lease_token, locked_until, created_at, expires_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING",
        )?
        .execute(params![
            &*name.scope,
            &*name.method,
            &*name.route,
            &*name.key,
            hash,
            token,
            until,
            now,
            expires
        ])?;
    if inserted == 1 {
        return Ok(Reserved::Yours(HeldKey {
            id: db.last_insert_rowid(),
            token,
        }));
    }
    let (id, request_hash, found, is_over): (i64, [u8; 32], _, bool) = db
        .prepare_cached(
            "SELECT id, request_hash, status, recovery_point, locked_until, expires_at, response_status,
                    response_headers, response_body, resource_id
             FROM api_idempotency_keys WHERE scope = ?1 AND method = ?2 AND route = ?3 AND key = ?4",
        )?
        .query_row(params![&*name.scope, &*name.method, &*name.route, &*name.key], |row| {
            let status: String = row.get(2)?;
            let (locked, expires): (i64, i64) = (row.get(4)?, row.get(5)?);
            let kept = answer(
                row.get(6)?,
                row.get::<_, Option<String>>(7)?.as_deref(),
                row.get(8)?,
                row.get(9)?,
            );
            let point: String = row.get(3)?;
            let hash: [u8; 32] = row.get(1)?;
            let is_held = status == "processing" && locked > now;
            let is_untouched = status == "processing" && point == "reserved" && hash == new.request_hash;
            let state = state(&status, &point, locked - now, expires - now, kept);
            Ok((row.get(0)?, hash, state, !is_held && (expires <= now || is_untouched)))
        })?;
    if !is_over {
        return Ok(Reserved::Taken {
            id,
            request_hash,
            state: found,
        });
    }
    db.prepare_cached(
        "UPDATE api_idempotency_keys
         SET request_hash = ?2, lease_token = ?3, locked_until = ?4, expires_at = ?5,
             created_at = CASE WHEN expires_at <= ?6 THEN ?6 ELSE created_at END,
             status = 'processing', recovery_point = 'reserved', completed_at = NULL,
             response_status = NULL, response_headers = NULL, response_body = NULL, resource_id = NULL
         WHERE id = ?1",
    )?
    .execute(params![id, hash, token, until, expires, now])?;
    Ok(Reserved::Yours(HeldKey { id, token }))
}

pub(super) fn take_over(db: &Connection, id: i64, lease: Duration) -> rusqlite::Result<Option<HeldKey>> {
    let (now, token): (i64, i64) = (now(), rand::random());
    let taken = db
        .prepare_cached(
            "UPDATE api_idempotency_keys
             SET status = 'processing', completed_at = NULL, lease_token = ?2, locked_until = ?3
             WHERE id = ?1 AND locked_until <= ?4
               AND (status = 'processing' OR (status = 'failed' AND response_status IS NULL))",
        )?
        .execute(params![id, token, now.saturating_add(micros(lease)), now])?;
    Ok((taken == 1).then_some(HeldKey { id, token }))
}

pub(super) fn step(db: &Connection, held: HeldKey, step: &KeyStep) -> rusqlite::Result<bool> {
    let HeldKey { id, token } = held;
    let changed = match step {
        KeyStep::Complete(kept) => return complete(db, held, kept),
        KeyStep::Sent => db
            .prepare_cached(
                "UPDATE api_idempotency_keys SET recovery_point = 'sent'
                 WHERE id = ?1 AND lease_token = ?2 AND status = 'processing'",
            )?
            .execute(params![id, token])?,
        KeyStep::Release => db
            .prepare_cached(
                "DELETE FROM api_idempotency_keys WHERE id = ?1 AND lease_token = ?2 AND status = 'processing'",
            )?
            .execute(params![id, token])?,
        KeyStep::Return => db
            .prepare_cached(
                "UPDATE api_idempotency_keys SET recovery_point = 'reserved', locked_until = ?3
                 WHERE id = ?1 AND lease_token = ?2 AND status = 'processing'",
            )?
            .execute(params![id, token, now()])?,
        KeyStep::GiveUp => db
            .prepare_cached(
                "UPDATE api_idempotency_keys SET status = 'failed', completed_at = ?3, locked_until = ?3
                 WHERE id = ?1 AND lease_token = ?2 AND status = 'processing'",
            )?
            .execute(params![id, token, now()])?,
        KeyStep::Abandon => db
            .prepare_cached(
                "UPDATE api_idempotency_keys SET locked_until = ?3
                 WHERE id = ?1 AND lease_token = ?2 AND status = 'processing'",
            )?
            .execute(params![id, token, now()])?,
    };
    Ok(changed == 1)
}

/// Whether it is still held with this token.
pub(super) fn is_held(db: &Connection, held: HeldKey) -> rusqlite::Result<bool> {
    db.prepare_cached(
        "SELECT 1 FROM api_idempotency_keys WHERE id = ?1 AND lease_token = ?2 AND status = 'processing'",
    )?
    .exists(params![held.id, held.token])
}

pub(super) fn complete(db: &Connection, held: HeldKey, kept: &KeptAnswer) -> rusqlite::Result<bool> {
    let changed = db
        .prepare_cached(
            "UPDATE api_idempotency_keys
             SET status = ?3, completed_at = ?4, response_status = ?5, response_headers = ?6, resource_id = ?7,
                 response_body = ?8
             WHERE id = ?1 AND lease_token = ?2 AND status = 'processing'",
        )?
        .execute(params![
            held.id,
            held.token,
            kept.key_status(),
            now(),
            kept.status,
            write_headers(&kept.headers),
            kept.resource_id,
            kept.body.as_deref()
        ])?;
    Ok(changed == 1)
}

pub(super) async fn reapable(db: &SqlitePool, age: Duration) -> Result<u64, StoreError> {
    let now = now();
    let count: sqlx::Result<i64> = sqlx::query_scalar(
        "SELECT count(*) FROM api_idempotency_keys
         WHERE created_at < ?1 AND expires_at <= ?2 AND (status <> 'processing' OR locked_until <= ?2)",
    )
    .bind(now.saturating_sub(micros(age)))
    .bind(now)
    .fetch_one(db)
    .await;
    count.map(i64::unsigned_abs).map_err(|error| read_error(&error))
}

pub(super) fn reap(db: &Connection, age: Duration, limit: u32) -> rusqlite::Result<u64> {
    let now = now();
    let gone = db
        .prepare_cached(
            "DELETE FROM api_idempotency_keys WHERE id IN (
                 SELECT id FROM api_idempotency_keys
                 WHERE created_at < ?1 AND expires_at <= ?2 AND (status <> 'processing' OR locked_until <= ?2)
                 ORDER BY created_at LIMIT ?3)",
        )?
        .execute(params![now.saturating_sub(micros(age)), now, limit])?;
    Ok(gone as u64)
}

const COLUMNS: &str = "id, scope, method, route, key, status, recovery_point, locked_until, response_status,
    length(response_body), resource_id, created_at, completed_at, expires_at";

pub(super) async fn abandoned(db: &SqlitePool, limit: u32) -> Result<Vec<KeyRow>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM api_idempotency_keys WHERE status = 'processing' AND locked_until <= ?1 AND recovery_point = 'sent'
         ORDER BY locked_until LIMIT ?2"
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(now())
        .bind(limit)
        .fetch_all(db)
        .await;
    read(rows)
}

pub(super) async fn list(db: &SqlitePool, filter: &KeyFilter) -> Result<Vec<KeyRow>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM api_idempotency_keys
         WHERE (?1 IS NULL OR status = ?1) AND (?2 IS NULL OR route = ?2) AND (?3 IS NULL OR key = ?3)
           AND (?4 IS NULL OR id < ?4)
         ORDER BY id DESC LIMIT ?5"
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(&filter.status)
        .bind(&filter.route)
        .bind(&filter.key)
        .bind(filter.before)
        .bind(filter.limit)
        .fetch_all(db)
        .await;
    read(rows)
}

type Kept = (Option<i64>, Option<String>, Option<Vec<u8>>, Option<String>);

pub(super) async fn one(db: &SqlitePool, id: i64) -> Result<Option<(KeyRow, Option<KeptAnswer>)>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM api_idempotency_keys WHERE id = ?1");
    let found = sqlx::query(AssertSqlSafe(sql)).bind(id).fetch_optional(db).await;
    let Some(row) = found.map_err(|error| read_error(&error))? else {
        return Ok(None);
    };
    let kept: Option<Kept> = sqlx::query_as(
        "SELECT response_status, response_headers, response_body, resource_id FROM api_idempotency_keys WHERE id = ?1",
    )
    .bind(id)
    .fetch_optional(db)
    .await
    .map_err(|error| read_error(&error))?;
    let row = key_row(&row).map_err(|error| read_error(&error))?;
    let kept = kept.and_then(|(status, headers, body, resource)| answer(status, headers.as_deref(), body, resource));
    Ok(Some((row, kept)))
}

pub(super) async fn stats(db: &SqlitePool) -> Result<KeyStats, StoreError> {
    let (processing, abandoned, completed, failed, unknown): (i64, i64, i64, i64, i64) = sqlx::query_as(
        "SELECT count(*) FILTER (WHERE status = 'processing'),
                count(*) FILTER (WHERE status = 'processing' AND locked_until <= ?1),
                count(*) FILTER (WHERE status = 'completed'),
                count(*) FILTER (WHERE status = 'failed' AND response_status IS NOT NULL),
                count(*) FILTER (WHERE status = 'failed' AND response_status IS NULL)
         FROM api_idempotency_keys",
    )
    .bind(now())
    .fetch_one(db)
    .await
    .map_err(|error| read_error(&error))?;
    Ok(KeyStats {
        processing: processing.unsigned_abs(),
        abandoned: abandoned.unsigned_abs(),
        completed: completed.unsigned_abs(),
        failed: failed.unsigned_abs(),
        unknown: unknown.unsigned_abs(),
    })
}

fn read(rows: sqlx::Result<Vec<SqliteRow>>) -> Result<Vec<KeyRow>, StoreError> {
    let rows = rows.and_then(|rows| rows.iter().map(key_row).collect::<sqlx::Result<_>>());
    rows.map_err(|error| read_error(&error))
}

fn key_row(row: &SqliteRow) -> sqlx::Result<KeyRow> {
    use sqlx::Row as _;
    let text = |i: usize| row.try_get::<String, _>(i).map(Arc::from);
    Ok(KeyRow {
        id: row.try_get(0)?,
        name: KeyName {
            scope: text(1)?,
            method: text(2)?,
            route: text(3)?,
            key: text(4)?,
        },
        status: row.try_get(5)?,
        recovery_point: recovery_point(row.try_get(6)?),
        locked_until: timestamp(row.try_get(7)?),
        response_status: row
            .try_get::<Option<i64>, _>(8)?
            .and_then(|status| u16::try_from(status).ok()),
        response_size: row.try_get::<Option<i64>, _>(9)?.map(i64::unsigned_abs),
        resource_id: row.try_get(10)?,
        created_at: timestamp(row.try_get(11)?),
        completed_at: row.try_get::<Option<i64>, _>(12)?.map(timestamp),
        expires_at: timestamp(row.try_get(13)?),
    })
}
