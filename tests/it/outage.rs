//! The database goes away, or is held by somebody else, and comes back.

use sqlx::Connection as _;

use crate::support::{Engine, Load, Setup, Sink, TestStore, on_both_stores, run, stripe, stripe_body, wait_until};

on_both_stores!(readiness_and_liveness_are_told_apart);

/// L1, L6, L9, W3: 503 and nothing stored while it is away; then everything goes on by itself.
#[test]
fn without_its_database_it_says_503_and_recovers() {
    run(Engine::Postgres, async |store: TestStore| {
        let sink = Sink::start().await;
        let mut server = Setup::new(&store)
            .http("forward", &sink.url())
            .sql("ledger")
            .start()
            .await;
        server.create_effects().await;
        server.stripe("evt_before").await;
        server.wait_for("stripe", "evt_before", "done").await;

        store.take_away().await;
        let body = stripe_body("evt_during");
        for _ in 0..5 {
            let reply = server.send("stripe", stripe(&body), body.clone()).await;
            assert_eq!(reply.status, 503, "{}", reply.text());
            assert!(
                reply.header("retry-after").parse::<u32>().is_ok(),
                "{:?}",
                reply.headers
            );
        }
        let ready = server
            .client
            .get(format!("http://{}/readyz", server.public()))
            .send()
            .await;
        assert_eq!(ready.unwrap().status(), 503);
        let alive = server
            .client
            .get(format!("http://{}/healthz", server.public()))
            .send()
            .await;
        assert_eq!(alive.unwrap().status(), 200);
        // Verification needs no database.
        assert_eq!(server.send("stripe", vec![], body.clone()).await.status, 401);

        store.restore().await;
        wait_until("it takes events again", async || {
            server.send("stripe", stripe(&body), body.clone()).await.status == 200
        })
        .await;
        server.wait_for("stripe", "evt_during", "done").await;
        assert!(server.becomes_ready().await);
        assert_eq!(store.number("select count(*) from effects").await, 2);
    });
}

/// P5: connections that were cut are made anew, and no acknowledged event was in them only.
#[test]
fn cut_connections_lose_nothing() {
    run(Engine::Postgres, async |store: TestStore| {
        let sink = Sink::start().await;
        let server = Setup::new(&store)
            .lease("1s")
            .http("forward", &sink.url())
            .sql("ledger")
            .start()
            .await;
        server.create_effects().await;
        let load = Load::start(&server, "evt", 8);
        for round in 1..=3 {
            load.reaches(round * 60).await;
            store.cut_connections().await;
        }
        load.reaches(240).await;
        let acknowledged = load.stop().await;
        for id in &acknowledged {
            server.wait_for("stripe", id, "done").await;
        }
        wait_until("no delivery is left", async || {
            store.number("select count(*) from deliveries").await == 0
        })
        .await;
        let events = store.number("select count(*) from webhook_events").await;
        assert_eq!(store.number("select count(*) from effects").await, events);
        assert_eq!(store.number("select count(distinct id) from effects").await, events);
    });
}

/// P2: a backup or a careless query holds SQLite's only write lock for a while.
#[test]
fn a_locked_database_file_delays_and_loses_nothing() {
    run(Engine::Sqlite, async |store: TestStore| {
        let server = Setup::new(&store).start().await;
        server.stripe("evt_before").await;
        let mut holder = store.sqlite().await;
        let lock = holder.begin_with("begin immediate").await.unwrap();

        let load = Load::start(&server, "evt", 8);
        let bodies = 8 * stripe_body("evt_0_0").len();
        wait_until("every sender waits for the lock", async || {
            let metrics = server.get("/metrics").await.text();
            let held = metrics
                .lines()
                .find_map(|line| line.strip_prefix("cerca_body_bytes_in_flight "));
            held.is_some_and(|held| held.parse::<usize>().is_ok_and(|held| held >= bodies))
        })
        .await;
        assert_eq!(store.number("select count(*) from webhook_events").await, 1);
        lock.rollback().await.unwrap();

        load.reaches(30).await;
        let acknowledged = load.stop().await;
        let events = server.all_events("stripe").await;
        for id in &acknowledged {
            assert!(events.iter().any(|event| event["provider_event_id"] == *id), "{id}");
        }
    });
}

async fn readiness_and_liveness_are_told_apart(store: TestStore) {
    let server = Setup::new(&store).start().await;
    for path in ["/healthz", "/readyz"] {
        let reply = server
            .client
            .get(format!("http://{}{path}", server.public()))
            .send()
            .await;
        assert_eq!(reply.unwrap().status(), 200, "{path}");
    }
    assert_eq!(server.get("/healthz").await.status, 200, "on the admin listener too");
}
