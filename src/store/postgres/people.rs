//! What people do by hand: reprocess and discard, each with its line in the audit.

use sqlx::{Connection as _, PgConnection, PgPool, Row as _, postgres::PgBindIterExt as _};

use super::{
    super::{
        AuditFilter, AuditRow, Discarded, Reprocessed, StoreError, Who,
        ordering::{Lane, holds},
        task::{Task, UNROUTED_MARK},
    },
    connect::read_error,
    steps, time,
};

/// What a change did, with the lanes that are to be advanced after its commit.
pub(super) type Changed<T> = (T, Vec<Lane>);

/// Gives deliveries of some events a new life. `audit` is the task's line from an earlier chunk.
pub(super) async fn reprocess(
    db: &mut PgConnection,
    task: &Task,
    ids: &[i64],
    audit: Option<i64>,
) -> sqlx::Result<Changed<(Reprocessed, Option<i64>)>> {
    let mut tx = db.begin().await?;
    if task.forget_steps && !task.dry_run {
        steps::forget(&mut tx, ids, task.handlers.as_deref()).await?;
    }
    let (events, deliveries, handlers, lanes): (i64, i64, Vec<String>, Vec<i64>) =
        sqlx::query_as(include_str!("reprocess.sql"))
            .bind(ids)
            .bind(&task.handlers)
            .bind(task.dry_run)
            .bind(task.ordered.iter().map(|o| &*o.name).bind_iter())
            .bind(task.ordered.iter().map(|o| holds(&task.ordered, &o.name)).bind_iter())
            .fetch_one(&mut *tx)
            .await?;
    let line = if task.dry_run {
        None
    } else {
        let who = (&*task.actor, task.reason.as_deref());
        Some(record(&mut tx, audit, "reprocess", &task.target, who, deliveries).await?)
    };
    tx.commit().await?;
    let total = Reprocessed {
        events: events.unsigned_abs(),
        deliveries: deliveries.unsigned_abs(),
    };
    Ok(((total, line), handlers.into_iter().zip(lanes).collect()))
}

/// Gives the dead deliveries of an event a new life.
pub(super) async fn revive(db: &mut PgConnection, id: i64, task: &Task) -> sqlx::Result<Changed<u64>> {
    let mut tx = db.begin().await?;
    // First the event, then its deliveries, as a purge does.
    sqlx::query("SELECT 1 FROM webhook_events WHERE id = $1 FOR SHARE")
        .bind(id)
        .execute(&mut *tx)
        .await?;
    let dead: Vec<String> = sqlx::query_scalar(
        "SELECT handler FROM deliveries WHERE event_id = $1 AND state = 'dead' ORDER BY handler FOR UPDATE",
    )
    .bind(id)
    .fetch_all(&mut *tx)
    .await?;
    if dead.is_empty() {
        return Ok((0, Vec::new()));
    }
    let ((total, _), lanes) = reprocess(&mut tx, &task.for_handlers(dead), &[id], None).await?;
    tx.commit().await?;
    Ok((total.deliveries, lanes))
}

/// Gives up every delivery of an event that is not done; one in flight when its attempt has ended.
pub(super) async fn discard(
    db: &mut PgConnection,
    id: i64,
    target: &str,
    who: &Who,
) -> sqlx::Result<Changed<Option<Discarded>>> {
    let mut tx = db.begin().await?;
    let given_up: Vec<(String, Option<i64>, bool)> = sqlx::query_as(
        "UPDATE deliveries
         SET state = CASE state WHEN 'claimed' THEN state ELSE 'discarded' END, discard = (state = 'claimed')
         WHERE event_id = $1 AND state <> 'discarded' AND NOT discard RETURNING handler, lane, discard",
    )
    .bind(id)
    .fetch_all(&mut *tx)
    .await?;
    let discarded = Discarded {
        deliveries: given_up.len() as u64,
        in_flight: given_up.iter().filter(|(.., in_flight)| *in_flight).count() as u64,
    };
    sqlx::query(
        "INSERT INTO deliveries (event_id, handler, state)
         SELECT id, $2, 'discarded' FROM webhook_events e
         WHERE id = $1 AND routes = ''
           AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id)
           AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.event_id = e.id)
         ON CONFLICT DO NOTHING",
    )
    .bind(id)
    .bind(UNROUTED_MARK)
    .execute(&mut *tx)
    .await?;
    let count = i64::try_from(discarded.deliveries).unwrap_or(i64::MAX);
    record(
        &mut tx,
        None,
        "discard",
        target,
        (&who.actor, who.reason.as_deref()),
        count,
    )
    .await?;
    tx.commit().await?;
    let lanes = given_up
        .into_iter()
        .filter(|(.., in_flight)| !in_flight)
        .filter_map(|(handler, lane, _)| Some((handler, lane?)));
    Ok((Some(discarded), lanes.collect()))
}

/// Writes a line of the audit, or adds to the one of an earlier chunk.
pub(super) async fn record(
    db: &mut PgConnection,
    line: Option<i64>,
    action: &str,
    target: &str,
    (actor, reason): (&str, Option<&str>),
    deliveries: i64,
) -> sqlx::Result<i64> {
    if let Some(line) = line {
        sqlx::query("UPDATE audit SET deliveries = deliveries + $2 WHERE id = $1")
            .bind(line)
            .bind(deliveries)
            .execute(db)
            .await?;
        return Ok(line);
    }
    sqlx::query_scalar(
        "INSERT INTO audit (actor, action, target, reason, deliveries) VALUES ($1, $2, $3, $4, $5) RETURNING id",
    )
    .bind(actor)
    .bind(action)
    .bind(target)
    .bind(reason)
    .bind(deliveries)
    .fetch_one(db)
    .await
}

/// Lines of the audit, newest first.
pub(super) async fn audit(db: &PgPool, filter: &AuditFilter) -> Result<Vec<AuditRow>, StoreError> {
    let rows = sqlx::query(
        "SELECT id, at, actor, action, target, reason, deliveries FROM audit
         WHERE ($1::text IS NULL OR actor = $1) AND ($2::text IS NULL OR action = $2) AND ($3::bigint IS NULL OR id < $3)
         ORDER BY id DESC LIMIT $4",
    )
    .bind(&filter.actor)
    .bind(&filter.action)
    .bind(filter.before)
    .bind(i64::from(filter.limit))
    .fetch_all(db)
    .await
    .map_err(|error| read_error(&error))?;
    let row = |row: &sqlx::postgres::PgRow| {
        Ok(AuditRow {
            id: row.try_get(0)?,
            at: row.try_get::<time::Instant, _>(1)?.0,
            actor: row.try_get(2)?,
            action: row.try_get(3)?,
            target: row.try_get(4)?,
            reason: row.try_get(5)?,
            deliveries: row.try_get::<i64, _>(6)?.unsigned_abs(),
        })
    };
    let rows: sqlx::Result<_> = rows.iter().map(row).collect();
    rows.map_err(|error| read_error(&error))
}
