//! How a store is opened.

use std::{sync::Arc, time::Duration};

use super::{Store, StoreError, postgres, sqlite};
use crate::domain::OrderedHandler;

/// Limits of a store. The defaults are meant to be right; tests make them small.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bring the schema up to date. Otherwise an older schema is an error.
    pub migrate: bool,
    /// Events in one flush, at most; a request with more is flushed whole.
    pub batch_events: usize,
    /// Bytes in one flush, at most; a larger request is flushed whole.
    pub batch_bytes: usize,
    /// Events that wait for their commit, at most.
    pub queue_events: usize,
    /// Bytes that wait for their commit, at most.
    pub queue_bytes: usize,
    /// How long an event may wait for its commit, as far as recent flushes let foresee; more is refused.
    pub max_wait: Duration,
    /// Settles that wait to be written, at most.
    pub queue_settles: usize,
    /// Ingest flushes in flight (PostgreSQL). Two hide the network and the log flush behind each other; on one or two
    /// cores one is better, because its batches are larger (a third less of PostgreSQL's time for each event).
    pub flushes: usize,
    /// How long one statement of ours may take; a sql handler has a limit of its own.
    pub statement_timeout: Duration,
    /// Handlers whose deliveries of one ordering key run one at a time. New deliveries of the others are not ordered.
    pub ordered: Arc<[OrderedHandler]>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            migrate: true,
            batch_events: 512,
            batch_bytes: 4 << 20,
            queue_events: 4096,
            queue_bytes: 64 << 20,
            max_wait: Duration::from_secs(2),
            queue_settles: 4096,
            flushes: if std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 2) {
                2
            } else {
                1
            },
            statement_timeout: Duration::from_secs(10),
            ordered: Arc::default(),
        }
    }
}

/// Opens the store that the URL names: `sqlite:cerca.db` or `postgres://user:password@host/database`.
///
/// # Errors
/// [`StoreError::Refused`] when the URL is not one of these or the schema is not ours, [`StoreError::Unavailable`] when
/// the database cannot be reached.
pub async fn open(url: &str, options: Options) -> Result<Arc<dyn Store>, StoreError> {
    let scheme = url.split(':').next().unwrap_or_default();
    match scheme {
        "sqlite" => Ok(sqlite::SqliteStore::open(url, options).await?),
        "postgres" | "postgresql" => Ok(postgres::PostgresStore::open(url, options).await?),
        _ => Err(StoreError::Refused(
            "the store's URL must begin with sqlite: or postgres:".to_owned(),
        )),
    }
}
