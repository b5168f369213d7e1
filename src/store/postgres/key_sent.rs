//! Which keys were sent and not ended: read from the list of what was sent, because an index on a key's state would make
//! every step with one dearer. Every key that is `processing` and `sent` is in it: whatever makes one so puts it there in
//! the same statement (keys.sql, `take_over`).

use sqlx::{PgConnection, Row as _};

use super::{super::StoreError, actor::Actor, time};

/// Batches in one statement.
const CHUNK: i64 = 500;

/// Walks the list from its beginning and drops what is over. Gives the keys that nobody runs any more: those whose leases
/// ended first, at most `limit`.
pub(super) async fn walk(people: &Actor, limit: usize) -> Result<Vec<i64>, StoreError> {
    let mut left: Vec<(jiff::Timestamp, i64)> = Vec::new();
    let mut after = 0;
    loop {
        let (next, found) = people.ask(move |db| Box::pin(step(db, after))).await?;
        left.extend(found);
        left.sort_unstable();
        // A key that was returned and sent again is in it twice.
        left.dedup();
        left.truncate(limit);
        match next {
            Some(next) => after = next,
            None => return Ok(left.into_iter().map(|(_, id)| id).collect()),
        }
    }
}

type Found = Vec<(jiff::Timestamp, i64)>;

/// One chunk, after `after`: the place where the next one begins, and the keys without a holder.
async fn step(db: &mut PgConnection, after: i64) -> sqlx::Result<(Option<i64>, Found)> {
    // One snapshot: a key that comes back to `processing` and `sent` after it is in a new row.
    let rows = sqlx::query(
        "WITH chunk AS MATERIALIZED (
             SELECT id, key_ids FROM api_idempotency_sent WHERE id > $1 ORDER BY id LIMIT $2
         ),
         held AS MATERIALIZED (
             SELECT c.id AS chunk_id, k.*
             FROM chunk c
             CROSS JOIN LATERAL unnest(c.key_ids) AS u (key_id)
             CROSS JOIN LATERAL (
                 SELECT id, locked_until FROM api_idempotency_keys
                 WHERE id = u.key_id AND status = 'processing' AND recovery_point = 'sent' LIMIT 1
             ) k
         ),
         gone AS (
             DELETE FROM api_idempotency_sent
             WHERE id = ANY (ARRAY(SELECT id FROM chunk EXCEPT SELECT chunk_id FROM held))
         )
         SELECT NULL, max(id) FROM chunk HAVING count(*) = $2
         UNION ALL
         SELECT locked_until, id FROM held WHERE locked_until <= now()",
    )
    .bind(after)
    .bind(CHUNK)
    .fetch_all(db)
    .await?;
    let mut next = None;
    let mut found = Vec::new();
    for row in &rows {
        let id: i64 = row.try_get(1)?;
        match row.try_get::<Option<time::Instant>, _>(0)? {
            None => next = Some(id),
            Some(at) => found.push((at.0, id)),
        }
    }
    Ok((next, found))
}
