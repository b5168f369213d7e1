//! The long jobs of people and the clock.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use jiff::Timestamp;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool, Row as _, postgres::PgRow};

use super::{
    super::{
        AuditFilter, AuditRow, BackfillTurn, Effect, EventFilter, Export, Job, JobState, NewJob, Received, Runner,
        StoreError, StoreFuture, Upkeep, Who,
        assemble::within,
        filter::describe,
        upkeep::{join, read_filter, split, write_filter},
    },
    PostgresStore,
    connect::read_error,
    effect, micros,
    people::{self, Changed},
    read, time,
};
use crate::domain::OrderedHandler;

const JOB: &str =
    "SELECT id, created_at, updated_at, runner, actor, reason, filter, handlers, rate, state, cursor, total,
                          events, deliveries, audit_id, forget_steps FROM reprocess_jobs";

impl Upkeep for PostgresStore {
    fn known<'a>(&'a self, provider: &'a str, ids: Vec<String>) -> StoreFuture<'a, Vec<bool>> {
        Box::pin(async move {
            known(&self.read, provider, &ids)
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
            let kept = within(&details, max_bytes);
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
        self.people
            .ask(move |db| Box::pin(async move { effect::rehearse(db, &effect).await }))
    }

    fn begin_job(&self, new: NewJob, who: Who) -> StoreFuture<'_, Job> {
        Box::pin(async move {
            let total = read::count(&self.read, &new.filter).await?;
            let id = self
                .people
                .ask(move |db| Box::pin(async move { begin(db, &new, &who, total).await }))
                .await?;
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
            self.change(move |db| Box::pin(async move { step(db, &job, &ids, next, &ordered).await }))
                .await?;
            self.job(id).await
        })
    }

    fn job(&self, id: i64) -> StoreFuture<'_, Option<Job>> {
        Box::pin(async move {
            let row = sqlx::query(AssertSqlSafe(format!("{JOB} WHERE id = $1")))
                .bind(id)
                .fetch_optional(&self.read)
                .await
                .map_err(|error| read_error(&error))?;
            row.as_ref().map(job).transpose()
        })
    }

    fn jobs(&self, limit: u32) -> StoreFuture<'_, Vec<Job>> {
        Box::pin(async move {
            let rows = sqlx::query(AssertSqlSafe(format!("{JOB} ORDER BY id DESC LIMIT $1")))
                .bind(i64::from(limit))
                .fetch_all(&self.read)
                .await
                .map_err(|error| read_error(&error))?;
            rows.iter().map(job).collect()
        })
    }

    fn set_job_running(&self, id: i64, running: bool, runner: Runner) -> StoreFuture<'_, Option<Job>> {
        Box::pin(async move {
            self.people
                .ask(move |db| {
                    Box::pin(async move {
                        let (from, to) = if running {
                            ("stopped", "running")
                        } else {
                            ("running", "stopped")
                        };
                        sqlx::query(
                            "UPDATE reprocess_jobs
                             SET state = $3, updated_at = now(), runner = CASE WHEN $4 THEN $5 ELSE runner END
                             WHERE id = $1 AND state IN ($2, $3) AND state <> 'done'",
                        )
                        .bind(id)
                        .bind(from)
                        .bind(to)
                        .bind(running)
                        .bind(runner.as_str())
                        .execute(db)
                        .await
                    })
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
        self.people.ask(move |db| {
            Box::pin(async move {
                // Clocks and timetables are not exact; a turn that comes a little early is a turn.
                let turn: Option<(time::Instant, Option<time::Instant>)> = sqlx::query_as(
                    "INSERT INTO backfills (provider, started_at) VALUES ($1, now())
                     ON CONFLICT (provider) DO UPDATE SET started_at = excluded.started_at
                     WHERE backfills.started_at <= now() - $2 * interval '1 microsecond'
                     RETURNING now(), covered_until",
                )
                .bind(provider)
                .bind(micros(every.mul_f64(0.9)))
                .fetch_optional(db)
                .await?;
                Ok(turn.map(|(now, covered)| BackfillTurn {
                    now: now.0,
                    covered_until: covered.map(|at| at.0),
                }))
            })
        })
    }

    fn end_backfill<'a>(&'a self, provider: &'a str, until: Timestamp) -> StoreFuture<'a, ()> {
        let provider = provider.to_owned();
        self.people.ask(move |db| {
            Box::pin(async move {
                sqlx::query("UPDATE backfills SET covered_until = greatest(covered_until, $2) WHERE provider = $1")
                    .bind(provider)
                    .bind(time::Instant(until))
                    .execute(db)
                    .await?;
                Ok(())
            })
        })
    }
}

async fn known(db: &PgPool, provider: &str, ids: &[String]) -> sqlx::Result<Vec<bool>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let found: Vec<i64> = sqlx::query_scalar(
        "SELECT k.nth FROM unnest($2::text[]) WITH ORDINALITY AS k (id, nth)
         WHERE EXISTS (SELECT 1 FROM webhook_events e WHERE e.provider = $1 AND e.provider_event_id = k.id)",
    )
    .bind(provider)
    .bind(ids)
    .fetch_all(db)
    .await?;
    let mut known = vec![false; ids.len()];
    for nth in found {
        if let Some(slot) = usize::try_from(nth - 1).ok().and_then(|at| known.get_mut(at)) {
            *slot = true;
        }
    }
    Ok(known)
}

async fn received(db: &PgPool, id: i64) -> sqlx::Result<Option<Received>> {
    type Row = (Option<String>, Option<String>, Option<Vec<u8>>);
    let row: Option<Row> = sqlx::query_as("SELECT content_type, headers, payload FROM webhook_events WHERE id = $1")
        .bind(id)
        .fetch_optional(db)
        .await?;
    Ok(row.map(|(content_type, headers, bytes)| Received {
        content_type,
        headers,
        bytes: bytes.map(Bytes::from),
    }))
}

async fn begin(db: &mut PgConnection, new: &NewJob, who: &Who, total: u64) -> sqlx::Result<i64> {
    let mut tx = db.begin().await?;
    let by = (&*who.actor, who.reason.as_deref());
    let audit = people::record(&mut tx, None, "reprocess", &describe(&new.filter), by, 0).await?;
    let id = sqlx::query_scalar(
        "INSERT INTO reprocess_jobs (runner, actor, reason, filter, handlers, rate, state, cursor, total, audit_id,
                                     forget_steps)
         SELECT $1, $2, $3, $4, $5, $6, 'running', coalesce(max(id), 0) + 1, $7, $8, $9 FROM webhook_events RETURNING id",
    )
    .bind(new.runner.as_str())
    .bind(&who.actor)
    .bind(&who.reason)
    .bind(write_filter(&new.filter))
    .bind(join(new.handlers.as_deref()))
    .bind(new.rate.map(i64::from))
    .bind(i64::try_from(total).unwrap_or(i64::MAX))
    .bind(audit)
    .bind(new.forget_steps)
    .fetch_one(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(id)
}

/// Does nothing where somebody else moved the cursor meanwhile.
async fn step(
    db: &mut PgConnection,
    job: &Job,
    ids: &[i64],
    next: Option<i64>,
    ordered: &Arc<[OrderedHandler]>,
) -> sqlx::Result<Changed<()>> {
    let mut tx = db.begin().await?;
    let mut lanes = Vec::new();
    let moved = sqlx::query(
        "UPDATE reprocess_jobs SET cursor = $3, updated_at = now(), state = CASE WHEN $4 THEN 'done' ELSE state END
         WHERE id = $1 AND cursor = $2 AND state = 'running'",
    )
    .bind(job.id)
    .bind(job.cursor)
    .bind(next.unwrap_or(0))
    .bind(next.is_none())
    .execute(&mut *tx)
    .await?
    .rows_affected();
    if moved == 1 && !ids.is_empty() {
        let ((done, _), changed) = people::reprocess(&mut tx, &job.task(ordered), ids, Some(job.audit_id)).await?;
        lanes = changed;
        sqlx::query("UPDATE reprocess_jobs SET events = events + $2, deliveries = deliveries + $3 WHERE id = $1")
            .bind(job.id)
            .bind(i64::try_from(ids.len()).unwrap_or(i64::MAX))
            .bind(i64::try_from(done.deliveries).unwrap_or(i64::MAX))
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(((), lanes))
}

fn job(row: &PgRow) -> Result<Job, StoreError> {
    let filter = row.try_get::<String, _>(6).map_err(|error| read_error(&error))?;
    let filter = read_filter(&filter)?;
    let read = || -> sqlx::Result<Job> {
        let count = |column: usize| Ok::<_, sqlx::Error>(row.try_get::<i64, _>(column)?.unsigned_abs());
        Ok(Job {
            id: row.try_get(0)?,
            created_at: row.try_get::<time::Instant, _>(1)?.0,
            updated_at: row.try_get::<time::Instant, _>(2)?.0,
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
