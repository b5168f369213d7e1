//! A store of its own for each test, a worker that can be watched, and short ways to say things.

use std::{
    env,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use cerca::{
    domain::{Claim, NewEvent, Outcome, Settle},
    store::{ClaimRequest, EventRow, Handoff, Options, Store, open},
};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use sqlx::{AssertSqlSafe, PgPool, Row as _, SqlitePool};
use tempfile::TempDir;

/// Makes two tests of each function: `name::sqlite` and `name::postgres`.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            #[tokio::test(flavor = "multi_thread")]
            async fn sqlite() {
                super::$name($crate::support::Db::sqlite().await).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn postgres() {
                if let Some(db) = $crate::support::Db::postgres().await {
                    super::$name(db).await;
                }
            }
        })*
    };
}

pub(crate) enum Raw {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

pub(crate) struct Db {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) raw: Raw,
    pub(crate) url: String,
    pub(crate) dir: Option<TempDir>,
}

impl Db {
    pub(crate) async fn sqlite() -> Self {
        Self::sqlite_with(Options::default()).await
    }

    pub(crate) async fn sqlite_with(options: Options) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", dir.path().join("store.db").display());
        let store = open(&url, options).await.unwrap();
        let raw = Raw::Sqlite(SqlitePool::connect(&url).await.unwrap());
        Self {
            store,
            raw,
            url,
            dir: Some(dir),
        }
    }

    /// `None` without a server, which is an error where the server is required.
    pub(crate) async fn postgres() -> Option<Self> {
        Self::postgres_with(Options::default()).await
    }

    pub(crate) async fn postgres_with(options: Options) -> Option<Self> {
        let Ok(server) = env::var("CERCA_TEST_POSTGRES") else {
            assert!(
                env::var("CERCA_TEST_REQUIRE_POSTGRES").is_err(),
                "CERCA_TEST_POSTGRES is not set"
            );
            println!("PostgreSQL left out: CERCA_TEST_POSTGRES is not set");
            return None;
        };
        let name = format!("cerca_test_{:016x}", rand::random::<u64>());
        let admin = PgPool::connect(&server).await.unwrap();
        sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}")))
            .execute(&admin)
            .await
            .unwrap();
        admin.close().await;
        let (base, _) = server.rsplit_once('/').unwrap();
        let url = format!("{base}/{name}");
        let store = open(&url, options).await.unwrap();
        let raw = Raw::Postgres(PgPool::connect(&url).await.unwrap());
        Some(Self {
            store,
            raw,
            url,
            dir: None,
        })
    }

    pub(crate) fn is_postgres(&self) -> bool {
        matches!(self.raw, Raw::Postgres(_))
    }

    /// Runs SQL behind the store's back.
    pub(crate) async fn sql(&self, sql: &str) {
        match &self.raw {
            Raw::Sqlite(db) => drop(sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(db).await.unwrap()),
            Raw::Postgres(db) => drop(sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(db).await.unwrap()),
        }
    }

    /// A number that a query gives.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        match &self.raw {
            Raw::Sqlite(db) => sqlx::query(AssertSqlSafe(sql.to_owned()))
                .fetch_one(db)
                .await
                .unwrap()
                .get(0),
            Raw::Postgres(db) => sqlx::query(AssertSqlSafe(sql.to_owned()))
                .fetch_one(db)
                .await
                .unwrap()
                .get(0),
        }
    }

    /// The texts that a query gives, in one column.
    pub(crate) async fn texts(&self, sql: &str) -> Vec<String> {
        match &self.raw {
            Raw::Sqlite(db) => sqlx::query_scalar(AssertSqlSafe(sql.to_owned()))
                .fetch_all(db)
                .await
                .unwrap(),
            Raw::Postgres(db) => sqlx::query_scalar(AssertSqlSafe(sql.to_owned()))
                .fetch_all(db)
                .await
                .unwrap(),
        }
    }

    /// Moves the past of everything back by some hours.
    pub(crate) async fn age(&self, hours: i64) {
        self.sql(&if self.is_postgres() {
            format!("UPDATE webhook_events SET created_at = created_at - interval '{hours} hours'")
        } else {
            format!("UPDATE webhook_events SET created_at = created_at - {hours} * 3600000000")
        })
        .await;
    }

    /// Lets every lease run out.
    pub(crate) async fn expire(&self) {
        self.sql(if self.is_postgres() {
            "UPDATE deliveries SET lease_until = now() - interval '1 second' WHERE state = 'claimed'"
        } else {
            "UPDATE deliveries SET lease_until = 1 WHERE state = 'claimed'"
        })
        .await;
    }

    pub(crate) async fn claim(&self, handler: &str, limit: u32) -> Vec<Claim> {
        self.store.claim(request(&[(handler, limit)])).await.unwrap()
    }

    pub(crate) async fn settle(&self, claim: &Claim, outcome: Outcome) {
        self.store.settle(settle(claim, outcome)).await;
        self.store.flush().await.unwrap();
    }

    pub(crate) async fn row(&self, id: &str) -> EventRow {
        self.store.event("p", id).await.unwrap().unwrap().event
    }
}

pub(crate) fn request(wants: &[(&str, u32)]) -> ClaimRequest {
    ClaimRequest {
        wants: wants.iter().map(|(name, n)| (Arc::from(*name), *n)).collect(),
        lease: Duration::from_secs(30),
        max_bytes: 1 << 30,
        fair: false,
    }
}

pub(crate) fn settle(claim: &Claim, outcome: Outcome) -> Settle {
    Settle {
        event_id: claim.event.id,
        handler: Arc::clone(&claim.handler),
        token: claim.token,
        attempt: claim.attempt,
        started_at: Timestamp::now(),
        duration: Duration::from_millis(3),
        outcome,
    }
}

pub(crate) fn event(id: &str, routes: &str) -> NewEvent {
    with_body(id, routes, format!("{{\"id\":\"{id}\"}}").into_bytes())
}

pub(crate) fn with_body(id: &str, routes: &str, body: Vec<u8>) -> NewEvent {
    NewEvent {
        provider: Arc::from("p"),
        provider_event_id: id.to_owned(),
        event_type: Some("thing.done".to_owned()),
        body_sha256: Sha256::digest(&body).into(),
        payload: Bytes::from(body),
        content_type: Some("application/json".to_owned()),
        headers: "{}".to_owned(),
        ordering_key: None,
        occurred_at: Some(Timestamp::from_microsecond(1_700_000_000_123_456).unwrap()),
        routes: Arc::from(routes),
    }
}

/// A local worker with room for a number of deliveries that remembers what it is told.
pub(crate) struct Taker {
    pub(crate) room: AtomicUsize,
    pub(crate) bytes: AtomicUsize,
    pub(crate) wakes: AtomicUsize,
    pub(crate) claims: Mutex<Vec<Claim>>,
}

impl Taker {
    pub(crate) fn new(room: usize) -> Arc<Self> {
        Arc::new(Self {
            room: AtomicUsize::new(room),
            bytes: AtomicUsize::new(0),
            wakes: AtomicUsize::new(0),
            claims: Mutex::new(Vec::new()),
        })
    }

    pub(crate) fn take(&self) -> Vec<Claim> {
        std::mem::take(&mut *self.claims.lock().unwrap())
    }
}

impl Handoff for Taker {
    fn reserve(&self, _handler: &str, count: usize, bytes: usize) -> bool {
        let took = self
            .room
            .fetch_update(Relaxed, Relaxed, |room| room.checked_sub(count))
            .is_ok();
        if took {
            self.bytes.fetch_add(bytes, Relaxed);
        }
        took
    }

    fn give_back(&self, _handler: &str, count: usize, bytes: usize) {
        self.room.fetch_add(count, Relaxed);
        self.bytes.fetch_sub(bytes, Relaxed);
    }

    fn hand_over(&self, claims: Vec<Claim>) {
        self.claims.lock().unwrap().extend(claims);
    }

    fn wake(&self) {
        self.wakes.fetch_add(1, Relaxed);
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(30)
    }
}
