//! The long jobs of people and the clock.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, params};
use sqlx::{Row as _, SqlitePool, sqlite::SqliteRow};

use super::{
    super::{
        AuditFilter, AuditRow, BackfillTurn, Effect, EventFilter, Export, Job, JobState, NewJob, Received, Runner,
        StoreError, StoreFuture, Upkeep, Who,
        filter::describe,
        upkeep::{join, read_filter, split, write_filter},
    },
    SqliteStore,
    connect::{self, micros, now, read_error, timestamp},
    effects, people, read,
};
use crate::domain::OrderedHandler;

const JOB: &str =
    "SELECT id, created_at, updated_at, runner, actor, reason, filter, handlers, rate, state, cursor, total,
                          events, deliveries, audit_id, forget_steps FROM reprocess_jobs";

impl Upkeep for SqliteStore {
    fn known<'a>(&'a self, provider: &'a str, ids: Vec<String>) -> StoreFuture<'a, Vec<bool>> {
        Box::pin(async move {
            known(&self.read, provider, ids)
                .await
                .map_err(|error| read_error(&error))
        })
    }

    fn export(
        &self,
        filter: EventFilter,
        cursor: Option<i64>,
        limit: u32,
        max_bytes: usize,
    ) -> StoreFuture<'_, Export> {
        Box::pin(async move {
            let (ids, next) = read::page(&self.read, &filter, cursor, limit).await?;
            let mut details = read::details(&self.read, &ids).await?;
            let kept = super::super::assemble::within(&details, max_bytes);
            let next = if kept < details.len() {
                details.get(kept.saturating_sub(1)).map(|d| d.event.id)
            } else {
                next
            };
            details.truncate(kept);
            let mut events = Vec::with_capacity(kept);
            for detail in details {
                let received = received(&self.read, detail.event.id)
                    .await
                    .map_err(|error| read_error(&error))?;
                // Retention took the whole row meanwhile.
                let Some(received) = received else { continue };
                events.push((detail, received));
            }
            Ok(Export { events, next })
        })
    }

    fn rehearse(&self, effect: Effect) -> StoreFuture<'_, Result<(), String>> {
        let file = self.file.clone();
        Box::pin(async move {
            // On a connection of its own, so that the writer's transaction never holds what is to be undone.
            let rehearsed = tokio::task::spawn_blocking(move || {
                let (db, deadline) = connect::writer(&file)?;
                effects::rehearse(&db, &deadline, &effect)
            });
            let said = rehearsed
                .await
                .map_err(|error| StoreError::Unavailable(error.to_string()))?;
            said.map_err(|error| connect::error(&error))
        })
    }

    fn begin_job(&self, new: NewJob, who: Who) -> StoreFuture<'_, Job> {
        Box::pin(async move {
            let total = read::count(&self.read, &new.filter).await?;
            let id = self.on_writer(move |db| begin(db, &new, &who, total)).await?;
            let job = self.job(id).await?;
            job.ok_or_else(|| StoreError::Unavailable("the job is not there".to_owned()))
        })
    }

    fn step_job(&self, id: i64, limit: u32) -> StoreFuture<'_, Option<Job>> {
        Box::pin(async move {
            let Some(job) = self.job(id).await? else {
                return Ok(None);
            };
            if job.state != JobState::Running {
                return Ok(Some(job));
            }
            let (ids, next) = read::page(&self.read, &job.filter, Some(job.cursor), limit).await?;
            let ordered = Arc::clone(&self.ordered);
            self.on_writer(move |db| step(db, &job, &ids, next, &ordered)).await?;
            self.job(id).await
        })
    }

    fn job(&self, id: i64) -> StoreFuture<'_, Option<Job>> {
        Box::pin(async move {
            let row = sqlx::query(sqlx::AssertSqlSafe(format!("{JOB} WHERE id = ?1")))
                .bind(id)
                .fetch_optional(&self.read)
                .await
                .map_err(|error| read_error(&error))?;
            row.as_ref().map(job).transpose()
        })
    }

    fn jobs(&self, limit: u32) -> StoreFuture<'_, Vec<Job>> {
        Box::pin(async move {
            let rows = sqlx::query(sqlx::AssertSqlSafe(format!("{JOB} ORDER BY id DESC LIMIT ?1")))
                .bind(i64::from(limit))
                .fetch_all(&self.read)
                .await
                .map_err(|error| read_error(&error))?;
            rows.iter().map(job).collect()
        })
    }

    fn set_job_running(&self, id: i64, running: bool, runner: Runner) -> StoreFuture<'_, Option<Job>> {
        Box::pin(async move {
            self.on_writer(move |db| {
                let (from, to) = if running { ("stopped", "running") } else { ("running", "stopped") };
                db.prepare_cached(
                    "UPDATE reprocess_jobs SET state = ?3, updated_at = ?4, runner = CASE WHEN ?5 THEN ?6 ELSE runner END
                     WHERE id = ?1 AND state IN (?2, ?3) AND state <> 'done'",
                )?
                .execute(params![id, from, to, now(), running, runner.as_str()])
            })
            .await?;
            self.job(id).await
        })
    }

    fn audit(&self, filter: AuditFilter) -> StoreFuture<'_, Vec<AuditRow>> {
        Box::pin(async move { people::audit(&self.read, &filter).await })
    }

    fn begin_backfill<'a>(&'a self, provider: &'a str, every: Duration) -> StoreFuture<'a, Option<BackfillTurn>> {
        let provider = provider.to_owned();
        Box::pin(async move {
            self.on_writer(move |db| {
                let now = now();
                // Clocks and timetables are not exact; a turn that comes a little early is a turn.
                let due = now.saturating_sub(micros(every.mul_f64(0.9)));
                db.prepare_cached(
                    "INSERT INTO backfills (provider, started_at) VALUES (?1, ?2)
                     ON CONFLICT (provider) DO UPDATE SET started_at = excluded.started_at WHERE started_at <= ?3
                     RETURNING covered_until",
                )?
                .query_row(params![provider, now, due], |row| row.get::<_, Option<i64>>(0))
                .optional()
                .map(|turn| {
                    turn.map(|covered| BackfillTurn {
                        now: timestamp(now),
                        covered_until: covered.map(timestamp),
                    })
                })
            })
            .await
        })
    }

    fn end_backfill<'a>(&'a self, provider: &'a str, until: Timestamp) -> StoreFuture<'a, ()> {
        let provider = provider.to_owned();
        Box::pin(async move {
            self.on_writer(move |db| {
                db.prepare_cached(
                    "UPDATE backfills SET covered_until = max(coalesce(covered_until, 0), ?2) WHERE provider = ?1",
                )?
                .execute(params![provider, until.as_microsecond()])?;
                Ok(())
            })
            .await
        })
    }
}

async fn known(db: &SqlitePool, provider: &str, ids: Vec<String>) -> sqlx::Result<Vec<bool>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let found: Vec<i64> = sqlx::query_scalar(
        "SELECT j.key FROM json_each(?2) j
         WHERE EXISTS (SELECT 1 FROM webhook_events e WHERE e.provider = ?1 AND e.provider_event_id = j.value)",
    )
    .bind(provider)
    .bind(serde_json::Value::from(ids.clone()).to_string())
    .fetch_all(db)
    .await?;
    let mut known = vec![false; ids.len()];
    for at in found {
        if let Some(slot) = usize::try_from(at).ok().and_then(|at| known.get_mut(at)) {
            *slot = true;
        }
    }
    Ok(known)
}

async fn received(db: &SqlitePool, id: i64) -> sqlx::Result<Option<Received>> {
    type Row = (Option<String>, Option<String>, Option<Vec<u8>>);
    let row: Option<Row> = sqlx::query_as("SELECT content_type, headers, payload FROM webhook_events WHERE id = ?1")
        .bind(id)
        .fetch_optional(db)
        .await?;
    Ok(row.map(|(content_type, headers, bytes)| Received {
        content_type,
        headers,
        bytes: bytes.map(Bytes::from),
    }))
}

fn begin(db: &Connection, new: &NewJob, who: &Who, total: u64) -> rusqlite::Result<i64> {
    let at = now();
    let audit = people::record(
        db,
        None,
        "reprocess",
        &describe(&new.filter),
        (&who.actor, who.reason.as_deref()),
        0,
    )?;
    db.prepare_cached(
        "INSERT INTO reprocess_jobs (created_at, updated_at, runner, actor, reason, filter, handlers, rate, state, cursor,
                                     total, audit_id, forget_steps)
         SELECT ?1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, 'running', coalesce(max(id), 0) + 1, ?8, ?9, ?10 FROM webhook_events",
    )?
    .execute(params![
        at,
        new.runner.as_str(),
        who.actor,
        who.reason,
        write_filter(&new.filter),
        join(new.handlers.as_deref()),
        new.rate,
        i64::try_from(total).unwrap_or(i64::MAX),
        audit,
        new.forget_steps
    ])?;
    Ok(db.last_insert_rowid())
}

/// Does nothing where somebody else moved the cursor meanwhile.
fn step(
    db: &Connection,
    job: &Job,
    ids: &[i64],
    next: Option<i64>,
    ordered: &Arc<[OrderedHandler]>,
) -> rusqlite::Result<()> {
    let moved = db
        .prepare_cached(
            "UPDATE reprocess_jobs SET cursor = ?3, updated_at = ?4, state = CASE WHEN ?5 THEN 'done' ELSE state END
             WHERE id = ?1 AND cursor = ?2 AND state = 'running'",
        )?
        .execute(params![job.id, job.cursor, next.unwrap_or(0), now(), next.is_none()])?;
    if moved == 0 || ids.is_empty() {
        return Ok(());
    }
    let (done, _) = people::reprocess(db, &job.task(ordered), ids, Some(job.audit_id))?;
    db.prepare_cached("UPDATE reprocess_jobs SET events = events + ?2, deliveries = deliveries + ?3 WHERE id = ?1")?
        .execute(params![
            job.id,
            i64::try_from(ids.len()).unwrap_or(i64::MAX),
            i64::try_from(done.deliveries).unwrap_or(i64::MAX)
        ])?;
    Ok(())
}

fn job(row: &SqliteRow) -> Result<Job, StoreError> {
    let filter = row.try_get::<String, _>(6).map_err(|error| read_error(&error))?;
    let filter = read_filter(&filter)?;
    let read = || -> sqlx::Result<Job> {
        let count = |column: usize| Ok::<_, sqlx::Error>(row.try_get::<i64, _>(column)?.unsigned_abs());
        Ok(Job {
            id: row.try_get(0)?,
            created_at: timestamp(row.try_get(1)?),
            updated_at: timestamp(row.try_get(2)?),
            runner: Runner::parse(row.try_get(3)?),
            actor: row.try_get(4)?,
            reason: row.try_get(5)?,
            filter,
            handlers: split(row.try_get(7)?),
            rate: row
                .try_get::<Option<i64>, _>(8)?
                .and_then(|rate| u32::try_from(rate).ok()),
            state: JobState::parse(row.try_get(9)?),
            cursor: row.try_get(10)?,
            total: count(11)?,
            events: count(12)?,
            deliveries: count(13)?,
            audit_id: row.try_get(14)?,
            forget_steps: row.try_get(15)?,
        })
    };
    read().map_err(|error| read_error(&error))
}
