//! What is there of a key that could not be reserved, and who may begin it anew.

use std::time::Duration;

use sqlx::{PgConnection, Row as _, postgres::PgBindIterExt as _};

use super::{
    super::{
        HeldKey, KeyState, NewKey, RecoveryPoint, Reserved,
        keys::{answer, state},
    },
    micros,
};

/// A row that was in the way.
pub(super) struct Found {
    pub(super) id: i64,
    token: i64,
    pub(super) request_hash: [u8; 32],
    state: KeyState,
    /// Whoever asked may begin it anew.
    pub(super) is_over: bool,
}

impl Found {
    pub(super) fn taken(self) -> Reserved {
        Reserved::Taken {
            id: self.id,
            request_hash: self.request_hash,
            state: self.state,
        }
    }
}

/// What is there, with the place of the request.
pub(super) async fn look<T>(db: &mut PgConnection, wanted: &[(NewKey, T)]) -> sqlx::Result<Vec<(usize, Found)>> {
    let names = || wanted.iter().map(|(new, _)| &new.name);
    let rows = sqlx::query(
        "SELECT w.nth, k.*
         FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY
              AS w (scope, method, route, key, nth)
         CROSS JOIN LATERAL (
             SELECT id, lease_token, request_hash, status, recovery_point,
                    (extract(epoch FROM locked_until - now()) * 1000000)::bigint AS left_micros,
                    (extract(epoch FROM expires_at - now()) * 1000000)::bigint AS expires_micros,
                    response_status::bigint, response_headers, response_body, resource_id
             FROM api_idempotency_keys
             WHERE scope = w.scope AND method = w.method AND route = w.route AND key = w.key LIMIT 1
         ) k",
    )
    .bind(names().map(|n| &*n.scope).bind_iter())
    .bind(names().map(|n| &*n.method).bind_iter())
    .bind(names().map(|n| &*n.route).bind_iter())
    .bind(names().map(|n| &*n.key).bind_iter())
    .fetch_all(db)
    .await?;
    let mut found = Vec::with_capacity(rows.len());
    for row in &rows {
        let at = usize::try_from(row.try_get::<i64, _>(0)? - 1).unwrap_or(usize::MAX);
        let request_hash: [u8; 32] = row.try_get::<&[u8], _>(3)?.try_into().unwrap_or_default();
        let (status, point): (&str, &str) = (row.try_get(4)?, row.try_get(5)?);
        let (left, expires): (i64, i64) = (row.try_get(6)?, row.try_get(7)?);
        let kept = answer(row.try_get(8)?, row.try_get(9)?, row.try_get(10)?, row.try_get(11)?);
        let state = state(status, point, left, expires, kept);
        let is_same = wanted.get(at).is_some_and(|(new, _)| new.request_hash == request_hash);
        let is_untouched = matches!(
            state,
            KeyState::Abandoned {
                point: RecoveryPoint::Reserved
            }
        );
        let is_held = matches!(state, KeyState::Processing { .. });
        found.push((
            at,
            Found {
                id: row.try_get(1)?,
                token: row.try_get(2)?,
                request_hash,
                is_over: !is_held && (expires <= 0 || (is_untouched && is_same)),
                state,
            },
        ));
    }
    Ok(found)
}

/// Begins a key anew, unless another was first.
pub(super) async fn renew(db: &mut PgConnection, new: &NewKey, found: &Found) -> sqlx::Result<Option<HeldKey>> {
    let token: i64 = rand::random();
    let taken = sqlx::query(
        "UPDATE api_idempotency_keys
         SET request_hash = $3, lease_token = $4, locked_until = now() + $5::bigint * interval '1 microsecond',
             expires_at = now() + $6::bigint * interval '1 microsecond',
             created_at = CASE WHEN expires_at <= now() THEN now() ELSE created_at END,
             status = 'processing', recovery_point = 'reserved', completed_at = NULL,
             response_status = NULL, response_headers = NULL, response_body = NULL, resource_id = NULL
         WHERE id = $1 AND lease_token = $2
           AND (status <> 'processing' OR locked_until <= now())
           AND (expires_at <= now()
                OR (status = 'processing' AND recovery_point = 'reserved' AND request_hash = $3))",
    )
    .bind(found.id)
    .bind(found.token)
    .bind(new.request_hash.as_slice())
    .bind(token)
    .bind(micros(new.lease))
    .bind(micros(new.expiry))
    .execute(db)
    .await?;
    Ok((taken.rows_affected() == 1).then_some(HeldKey { id: found.id, token }))
}

/// What comes back from `failed` to `processing` is in the list of what was sent again.
pub(super) async fn take_over(db: &mut PgConnection, id: i64, lease: Duration) -> sqlx::Result<Option<HeldKey>> {
    let token: i64 = rand::random();
    let taken = sqlx::query(
        "WITH old AS MATERIALIZED (
             SELECT id, status FROM api_idempotency_keys
             WHERE id = $1 AND locked_until <= now()
               AND (status = 'processing' OR (status = 'failed' AND response_status IS NULL))
             FOR UPDATE
         ),
         taken AS (
             UPDATE api_idempotency_keys k
             SET status = 'processing', completed_at = NULL, lease_token = $2,
                 locked_until = now() + $3::bigint * interval '1 microsecond'
             FROM old WHERE k.id = old.id
             RETURNING k.id, old.status
         ),
         noted AS (
             INSERT INTO api_idempotency_sent (key_ids) SELECT ARRAY[id] FROM taken WHERE status = 'failed'
         )
         SELECT 1 FROM taken",
    )
    .bind(id)
    .bind(token)
    .bind(micros(lease))
    .fetch_optional(db)
    .await?;
    Ok(taken.map(|_| HeldKey { id, token }))
}
