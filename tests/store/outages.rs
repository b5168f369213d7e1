//! The database goes away in the middle.

use std::time::Duration;

use cerca::{
    domain::{Claim, Outcome},
    store::{Accepted, Options, StoreError, StoreFuture, open},
};
use futures_util::future::join_all;

use crate::support::{Db, Raw, Taker, event, request, settle};

on_both!(
    a_new_process_finds_everything,
    two_processes_share_a_store,
    the_store_answers_a_ping,
    a_claim_that_nobody_waits_for_takes_nothing,
);

async fn a_new_process_finds_everything(db: Db) {
    db.store.accept(vec![event("e1", "a")]).await.unwrap();
    let claim = db.claim("a", 1).await.remove(0);
    db.store.settle(settle(&claim, Outcome::Done)).await;
    db.store.close().await;
    assert!(matches!(db.store.flush().await, Err(StoreError::Closed)));
    let again = open(
        &db.url,
        Options {
            migrate: false,
            ..Options::default()
        },
    )
    .await
    .unwrap();
    assert_eq!(
        again.accept(vec![event("e1", "a")]).await.unwrap(),
        [Accepted::Duplicate]
    );
    let detail = again.event("p", "e1").await.unwrap().unwrap();
    assert_eq!(
        detail.attempts.len(),
        1,
        "what was queued is written before the store closes"
    );
    again.close().await;
}

async fn two_processes_share_a_store(db: Db) {
    let other = open(&db.url, Options::default()).await.unwrap();
    let both = (0..200).map(|n| {
        let store = if n % 2 == 0 { &db.store } else { &other };
        store.accept(vec![event(&format!("e{}", n / 2), "a")])
    });
    let answers: Vec<_> = join_all(both).await.into_iter().map(|a| a.unwrap()[0]).collect();
    assert_eq!(answers.iter().filter(|a| **a == Accepted::Stored).count(), 100);
    assert_eq!(db.number("SELECT count(*) FROM deliveries").await, 100);
    other.close().await;
}

/// Two claims: one that finds nothing and whose answer is waited for, then one that is given up.
fn ask_and_leave(db: &Db) -> StoreFuture<'_, Vec<Claim>> {
    let first = db.store.claim(request(&[("nobody", 1)]));
    drop(db.store.claim(request(&[("a", 1)])));
    first
}

/// While the database is busy, a claim may come too late for the worker that asked.
async fn a_claim_that_nobody_waits_for_takes_nothing(db: Db) {
    db.store.accept(vec![event("e1", "a")]).await.unwrap();
    let first = match &db.raw {
        Raw::Sqlite(raw) => {
            let lock = raw.begin_with("BEGIN IMMEDIATE").await.unwrap();
            let first = ask_and_leave(&db);
            lock.rollback().await.unwrap();
            first
        }
        Raw::Postgres(raw) => {
            let mut lock = raw.begin().await.unwrap();
            sqlx::query("LOCK TABLE deliveries").execute(&mut *lock).await.unwrap();
            let first = ask_and_leave(&db);
            lock.rollback().await.unwrap();
            first
        }
    };
    assert!(first.await.unwrap().is_empty());
    let claim = db.claim("a", 1).await;
    assert_eq!(claim.len(), 1);
    assert_eq!(claim[0].attempt, 1);
}

async fn the_store_answers_a_ping(db: Db) {
    db.store.ping().await.unwrap();
    db.store.close().await;
    assert!(db.store.ping().await.is_err());
}

#[tokio::test]
async fn a_store_that_was_never_migrated_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", dir.path().join("new.db").display());
    let answer = open(
        &url,
        Options {
            migrate: false,
            ..Options::default()
        },
    )
    .await;
    assert!(matches!(answer, Err(StoreError::Refused(_))));
    assert!(matches!(
        open("mysql://x", Options::default()).await,
        Err(StoreError::Refused(_))
    ));
    assert!(matches!(
        open("sqlite::memory:", Options::default()).await,
        Err(StoreError::Refused(_))
    ));
}

/// Another process keeps the write lock: nothing is acknowledged, and what is settled is written when it lets go.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_sqlite_acknowledges_nothing_and_loses_nothing() {
    let db = Db::sqlite().await;
    db.store.accept(vec![event("e1", "a")]).await.unwrap();
    let claim = db.claim("a", 1).await.remove(0);
    let path = db.dir.as_ref().unwrap().path().join("store.db");
    let blocker = sqlx::SqlitePool::connect(&format!("sqlite:{}", path.display()))
        .await
        .unwrap();
    let lock = blocker.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let answer = db.store.accept(vec![event("e2", "a")]);
    db.store.settle(settle(&claim, Outcome::Done)).await;
    assert!(matches!(answer.await, Err(StoreError::Unavailable(_))));
    lock.rollback().await.unwrap();
    db.store.flush().await.unwrap();
    assert_eq!(db.row("e1").await.status.as_str(), "done");
    assert_eq!(
        db.store.accept(vec![event("e2", "a")]).await.unwrap(),
        [Accepted::Stored]
    );
}

/// Every connection of the store is cut, again and again, under load: what was acknowledged is there, once.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_backend_is_unavailable_and_then_well() {
    let Some(db) = Db::postgres().await else { return };
    let taker = Taker::new(1_000_000);
    db.store.set_handoff(taker.clone());
    let kill = async {
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(60)).await;
            db.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE 'cerca%'",
            )
            .await;
        }
    };
    let load = async {
        let mut acknowledged = Vec::new();
        let mut unavailable = 0;
        for round in 0..60 {
            let ids: Vec<_> = (0..50).map(|n| format!("e{round}-{n}")).collect();
            let answers = join_all(ids.iter().map(|id| db.store.accept(vec![event(id, "a")]))).await;
            for (id, answer) in ids.into_iter().zip(answers) {
                match answer {
                    Ok(_) => acknowledged.push(id),
                    Err(StoreError::Unavailable(_)) => unavailable += 1,
                    Err(other) => panic!("{other}"),
                }
            }
            for claim in taker.take() {
                db.store.settle(settle(&claim, Outcome::Done)).await;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        (acknowledged, unavailable)
    };
    let ((), (acknowledged, unavailable)) = futures_util::join!(kill, load);
    assert!(unavailable > 0, "the connections were never cut in the middle");
    db.store.flush().await.unwrap();
    let stored = db.texts("SELECT provider_event_id FROM webhook_events").await;
    for id in &acknowledged {
        assert!(stored.contains(id), "{id} was acknowledged and is not there");
    }
    // Each acknowledged event was handed over and settled once; only those of unknown outcome may still be leased.
    let settled = db.number("SELECT count(*) FROM attempts").await;
    assert!(settled >= acknowledged.len() as i64);
    assert_eq!(
        db.number("SELECT count(*) FROM (SELECT 1 FROM attempts GROUP BY event_id HAVING count(*) > 1) x")
            .await,
        0
    );
    assert_eq!(
        db.store.accept(vec![event("after", "a")]).await.unwrap(),
        [Accepted::Stored]
    );
    db.store.ping().await.unwrap();
}
