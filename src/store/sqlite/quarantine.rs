//! Refused requests, within their room.

use std::time::Duration;

use bytes::Bytes;
use rusqlite::{Connection, params};
use sqlx::{Row as _, SqlitePool, sqlite::SqliteRow};

use super::{
    super::{Quarantine, Refused, RefusedFilter, RefusedPage, RefusedRow, Room, StoreFuture, Who},
    SqliteStore,
    connect::{micros, now, read_error, timestamp},
    people,
};

const ROW: &str = "SELECT id, at, provider, reason, detail, authentic, method, target, client, headers, left_out, size,
                          body_sha256, readmitted_at";

/// Rows that go at once.
const CHUNK: i64 = 500;

impl Quarantine for SqliteStore {
    fn quarantine(&self, requests: Vec<Refused>, room: Room) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.on_writer(move |db| keep(db, &requests, room)).await })
    }

    fn quarantined(&self, filter: RefusedFilter, cursor: Option<i64>, limit: u32) -> StoreFuture<'_, RefusedPage> {
        Box::pin(async move {
            let page = list(&self.read, &filter, cursor, limit).await;
            page.map_err(|error| read_error(&error))
        })
    }

    fn quarantined_one(&self, id: i64) -> StoreFuture<'_, Option<(RefusedRow, Bytes)>> {
        Box::pin(async move {
            let found = sqlx::query(sqlx::AssertSqlSafe(format!(
                "{ROW}, body FROM quarantine WHERE id = ?1"
            )))
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
        Box::pin(async move {
            self.on_writer(move |db| {
                let changed = db
                    .prepare_cached("UPDATE quarantine SET readmitted_at = ?2 WHERE id = ?1")?
                    .execute(params![id, now()])?;
                if changed == 1 {
                    let target = format!("quarantine {id}");
                    people::record(db, None, "readmit", &target, (&who.actor, who.reason.as_deref()), 0)?;
                }
                Ok(changed == 1)
            })
            .await
        })
    }

    fn purge_quarantine(&self, older: Duration) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            let mut gone = 0;
            loop {
                let before = now().saturating_sub(micros(older));
                let some = self
                    .on_writer(move |db| {
                        db.prepare_cached(
                            "DELETE FROM quarantine WHERE id IN
                             (SELECT id FROM quarantine WHERE at < ?1 ORDER BY id LIMIT ?2)",
                        )?
                        .execute(params![before, CHUNK])
                    })
                    .await? as u64;
                gone += some;
                if some < CHUNK.unsigned_abs() {
                    return Ok(gone);
                }
            }
        })
    }
}

fn keep(db: &Connection, requests: &[Refused], room: Room) -> rusqlite::Result<()> {
    let mut insert = db.prepare_cached(
        "INSERT INTO quarantine (at, provider, reason, detail, authentic, method, target, client, headers, left_out, size,
                                 body_sha256, body)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    )?;
    for one in requests {
        insert.execute(params![
            one.at.as_microsecond(),
            one.provider,
            one.reason,
            one.detail,
            one.authentic,
            one.method,
            one.target,
            one.client,
            one.headers,
            one.left_out,
            i64::try_from(one.size()).unwrap_or(i64::MAX),
            one.body_sha256,
            &*one.body,
        ])?;
    }
    // The index holds what is summed up; the table is small by its own bounds.
    loop {
        let (rows, bytes): (i64, i64) = db
            .prepare_cached("SELECT count(*), coalesce(sum(size), 0) FROM quarantine")?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let over = rows.unsigned_abs().saturating_sub(room.rows);
        let is_heavy = bytes.unsigned_abs() > room.bytes;
        if over == 0 && !is_heavy {
            return Ok(());
        }
        let count = over.max(u64::from(is_heavy) * (rows.unsigned_abs() / 20).max(1));
        let gone = db
            .prepare_cached(
                "DELETE FROM quarantine WHERE id IN (SELECT id FROM quarantine ORDER BY authentic, id LIMIT ?1)",
            )?
            .execute(params![i64::try_from(count).unwrap_or(i64::MAX)])?;
        if gone == 0 {
            return Ok(());
        }
    }
}

async fn list(db: &SqlitePool, filter: &RefusedFilter, cursor: Option<i64>, limit: u32) -> sqlx::Result<RefusedPage> {
    let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
        "{ROW} FROM quarantine
         WHERE id < ?1 AND (?2 IS NULL OR provider = ?2) AND (?3 IS NULL OR reason = ?3) ORDER BY id DESC LIMIT ?4"
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

fn row(row: &SqliteRow) -> sqlx::Result<RefusedRow> {
    Ok(RefusedRow {
        id: row.try_get(0)?,
        at: timestamp(row.try_get(1)?),
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
        readmitted_at: row.try_get::<Option<i64>, _>(13)?.map(timestamp),
    })
}
