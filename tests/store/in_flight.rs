//! What people do to deliveries whose attempt is in flight.

use std::{sync::Arc, time::Duration};

use cerca::{
    domain::{Claim, EventStatus, Outcome},
    store::{Applied, AttemptLimit, Discarded, SqlValue},
};
use tokio::time::{sleep, timeout};

use crate::{
    effects::{effect, prepared},
    people::{dead, one, who},
    support::{Db, event},
};

on_both!(
    a_discarded_attempt_ends_first,
    what_was_discarded_in_flight_is_kept_when_it_is_reprocessed,
    an_effect_in_flight_is_not_made_to_happen_again,
);

fn retry() -> Outcome {
    Outcome::Retry {
        after: Duration::ZERO,
        error: "x".to_owned(),
    }
}

/// An event with one delivery, which is claimed.
async fn in_flight(db: &Db, id: &str) -> Claim {
    db.store.accept(vec![event(id, "a")]).await.unwrap();
    db.claim("a", 1).await.remove(0)
}

async fn discard(db: &Db, id: &str) -> (u64, u64) {
    let Discarded { deliveries, in_flight } = db.store.discard("p", id, who()).await.unwrap().unwrap();
    (deliveries, in_flight)
}

async fn attempts(db: &Db, id: &str) -> Vec<String> {
    let detail = db.store.event("p", id).await.unwrap().unwrap();
    detail.attempts.iter().map(|a| a.outcome.as_str().to_owned()).collect()
}

async fn a_discarded_attempt_ends_first(db: Db) {
    for (id, outcome, status, history) in [
        ("done", Outcome::Done, EventStatus::Done, &["done"][..]),
        ("retry", retry(), EventStatus::Discarded, &["retry"]),
        ("dead", dead(), EventStatus::Discarded, &["dead"]),
        ("released", Outcome::Released, EventStatus::Discarded, &[]),
    ] {
        let claim = in_flight(&db, id).await;
        assert_eq!(discard(&db, id).await, (1, 1), "{id}");
        assert_eq!(discard(&db, id).await, (0, 0), "{id}: already said");
        assert_eq!(db.row(id).await.status, EventStatus::Pending, "{id}");
        assert!(db.claim("a", 1).await.is_empty(), "{id}: nobody else takes it");
        db.settle(&claim, outcome).await;
        assert_eq!(db.row(id).await.status, status, "{id}");
        assert_eq!(attempts(&db, id).await, history, "{id}");
        assert!(db.claim("a", 1).await.is_empty(), "{id}: not again");
    }

    let claim = in_flight(&db, "lost").await;
    assert_eq!(discard(&db, "lost").await, (1, 1));
    db.expire().await;
    let limit = AttemptLimit {
        handler: Arc::from("a"),
        attempts: 1,
        isolate: false,
    };
    let swept = db.store.sweep(vec![limit]).await.unwrap();
    assert_eq!((swept.ready, swept.dead), (0, 0));
    assert_eq!(db.row("lost").await.status, EventStatus::Discarded);
    db.settle(&claim, Outcome::Done).await;
    assert_eq!(attempts(&db, "lost").await, ["lost"], "the late one changes nothing");
}

async fn what_was_discarded_in_flight_is_kept_when_it_is_reprocessed(db: Db) {
    for handlers in [None, Some(&["a"][..])] {
        let id = if handlers.is_none() { "all" } else { "named" };
        let claim = in_flight(&db, id).await;
        assert_eq!(discard(&db, id).await, (1, 1));
        let mut dry_run = one(id, handlers);
        dry_run.dry_run = true;
        for what in [dry_run, one(id, handlers)] {
            assert_eq!(db.store.reprocess(what, who()).await.unwrap().deliveries, 1, "{id}");
        }
        assert!(
            db.claim("a", 1).await.is_empty(),
            "{id}: its attempt is still in flight"
        );
        db.settle(&claim, retry()).await;
        let again = db.claim("a", 1).await;
        assert_eq!((again.len(), again[0].attempt), (1, 2), "{id}");
        db.settle(&again[0], Outcome::Done).await;
    }
}

async fn an_effect_in_flight_is_not_made_to_happen_again(db: Db) {
    let claims = prepared(vec!["e1".to_owned()], &db).await;
    let insert = "INSERT INTO payments (id) VALUES ($1)";
    // On PostgreSQL the effect waits for a lock in its transaction. SQLite's writer does one thing after the other.
    let (statement, gate) = match &db.raw {
        crate::support::Raw::Postgres(pool) => {
            let mut gate = pool.begin().await.unwrap();
            sqlx::query("SELECT pg_advisory_xact_lock(1)")
                .execute(&mut *gate)
                .await
                .unwrap();
            let slow = "WITH gate AS MATERIALIZED (SELECT pg_advisory_xact_lock(1))
                        INSERT INTO payments (id) SELECT $1 FROM gate";
            (slow, Some(gate))
        }
        crate::support::Raw::Sqlite(_) => (insert, None),
    };
    let text = SqlValue::Text("e1".to_owned());
    let store = Arc::clone(&db.store);
    let work = effect(&claims[0], statement, vec![text]);
    let applied = tokio::spawn(async move { store.apply(work).await });
    if gate.is_some() {
        let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        let is_waiting = async {
            while db.number(waits).await == 0 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(30), is_waiting)
            .await
            .expect("the effect has begun");
        for what in [one("e1", None), one("e1", Some(&["sql"]))] {
            let asked = timeout(Duration::from_secs(30), db.store.reprocess(what, who()));
            let done = asked.await.expect("it waits for nobody").unwrap();
            assert_eq!(
                (done.events, done.deliveries),
                (1, 0),
                "what is in flight is left alone"
            );
        }
    }
    if let Some(gate) = gate {
        gate.commit().await.unwrap();
    }
    assert_eq!(applied.await.unwrap().unwrap(), Applied::Done);
    assert!(db.claim("sql", 1).await.is_empty());
    assert_eq!(db.number("SELECT count(*) FROM payments").await, 1);
}
