//! Sealed secrets of providers. Rows are only added.

use rusqlite::{Connection, params};
use sqlx::SqlitePool;

use super::{
    super::{SealedSecret, StoreError},
    connect::{now, read_error, timestamp},
    people::record,
};

pub(super) async fn list(db: &SqlitePool) -> Result<Vec<SealedSecret>, StoreError> {
    let rows: Vec<(String, Vec<u8>, i64, String)> = sqlx::query_as(
        "SELECT provider, sealed, created_at, source FROM provider_secrets s
         WHERE sealed IS NOT NULL
           AND generation = (SELECT max(generation) FROM provider_secrets n WHERE n.provider = s.provider)
         ORDER BY provider",
    )
    .fetch_all(db)
    .await
    .map_err(|error| read_error(&error))?;
    let secret = |(provider, sealed, created_at, source)| SealedSecret {
        provider,
        sealed,
        created_at: timestamp(created_at),
        source,
    };
    Ok(rows.into_iter().map(secret).collect())
}

/// The writer holds the lock of the file, so nothing comes between looking and adding. The line of the audit is of the same
/// transaction.
pub(super) fn set(db: &Connection, provider: &str, sealed: Option<&[u8]>, source: &str) -> rusqlite::Result<bool> {
    let added = db
        .prepare_cached(
            "INSERT INTO provider_secrets (provider, generation, created_at, source, sealed)
             SELECT ?1, coalesce(max(generation), 0) + 1, ?4, ?3, ?2 FROM provider_secrets WHERE provider = ?1
             HAVING (?2 IS NULL) = coalesce(
                 (SELECT sealed IS NOT NULL FROM provider_secrets WHERE provider = ?1
                  ORDER BY generation DESC LIMIT 1), 0)",
        )?
        .execute(params![provider, sealed, source, now()])?;
    if added == 1 {
        let action = if sealed.is_some() {
            "keep_secret"
        } else {
            "remove_secret"
        };
        record(db, None, action, provider, (source, None), 0)?;
    }
    Ok(added == 1)
}
