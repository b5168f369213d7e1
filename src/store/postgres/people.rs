//! What people do by hand: reprocess and discard, each with its line in the audit.

use sqlx::{Connection as _, PgConnection};

use super::super::{
    Discarded, Reprocessed, Who,
    task::{Task, UNROUTED_MARK},
};

/// Gives deliveries of some events a new life. `audit` is the task's line from an earlier chunk.
pub(super) async fn reprocess(
    db: &mut PgConnection,
    task: &Task,
    ids: &[i64],
    audit: Option<i64>,
) -> sqlx::Result<(Reprocessed, Option<i64>)> {
    let mut tx = db.begin().await?;
    let (events, deliveries): (i64, i64) = sqlx::query_as(include_str!("reprocess.sql"))
        .bind(ids)
        .bind(&task.handlers)
        .bind(task.dry_run)
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
    Ok((total, line))
}

/// Gives up every delivery of an event that is not done.
pub(super) async fn discard(
    db: &mut PgConnection,
    id: i64,
    target: &str,
    who: &Who,
) -> sqlx::Result<Option<Discarded>> {
    let mut tx = db.begin().await?;
    let deliveries = sqlx::query(
        "UPDATE deliveries SET state = 'discarded', lease_token = NULL, lease_until = NULL
         WHERE event_id = $1 AND state <> 'discarded'",
    )
    .bind(id)
    .execute(&mut *tx)
    .await?
    .rows_affected();
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
    let count = i64::try_from(deliveries).unwrap_or(i64::MAX);
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
    Ok(Some(Discarded { deliveries }))
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
