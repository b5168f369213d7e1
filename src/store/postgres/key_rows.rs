//! What people ask of idempotency keys, and the transaction of a handler of an API.

use std::{sync::Arc, time::Duration};

use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool, Row as _, postgres::PgRow};

use super::{
    super::{
        Applied, HeldKey, InTransaction, KeptAnswer, KeyFilter, KeyName, KeyRow, KeyStats, StoreError,
        keys::{Completes, answer, recovery_point, write_headers},
    },
    code,
    connect::{Fault, fault, read_error},
    effect::millis,
    micros, time,
};

/// Tries of code that met a deadlock.
const TRIES: u32 = 3;

/// Runs code in a transaction of its own, and completes the key with the answer that it left. What failed undid everything.
pub(super) async fn transact(
    db: &mut PgConnection,
    (work, key): (&InTransaction, Option<&Completes>),
    limit: Duration,
) -> sqlx::Result<Applied> {
    let mut tries = 1;
    loop {
        match transact_once(db, (work, key), limit).await {
            Err(error) if fault(&error) == Fault::Again && tries < TRIES => tries += 1,
            done => return done,
        }
    }
}

async fn transact_once(
    db: &mut PgConnection,
    (work, key): (&InTransaction, Option<&Completes>),
    limit: Duration,
) -> sqlx::Result<Applied> {
    let begin = format!("BEGIN; SET LOCAL statement_timeout = {}", millis(limit));
    let mut tx = db.begin_with(AssertSqlSafe(begin)).await?;
    if let Some(key) = key {
        let holds = sqlx::query(
            "SELECT 1 FROM api_idempotency_keys
             WHERE id = $1 AND lease_token = $2 AND status = 'processing' FOR UPDATE",
        )
        .bind(key.held.id)
        .bind(key.held.token)
        .fetch_optional(&mut *tx)
        .await?;
        if holds.is_none() {
            tx.rollback().await?;
            return Ok(Applied::Stale);
        }
    }
    if let Err(why) = code::run(&mut tx, work, limit).await? {
        tx.rollback().await?;
        return Ok(Applied::Failed(why));
    }
    if let Some(key) = key
        && let Some(kept) = key.answer.take()
    {
        complete(&mut tx, key.held, &kept).await?;
        key.answer.put(Some(kept));
    }
    tx.commit().await?;
    Ok(Applied::Done)
}

async fn complete(db: &mut PgConnection, held: HeldKey, kept: &KeptAnswer) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE api_idempotency_keys
         SET status = $3, completed_at = now(), response_status = $4, response_headers = $5, resource_id = $6,
             response_body = $7
         WHERE id = $1 AND lease_token = $2",
    )
    .bind(held.id)
    .bind(held.token)
    .bind(kept.key_status())
    .bind(i32::from(kept.status))
    .bind(write_headers(&kept.headers))
    .bind(kept.resource_id.as_deref())
    .bind(kept.body.as_deref())
    .execute(db)
    .await?;
    Ok(())
}

pub(super) async fn reapable(db: &PgPool, age: Duration) -> Result<u64, StoreError> {
    let count: sqlx::Result<i64> = sqlx::query_scalar(
        "SELECT count(*) FROM api_idempotency_keys
         WHERE created_at < now() - $1::bigint * interval '1 microsecond' AND expires_at <= now()
           AND (status <> 'processing' OR locked_until <= now())",
    )
    .bind(micros(age))
    .fetch_one(db)
    .await;
    count.map(i64::unsigned_abs).map_err(|error| read_error(&error))
}

pub(super) async fn reap(db: &mut PgConnection, age: Duration, limit: u32) -> sqlx::Result<u64> {
    let gone = sqlx::query(
        "DELETE FROM api_idempotency_keys WHERE id = ANY (ARRAY(
             SELECT id FROM api_idempotency_keys
             WHERE created_at < now() - $1::bigint * interval '1 microsecond' AND expires_at <= now()
               AND (status <> 'processing' OR locked_until <= now())
             ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED))",
    )
    .bind(micros(age))
    .bind(i64::from(limit))
    .execute(db)
    .await?;
    Ok(gone.rows_affected())
}

const COLUMNS: &str = "id, scope, method, route, key, status, recovery_point, locked_until, response_status::bigint,
    length(response_body)::bigint, resource_id, created_at, completed_at, expires_at";

/// Those of these keys that are still sent and without a holder.
pub(super) async fn abandoned(db: &PgPool, ids: &[i64]) -> Result<Vec<KeyRow>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM api_idempotency_keys
         WHERE id = ANY ($1) AND status = 'processing' AND locked_until <= now() AND recovery_point = 'sent'
         ORDER BY locked_until"
    );
    read(sqlx::query(AssertSqlSafe(sql)).bind(ids).fetch_all(db).await)
}

pub(super) async fn list(db: &PgPool, filter: &KeyFilter) -> Result<Vec<KeyRow>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM api_idempotency_keys
         WHERE ($1::text IS NULL OR status = $1) AND ($2::text IS NULL OR route = $2)
           AND ($3::text IS NULL OR key = $3) AND ($4::bigint IS NULL OR id < $4)
         ORDER BY id DESC LIMIT $5"
    );
    let query = sqlx::query(AssertSqlSafe(sql))
        .bind(&filter.status)
        .bind(&filter.route)
        .bind(&filter.key)
        .bind(filter.before)
        .bind(i64::from(filter.limit));
    read(query.fetch_all(db).await)
}

pub(super) async fn one(db: &PgPool, id: i64) -> Result<Option<(KeyRow, Option<KeptAnswer>)>, StoreError> {
    let sql = format!("SELECT {COLUMNS}, response_headers, response_body FROM api_idempotency_keys WHERE id = $1");
    let found = sqlx::query(AssertSqlSafe(sql)).bind(id).fetch_optional(db).await;
    let both = |row: PgRow| {
        let kept = answer(row.try_get(8)?, row.try_get(14)?, row.try_get(15)?, row.try_get(10)?);
        Ok((key_row(&row)?, kept))
    };
    found
        .and_then(|row| row.map(both).transpose())
        .map_err(|error| read_error(&error))
}

pub(super) async fn stats(db: &PgPool) -> Result<KeyStats, StoreError> {
    let (processing, abandoned, completed, failed, unknown): (i64, i64, i64, i64, i64) = sqlx::query_as(
        "SELECT count(*) FILTER (WHERE status = 'processing'),
                count(*) FILTER (WHERE status = 'processing' AND locked_until <= now()),
                count(*) FILTER (WHERE status = 'completed'),
                count(*) FILTER (WHERE status = 'failed' AND response_status IS NOT NULL),
                count(*) FILTER (WHERE status = 'failed' AND response_status IS NULL)
         FROM api_idempotency_keys",
    )
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

fn read(rows: sqlx::Result<Vec<PgRow>>) -> Result<Vec<KeyRow>, StoreError> {
    let rows = rows.and_then(|rows| rows.iter().map(key_row).collect::<sqlx::Result<_>>());
    rows.map_err(|error| read_error(&error))
}

fn key_row(row: &PgRow) -> sqlx::Result<KeyRow> {
    let text = |i: usize| row.try_get::<&str, _>(i).map(Arc::from);
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
        locked_until: row.try_get::<time::Instant, _>(7)?.0,
        response_status: row
            .try_get::<Option<i64>, _>(8)?
            .and_then(|status| u16::try_from(status).ok()),
        response_size: row.try_get::<Option<i64>, _>(9)?.map(i64::unsigned_abs),
        resource_id: row.try_get(10)?,
        created_at: row.try_get::<time::Instant, _>(11)?.0,
        completed_at: row.try_get::<Option<time::Instant>, _>(12)?.map(|at| at.0),
        expires_at: row.try_get::<time::Instant, _>(13)?.0,
    })
}
