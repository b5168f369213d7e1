//! Taking events in: duplicates, conflicts, bytes, hand-over, limits.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use cerca::store::{Accepted, EventFilter, Options, StoreError};
use futures_util::future::join_all;

use crate::support::{Db, Taker, event, with_body};

on_both!(
    parallel_duplicates_become_one_event,
    a_duplicate_inside_a_request_is_seen,
    another_body_is_a_conflict_with_a_count,
    bytes_and_ids_come_back_as_they_went_in,
    what_a_database_cannot_hold_is_refused_alone,
    the_same_id_of_two_providers_is_two_events,
    fresh_deliveries_are_handed_over,
    without_room_they_are_ready,
    duplicates_give_their_room_back,
    a_dropped_wait_stores_all_the_same,
    a_large_request_is_one_batch,
);

async fn parallel_duplicates_become_one_event(db: Db) {
    let answers = join_all((0..50).map(|_| db.store.accept(vec![event("e1", "a,b")]))).await;
    let stored = answers
        .iter()
        .filter(|a| a.as_ref().unwrap() == &[Accepted::Stored])
        .count();
    let again = answers
        .iter()
        .filter(|a| a.as_ref().unwrap() == &[Accepted::Duplicate])
        .count();
    assert_eq!((stored, again), (1, 49));
    assert_eq!(db.number("SELECT count(*) FROM webhook_events").await, 1);
    assert_eq!(db.number("SELECT count(*) FROM deliveries").await, 2);
    assert_eq!(db.number("SELECT count(*) FROM conflicts").await, 0);
}

async fn a_duplicate_inside_a_request_is_seen(db: Db) {
    let other = with_body("e1", "a", b"other".to_vec());
    let request = vec![event("e1", "a"), event("e2", "a"), event("e1", "a"), other];
    assert_eq!(
        db.store.accept(request).await.unwrap(),
        [
            Accepted::Stored,
            Accepted::Stored,
            Accepted::Duplicate,
            Accepted::Conflict
        ]
    );
    assert_eq!(db.row("e1").await.conflicts, 1);
    assert_eq!(db.store.accept(Vec::new()).await.unwrap(), []);
}

async fn another_body_is_a_conflict_with_a_count(db: Db) {
    db.store
        .accept(vec![with_body("e1", "a", b"first".to_vec())])
        .await
        .unwrap();
    for body in ["second", "second", "third"] {
        let answer = db.store.accept(vec![with_body("e1", "a", body.into())]).await.unwrap();
        assert_eq!(answer, [Accepted::Conflict]);
    }
    assert_eq!(db.number("SELECT count(*) FROM conflicts").await, 2);
    assert_eq!(db.row("e1").await.conflicts, 3);
    assert_eq!(db.store.stats().await.unwrap().conflicts, 3);
    let received = db.store.payload("p", "e1").await.unwrap().unwrap();
    assert_eq!(received.bytes.unwrap(), "first");
}

async fn bytes_and_ids_come_back_as_they_went_in(db: Db) {
    let long = format!("evt&{}/ä", "x".repeat(300));
    let bodies: [(&str, &[u8]); 6] = [
        ("nul", b"{\"a\":\"\\u0000\"}"),
        ("raw-nul", b"a\0b"),
        ("not-utf8", b"{\"a\":\"\xff\xfe\"}"),
        ("surrogate", b"{\"a\":\"\\ud800\"}"),
        (&long, b"{\"n\":9223372036854775807,\r\n \"b\":1,\"a\":2}"),
        ("empty", b""),
    ];
    for (id, body) in bodies {
        let mut new = with_body(id, "a", body.to_vec());
        new.ordering_key = Some("key/&".to_owned());
        assert_eq!(db.store.accept(vec![new]).await.unwrap(), [Accepted::Stored]);
    }
    let claims = db.claim("a", 100).await;
    assert_eq!(claims.len(), bodies.len());
    for ((id, body), claim) in bodies.iter().zip(&claims) {
        assert_eq!(claim.event.provider_event_id, *id);
        assert_eq!(claim.event.payload, *body);
        assert_eq!(claim.event.occurred_at.unwrap().as_microsecond(), 1_700_000_000_123_456);
        assert_eq!(claim.event.ordering_key.as_deref(), Some("key/&"));
        let received = db.store.payload("p", id).await.unwrap().unwrap();
        assert_eq!(received.headers.unwrap(), claim.event.headers);
        assert_eq!(
            (received.content_type.as_deref(), received.bytes.unwrap()),
            (Some("application/json"), (*body).into())
        );
        assert_eq!(db.row(id).await.size, body.len() as u64);
    }
    // The JSON view gives what is JSON and never fails over the rest.
    let shown = db
        .number("SELECT count(*) FROM inbox_json WHERE payload IS NOT NULL")
        .await;
    assert_eq!(db.number("SELECT count(*) FROM inbox_json").await, 6);
    // SQLite does not look at the encoding inside a JSON string; PostgreSQL has no text for the escapes.
    assert_eq!(shown, if db.is_postgres() { 1 } else { 4 });
    let (all, one) = match db.is_postgres() {
        true => (
            "SELECT count(*) FROM inbox_json WHERE payload->>'a' = '2' OR payload::jsonb->'n' IS NULL OR payload #>> '{b,c}' = ''",
            "SELECT (payload->>'n')::bigint FROM inbox_json WHERE payload->>'a' = '2'",
        ),
        false => (
            "SELECT count(*) FROM inbox_json WHERE payload ->> '$.a' = 2 OR json_extract(payload, '$.n') IS NULL",
            "SELECT payload ->> '$.n' FROM inbox_json WHERE payload ->> '$.a' = 2",
        ),
    };
    assert_eq!(db.number(all).await, 6, "no body makes the query over all of them fail");
    assert_eq!(db.number(one).await, i64::MAX);
}

async fn what_a_database_cannot_hold_is_refused_alone(db: Db) {
    let good = (0..20).map(|n| db.store.accept(vec![event(&format!("e{n}"), "a")]));
    let bad = db.store.accept(vec![event("x\0y", "a")]);
    let huge = db.store.accept(vec![event(&"x".repeat(5000), "a")]);
    let (good, bad, huge) = futures_util::join!(join_all(good), bad, huge);
    assert!(good.iter().all(|a| a.as_ref().unwrap() == &[Accepted::Stored]));
    assert!(matches!(bad, Err(StoreError::Refused(_))));
    assert!(matches!(huge, Err(StoreError::Refused(_))));

    // What only the database knows to refuse: the requests beside it are stored, those within it are not.
    db.sql(if db.is_postgres() {
        "ALTER TABLE webhook_events ADD CHECK (provider_event_id NOT LIKE 'bad%')"
    } else {
        "CREATE TRIGGER no BEFORE INSERT ON webhook_events WHEN new.provider_event_id LIKE 'bad%'
         BEGIN SELECT RAISE(ABORT, 'no'); END"
    })
    .await;
    let taker = Taker::new(1000);
    db.store.set_handoff(taker.clone());
    let mut waits = Vec::new();
    for n in 0..40 {
        let second = if n % 10 == 3 {
            format!("bad{n}")
        } else {
            format!("second{n}")
        };
        waits.push(
            db.store
                .accept(vec![event(&format!("first{n}"), "a"), event(&second, "a")]),
        );
    }
    for (n, answer) in join_all(waits).await.into_iter().enumerate() {
        if n % 10 == 3 {
            assert!(matches!(answer, Err(StoreError::Refused(_))), "{answer:?}");
            assert!(db.store.event("p", &format!("first{n}")).await.unwrap().is_none());
        } else {
            assert_eq!(answer.unwrap(), [Accepted::Stored, Accepted::Stored]);
        }
    }
    assert_eq!(taker.take().len(), 72);
    assert_eq!(taker.room.load(Relaxed), 1000 - 72);
}

async fn the_same_id_of_two_providers_is_two_events(db: Db) {
    let mut other = event("1", "a");
    other.provider = Arc::from("q");
    let answer = db.store.accept(vec![event("1", "a"), other]).await.unwrap();
    assert_eq!(answer, [Accepted::Stored, Accepted::Stored]);
}

async fn fresh_deliveries_are_handed_over(db: Db) {
    let taker = Taker::new(100);
    db.store.set_handoff(taker.clone());
    db.store
        .accept(vec![event("e1", "a,b"), event("e2", "a"), event("e3", "")])
        .await
        .unwrap();
    let claims = taker.take();
    assert_eq!(claims.len(), 3);
    assert_eq!(taker.room.load(Relaxed), 97);
    assert_eq!(taker.wakes.load(Relaxed), 0);
    assert!(claims.iter().all(|c| c.attempt == 1));
    assert_eq!(
        db.number("SELECT count(*) FROM deliveries WHERE state = 'claimed' AND attempts = 1")
            .await,
        3
    );
    assert!(db.claim("a", 10).await.is_empty());
    for claim in &claims {
        db.settle(claim, cerca::domain::Outcome::Done).await;
    }
    assert_eq!(db.number("SELECT count(*) FROM deliveries").await, 0);
    assert_eq!(
        db.number("SELECT count(*) FROM attempts WHERE outcome = 'done'").await,
        3
    );
    assert_eq!(db.row("e3").await.status.as_str(), "unrouted");
}

async fn without_room_they_are_ready(db: Db) {
    let taker = Taker::new(1);
    db.store.set_handoff(taker.clone());
    db.store
        .accept(vec![event("e1", "a"), event("e2", "a,b")])
        .await
        .unwrap();
    // Two for `a` do not fit, one for `b` does.
    let claims = taker.take();
    assert_eq!(claims.len(), 1);
    assert_eq!(&*claims[0].handler, "b");
    assert_eq!(taker.wakes.load(Relaxed), 1);
    assert_eq!(db.claim("a", 10).await.len(), 2);
}

async fn duplicates_give_their_room_back(db: Db) {
    let taker = Taker::new(100);
    db.store.set_handoff(taker.clone());
    db.store.accept(vec![event("e1", "a,b")]).await.unwrap();
    db.store
        .accept(vec![event("e1", "a,b"), event("e2", "a")])
        .await
        .unwrap();
    assert_eq!(taker.take().len(), 3);
    assert_eq!(taker.room.load(Relaxed), 97);
}

async fn a_dropped_wait_stores_all_the_same(db: Db) {
    for n in 0..10 {
        drop(db.store.accept(vec![event(&format!("e{n}"), "a")]));
    }
    db.store.accept(vec![event("last", "a")]).await.unwrap();
    db.store.close().await;
    assert_eq!(db.number("SELECT count(*) FROM webhook_events").await, 11);
    assert!(matches!(
        db.store.accept(vec![event("late", "a")]).await,
        Err(StoreError::Closed)
    ));
}

async fn a_large_request_is_one_batch(db: Db) {
    let many: Vec<_> = (0..1500).map(|n| event(&format!("e{n}"), "a")).collect();
    let answers = db.store.accept(many).await.unwrap();
    assert_eq!(answers.len(), 1500);
    assert_eq!(db.store.count(EventFilter::default()).await.unwrap(), 1500);
}

async fn full_is_said_at_once(db: Db) {
    let first = db.store.accept(vec![event("first", "")]).await;
    assert_eq!(first.unwrap(), [Accepted::Stored]);
    let answers = join_all((0..200).map(|n| db.store.accept(vec![event(&format!("e{n}"), "")]))).await;
    let full = answers.iter().filter(|a| matches!(a, Err(StoreError::Full))).count();
    assert!(full > 0, "some must be turned away");
    let stored = db.number("SELECT count(*) FROM webhook_events").await;
    assert_eq!(stored, 201 - full as i64);
    let later = db.store.accept(vec![event("later", "")]).await;
    assert_eq!(later.unwrap(), [Accepted::Stored]);
}

/// Too many wait, or too long.
mod full_is_said_at_once {
    use super::*;

    fn small() -> [Options; 2] {
        let few = Options {
            queue_events: 5,
            ..Options::default()
        };
        let impatient = Options {
            batch_events: 1,
            max_wait: Duration::from_nanos(1),
            ..Options::default()
        };
        [few, impatient]
    }

    #[tokio::test]
    async fn sqlite() {
        for options in small() {
            full_is_said_at_once(Db::sqlite_with(options).await).await;
        }
    }

    #[tokio::test]
    async fn postgres() {
        for options in small() {
            if let Some(db) = Db::postgres_with(options).await {
                full_is_said_at_once(db).await;
            }
        }
    }
}
