//! Runs a statement with values of the event. In the store's own database it is the store that runs it, in the transaction
//! that settles the delivery: exactly once. In another database it is done before the settle: at least once, so give the
//! target a unique column for `event:idempotency_key`, or `on conflict do nothing`.

use std::{str::FromStr as _, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use secrecy::{ExposeSecret as _, SecretString};
use sqlx::{
    AssertSqlSafe, Sqlite,
    postgres::{PgConnectOptions, PgPool, PgPoolOptions},
    sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions},
};
use tokio::sync::OnceCell;

use super::{Failure, Handler, Outgoing, SqlAction, params::Params};
use crate::{
    domain::exact_double,
    store::{SqlValue, run_elsewhere},
};

/// Connections to one other database, at most.
const CONNECTIONS: u32 = 16;
const CONNECT: Duration = Duration::from_secs(10);

pub(super) fn in_store(statement: &str, params: Params) -> SqlAction {
    SqlAction {
        statement: statement.into(),
        count: params.len(),
        params: Box::new(move |outgoing| params.read(outgoing)),
    }
}

/// Opens no connection yet: a database that is away must not keep the service from starting.
pub(super) fn elsewhere(
    url: &SecretString,
    statement: &str,
    params: Params,
    concurrency: usize,
) -> Result<Arc<dyn Handler>, String> {
    let statement = Arc::<str>::from(statement);
    let connections = u32::try_from(concurrency).unwrap_or(CONNECTIONS).min(CONNECTIONS);
    let url = url.expose_secret();
    if url.starts_with("postgres:") || url.starts_with("postgresql:") {
        // The parser's own message may hold the password.
        let options = PgConnectOptions::from_str(url).map_err(|_| "`database` is not a PostgreSQL URL")?;
        Ok(Arc::new(InPostgres {
            options,
            connections,
            pool: OnceCell::new(),
            statement,
            params,
        }))
    } else if url.starts_with("sqlite:") {
        let options = SqliteConnectOptions::from_str(url).map_err(|_| "`database` is not a SQLite URL")?;
        Ok(Arc::new(InSqlite {
            options,
            pool: OnceCell::new(),
            statement,
            params,
        }))
    } else {
        Err("`database` must be sqlite:PATH or postgres://user:password@host/database".into())
    }
}

struct InPostgres {
    options: PgConnectOptions,
    connections: u32,
    pool: OnceCell<PgPool>,
    statement: Arc<str>,
    params: Params,
}

impl Handler for InPostgres {
    fn handle<'a>(&'a self, outgoing: &'a Outgoing<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let open = || async {
                PgPoolOptions::new()
                    .max_connections(self.connections)
                    .acquire_timeout(CONNECT)
                    .connect_lazy_with(self.options.clone())
            };
            let pool = self.pool.get_or_init(open).await;
            let params = self.params.read(outgoing)?;
            let mut db = pool.acquire().await.map_err(|e| failure(&e))?;
            match run_elsewhere(&mut db, &self.statement, &params).await {
                Ok(done) => done.map_err(Failure::Retry),
                Err(error) => Err(failure(&error)),
            }
        })
    }
}

struct InSqlite {
    options: SqliteConnectOptions,
    pool: OnceCell<SqlitePool>,
    statement: Arc<str>,
    params: Params,
}

impl Handler for InSqlite {
    fn handle<'a>(&'a self, outgoing: &'a Outgoing<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            // SQLite has one writer at a time; waiting here is cheaper than waiting for its lock.
            let open = || async {
                SqlitePoolOptions::new()
                    .max_connections(1)
                    .acquire_timeout(CONNECT)
                    .connect_lazy_with(self.options.clone().busy_timeout(CONNECT))
            };
            let pool = self.pool.get_or_init(open).await;
            let mut query = sqlx::query::<Sqlite>(AssertSqlSafe(self.statement.clone()));
            for value in self.params.read(outgoing)? {
                query = match value {
                    SqlValue::Null => query.bind(None::<i64>),
                    SqlValue::Bool(v) => query.bind(v),
                    SqlValue::Int(v) => query.bind(v),
                    SqlValue::Number(text) => match exact_double(&text) {
                        Some(v) => query.bind(v),
                        None => query.bind(text),
                    },
                    SqlValue::Text(v) => query.bind(v),
                    SqlValue::Bytes(v) => query.bind(v.to_vec()),
                };
            }
            query.execute(pool).await.map(drop).map_err(|e| failure(&e))
        })
    }
}

/// The database's message; its detail line would hold values of the body.
fn failure(error: &sqlx::Error) -> Failure {
    Failure::Retry(match error {
        sqlx::Error::Database(error) => match error.code() {
            Some(code) => format!("the database refused the statement: {} ({code})", error.message()),
            None => format!("the database refused the statement: {}", error.message()),
        },
        other => format!("the database cannot be reached: {other}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::testing::claim;

    fn parsed(params: &[String]) -> Params {
        Params::parse(params, Arc::default(), Arc::default()).unwrap()
    }

    #[tokio::test]
    async fn another_sqlite_database_takes_the_values() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("other.db").display());
        let params = ["event:idempotency_key", "body:/amount", "body:/none"].map(String::from);
        let statement = "insert into payments values ($1, $2, $3) on conflict do nothing";
        let handler = elsewhere(&url.as_str().into(), statement, parsed(&params), 4).unwrap();
        let claim = claim("evt_1", r#"{"amount":1250}"#);

        let error = handler.handle(&Outgoing::raw(&claim)).await.unwrap_err().to_string();
        assert!(error.starts_with("the database"), "it is not created: {error}");

        let options = SqliteConnectOptions::from_str(&url).unwrap().create_if_missing(true);
        let pool = SqlitePool::connect_with(options).await.unwrap();
        sqlx::query("create table payments (key text primary key, cents integer not null, note text)")
            .execute(&pool)
            .await
            .unwrap();
        for _ in 0..2 {
            handler.handle(&Outgoing::raw(&claim)).await.unwrap();
        }
        let rows: Vec<(String, i64, Option<String>)> =
            sqlx::query_as("select * from payments").fetch_all(&pool).await.unwrap();
        assert_eq!(rows, [("stripe:evt_1:h".to_owned(), 1250, None)]);
    }

    #[test]
    fn urls_are_checked_without_repeating_them() {
        for bad in ["mysql://u:hush@h/d", "hush", "postgres://u:hush@h:port/d"] {
            let error = elsewhere(&bad.into(), "select 1", parsed(&[]), 1).err().unwrap();
            assert!(error.starts_with("`database` ") && !error.contains("hush"), "{error}");
        }
        assert!(elsewhere(&"postgres://u:p@h/d".into(), "select 1", parsed(&[]), 1).is_ok());
    }
}
