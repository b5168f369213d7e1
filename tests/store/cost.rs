//! What an event costs the database, in things that can be counted: commits, bytes of the log, pages. A change that makes
//! the hot path dearer fails here, on any machine; nothing is timed.

use std::sync::Arc;

use cerca::{
    domain::{NewEvent, Outcome},
    store::{KeptAnswer, KeyStep, Options, open},
};
use futures_util::future::join_all;
use sqlx::{PgPool, Row as _, postgres::PgRow};

use crate::{
    keys::{held, minute},
    support::{Db, Raw, Taker, settle, with_body},
};

/// Requests that wait for their commit at once.
const CONNECTIONS: usize = 256;
const EVENTS: usize = 4_096;
const BODY: usize = 2_048;

/// Bodies compress as JSON does.
const WORDS: [&str; 8] = ["alpha", "payment", "x9", "order", "2026-11-30", "f0", "customer", "7"];

/// Events as senders send them: bodies that compress as JSON does, ids in no order.
fn events(from: usize) -> Vec<NewEvent> {
    let new = |n: usize| {
        let mut random = (n as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let id = format!("evt_{random:016x}");
        let mut body = String::from("{\"note\":\"");
        while body.len() < BODY {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            body.push_str(WORDS[(random >> 61) as usize]);
            body.push_str(&format!(" {} ", (random >> 40) % 97));
        }
        with_body(&id, "a", body.into_bytes())
    };
    (from..from + EVENTS).map(new).collect()
}

/// Sends them as so many connections would, each its next one after the answer to the last.
async fn ingest(db: &Db, events: Vec<NewEvent>) {
    let mut lanes: Vec<Vec<NewEvent>> = (0..CONNECTIONS).map(|_| Vec::new()).collect();
    for (n, event) in events.into_iter().enumerate() {
        lanes[n % CONNECTIONS].push(event);
    }
    join_all(lanes.into_iter().map(async |lane| {
        for event in lane {
            db.store.accept(vec![event]).await.unwrap();
        }
    }))
    .await;
}

/// Commits in this database since it was made. Backends report what they did when they end, at the latest.
async fn commits(db: &Db, pool: &PgPool) -> i64 {
    db.store.close().await;
    let number = async |sql: &'static str| -> i64 { sqlx::query_scalar(sql).fetch_one(pool).await.unwrap() };
    while number(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'cerca%'",
    )
    .await
        > 0
    {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    number("SELECT pg_stat_get_db_xact_commit(oid) FROM pg_database WHERE datname = current_database()").await
}

#[tokio::test(flavor = "multi_thread")]
async fn many_events_share_a_commit() {
    let Some(mut db) = Db::postgres().await else { return };
    let Raw::Postgres(pool) = &db.raw else { return };
    // One connection of ours, whose own commits are counted when it ends.
    let pool = pool.clone();
    let before = commits(&db, &pool).await;
    db.store = open(&db.url, Options::default()).await.unwrap();
    ingest_all(&db).await;
    let all = commits(&db, &pool).await - before;
    let each = all as f64 / EVENTS as f64;
    println!("{each:.4} commits an event, {all} in all");
    // Opening the store takes some, and a busy machine gathers smaller batches.
    assert!(each < 0.03, "{all} commits for {EVENTS} events");
}

/// Events in the statements that are looked at.
const BATCH: usize = 256;

/// What one statement cost, for each event.
#[derive(Debug)]
struct Cost {
    log_bytes: f64,
    pages: f64,
}

/// Reads the answer of `EXPLAIN (ANALYZE, WAL, BUFFERS, FORMAT JSON)`.
fn cost(row: &PgRow) -> Cost {
    let text: String = row.get_unchecked(0);
    let plan: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut own = [0.0; 2];
    add_own(&plan[0]["Plan"], &mut own);
    Cost {
        log_bytes: own[0] / BATCH as f64,
        pages: own[1] / BATCH as f64,
    }
}

/// Adds what each node took without its children. A CTE hangs on the topmost node, but runs inside whatever reads it, or
/// after everything else.
fn add_own(node: &serde_json::Value, sum: &mut [f64; 2]) {
    let children = node["Plans"].as_array().map_or(&[][..], Vec::as_slice);
    let inside = |child: &&serde_json::Value| child["Parent Relationship"] != "InitPlan";
    let below = children
        .iter()
        .filter(inside)
        .map(taken)
        .fold([0.0; 2], |a, b| [a[0] + b[0], a[1] + b[1]]);
    // Whoever reads a CTE first runs it, and would count it a second time.
    if node["Node Type"] != "CTE Scan" {
        for (sum, (all, below)) in sum.iter_mut().zip(taken(node).into_iter().zip(below)) {
            *sum += f64::max(all - below, 0.0);
        }
    }
    for child in children {
        add_own(child, sum);
    }
}

/// Bytes of the log, and pages. Pages that are written whole tell when the last checkpoint was, not what a statement
/// costs.
fn taken(node: &serde_json::Value) -> [f64; 2] {
    let number = |key: &str| node[key].as_f64().unwrap_or_default();
    [
        number("WAL Bytes") - number("WAL FPI") * 8_192.0,
        number("Shared Hit Blocks") + number("Shared Read Blocks"),
    ]
}

macro_rules! explain {
    ($file:literal) => {
        sqlx::query(concat!(
            "EXPLAIN (ANALYZE, WAL, BUFFERS, FORMAT JSON) ",
            include_str!(concat!("../../src/store/postgres/", $file))
        ))
    };
}

/// Stores a batch, whose deliveries are handed over where `handed` names their handler.
async fn explain_ingest(pool: &PgPool, from: usize, handed: &[&str]) -> Cost {
    let events: Vec<NewEvent> = events(from).into_iter().take(BATCH).collect();
    let texts = |of: fn(&NewEvent) -> Option<String>| events.iter().map(of).collect::<Vec<_>>();
    let row = explain!("ingest.sql")
        .bind(texts(|e| Some(e.provider.to_string())))
        .bind(texts(|e| Some(e.provider_event_id.clone())))
        .bind(texts(|e| e.event_type.clone()))
        .bind(texts(|e| e.content_type.clone()))
        .bind(vec![i32::try_from(BODY).unwrap(); BATCH])
        .bind(events.iter().map(|e| e.body_sha256.to_vec()).collect::<Vec<_>>())
        .bind(texts(|e| e.ordering_key.clone()))
        .bind(texts(|_| None))
        .bind(texts(|e| Some(e.routes.to_string())))
        .bind(texts(|e| Some(e.headers.clone())))
        .bind(events.iter().map(|e| e.payload.to_vec()).collect::<Vec<_>>())
        .bind(handed)
        .bind(TOKEN)
        .bind(60_000_000_i64)
        .fetch_one(pool)
        .await
        .unwrap();
    cost(&row)
}

const TOKEN: i64 = 7;

async fn explain_claim(pool: &PgPool) -> Cost {
    let row = explain!("claim.sql")
        .bind(vec!["a"])
        .bind(vec![i32::try_from(BATCH).unwrap()])
        .bind(TOKEN)
        .bind(60_000_000_i64)
        .bind(i64::MAX)
        .fetch_one(pool)
        .await
        .unwrap();
    cost(&row)
}

/// Settles what is claimed as done, by the statement for it or by the one for all outcomes.
async fn explain_settle(pool: &PgPool, all_outcomes: bool) -> Cost {
    let claimed = "SELECT event_id FROM deliveries WHERE state = 'claimed' ORDER BY event_id";
    let ids: Vec<i64> = sqlx::query_scalar(claimed).fetch_all(pool).await.unwrap();
    assert_eq!(ids.len(), BATCH);
    let mut query = if all_outcomes {
        explain!("settle.sql")
    } else {
        explain!("settle_done.sql")
    };
    query = query
        .bind(&ids)
        .bind(vec!["a"; BATCH])
        .bind(vec![TOKEN; BATCH])
        .bind(vec![1_i32; BATCH])
        .bind(vec!["2026-01-01T00:00:00Z"; BATCH])
        .bind(vec![3_i64; BATCH]);
    if all_outcomes {
        query = query
            .bind(vec!["done"; BATCH])
            .bind(vec![0_i64; BATCH])
            .bind(vec![None::<String>; BATCH]);
    }
    cost(&query.fetch_one(pool).await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hot_statements_of_postgres_stay_cheap() {
    let Some(db) = Db::postgres().await else { return };
    let Raw::Postgres(pool) = &db.raw else { return };
    // The connections of the store pin their plans; this one must see the same ones.
    let pin = "ALTER DATABASE {} SET enable_seqscan = off";
    let name: String = sqlx::query_scalar("SELECT current_database()")
        .fetch_one(pool)
        .await
        .unwrap();
    db.sql(&pin.replace("{}", &name)).await;

    let mut rounds = Vec::new();
    for round in 0..2 {
        let from = (round + 1) * EVENTS * 2;
        let ingest = explain_ingest(pool, from, &["a"]).await;
        let done = explain_settle(pool, false).await;
        explain_ingest(pool, from + BATCH, &[]).await;
        let claim = explain_claim(pool).await;
        let settle = explain_settle(pool, true).await;
        rounds.push((ingest, claim, [done, settle]));
        if round == 0 {
            // The second round meets a ledger that has grown, and a heap of dead rows.
            ingest_all(&db).await;
        }
    }
    for (ingest, claim, settles) in &rounds {
        println!("ingest {ingest:?}\nclaim  {claim:?}\nsettle {settles:?}");
    }
    for (ingest, claim, settles) in &rounds {
        assert!(ingest.log_bytes < 1_900.0 && ingest.pages < 30.0, "{ingest:?}");
        assert!(claim.log_bytes < 500.0 && claim.pages < 30.0, "{claim:?}");
        for settle in settles {
            assert!(settle.log_bytes < 300.0 && settle.pages < 30.0, "{settle:?}");
        }
    }
}

/// Stores many events and settles them, by way of the store.
async fn ingest_all(db: &Db) {
    let taker = Taker::new(usize::MAX / 2);
    db.store.set_handoff(Arc::clone(&taker) as _);
    ingest(db, events(0)).await;
    for claim in taker.take() {
        db.store.settle(settle(&claim, Outcome::Done)).await;
    }
    db.store.flush().await.unwrap();
}

/// Requests with a key of their own, each through all of its steps, with an answer as small APIs give it.
async fn run_keys(db: &Db, keys: usize) {
    let kept = Arc::new(KeptAnswer {
        status: 201,
        headers: vec![
            ("content-type".into(), b"application/json".to_vec()),
            ("location".into(), b"/orders/7".to_vec()),
        ],
        body: Some(format!("{{\"id\":7,\"note\":\"{}\"}}", "x".repeat(200)).into()),
        resource_id: Some("7".into()),
    });
    let lanes = (0..64).map(async |lane| {
        for n in (lane..keys).step_by(64) {
            let mut new = minute(
                &format!("{:016x}-{n}", (n as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                1,
            );
            new.name.scope = "5".repeat(64).into();
            let ours = held(&*db.store, new).await;
            assert!(db.store.step(ours, KeyStep::Sent).await.unwrap());
            let complete = KeyStep::Complete(Arc::clone(&kept));
            assert!(db.store.step(ours, complete).await.unwrap());
        }
    });
    join_all(lanes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_with_a_key_write_no_index() {
    let Some(db) = Db::postgres().await else { return };
    let Raw::Postgres(pool) = &db.raw else { return };
    run_keys(&db, 3_000).await;
    commits(&db, pool).await;
    let (updates, hot): (i64, i64) = sqlx::query_as(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'api_idempotency_keys'",
    )
    .fetch_one(pool)
    .await
    .unwrap();
    println!("{hot} of {updates} updates are HOT");
    assert_eq!(updates, 6_000);
    // With an index on what a step changes it is half at most; large batches meet full pages now and then.
    assert!(hot > 3_900, "{hot} of {updates}");
    assert_eq!(
        db.number("SELECT count(*) FROM api_idempotency_keys WHERE status = 'completed'")
            .await,
        3_000
    );
}

/// SQLite writes whole pages, so what an event costs its log is how well batches fill them.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_costs_sqlite_little_log() {
    let db = Db::sqlite().await;
    let log = || {
        let dir = db.dir.as_ref().unwrap().path();
        std::fs::metadata(dir.join("store.db-wal")).map_or(0, |log| log.len())
    };
    let before = log();
    ingest_all(&db).await;
    let each = (log() - before) as f64 / EVENTS as f64;
    println!("{each:.0} B of log an event");
    assert!(each < 8_000.0, "{each}");
}
