//! Retention: walks the ledger from its oldest event, a chunk at a time.

use sqlx::{Connection as _, PgConnection, Row as _};

use super::{
    super::{
        PurgePolicy,
        ordering::Lane,
        retention::{Aged, Verdict, judge},
    },
    time,
};

/// One chunk of the walk, after the event `from`, with the lanes that removed deliveries held.
pub(super) async fn purge(
    db: &mut PgConnection,
    policy: PurgePolicy,
    dry_run: bool,
    from: i64,
    chunk: u32,
) -> sqlx::Result<(Verdict, Vec<Lane>)> {
    let mut tx = db.begin().await?;
    let (now,): (time::Instant,) = sqlx::query_as("SELECT now()").fetch_one(&mut *tx).await?;
    let rows: Vec<Aged> = sqlx::query(
        "SELECT id, created_at, payload IS NOT NULL,
                EXISTS (SELECT 1 FROM deliveries d
                        WHERE d.event_id = e.id AND d.state IN ('ready', 'claimed', 'blocked')),
                EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id AND d.state = 'dead')
         FROM webhook_events e WHERE id > $1 ORDER BY id LIMIT $2",
    )
    .bind(from)
    .bind(i64::from(chunk))
    .fetch_all(&mut *tx)
    .await?
    .iter()
    .map(|row| {
        Ok(Aged {
            id: row.try_get(0)?,
            created_at: row.try_get::<time::Instant, _>(1)?.0.as_microsecond(),
            has_payload: row.try_get(2)?,
            is_pending: row.try_get(3)?,
            is_dead: row.try_get(4)?,
        })
    })
    .collect::<sqlx::Result<_>>()?;
    let verdict = judge(&rows, policy, now.0.as_microsecond(), rows.len() == chunk as usize);
    let mut lanes = Vec::new();
    if !dry_run {
        lanes.extend(strip(&mut tx, &verdict.strip).await?);
        lanes.extend(forget(&mut tx, &verdict.forget).await?);
    }
    tx.commit().await?;
    Ok((verdict, lanes))
}

async fn strip(db: &mut PgConnection, ids: &[i64]) -> sqlx::Result<Vec<Lane>> {
    let ids = lock(db, ids).await?;
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    for sql in [
        "UPDATE webhook_events SET payload = NULL, headers = NULL WHERE id = ANY ($1)",
        "DELETE FROM attempts WHERE event_id = ANY ($1)",
        "DELETE FROM steps WHERE event_id = ANY ($1)",
    ] {
        sqlx::query(sql).bind(&ids).execute(&mut *db).await?;
    }
    leave(
        db,
        "UPDATE deliveries SET state = 'discarded', last_error = 'retention removed the payload; ' || coalesce(last_error, '')
         WHERE event_id = ANY ($1) AND state = 'dead' RETURNING handler, lane",
        &ids,
    )
    .await
}

async fn forget(db: &mut PgConnection, ids: &[i64]) -> sqlx::Result<Vec<Lane>> {
    let ids = lock(db, ids).await?;
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    for sql in [
        "DELETE FROM webhook_events WHERE id = ANY ($1)",
        "DELETE FROM attempts WHERE event_id = ANY ($1)",
        "DELETE FROM steps WHERE event_id = ANY ($1)",
        "DELETE FROM conflicts WHERE event_id = ANY ($1)",
    ] {
        sqlx::query(sql).bind(&ids).execute(&mut *db).await?;
    }
    leave(
        db,
        "DELETE FROM deliveries WHERE event_id = ANY ($1) RETURNING handler, lane",
        &ids,
    )
    .await
}

/// Removes or gives up deliveries; gives the lanes of those that were in one.
async fn leave(db: &mut PgConnection, sql: &'static str, ids: &[i64]) -> sqlx::Result<Vec<Lane>> {
    let gone: Vec<(String, Option<i64>)> = sqlx::query_as(sql).bind(ids).fetch_all(db).await?;
    Ok(gone
        .into_iter()
        .filter_map(|(handler, lane)| Some((handler, lane?)))
        .collect())
}

/// Locks events against being reprocessed, and gives those that were not meanwhile.
async fn lock(db: &mut PgConnection, ids: &[i64]) -> sqlx::Result<Vec<i64>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    sqlx::query("SELECT 1 FROM webhook_events WHERE id = ANY ($1) ORDER BY id FOR UPDATE")
        .bind(ids)
        .execute(&mut *db)
        .await?;
    // A new statement, to see what was committed while this one waited for the locks.
    sqlx::query_scalar(
        "SELECT e.id FROM unnest($1::bigint[]) AS e (id)
         WHERE NOT EXISTS (SELECT 1 FROM deliveries d
                           WHERE d.event_id = e.id AND d.state IN ('ready', 'claimed', 'blocked'))",
    )
    .bind(ids)
    .fetch_all(db)
    .await
}
