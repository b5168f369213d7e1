//! Connections, migrations, and what the errors of SQLite mean to us.

use std::{
    path::{Path, PathBuf},
    str::FromStr as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use sqlx::{
    ConnectOptions as _, Connection as _, SqliteConnection, SqlitePool,
    sqlite::{SqliteConnectOptions, SqlitePoolOptions},
};
use tokio_util::sync::CancellationToken;

use super::super::{Schema, StoreError, migrations};

/// Before this version a race of two connections could damage a WAL database (sqlite.org/wal.html, 2026-11-30).
const OLDEST_SQLITE: i32 = 3_051_003;

/// How long another process may hold the write lock.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Virtual-machine steps between two looks at the clock; about a millisecond.
const STEPS: i32 = 20_000;

/// Ids of events come in no order, so each changes an index page of its own, which goes to the log whole: small pages. Two or
/// three events of the usual size in a page: not too small ones.
pub(super) const PAGE_SIZE: i64 = 8_192;
/// 64 MiB of the log: a page that is written again and again is moved once, and a start after a crash has little to read.
pub(super) const CHECKPOINT_PAGES: i32 = (64 << 20) / 8_192;
/// The log grows while it is moved; its file is kept at this size, because new blocks make each sync dearer.
const LOG_FILE: i64 = 128 << 20;

/// The file that a `sqlite:` URL names.
pub(super) fn file(url: &str) -> Result<PathBuf, StoreError> {
    let options = SqliteConnectOptions::from_str(url).map_err(|error| StoreError::Refused(error.to_string()))?;
    let file = options.get_filename();
    if url.contains(":memory:") || file.as_os_str().is_empty() {
        return Err(StoreError::Refused(
            "a store in memory would keep no promise".to_owned(),
        ));
    }
    Ok(file.to_owned())
}

/// A time until which a statement may run, as long as somebody waits for it; checked by the progress handler.
#[derive(Clone, Default)]
pub(super) struct Deadline(Arc<Mutex<Option<(Instant, CancellationToken)>>>);

impl Deadline {
    pub(super) fn begin(&self, limit: Duration, gone: &CancellationToken) {
        *self.lock() = Some((Instant::now() + limit, gone.clone()));
    }

    pub(super) fn end(&self) {
        *self.lock() = None;
    }

    fn is_over(&self) -> bool {
        self.lock()
            .as_ref()
            .is_some_and(|(until, gone)| Instant::now() > *until || gone.is_cancelled())
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Instant, CancellationToken)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The one connection that writes.
pub(super) fn writer(file: &Path) -> rusqlite::Result<(Connection, Deadline)> {
    if rusqlite::version_number() < OLDEST_SQLITE {
        return Err(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_MISUSE),
            Some(format!("SQLite {} is too old to be safe", rusqlite::version())),
        ));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(file, flags)?;
    db.busy_timeout(BUSY_TIMEOUT)?;
    // The first three hold for a new file only, and in this order.
    db.pragma_update(None, "page_size", PAGE_SIZE)?;
    db.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    db.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.pragma_update(None, "fullfsync", true)?;
    db.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    db.pragma_update(None, "journal_size_limit", LOG_FILE)?;
    db.pragma_update(None, "cache_size", -49_152)?;
    db.pragma_update(None, "temp_store", "MEMORY")?;
    db.set_prepared_statement_cache_capacity(128);
    let deadline = Deadline::default();
    let watch = deadline.clone();
    db.progress_handler(STEPS, Some(move || watch.is_over()))?;
    Ok((db, deadline))
}

/// Brings the schema up to date, or checks that it is.
pub(super) async fn migrate(file: &Path, migrate: bool) -> Result<(), StoreError> {
    let refused = |error: &dyn std::fmt::Display| StoreError::Refused(format!("the schema: {error}"));
    let mut db = SqliteConnectOptions::new()
        .filename(file)
        .busy_timeout(BUSY_TIMEOUT)
        .connect()
        .await
        .map_err(|error| read_error(&error))?;
    if migrate {
        migrations::SQLITE
            .run_direct(None, &mut db, false)
            .await
            .map_err(|e| refused(&e))?;
    } else {
        found(&mut db).await.map_err(|error| read_error(&error))?.usable()?;
    }
    db.close().await.map_err(|error| read_error(&error))
}

/// The schema of the file that the URL names.
pub(in crate::store) async fn schema(url: &str) -> Result<Schema, StoreError> {
    let file = file(url)?;
    match file.try_exists() {
        Ok(true) => {}
        Ok(false) => return Ok(Schema::Absent),
        Err(error) => return Err(StoreError::Unavailable(error.to_string())),
    }
    let failed = |error: sqlx::Error| match &error {
        sqlx::Error::Database(database) if database.code().as_deref() == Some("26") => {
            StoreError::Refused("the file is not a database".to_owned())
        }
        error => read_error(error),
    };
    let options = SqliteConnectOptions::new().filename(file).read_only(true);
    let mut db = options.busy_timeout(BUSY_TIMEOUT).connect().await.map_err(failed)?;
    let schema = found(&mut db).await.map_err(failed)?;
    db.close().await.map_err(failed)?;
    Ok(schema)
}

async fn found(db: &mut SqliteConnection) -> sqlx::Result<Schema> {
    let is_there: bool = sqlx::query_scalar("SELECT count(*) > 0 FROM sqlite_schema WHERE name = '_sqlx_migrations'")
        .fetch_one(&mut *db)
        .await?;
    let ran = match is_there {
        true => {
            sqlx::query_scalar("SELECT max(version) FROM _sqlx_migrations WHERE success")
                .fetch_one(db)
                .await?
        }
        false => None,
    };
    Ok(Schema::of(
        ran,
        migrations::SQLITE.iter().map(|migration| migration.version).max(),
    ))
}

/// The connections for people; they can not write.
pub(super) fn readers(file: &Path) -> SqlitePool {
    let options = SqliteConnectOptions::new()
        .filename(file)
        .read_only(true)
        .busy_timeout(BUSY_TIMEOUT)
        .disable_statement_logging();
    SqlitePoolOptions::new()
        .max_connections(4)
        .acquire_timeout(Duration::from_secs(10))
        .connect_lazy_with(options)
}

/// What an error of the writer means to the caller.
pub(super) fn error(error: &rusqlite::Error) -> StoreError {
    // The latter is a value that no column takes, or what code of a native handler says.
    if is_data(error) || matches!(error, rusqlite::Error::ToSqlConversionFailure(_)) {
        StoreError::Refused(error.to_string())
    } else {
        StoreError::Unavailable(error.to_string())
    }
}

/// Whether the values are at fault, not the database.
pub(super) fn is_data(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch)
    )
}

pub(super) fn read_error(error: &sqlx::Error) -> StoreError {
    StoreError::Unavailable(error.to_string())
}

/// The clock of this engine, in microseconds: one machine, one clock.
pub(super) fn now() -> i64 {
    Timestamp::now().as_microsecond()
}

pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 4)
}

/// A time as the database holds it. One out of range can only be a damaged row, and is shown as the epoch.
pub(super) fn timestamp(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flag that makes it sync with fdatasync is not listed; those beside it are.
    #[test]
    fn sqlite_is_built_as_the_folder_says() {
        let db = Connection::open_in_memory().unwrap();
        let mut statement = db.prepare("PRAGMA compile_options").unwrap();
        let options: Vec<String> = statement.query_map([], |row| row.get(0)).unwrap().flatten().collect();
        assert!(
            options.iter().any(|option| option == "DEFAULT_MEMSTATUS=0"),
            "{options:?}"
        );
        assert!(
            !options.iter().any(|option| option == "ENABLE_MEMORY_MANAGEMENT"),
            "{options:?}"
        );
    }
}
