//! A database of its own for each test, and direct looks into it.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, Row as _, SqliteConnection};
use tempfile::TempDir;

/// Where the events of a test are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    Sqlite,
    Postgres,
}

/// A fresh, empty database.
#[derive(Clone)]
pub struct TestStore {
    pub engine: Engine,
    /// As the configuration file takes it.
    pub url: String,
    /// The PostgreSQL database's name; empty on SQLite.
    database: String,
    folder: Arc<TempDir>,
}

impl TestStore {
    /// `None`: PostgreSQL is wanted, there is none, and nobody insists on it.
    pub async fn create(engine: Engine) -> Option<Self> {
        let folder = Arc::new(tempfile::Builder::new().prefix("cerca-it-").tempdir().unwrap());
        let (url, database) = match engine {
            Engine::Sqlite => (
                format!("sqlite:{}", folder.path().join("cerca.db").display()),
                String::new(),
            ),
            Engine::Postgres => {
                let server = server_url()?;
                let database = format!("cerca_it_{:016x}", rand::random::<u64>());
                let mut admin = PgConnection::connect(&server).await.expect("CERCA_TEST_POSTGRES");
                run(&mut admin, &format!("create database {database}")).await;
                let (base, _) = server.rsplit_once('/').unwrap();
                (format!("{base}/{database}"), database)
            }
        };
        Some(Self {
            engine,
            url,
            database,
            folder,
        })
    }

    /// Files that belong to this store's test: configuration, log, the SQLite database.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// A single number from a query. Both engines must understand it.
    pub async fn number(&self, sql: &str) -> i64 {
        match self.engine {
            Engine::Sqlite => {
                let row = sqlx::query(AssertSqlSafe(sql.to_owned()))
                    .fetch_one(&mut self.sqlite().await)
                    .await;
                row.unwrap_or_else(|error| panic!("{sql}: {error}")).get(0)
            }
            Engine::Postgres => {
                let row = sqlx::query(AssertSqlSafe(sql.to_owned()))
                    .fetch_one(&mut self.postgres().await)
                    .await;
                row.unwrap_or_else(|error| panic!("{sql}: {error}")).get(0)
            }
        }
    }

    /// Runs statements that change the database.
    pub async fn execute(&self, sql: &str) {
        match self.engine {
            Engine::Sqlite => {
                sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
                    .execute(&mut self.sqlite().await)
                    .await
                    .unwrap();
            }
            Engine::Postgres => run(&mut self.postgres().await, sql).await,
        }
    }

    /// Takes the database away from everyone until [`Self::restore`]. PostgreSQL only.
    pub async fn take_away(&self) {
        let mut admin = self.admin().await;
        let database = &self.database;
        run(
            &mut admin,
            &format!("alter database {database} allow_connections false"),
        )
        .await;
        run(
            &mut admin,
            &format!("select pg_terminate_backend(pid) from pg_stat_activity where datname = '{database}'"),
        )
        .await;
    }

    /// Ends every connection to the database, once. PostgreSQL only.
    pub async fn cut_connections(&self) {
        run(
            &mut self.admin().await,
            &format!(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = '{}'",
                self.database
            ),
        )
        .await;
    }

    pub async fn restore(&self) {
        run(
            &mut self.admin().await,
            &format!("alter database {} allow_connections true", self.database),
        )
        .await;
    }

    /// Whether somebody is in the middle of writing: SQLite has one writer, and PostgreSQL shows statements that wait in
    /// [`Self::stall`].
    pub async fn is_stalled(&self) -> bool {
        match self.engine {
            Engine::Sqlite => {
                let mut db = sqlx::sqlite::SqliteConnectOptions::new()
                    .filename(self.folder().join("cerca.db"))
                    .busy_timeout(std::time::Duration::ZERO)
                    .connect()
                    .await
                    .unwrap();
                sqlx::raw_sql("begin immediate; rollback").execute(&mut db).await.is_err()
            }
            Engine::Postgres => {
                self.number("select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'")
                    .await
                    > 0
            }
        }
    }

    /// Statements that do this to a table take long from now on, until [`Self::go_on`]: `BEFORE INSERT`, … On SQLite less
    /// than a transaction may.
    pub async fn stall(&self, when: &str, table: &str, condition: &str) {
        let sql = match self.engine {
            Engine::Sqlite => format!(
                "create trigger stall {when} on {table} when {condition} begin
                     select count(*) from (with recursive n(i) as (select 1 union all select i + 1 from n
                                                                   where i < 1000000000) select i from n);
                 end"
            ),
            Engine::Postgres => format!(
                "create function stall() returns trigger language plpgsql as
                     $$ begin perform pg_sleep(3600); return new; end $$;
                 create trigger stall {when} on {table} for each row when ({condition}) execute function stall()"
            ),
        };
        self.execute(&sql).await;
    }

    pub async fn go_on(&self, table: &str) {
        match self.engine {
            Engine::Sqlite => self.execute("drop trigger stall").await,
            Engine::Postgres => {
                self.execute(&format!("drop trigger stall on {table}; drop function stall()"))
                    .await;
            }
        }
    }

    /// A connection to the SQLite file, waiting for locks as long as a test may take.
    pub async fn sqlite(&self) -> SqliteConnection {
        sqlx::sqlite::SqliteConnectOptions::new()
            .filename(self.folder().join("cerca.db"))
            .busy_timeout(std::time::Duration::from_secs(30))
            .connect()
            .await
            .unwrap()
    }

    pub async fn remove(self) {
        if self.engine == Engine::Postgres {
            run(
                &mut self.admin().await,
                &format!("drop database if exists {} with (force)", self.database),
            )
            .await;
        }
    }

    async fn postgres(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }

    async fn admin(&self) -> PgConnection {
        PgConnection::connect(&server_url().unwrap()).await.unwrap()
    }
}

async fn run(connection: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
        .execute(connection)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// The superuser's URL, or `None` where tests on PostgreSQL may be skipped.
#[allow(
    clippy::disallowed_methods,
    reason = "tests/run speaks to the tests through the environment"
)]
fn server_url() -> Option<String> {
    let url = std::env::var("CERCA_TEST_POSTGRES").ok().filter(|url| !url.is_empty());
    assert!(
        url.is_some() || std::env::var_os("CERCA_TEST_REQUIRE_POSTGRES").is_none(),
        "CERCA_TEST_REQUIRE_POSTGRES is set and CERCA_TEST_POSTGRES is not"
    );
    url
}
