//! Processes that tell each other of work (PostgreSQL). A hint: everything works without it, by polling.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use cerca::store::{Options, Store, open};

use crate::support::{Db, Taker, event};

/// Waits until the worker was woken more often than this; answers how often it was.
async fn woken(taker: &Taker, before: usize, what: &str) -> usize {
    for _ in 0..600 {
        let wakes = taker.wakes.load(Relaxed);
        if wakes > before {
            return wakes;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("nobody woke the worker: {what}");
}

/// Waits until the other process hears what is said.
async fn listens(db: &Db) {
    for _ in 0..600 {
        // The last that it says before it only listens.
        let listening = "SELECT count(*) FROM pg_stat_activity
                         WHERE application_name = 'cerca listen' AND datname = current_database()
                           AND state = 'idle' AND (query LIKE 'LISTEN%' OR query LIKE 'SELECT current_schema%')";
        if db.number(listening).await == 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("nobody listens");
}

async fn listener(url: &str) -> (Arc<dyn Store>, Arc<Taker>) {
    let store = open(url, Options::default()).await.unwrap();
    let taker = Taker::new(0);
    store.set_handoff(taker.clone());
    (store, taker)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_elsewhere_hears_of_new_work_and_hears_again_after_its_connection_was_cut() {
    let Some(db) = Db::postgres().await else { return };
    let (other, taker) = listener(&db.url).await;
    listens(&db).await;
    db.store.accept(vec![event("e1", "a")]).await.unwrap();
    let wakes = woken(&taker, 0, "an event was stored").await;

    db.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE application_name = 'cerca listen' AND datname = current_database()",
    )
    .await;
    let wakes = woken(&taker, wakes, "it looks after the connection was cut").await;
    listens(&db).await;
    db.store.accept(vec![event("e2", "a")]).await.unwrap();
    woken(&taker, wakes, "an event was stored after the cut").await;
    // And with no notification at all the work is there.
    assert_eq!(
        other.claim(crate::support::request(&[("a", 10)])).await.unwrap().len(),
        2
    );
    other.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_flushes_make_few_notifications() {
    let Some(db) = Db::postgres().await else { return };
    let (other, taker) = listener(&db.url).await;
    listens(&db).await;
    let begun = std::time::Instant::now();
    for n in 0..200 {
        db.store.accept(vec![event(&format!("e{n}"), "a")]).await.unwrap();
    }
    // What nobody wants is nobody's work.
    for n in 0..200 {
        db.store.accept(vec![event(&format!("u{n}"), "")]).await.unwrap();
    }
    let most = begun.elapsed().as_millis() / 100 + 3;
    let wakes = taker.wakes.load(Relaxed);
    assert!(wakes as u128 <= most, "{wakes} wakes where {most} are allowed");
    other.close().await;
}
