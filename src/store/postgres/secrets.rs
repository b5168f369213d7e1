//! Sealed secrets of providers. Rows are only added.

use sqlx::{Connection as _, PgConnection, PgPool};

use super::{
    super::{SealedSecret, StoreError},
    connect::read_error,
    people::record,
    time,
};

pub(super) async fn list(db: &PgPool) -> Result<Vec<SealedSecret>, StoreError> {
    let rows: Vec<(String, Vec<u8>, time::Instant, String)> = sqlx::query_as(
        "SELECT provider, sealed, created_at, source FROM provider_secrets s
         WHERE sealed IS NOT NULL
           AND generation = (SELECT max(generation) FROM provider_secrets n WHERE n.provider = s.provider)
         ORDER BY provider",
    )
    .fetch_all(db)
    .await
    .map_err(|error| read_error(&error))?;
    let secret = |(provider, sealed, created_at, source): (_, _, time::Instant, _)| SealedSecret {
        provider,
        sealed,
        created_at: created_at.0,
        source,
    };
    Ok(rows.into_iter().map(secret).collect())
}

/// Two at once make the same generation, and one of them nothing. The line of the audit is of the same transaction.
pub(super) async fn set(
    db: &mut PgConnection,
    provider: &str,
    sealed: Option<&[u8]>,
    source: &str,
) -> sqlx::Result<bool> {
    let mut tx = db.begin().await?;
    let done = sqlx::query(
        "INSERT INTO provider_secrets (provider, generation, sealed, source)
         SELECT $1, coalesce(max(generation), 0) + 1, $2::bytea, $3 FROM provider_secrets WHERE provider = $1
         HAVING ($2::bytea IS NULL) = coalesce(
             (SELECT sealed IS NOT NULL FROM provider_secrets WHERE provider = $1 ORDER BY generation DESC LIMIT 1),
             false)
         ON CONFLICT DO NOTHING",
    )
    .bind(provider)
    .bind(sealed)
    .bind(source)
    .execute(&mut *tx)
    .await?;
    let added = done.rows_affected() == 1;
    if added {
        let action = if sealed.is_some() {
            "keep_secret"
        } else {
            "remove_secret"
        };
        record(&mut tx, None, action, provider, (source, None), 0).await?;
    }
    tx.commit().await?;
    Ok(added)
}
