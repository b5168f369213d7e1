//! What people ask of idempotency keys, and the transaction of a handler of an API.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use sqlx::{
    AssertSqlSafe, Column as _, Connection as _, Either, Executor as _, PgConnection, PgPool, Row as _,
    SqlSafeStr as _, Statement as _, TypeInfo as _,
    postgres::{PgArguments, PgRow},
    types::BigDecimal,
};

use super::{
    super::{
        AnswerTransaction, HeldKey, KeptAnswer, KeyFilter, KeyName, KeyRow, KeyStats, KeyWork, SqlValue, StoreError,
        WorkError,
        keys::{answer, recovery_point, write_headers},
        statement::{refuse_control, wrong_count},
    },
    connect::{message, read_error},
    micros, time, values,
};

/// Runs the work and completes the key. The inner error undid everything.
pub(super) async fn transact(
    db: &mut PgConnection,
    held: Option<HeldKey>,
    work: KeyWork,
) -> sqlx::Result<Result<KeptAnswer, WorkError>> {
    let mut tx = db.begin().await?;
    if let Some(HeldKey { id, token }) = held {
        let holds = sqlx::query(
            "SELECT 1 FROM api_idempotency_keys
             WHERE id = $1 AND lease_token = $2 AND status = 'processing' FOR UPDATE",
        )
        .bind(id)
        .bind(token)
        .fetch_optional(&mut *tx)
        .await?;
        if holds.is_none() {
            tx.rollback().await?;
            return Ok(Err(WorkError::Stale));
        }
    }
    let mut within = Within(&mut tx);
    let kept = match work(&mut within).await {
        Ok(kept) => kept,
        Err(error) => {
            tx.rollback().await?;
            return Ok(Err(error));
        }
    };
    if let Some(held) = held {
        complete(&mut tx, held, &kept).await?;
    }
    tx.commit().await?;
    Ok(Ok(kept))
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

struct Within<'a>(&'a mut PgConnection);

impl Within<'_> {
    /// Binds the values in the form that the statement's parameters have.
    async fn arguments(&mut self, sql: &str, params: &[SqlValue]) -> Result<PgArguments, WorkError> {
        use sqlx::Arguments as _;
        refuse_control(sql).map_err(|why| WorkError::Statement(why.to_owned()))?;
        let prepared = self
            .0
            .prepare(AssertSqlSafe(sql).into_sql_str())
            .await
            .map_err(failure)?;
        let types = match prepared.parameters() {
            Some(Either::Left(types)) => types.to_vec(),
            _ => Vec::new(),
        };
        if let Some(why) = wrong_count(types.len(), params.len()) {
            return Err(WorkError::Statement(why));
        }
        let mut arguments = PgArguments::default();
        for (i, (ty, value)) in types.iter().zip(params).enumerate() {
            let bound = values::bind(ty, value, i + 1).map_err(WorkError::Statement)?;
            arguments
                .add(bound)
                .map_err(|error| failure(sqlx::Error::Encode(error)))?;
        }
        Ok(arguments)
    }
}

impl AnswerTransaction for Within<'_> {
    fn execute<'t>(&'t mut self, sql: &'t str, params: Vec<SqlValue>) -> BoxFuture<'t, Result<u64, WorkError>> {
        Box::pin(async move {
            let arguments = self.arguments(sql, &params).await?;
            let query = sqlx::query_with(AssertSqlSafe(sql).into_sql_str(), arguments);
            let done = query.execute(&mut *self.0).await.map_err(failure)?;
            Ok(done.rows_affected())
        })
    }

    fn query<'t>(
        &'t mut self,
        sql: &'t str,
        params: Vec<SqlValue>,
    ) -> BoxFuture<'t, Result<Vec<Vec<SqlValue>>, WorkError>> {
        Box::pin(async move {
            let arguments = self.arguments(sql, &params).await?;
            let query = sqlx::query_with(AssertSqlSafe(sql).into_sql_str(), arguments);
            let rows = query.fetch_all(&mut *self.0).await.map_err(failure)?;
            rows.iter().map(row_values).collect()
        })
    }
}

fn row_values(row: &PgRow) -> Result<Vec<SqlValue>, WorkError> {
    row.columns()
        .iter()
        .map(|column| value(row, column.ordinal(), column.type_info().name()))
        .collect()
}

fn value(row: &PgRow, at: usize, ty: &str) -> Result<SqlValue, WorkError> {
    let found = match ty {
        "BOOL" => row.try_get::<Option<bool>, _>(at).map(|v| v.map(SqlValue::Bool)),
        "INT2" => row
            .try_get::<Option<i16>, _>(at)
            .map(|v| v.map(|v| SqlValue::Int(v.into()))),
        "INT4" => row
            .try_get::<Option<i32>, _>(at)
            .map(|v| v.map(|v| SqlValue::Int(v.into()))),
        "INT8" => row.try_get::<Option<i64>, _>(at).map(|v| v.map(SqlValue::Int)),
        "FLOAT8" => row
            .try_get::<Option<f64>, _>(at)
            .map(|v| v.map(|v| SqlValue::Number(v.to_string()))),
        "NUMERIC" => row
            .try_get::<Option<BigDecimal>, _>(at)
            .map(|v| v.map(|v| SqlValue::Number(v.to_plain_string()))),
        "TEXT" | "VARCHAR" | "CHAR" | "NAME" => row.try_get::<Option<String>, _>(at).map(|v| v.map(SqlValue::Text)),
        "BYTEA" => row
            .try_get::<Option<Vec<u8>>, _>(at)
            .map(|v| v.map(|v| SqlValue::Bytes(Bytes::from(v)))),
        other => {
            let ty = other.to_ascii_lowercase();
            return Err(WorkError::Statement(format!(
                "column {} is of type {ty}, which is not read; cast it to text",
                at + 1
            )));
        }
    };
    found.map(|value| value.unwrap_or(SqlValue::Null)).map_err(failure)
}

fn failure(error: sqlx::Error) -> WorkError {
    WorkError::Statement(message(&error, true))
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

pub(super) async fn abandoned(db: &PgPool, limit: u32) -> Result<Vec<KeyRow>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM api_idempotency_keys WHERE status = 'processing' AND locked_until <= now() AND recovery_point = 'sent'
         ORDER BY locked_until LIMIT $1"
    );
    read(
        sqlx::query(AssertSqlSafe(sql))
            .bind(i64::from(limit))
            .fetch_all(db)
            .await,
    )
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
