//! Refused requests, within their room.

use std::time::Duration;

use bytes::Bytes;
use sqlx::{
    AssertSqlSafe, Connection as _, PgConnection, PgPool, Row as _,
    postgres::{PgBindIterExt as _, PgRow},
};

use super::{
    super::{Quarantine, Refused, RefusedFilter, RefusedPage, RefusedRow, Room, StoreFuture, Who},
    PostgresStore,
    connect::read_error,
    micros, people, time,
};

const ROW: &str = "SELECT id, at, provider, reason, detail, authentic, method, target, client, headers, left_out, size,
                          body_sha256, readmitted_at";

/// Rows that go at once.
const CHUNK: i64 = 500;

impl Quarantine for PostgresStore {
    fn quarantine(&self, requests: Vec<Refused>, room: Room) -> StoreFuture<'_, ()> {
        self.people
            .ask(move |db| Box::pin(async move { keep(db, &requests, room).await }))
    }

    fn quarantined(&self, filter: RefusedFilter, cursor: Option<i64>, limit: u32) -> StoreFuture<'_, RefusedPage> {
        Box::pin(async move {
            let page = list(&self.read, &filter, cursor, limit).await;
            page.map_err(|error| read_error(&error))
        })
    }

    fn quarantined_one(&self, id: i64) -> StoreFuture<'_, Option<(RefusedRow, Bytes)>> {
        Box::pin(async move {
            let found = sqlx::query(AssertSqlSafe(format!("{ROW}, body FROM quarantine WHERE id = $1")))
                .bind(id)
                .fetch_optional(&self.read)
                .await
                .and_then(|found| {
                    found
                        .map(|found| Ok((row(&found)?, found.try_get::<Vec<u8>, _>(14)?)))
                        .transpose()
                });
            let found = found.map_err(|error| read_error(&error))?;
            Ok(found.map(|(row, body)| (row, Bytes::from(body))))
        })
    }

    fn readmitted(&self, id: i64, who: Who) -> StoreFuture<'_, bool> {
        self.people.ask(move |db| {
            Box::pin(async move {
                let mut tx = db.begin().await?;
                let changed = sqlx::query("UPDATE quarantine SET readmitted_at = now() WHERE id = $1")
                    .bind(id)
                    .execute(&mut *tx)
                    .await?
                    .rows_affected();
                if changed == 1 {
                    let target = format!("quarantine {id}");
                    let by = (&*who.actor, who.reason.as_deref());
                    people::record(&mut tx, None, "readmit", &target, by, 0).await?;
                }
                tx.commit().await?;
                Ok(changed == 1)
            })
        })
    }

    fn purge_quarantine(&self, older: Duration) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            let mut gone = 0;
            loop {
                let some = self
                    .people
                    .ask(move |db| {
                        Box::pin(async move {
                            sqlx::query(
                                "DELETE FROM quarantine WHERE id IN
                                 (SELECT id FROM quarantine WHERE at < now() - $1 * interval '1 microsecond'
                                  ORDER BY id LIMIT $2)",
                            )
                            .bind(micros(older))
                            .bind(CHUNK)
                            .execute(db)
                            .await
                        })
                    })
                    .await?
                    .rows_affected();
                gone += some;
                if some < CHUNK.unsigned_abs() {
                    return Ok(gone);
                }
            }
        })
    }
}

async fn keep(db: &mut PgConnection, requests: &[Refused], room: Room) -> sqlx::Result<()> {
    let all = || requests.iter();
    let mut tx = db.begin().await?;
    sqlx::query(
        "INSERT INTO quarantine (at, provider, reason, detail, authentic, method, target, client, headers, left_out, size,
                                 body_sha256, body)
         SELECT * FROM unnest($1::timestamptz[], $2::text[], $3::text[], $4::text[], $5::bool[], $6::text[], $7::text[],
                              $8::text[], $9::text[], $10::text[], $11::bigint[], $12::bytea[], $13::bytea[])",
    )
    .bind(all().map(|one| time::Instant(one.at)).bind_iter())
    .bind(all().map(|one| one.provider.as_str()).bind_iter())
    .bind(all().map(|one| one.reason.as_str()).bind_iter())
    .bind(all().map(|one| one.detail.as_deref()).bind_iter())
    .bind(all().map(|one| one.authentic).bind_iter())
    .bind(all().map(|one| one.method.as_str()).bind_iter())
    .bind(all().map(|one| one.target.as_str()).bind_iter())
    .bind(all().map(|one| one.client.as_deref()).bind_iter())
    .bind(all().map(|one| one.headers.as_str()).bind_iter())
    .bind(all().map(|one| one.left_out.as_deref()).bind_iter())
    .bind(all().map(|one| i64::try_from(one.size()).unwrap_or(i64::MAX)).bind_iter())
    .bind(all().map(|one| one.body_sha256.as_slice()).bind_iter())
    .bind(all().map(|one| &*one.body).bind_iter())
    .execute(&mut *tx)
    .await?;
    // The index holds what is summed up; the table is small by its own bounds.
    loop {
        let (rows, bytes): (i64, i64) =
            sqlx::query_as("SELECT count(*), coalesce(sum(size), 0)::bigint FROM quarantine")
                .fetch_one(&mut *tx)
                .await?;
        let over = rows.unsigned_abs().saturating_sub(room.rows);
        let is_heavy = bytes.unsigned_abs() > room.bytes;
        if over == 0 && !is_heavy {
            break;
        }
        let count = over.max(u64::from(is_heavy) * (rows.unsigned_abs() / 20).max(1));
        let gone = sqlx::query(
            "DELETE FROM quarantine WHERE id IN (SELECT id FROM quarantine ORDER BY authentic, id LIMIT $1)",
        )
        .bind(i64::try_from(count).unwrap_or(i64::MAX))
        .execute(&mut *tx)
        .await?
        .rows_affected();
        if gone == 0 {
            break;
        }
    }
    tx.commit().await
}

async fn list(db: &PgPool, filter: &RefusedFilter, cursor: Option<i64>, limit: u32) -> sqlx::Result<RefusedPage> {
    let rows = sqlx::query(AssertSqlSafe(format!(
        "{ROW} FROM quarantine
         WHERE id < $1 AND ($2::text IS NULL OR provider = $2) AND ($3::text IS NULL OR reason = $3)
         ORDER BY id DESC LIMIT $4"
    )))
    .bind(cursor.unwrap_or(i64::MAX))
    .bind(&filter.provider)
    .bind(&filter.reason)
    .bind(i64::from(limit) + 1)
    .fetch_all(db)
    .await?;
    let mut requests: Vec<RefusedRow> = rows.iter().map(row).collect::<sqlx::Result<_>>()?;
    let has_more = requests.len() > limit as usize;
    requests.truncate(limit as usize);
    let next = requests.last().map(|last| last.id).filter(|_| has_more);
    Ok(RefusedPage { requests, next })
}

fn row(row: &PgRow) -> sqlx::Result<RefusedRow> {
    Ok(RefusedRow {
        id: row.try_get(0)?,
        at: row.try_get::<time::Instant, _>(1)?.0,
        provider: row.try_get(2)?,
        reason: row.try_get(3)?,
        detail: row.try_get(4)?,
        authentic: row.try_get(5)?,
        method: row.try_get(6)?,
        target: row.try_get(7)?,
        client: row.try_get(8)?,
        headers: row.try_get(9)?,
        left_out: row.try_get(10)?,
        size: row.try_get::<i64, _>(11)?.unsigned_abs(),
        body_sha256: row.try_get::<&[u8], _>(12)?.try_into().unwrap_or_default(),
        readmitted_at: row.try_get::<Option<time::Instant>, _>(13)?.map(|at| at.0),
    })
}
