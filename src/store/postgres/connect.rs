//! Connections, migrations, and what the errors of PostgreSQL mean to us.

use std::{
    fmt,
    str::FromStr as _,
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgDatabaseError, PgPoolOptions},
};
use tokio::time::{error::Elapsed, sleep, timeout};

use super::super::{Schema, StoreError, migrations};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The server is to end a slow statement itself; past this much more the connection is given up.
const GRACE: Duration = Duration::from_secs(2);

/// A connection that rested for longer is asked whether it lives, so that the first request after a restart of the
/// server is not turned away.
const REST: Duration = Duration::from_secs(2);

/// Reads for people may count millions of rows.
const READ_TIMEOUT_SECONDS: u32 = 60;

const BACKOFF_FIRST: Duration = Duration::from_millis(50);
const BACKOFF_LAST: Duration = Duration::from_secs(1);

/// Nothing of the hot statements may depend on statistics: a work list that was empty at the last ANALYZE makes the
/// planner scan and hash a growing heap of dead rows, or read a whole index for each row. Look-ups by key, changes by
/// place and rows in the order of an index are what is left. Where sorting is off, an index must give the order.
macro_rules! pinned {
    () => {
        "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off;
         SET enable_bitmapscan = off; SET enable_sort = off; SET enable_incremental_sort = off;
         SET plan_cache_mode = force_generic_plan; SET jit = off;"
    };
}
pub(super) const PINNED: &str = pinned!();

/// What is acknowledged is on disk, whatever the server, the database or the role were told. A stronger setting stays.
const DURABLE: &str =
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';";

/// For what may be lost in a crash of the server, because a lease ends the same.
pub(super) const PINNED_ASYNC: &str = concat!(pinned!(), "SET synchronous_commit = off;");

/// For what must not wait for rows that an effect's transaction holds.
pub(super) const PINNED_IMPATIENT: &str = concat!(pinned!(), "SET lock_timeout = '50ms';");

pub(super) fn options(url: &str) -> Result<PgConnectOptions, StoreError> {
    // The error of the parser can quote the URL, and with it the password.
    PgConnectOptions::from_str(url)
        .map(PgConnectOptions::disable_statement_logging)
        .map_err(|_| StoreError::Refused("the store's URL is not one of PostgreSQL".to_owned()))
}

/// Brings the schema up to date, or checks that it is.
pub(super) async fn migrate(options: &PgConnectOptions, migrate: bool) -> Result<(), StoreError> {
    let refused = |error: &dyn fmt::Display| StoreError::Refused(format!("the schema: {error}"));
    let mut db = connect(options).await?;
    if migrate {
        migrations::POSTGRES
            .run_direct(None, &mut db, false)
            .await
            .map_err(|e| refused(&e))?;
    } else {
        found(&mut db).await.map_err(|error| read_error(&error))?.usable()?;
    }
    let fsync: String = sqlx::query_scalar("SELECT current_setting('fsync')")
        .fetch_one(&mut db)
        .await
        .map_err(|error| read_error(&error))?;
    if fsync == "off" {
        tracing::warn!("PostgreSQL runs with fsync = off: what is acknowledged is lost when its machine stops");
    }
    db.close().await.map_err(|error| read_error(&error))
}

/// The schema of the database that the URL names.
pub(in crate::store) async fn schema(url: &str) -> Result<Schema, StoreError> {
    let mut db = connect(&options(url)?).await?;
    let schema = timeout(CONNECT_TIMEOUT, found(&mut db)).await;
    let schema = schema.map_err(|_| StoreError::Unavailable("the database did not answer in time".to_owned()))?;
    let schema = schema.map_err(|error| read_error(&error))?;
    db.close().await.map_err(|error| read_error(&error))?;
    Ok(schema)
}

async fn connect(options: &PgConnectOptions) -> Result<PgConnection, StoreError> {
    let options = options.clone().application_name("cerca migrate");
    let made = timeout(CONNECT_TIMEOUT, options.connect()).await;
    let made = made.map_err(|_| StoreError::Unavailable("the database did not answer in time".to_owned()))?;
    made.map_err(|error| StoreError::Unavailable(error.to_string()))
}

async fn found(db: &mut PgConnection) -> sqlx::Result<Schema> {
    let is_there: bool = sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL")
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
        migrations::POSTGRES.iter().map(|migration| migration.version).max(),
    ))
}

/// The connections for people.
pub(super) fn readers(options: &PgConnectOptions) -> PgPool {
    PgPoolOptions::new()
        .max_connections(4)
        .acquire_timeout(CONNECT_TIMEOUT)
        .after_connect(|db, _| {
            Box::pin(async move {
                let set = format!("SET statement_timeout = '{READ_TIMEOUT_SECONDS}s'; SET jit = off");
                db.execute(sqlx::raw_sql(AssertSqlSafe(set))).await.map(drop)
            })
        })
        .connect_lazy_with(options.clone().application_name("cerca read"))
}

pub(super) fn read_error(error: &sqlx::Error) -> StoreError {
    StoreError::Unavailable(message(error, false))
}

/// What to do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The values are refused, and would be again.
    Data,
    /// A deadlock or a serialization failure; the same again may pass.
    Again,
    /// Somebody holds a row for longer than we wait.
    Locked,
    /// The statement failed for another reason.
    Statement,
    /// The connection is gone, or of no use any more; the outcome may be unknown.
    Connection,
}

pub(super) fn fault(error: &sqlx::Error) -> Fault {
    let sqlx::Error::Database(error) = error else {
        return match error {
            sqlx::Error::Encode(_) => Fault::Data,
            _ => Fault::Connection,
        };
    };
    let code = error.code().unwrap_or_default();
    match &*code {
        "40001" | "40P01" => Fault::Again,
        "55P03" => Fault::Locked,
        // A standby that was the primary until now.
        "25006" => Fault::Connection,
        // Asked to end: by a timeout of ours, or by a person.
        "57014" => Fault::Statement,
        code => match code.get(..2).unwrap_or_default() {
            "21" | "22" | "23" | "54" => Fault::Data,
            "08" | "53" | "57" | "58" | "XX" => Fault::Connection,
            _ => Fault::Statement,
        },
    }
}

/// The text of an error: what the server says, without the place in the server's source. The detail may hold values.
pub(super) fn message(error: &sqlx::Error, with_detail: bool) -> String {
    let sqlx::Error::Database(database) = error else {
        return error.to_string();
    };
    let mut text = database.message().to_owned();
    if let Some(code) = database.code() {
        text.push_str(&format!(" ({code})"));
    }
    let database = database.try_downcast_ref::<PgDatabaseError>();
    if let Some(detail) = database.and_then(PgDatabaseError::detail).filter(|_| with_detail) {
        text.push_str(&format!(": {detail}"));
    }
    if let Some(constraint) = database.and_then(PgDatabaseError::constraint) {
        text.push_str(&format!(" [constraint {constraint}]"));
    }
    text
}

/// A failure, judged.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) fault: Fault,
    pub(super) error: StoreError,
}

/// One task's connection, made anew when it breaks.
pub(super) struct Link {
    options: PgConnectOptions,
    setup: String,
    limit: Duration,
    connection: Option<PgConnection>,
    used: Instant,
    backoff: Duration,
}

impl Link {
    pub(super) fn new(options: &PgConnectOptions, name: &str, setup: &str, limit: Duration) -> Self {
        let millis = limit.as_millis();
        Self {
            options: options.clone().application_name(&format!("cerca {name}")),
            setup: format!(
                "{DURABLE} {setup} SET statement_timeout = {millis}; SET idle_in_transaction_session_timeout = '60s'"
            ),
            limit: limit + GRACE,
            connection: None,
            used: Instant::now(),
            backoff: BACKOFF_FIRST,
        }
    }

    /// The connection, alive as far as one can tell.
    pub(super) async fn get(&mut self) -> Result<&mut PgConnection, Failed> {
        if let Some(connection) = &mut self.connection
            && self.used.elapsed() > REST
            && !matches!(timeout(CONNECT_TIMEOUT, connection.ping()).await, Ok(Ok(())))
        {
            self.connection = None;
        }
        self.used = Instant::now();
        if self.connection.is_none() {
            let made = timeout(CONNECT_TIMEOUT, async {
                let mut made = self.options.connect().await?;
                made.execute(sqlx::raw_sql(AssertSqlSafe(self.setup.clone()))).await?;
                Ok(made)
            });
            self.connection = Some(Self::judge(made.await)?);
            self.backoff = BACKOFF_FIRST;
        }
        self.connection.as_mut().ok_or(Failed {
            fault: Fault::Connection,
            error: StoreError::Closed,
        })
    }

    /// How long one use of the connection may take.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// Judges the end of a use of the connection, and gives the connection up if it is of no use any more.
    pub(super) fn end<T>(&mut self, result: Result<sqlx::Result<T>, Elapsed>) -> Result<T, Failed> {
        self.used = Instant::now();
        let result = Self::judge(result);
        if let Err(failed) = &result
            && failed.fault == Fault::Connection
        {
            self.connection = None;
        }
        result
    }

    pub(super) fn cut(&mut self) {
        self.connection = None;
    }

    /// Runs one piece of work that owns what it needs.
    pub(super) async fn run<T>(
        &mut self,
        work: impl for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, sqlx::Result<T>>,
    ) -> Result<T, Failed> {
        let limit = self.limit;
        let result = timeout(limit, work(self.get().await?)).await;
        let result = self.end(result);
        if result.is_err() && self.connection.as_ref().is_some_and(|c| c.is_in_transaction()) {
            self.connection = None;
        }
        result
    }

    /// Waits before the next try: longer each time, and not in step with others.
    pub(super) async fn back_off(&mut self) {
        sleep(self.backoff.mul_f64(0.5 + rand::random::<f64>() / 2.0)).await;
        self.backoff = (self.backoff * 2).min(BACKOFF_LAST);
    }

    fn judge<T>(result: Result<sqlx::Result<T>, Elapsed>) -> Result<T, Failed> {
        let error = match result {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => error,
            Err(_) => {
                return Err(Failed {
                    fault: Fault::Connection,
                    error: StoreError::Unavailable("the database did not answer in time".to_owned()),
                });
            }
        };
        let fault = fault(&error);
        Err(Failed {
            fault,
            error: match fault {
                Fault::Data => StoreError::Refused(message(&error, false)),
                _ => StoreError::Unavailable(message(&error, false)),
            },
        })
    }
}
