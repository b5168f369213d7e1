//! Ordered deliveries: one of a key at a time, oldest first, a failed one holds its key only.

use std::{sync::Arc, time::Duration};

use cerca::{
    domain::{Claim, NewEvent, OrderedHandler, OrderingDead, Outcome},
    store::{Applied, Options, PurgePolicy, Reprocess, ReprocessScope, open},
};
use jiff::Timestamp;

use crate::{
    effects::effect,
    people::{dead, who},
    support::{Db, Taker, event},
};

/// Handlers `hold` and `skip` are ordered, and what their names say of dead deliveries; others are not.
pub(crate) fn options() -> Options {
    let of = |name: &str, dead| OrderedHandler {
        name: Arc::from(name),
        dead,
    };
    Options {
        ordered: [of("hold", OrderingDead::Hold), of("skip", OrderingDead::Skip)].into(),
        ..Options::default()
    }
}

macro_rules! on_both_ordered {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            #[tokio::test(flavor = "multi_thread")]
            async fn sqlite() {
                super::$name(crate::support::Db::sqlite_with($crate::ordering::options()).await).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn postgres() {
                if let Some(db) = crate::support::Db::postgres_with($crate::ordering::options()).await {
                    super::$name(db).await;
                }
            }
        })*
    };
}
pub(crate) use on_both_ordered;

on_both_ordered!(
    one_of_a_key_at_a_time_and_the_oldest_first,
    what_has_no_key_or_another_one_does_not_wait,
    a_late_arrival_that_is_older_goes_first,
    a_late_arrival_waits_for_what_runs,
    a_failed_one_holds_its_key_only,
    a_dead_one_holds_its_key_until_a_person_decides,
    a_dead_one_is_skipped_where_that_is_configured,
    a_done_one_that_is_reprocessed_takes_its_turn,
    what_retention_removes_holds_nothing,
    an_effect_in_the_store_lets_the_next_one_go,
    a_lost_wake_is_repaired_by_the_sweep,
    a_lost_lease_keeps_the_place_in_the_line,
    another_policy_holds_for_what_is_stored,
    ordered_deliveries_are_not_handed_over,
);

/// An event of a key whose provider says that it happened at this second.
pub(crate) fn at(id: &str, routes: &str, key: &str, second: i64) -> NewEvent {
    NewEvent {
        ordering_key: Some(key.to_owned()),
        occurred_at: Some(Timestamp::from_second(1_700_000_000 + second).unwrap()),
        ..event(id, routes)
    }
}

async fn accept(db: &Db, events: impl IntoIterator<Item = NewEvent>) {
    db.store.accept(events.into_iter().collect()).await.unwrap();
    db.store.flush().await.unwrap();
}

fn ids(claims: &[Claim]) -> Vec<&str> {
    claims
        .iter()
        .map(|claim| claim.event.provider_event_id.as_str())
        .collect()
}

async fn expect(db: &Db, handler: &str, expected: &[&str]) -> Vec<Claim> {
    let claims = db.claim(handler, 10).await;
    assert_eq!(ids(&claims), expected);
    claims
}

fn retry() -> Outcome {
    Outcome::Retry {
        after: Duration::from_secs(3_600),
        error: "no".to_owned(),
    }
}

async fn state(db: &Db, id: &str) -> &'static str {
    db.row(id).await.deliveries[0].state.as_str()
}

async fn one_of_a_key_at_a_time_and_the_oldest_first(db: Db) {
    accept(
        &db,
        [
            at("c", "hold", "k", 3),
            at("a", "hold", "k", 1),
            at("b", "hold", "k", 2),
        ],
    )
    .await;
    for expected in ["a", "b", "c"] {
        let claims = expect(&db, "hold", &[expected]).await;
        assert!(db.claim("hold", 10).await.is_empty());
        db.settle(&claims[0], Outcome::Done).await;
    }
    assert_eq!(db.number("SELECT count(*) FROM deliveries").await, 0);
    // Without a time of the provider's own, by arrival.
    let untimed = |id: &str| NewEvent {
        occurred_at: None,
        ..at(id, "hold", "k", 0)
    };
    accept(&db, [untimed("z")]).await;
    accept(&db, [untimed("y")]).await;
    for expected in ["z", "y"] {
        let claims = expect(&db, "hold", &[expected]).await;
        db.settle(&claims[0], Outcome::Done).await;
    }
}

async fn what_has_no_key_or_another_one_does_not_wait(db: Db) {
    let keyless = |id: &str| event(id, "hold,plain");
    let elsewhere = NewEvent {
        provider: Arc::from("q"),
        ..at("b2", "hold", "k", 2)
    };
    accept(
        &db,
        [
            keyless("n1"),
            keyless("n2"),
            at("b1", "hold,plain,skip", "k", 1),
            elsewhere,
            at("x", "hold", "l", 9),
        ],
    )
    .await;
    assert_eq!(
        db.claim("hold", 10).await.len(),
        5,
        "keys of two providers are two keys"
    );
    accept(&db, [at("b3", "hold,plain,skip", "k", 0)]).await;
    assert!(db.claim("hold", 10).await.is_empty());
    assert_eq!(
        db.claim("plain", 10).await.len(),
        4,
        "a handler that asks for no order has none"
    );
    expect(&db, "skip", &["b3"]).await;
}

async fn a_late_arrival_that_is_older_goes_first(db: Db) {
    accept(&db, [at("b", "hold", "k", 2)]).await;
    let claims = expect(&db, "hold", &["b"]).await;
    // It failed perhaps for want of the one before it.
    db.settle(&claims[0], retry()).await;
    accept(&db, [at("a", "hold", "k", 1)]).await;
    assert_eq!((state(&db, "a").await, state(&db, "b").await), ("ready", "blocked"));
    let claims = expect(&db, "hold", &["a"]).await;
    db.settle(&claims[0], Outcome::Done).await;
    let row = db.row("b").await;
    assert_eq!(
        (row.deliveries[0].state.as_str(), row.deliveries[0].attempts),
        ("ready", 1)
    );
    assert!(
        db.claim("hold", 10).await.is_empty(),
        "it waits for its next try all the same"
    );
}

async fn a_late_arrival_waits_for_what_runs(db: Db) {
    accept(&db, [at("b", "hold", "k", 2), at("c", "hold", "k", 3)]).await;
    let running = expect(&db, "hold", &["b"]).await;
    accept(&db, [at("a", "hold", "k", 1)]).await;
    assert!(db.claim("hold", 10).await.is_empty());
    db.settle(&running[0], Outcome::Done).await;
    for expected in ["a", "c"] {
        let claims = expect(&db, "hold", &[expected]).await;
        db.settle(&claims[0], Outcome::Done).await;
    }
}

async fn a_failed_one_holds_its_key_only(db: Db) {
    accept(
        &db,
        [
            at("a1", "hold", "a", 1),
            at("a2", "hold", "a", 2),
            at("b1", "hold", "b", 1),
            at("b2", "hold", "b", 2),
        ],
    )
    .await;
    let claims = expect(&db, "hold", &["a1", "b1"]).await;
    db.settle(&claims[0], retry()).await;
    db.settle(&claims[1], Outcome::Done).await;
    expect(&db, "hold", &["b2"]).await;
    assert_eq!(state(&db, "a2").await, "blocked");
}

async fn a_dead_one_holds_its_key_until_a_person_decides(db: Db) {
    accept(
        &db,
        [
            at("a", "hold", "k", 1),
            at("b", "hold", "k", 2),
            at("c", "hold", "k", 3),
        ],
    )
    .await;
    let claims = expect(&db, "hold", &["a"]).await;
    db.settle(&claims[0], dead()).await;
    db.store.sweep(Vec::new()).await.unwrap();
    db.store.flush().await.unwrap();
    assert!(db.claim("hold", 10).await.is_empty());
    assert_eq!(state(&db, "b").await, "blocked");
    let one = |id: &str| Reprocess {
        filter: ReprocessScope::Event {
            provider: "p".to_owned(),
            provider_event_id: id.to_owned(),
        },
        handlers: None,
        dry_run: false,
        forget_steps: false,
    };
    assert_eq!(db.store.reprocess(one("a"), who()).await.unwrap().deliveries, 1);
    db.store.flush().await.unwrap();
    let claims = expect(&db, "hold", &["a"]).await;
    assert!(db.claim("hold", 10).await.is_empty());
    db.settle(&claims[0], dead()).await;
    db.store.discard("p", "a", who()).await.unwrap().unwrap();
    db.store.flush().await.unwrap();
    let claims = expect(&db, "hold", &["b"]).await;
    // Given up while it runs: the next one goes when it has ended.
    db.store.discard("p", "b", who()).await.unwrap().unwrap();
    assert!(db.claim("hold", 10).await.is_empty());
    db.settle(&claims[0], dead()).await;
    expect(&db, "hold", &["c"]).await;
    assert_eq!(state(&db, "b").await, "discarded");
}

async fn a_dead_one_is_skipped_where_that_is_configured(db: Db) {
    accept(&db, [at("a", "skip", "k", 1), at("b", "skip", "k", 2)]).await;
    let claims = expect(&db, "skip", &["a"]).await;
    db.settle(&claims[0], dead()).await;
    let claims = expect(&db, "skip", &["b"]).await;
    db.settle(&claims[0], Outcome::Done).await;
    assert_eq!(state(&db, "a").await, "dead");
}

async fn a_done_one_that_is_reprocessed_takes_its_turn(db: Db) {
    accept(&db, [at("a", "hold", "k", 1), at("b", "hold", "k", 2)]).await;
    let claims = expect(&db, "hold", &["a"]).await;
    db.settle(&claims[0], Outcome::Done).await;
    let running = expect(&db, "hold", &["b"]).await;
    let again = Reprocess {
        filter: ReprocessScope::Event {
            provider: "p".to_owned(),
            provider_event_id: "a".to_owned(),
        },
        handlers: Some(vec![Arc::from("hold"), Arc::from("plain")]),
        dry_run: false,
        forget_steps: false,
    };
    assert_eq!(db.store.reprocess(again, who()).await.unwrap().deliveries, 2);
    db.store.flush().await.unwrap();
    assert!(db.claim("hold", 10).await.is_empty());
    expect(&db, "plain", &["a"]).await;
    db.settle(&running[0], Outcome::Done).await;
    expect(&db, "hold", &["a"]).await;
}

async fn what_retention_removes_holds_nothing(db: Db) {
    accept(&db, [at("a", "hold", "k", 1)]).await;
    let claims = expect(&db, "hold", &["a"]).await;
    db.settle(&claims[0], dead()).await;
    db.age(5).await;
    accept(&db, [at("b", "hold", "k", 2)]).await;
    assert!(db.claim("hold", 10).await.is_empty());
    let hours = |n: u64| Duration::from_secs(n * 3_600);
    let policy = PurgePolicy {
        done: hours(1),
        failed: hours(2),
        dedupe: hours(100),
    };
    assert_eq!(db.store.purge(policy, false).await.unwrap().payloads, 1);
    db.store.flush().await.unwrap();
    expect(&db, "hold", &["b"]).await;
}

async fn an_effect_in_the_store_lets_the_next_one_go(db: Db) {
    accept(&db, [at("a", "hold", "k", 1), at("b", "hold", "k", 2)]).await;
    let claims = expect(&db, "hold", &["a"]).await;
    let failing = effect(&claims[0], "SELECT * FROM nowhere", Vec::new());
    assert!(matches!(db.store.apply(failing).await.unwrap(), Applied::Failed(_)));
    assert!(db.claim("hold", 10).await.is_empty());
    let works = effect(&claims[0], "SELECT 1", Vec::new());
    assert_eq!(db.store.apply(works.clone()).await.unwrap(), Applied::Done);
    assert_eq!(db.store.apply(works).await.unwrap(), Applied::Stale);
    db.store.flush().await.unwrap();
    expect(&db, "hold", &["b"]).await;
}

async fn a_lost_wake_is_repaired_by_the_sweep(db: Db) {
    let pair = |n: i64| {
        let key = format!("k{n}");
        [
            at(&format!("a{n}"), "hold", &key, 1),
            at(&format!("b{n}"), "hold", &key, 2),
        ]
    };
    accept(&db, (0..700).flat_map(pair)).await;
    db.sql("DELETE FROM deliveries WHERE state = 'ready'").await;
    assert!(db.claim("hold", 10).await.is_empty());
    // More lanes than one sweep looks at.
    for _ in 0..3 {
        db.store.sweep(Vec::new()).await.unwrap();
        db.store.flush().await.unwrap();
    }
    assert_eq!(db.claim("hold", 1_000).await.len(), 700);
}

async fn a_lost_lease_keeps_the_place_in_the_line(db: Db) {
    accept(&db, [at("a", "hold", "k", 1), at("b", "hold", "k", 2)]).await;
    let lost = expect(&db, "hold", &["a"]).await;
    db.expire().await;
    assert_eq!(db.store.sweep(Vec::new()).await.unwrap().ready, 1);
    db.store.flush().await.unwrap();
    let claims = expect(&db, "hold", &["a"]).await;
    db.settle(&lost[0], Outcome::Done).await;
    assert!(db.claim("hold", 10).await.is_empty(), "a stale settle lets nobody go");
    db.settle(&claims[0], Outcome::Done).await;
    expect(&db, "hold", &["b"]).await;
}

async fn another_policy_holds_for_what_is_stored(db: Db) {
    accept(&db, [at("a", "hold", "k", 1), at("b", "hold", "k", 2)]).await;
    let claims = expect(&db, "hold", &["a"]).await;
    db.settle(&claims[0], dead()).await;
    assert!(db.claim("hold", 10).await.is_empty());
    let skipping = Options {
        ordered: [OrderedHandler {
            name: Arc::from("hold"),
            dead: OrderingDead::Skip,
        }]
        .into(),
        ..Options::default()
    };
    let restarted = open(&db.url, skipping).await.unwrap();
    restarted.sweep(Vec::new()).await.unwrap();
    restarted.flush().await.unwrap();
    expect(&db, "hold", &["b"]).await;
    restarted.close().await;
}

async fn ordered_deliveries_are_not_handed_over(db: Db) {
    let taker = Taker::new(100);
    db.store.set_handoff(taker.clone());
    accept(
        &db,
        [
            at("a", "hold,plain", "k", 1),
            at("b", "hold,plain", "k", 2),
            event("c", "hold,plain"),
        ],
    )
    .await;
    let mut handed: Vec<String> = taker
        .take()
        .iter()
        .map(|claim| format!("{} {}", claim.event.provider_event_id, claim.handler))
        .collect();
    handed.sort();
    assert_eq!(handed, ["a plain", "b plain", "c hold", "c plain"]);
    assert_eq!(taker.room.load(std::sync::atomic::Ordering::Relaxed), 96);
    assert!(taker.wakes.load(std::sync::atomic::Ordering::Relaxed) > 0);
    expect(&db, "hold", &["a"]).await;
}
