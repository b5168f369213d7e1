//! The outbox: what is committed becomes an event, once; what is not leaves nothing.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use cerca::{
    domain::{AttemptOutcome, Outcome},
    store::{Options, Relayed, Settled, Store, TopicRoutes, open},
};

use crate::support::{Db, Raw, Taker, settle};

on_both!(
    rows_become_events_and_go,
    a_row_that_is_committed_late_is_not_skipped,
    a_transaction_that_is_rolled_back_leaves_nothing,
    a_key_is_taken_while_its_row_waits_and_known_afterwards,
    payloads_come_out_as_they_were_meant,
    rows_of_one_ordering_key_keep_their_order,
    a_row_that_no_event_can_hold_stays_and_holds_nothing_up,
    ten_thousand_rows_and_two_processes_make_ten_thousand_events,
    fresh_events_are_handed_over_and_room_comes_back,
    a_settle_that_is_waited_for_says_what_became_of_it,
);

fn everyone() -> Arc<TopicRoutes> {
    Arc::new(|topic| match topic {
        "nobody" => "".into(),
        _ => "h".into(),
    })
}

async fn relay(db: &Db) -> Relayed {
    relay_all(&*db.store).await
}

async fn relay_all(store: &dyn Store) -> Relayed {
    let mut total = Relayed::default();
    loop {
        let some = store.relay(everyone()).await.unwrap();
        total.stored += some.stored;
        total.duplicates += some.duplicates;
        total.conflicts += some.conflicts;
        total.refused += some.refused;
        if !some.more {
            return total;
        }
    }
}

async fn put(db: &Db, key: &str, payload: &str) {
    db.sql(&format!(
        "INSERT INTO outbox (idempotency_key, topic, payload) VALUES ('{key}', 'order.paid', '{payload}')"
    ))
    .await;
}

async fn payload(db: &Db, key: &str) -> Vec<u8> {
    let received = db.store.payload("outbox", key).await.unwrap().unwrap();
    received.bytes.unwrap().to_vec()
}

async fn rows_become_events_and_go(db: Db) {
    assert_eq!(relay(&db).await, Relayed::default());
    put(&db, "order-1", r#"{"id": 1}"#).await;
    db.sql(
        "INSERT INTO outbox (idempotency_key, topic, payload, content_type, headers, ordering_key)
         VALUES ('order-2', 'nobody', 'hello', 'text/x', '{\"X-Trace\": \"t\", \"Cookie\": \"c\"}', 'customer-7')",
    )
    .await;
    let backlog = db.store.backlog().await.unwrap();
    assert_eq!((backlog.rows, backlog.refused), (2, 0));
    assert!(backlog.oldest.unwrap() < Duration::from_secs(60));

    assert_eq!(relay(&db).await.stored, 2);
    assert_eq!(db.number("SELECT count(*) FROM outbox").await, 0);
    assert_eq!(db.store.backlog().await.unwrap().oldest, None);
    let one = db.store.event("outbox", "order-1").await.unwrap().unwrap().event;
    assert_eq!(one.event_type.as_deref(), Some("order.paid"));
    assert_eq!(one.content_type.as_deref(), Some("application/json"));
    assert_eq!(one.deliveries.len(), 1);
    assert_eq!(payload(&db, "order-1").await, br#"{"id": 1}"#);
    let two = db.store.event("outbox", "order-2").await.unwrap().unwrap().event;
    assert_eq!(
        (two.ordering_key.as_deref(), two.status.as_str()),
        (Some("customer-7"), "unrouted")
    );
    let received = db.store.payload("outbox", "order-2").await.unwrap().unwrap();
    assert_eq!(received.content_type.as_deref(), Some("text/x"));
    assert_eq!(received.headers.as_deref(), Some(r#"{"x-trace":"t"}"#));
    assert_eq!(db.claim("h", 10).await.len(), 1);
}

async fn a_row_that_is_committed_late_is_not_skipped(db: Db) {
    let put = |id: i64| {
        format!("INSERT INTO outbox (id, idempotency_key, topic, payload) VALUES ({id}, 'k{id}', 'order.paid', '{{}}')")
    };
    if let Raw::Postgres(pool) = &db.raw {
        let mut late = pool.begin().await.unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(put(1)))
            .execute(&mut *late)
            .await
            .unwrap();
        db.sql(&put(2)).await;
        assert_eq!(relay(&db).await.stored, 1);
        late.commit().await.unwrap();
    } else {
        // One writes at a time there, so that ids alone can come late.
        db.sql(&put(2)).await;
        assert_eq!(relay(&db).await.stored, 1);
        db.sql(&put(1)).await;
    }
    assert_eq!(relay(&db).await.stored, 1);
    assert!(db.store.event("outbox", "k1").await.unwrap().is_some());
}

async fn a_transaction_that_is_rolled_back_leaves_nothing(db: Db) {
    let insert = "INSERT INTO outbox (idempotency_key, topic, payload) VALUES ('k', 't', '{}')";
    match &db.raw {
        Raw::Postgres(pool) => {
            let mut tx = pool.begin().await.unwrap();
            sqlx::query(insert).execute(&mut *tx).await.unwrap();
            assert_eq!(relay(&db).await, Relayed::default());
            tx.rollback().await.unwrap();
        }
        Raw::Sqlite(pool) => {
            let mut tx = pool.begin().await.unwrap();
            sqlx::query(insert).execute(&mut *tx).await.unwrap();
            assert_eq!(relay(&db).await, Relayed::default());
            tx.rollback().await.unwrap();
        }
    }
    assert_eq!(relay(&db).await, Relayed::default());
    assert_eq!(db.number("SELECT count(*) FROM webhook_events").await, 0);
}

async fn a_key_is_taken_while_its_row_waits_and_known_afterwards(db: Db) {
    let again = "INSERT INTO outbox (idempotency_key, topic, payload) VALUES ('k', 't', '{}')";
    put(&db, "k", "{}").await;
    let refused = match &db.raw {
        Raw::Postgres(pool) => sqlx::query(again).execute(pool).await.map(drop),
        Raw::Sqlite(pool) => sqlx::query(again).execute(pool).await.map(drop),
    };
    assert!(refused.unwrap_err().as_database_error().unwrap().is_unique_violation());
    assert_eq!(relay(&db).await.stored, 1);

    put(&db, "k", "{}").await;
    assert_eq!(relay(&db).await.duplicates, 1);
    put(&db, "k", "[]").await;
    assert_eq!(relay(&db).await.conflicts, 1);
    assert_eq!(payload(&db, "k").await, b"{}");
    let event = db.store.event("outbox", "k").await.unwrap().unwrap().event;
    assert_eq!((event.conflicts, event.deliveries.len()), (1, 1));
    assert_eq!(db.number("SELECT count(*) FROM outbox").await, 0);
}

async fn payloads_come_out_as_they_were_meant(db: Db) {
    let insert = "INSERT INTO outbox (idempotency_key, topic, payload) VALUES ($1, 't', $2)";
    let bytes: Vec<u8> = (0..=255).collect();
    let text = "{\"a\":\"caf\u{e9} \\u0000 \\\\x41\"}";
    match &db.raw {
        Raw::Sqlite(pool) => {
            sqlx::query(insert)
                .bind("bytes")
                .bind(&bytes)
                .execute(pool)
                .await
                .unwrap();
            sqlx::query(insert).bind("text").bind(text).execute(pool).await.unwrap();
            assert!(sqlx::query(insert).bind("number").bind(7).execute(pool).await.is_err());
        }
        Raw::Postgres(pool) => {
            sqlx::query("INSERT INTO outbox (idempotency_key, topic, payload) VALUES ($1, 't', $2::bytea)")
                .bind("bytes")
                .bind(&bytes)
                .execute(pool)
                .await
                .unwrap();
            sqlx::query(insert).bind("text").bind(text).execute(pool).await.unwrap();
            db.sql(
                "INSERT INTO outbox (idempotency_key, topic, payload) VALUES
                 ('json', 't', '{\"b\":1,  \"a\":2}'::json), ('jsonb', 't', jsonb_build_object('a', 2))",
            )
            .await;
        }
    }
    relay(&db).await;
    assert_eq!(payload(&db, "bytes").await, bytes);
    assert_eq!(payload(&db, "text").await, text.as_bytes());
    if db.is_postgres() {
        assert_eq!(payload(&db, "json").await, b"{\"b\":1,  \"a\":2}");
        assert_eq!(payload(&db, "jsonb").await, b"{\"a\": 2}");
    }
}

async fn rows_of_one_ordering_key_keep_their_order(db: Db) {
    // Written at once, and in the order of their keys backwards.
    let rows: Vec<String> = (0..900)
        .map(|n| format!("('k{:04}', 't', '{n}', 'one')", 999 - n))
        .collect();
    db.sql(&format!(
        "INSERT INTO outbox (idempotency_key, topic, payload, ordering_key) VALUES {}",
        rows.join(", ")
    ))
    .await;
    assert_eq!(relay(&db).await.stored, 900);
    let keys = db
        .texts("SELECT provider_event_id FROM webhook_events ORDER BY occurred_at, id")
        .await;
    let expected: Vec<String> = (0..900).map(|n| format!("k{:04}", 999 - n)).collect();
    assert_eq!(keys, expected);
    assert_eq!(
        db.number("SELECT count(DISTINCT occurred_at) FROM webhook_events")
            .await,
        900
    );
}

async fn a_row_that_no_event_can_hold_stays_and_holds_nothing_up(db: Db) {
    put(&db, "a", "{}").await;
    db.sql(if db.is_postgres() {
        "INSERT INTO outbox (idempotency_key, topic, payload) VALUES ('bad', 't', repeat('x', 33554433))"
    } else {
        "INSERT INTO outbox (idempotency_key, topic, payload) VALUES (CAST(x'626164ff' AS TEXT), 't', '{}')"
    })
    .await;
    put(&db, "b", "{}").await;
    let relayed = relay(&db).await;
    assert_eq!((relayed.stored, relayed.refused), (2, 1));
    assert_eq!(relay(&db).await, Relayed::default());
    assert_eq!(
        db.number("SELECT count(*) FROM outbox WHERE error IS NOT NULL").await,
        1
    );
    assert_eq!(db.store.backlog().await.unwrap().refused, 1);
    // Corrected, it goes.
    db.sql("UPDATE outbox SET error = NULL, payload = '{}', idempotency_key = 'good'")
        .await;
    assert_eq!(relay(&db).await.stored, 1);
    assert_eq!(db.number("SELECT count(*) FROM outbox").await, 0);
}

async fn ten_thousand_rows_and_two_processes_make_ten_thousand_events(db: Db) {
    db.sql(
        "INSERT INTO outbox (idempotency_key, topic, payload)
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
         SELECT 'k' || i, 't', '{}' FROM n",
    )
    .await;
    let other = open(&db.url, Options::default()).await.unwrap();
    let relays = [Arc::clone(&db.store), Arc::clone(&other)].map(|store| {
        tokio::spawn(async move {
            let mut total = Relayed::default();
            while store.backlog().await.unwrap().rows > 0 {
                let some = relay_all(&*store).await;
                total.stored += some.stored;
                total.duplicates += some.duplicates;
            }
            total
        })
    });
    let (mut stored, mut duplicates) = (0, 0);
    for relay in relays {
        let total = relay.await.unwrap();
        stored += total.stored;
        duplicates += total.duplicates;
    }
    assert_eq!((stored, duplicates), (10_000, 0));
    assert_eq!(db.number("SELECT count(*) FROM webhook_events").await, 10_000);
    assert_eq!(db.number("SELECT count(*) FROM deliveries").await, 10_000);
    other.close().await;
}

async fn fresh_events_are_handed_over_and_room_comes_back(db: Db) {
    let taker = Taker::new(100);
    db.store.set_handoff(taker.clone());
    put(&db, "a", "{}").await;
    assert_eq!(relay(&db).await.stored, 1);
    let claims = taker.take();
    assert_eq!(claims.len(), 1);
    assert_eq!((&*claims[0].event.provider, claims[0].attempt), ("outbox", 1));
    assert_eq!(taker.room.load(Relaxed), 99);
    put(&db, "a", "{}").await;
    assert_eq!(relay(&db).await.duplicates, 1);
    assert_eq!((taker.take().len(), taker.room.load(Relaxed)), (0, 99));
}

async fn a_settle_that_is_waited_for_says_what_became_of_it(db: Db) {
    for key in ["a", "b", "c", "d"] {
        put(&db, key, "{}").await;
    }
    relay(&db).await;
    let claims = db.claim("h", 10).await;
    assert_eq!(claims.len(), 4);
    let retry = Outcome::Retry {
        after: Duration::from_secs(3600),
        error: "busy".into(),
    };
    let dead = Outcome::Dead { error: "no".into() };
    let mut stale = settle(&claims[3], Outcome::Done);
    stale.token ^= 1;
    let settles = vec![
        settle(&claims[0], Outcome::Done),
        settle(&claims[1], retry),
        settle(&claims[2], dead),
        stale,
    ];
    use Settled::{Repeated, Stale, Written};
    let first = db.store.settle_each(settles.clone()).await.unwrap();
    assert_eq!(first, [Written, Written, Written, Stale]);
    let again = db.store.settle_each(settles.clone()).await.unwrap();
    assert_eq!(again, [Repeated, Repeated, Repeated, Stale]);
    // Another word on the same attempt comes too late.
    let mut other = settles[0].clone();
    other.outcome = Outcome::Dead { error: "no".into() };
    assert_eq!(db.store.settle_each(vec![other]).await.unwrap(), [Stale]);
    let mut outcomes = HashSet::new();
    for key in ["a", "b", "c", "d"] {
        let detail = db.store.event("outbox", key).await.unwrap().unwrap();
        assert!(detail.attempts.len() <= 1);
        outcomes.extend(detail.attempts.iter().map(|attempt| attempt.outcome));
    }
    assert_eq!(
        outcomes,
        HashSet::from([AttemptOutcome::Done, AttemptOutcome::Retry, AttemptOutcome::Dead])
    );
}
