//! The same event, any number of times: one row, one effect.

use tokio::task::JoinSet;

use crate::support::{
    GITHUB_SECRET, Server, Setup, Sink, TestStore, github, hmac_hex, on_both_stores, stripe, stripe_body, wait_until,
};

on_both_stores!(
    fifty_copies_at_once_make_one_event_and_one_effect,
    twenty_five_events_at_once_are_all_stored,
    the_same_id_from_two_providers_is_two_events,
    another_body_under_a_known_id_is_recorded_and_the_first_stays,
    two_equal_bodies_with_two_ids_are_two_events,
    a_batch_with_a_known_item_stores_the_others,
    a_redelivery_while_the_handler_fails_is_acknowledged_and_the_effect_still_comes,
);

async fn fifty_copies_at_once_make_one_event_and_one_effect(store: TestStore) {
    let sink = Sink::start().await;
    let server = Setup::new(&store)
        .http("forward", &sink.url())
        .sql("ledger")
        .start()
        .await;
    server.create_effects().await;

    assert_eq!(copies(&[&server], "evt_once", 50).await, vec![200; 50]);

    let event = server.wait_for("stripe", "evt_once", "done").await;
    assert_eq!(event["conflicts"], 0);
    assert_eq!(event["deliveries"].as_array().unwrap().len(), 2);
    assert_eq!(store.number("select count(*) from webhook_events").await, 1);
    assert_eq!(store.number("select count(*) from effects").await, 1);
    assert_eq!(sink.count(), 1);
}

/// P1: a pool of writers on SQLite answers "database is locked".
async fn twenty_five_events_at_once_are_all_stored(store: TestStore) {
    let server = Setup::new(&store).start().await;
    let mut senders = JoinSet::new();
    for n in 0..25 {
        let (client, url) = (
            server.client.clone(),
            format!("http://{}/webhooks/stripe", server.public()),
        );
        senders.spawn(async move {
            let body = stripe_body(&format!("evt_{n}"));
            let mut request = client.post(url);
            for (name, value) in stripe(&body) {
                request = request.header(name, value);
            }
            request.body(body).send().await.unwrap().status().as_u16()
        });
    }
    assert_eq!(senders.join_all().await, vec![200; 25]);
    assert_eq!(store.number("select count(*) from webhook_events").await, 25);
}

/// D1, D11: the scope of an id is the registered provider, not the kind of sender.
async fn the_same_id_from_two_providers_is_two_events(store: TestStore) {
    let server = Setup::new(&store)
        .with(&format!(
            "[[provider]]\nname = \"github-app\"\nadapter = \"github\"\nsecrets = [\"{GITHUB_SECRET}\"]"
        ))
        .start()
        .await;
    let (one, other) = (br#"{"app":1}"#, br#"{"app":2}"#);
    server.github("guid-1", one).await;
    let reply = server.send("github-app", github("guid-1", "push", other), *other).await;
    assert_eq!(reply.status, 200);

    assert_eq!(server.payload("github", "guid-1").await, one);
    assert_eq!(server.payload("github-app", "guid-1").await, other);
    assert_eq!(server.event("github-app", "guid-1").await["conflicts"], 0);
}

/// D3
async fn another_body_under_a_known_id_is_recorded_and_the_first_stays(store: TestStore) {
    let sink = Sink::start().await;
    let server = Setup::new(&store).http("forward", &sink.url()).start().await;
    server.github("guid-1", br#"{"n":1}"#).await;
    server.wait_for("github", "guid-1", "done").await;
    server.github("guid-1", br#"{"n":2}"#).await;
    server.github("guid-1", br#"{"n":1}"#).await;

    let event = server.event("github", "guid-1").await;
    assert_eq!(event["conflicts"], 1, "{event}");
    assert_eq!(event["status"], "done");
    assert_eq!(server.payload("github", "guid-1").await, br#"{"n":1}"#);
    assert_eq!(sink.count(), 1);
}

/// D13: only the sender's id tells events apart; two honest ones may be equal to the last byte.
async fn two_equal_bodies_with_two_ids_are_two_events(store: TestStore) {
    let server = Setup::new(&store).start().await;
    server.github("guid-1", br#"{"ping":true}"#).await;
    server.github("guid-2", br#"{"ping":true}"#).await;
    assert_eq!(store.number("select count(*) from webhook_events").await, 2);
}

/// D4
async fn a_batch_with_a_known_item_stores_the_others(store: TestStore) {
    let sink = Sink::start().await;
    let server = Setup::new(&store)
        .adapter(
            "acme",
            r#"
title = "Acme"
docs = "https://example.com/webhooks"

[[signature]]
scheme = "hmac-sha256"
source = "header:X-Acme-Signature"

[event]
id = "item:/id"
type = "item:/kind"

[batch]
items = "body:/events/*"
"#,
        )
        .with("[[provider]]\nname = \"acme\"\nsecrets = [\"acme-secret\"]")
        .http("forward", &sink.url())
        .start()
        .await;
    let first = r#"{"events":[{"id":"a","kind":"x"},{"id":"b",  "kind":"y"}]}"#;
    let second = r#"{"events":[{"id":"b",  "kind":"y"},{"id":"c","kind":"x"},{"id":"c","kind":"x"}]}"#;
    for body in [first, second] {
        let signature = hmac_hex("acme-secret", body.as_bytes());
        let headers = vec![
            ("Content-Type".into(), "application/json".into()),
            ("X-Acme-Signature".into(), signature),
        ];
        let reply = server.send("acme", headers, body).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    for id in ["a", "b", "c"] {
        let event = server.wait_for("acme", id, "done").await;
        assert_eq!(event["conflicts"], 0, "{event}");
    }
    assert_eq!(sink.count(), 3);
    assert_eq!(server.payload("acme", "b").await, br#"{"id":"b",  "kind":"y"}"#);
    assert_eq!(server.event("acme", "b").await["event_type"], "y");
}

/// L3, D2: the copy of an event whose work is not done neither does it twice nor takes it as done.
async fn a_redelivery_while_the_handler_fails_is_acknowledged_and_the_effect_still_comes(store: TestStore) {
    let sink = Sink::answering(&[500, 500]).await;
    let server = Setup::new(&store).http("forward", &sink.url()).start().await;
    server.stripe("evt_1").await;
    wait_until("the first try", async || sink.count() >= 1).await;
    server.stripe("evt_1").await;
    let event = server.wait_for("stripe", "evt_1", "done").await;
    assert_eq!(event["deliveries"][0]["attempts"], 3, "{event}");
    assert_eq!(sink.count(), 3);
}

/// Replicas share the database and nothing else.
#[test]
fn copies_on_two_replicas_make_one_event_and_one_effect() {
    crate::support::run(crate::support::Engine::Postgres, async |store: TestStore| {
        let sink = Sink::start().await;
        let setup = Setup::new(&store).http("forward", &sink.url()).sql("ledger");
        let (one, other) = (setup.start().await, setup.start().await);
        one.create_effects().await;
        assert_eq!(copies(&[&one, &other], "evt_once", 50).await, vec![200; 50]);
        other.wait_for("stripe", "evt_once", "done").await;
        assert_eq!(store.number("select count(*) from webhook_events").await, 1);
        assert_eq!(store.number("select count(*) from effects").await, 1);
        assert_eq!(sink.count(), 1);
    });
}

/// Sends one event many times at once, to the servers in turn; gives the statuses.
async fn copies(servers: &[&Server], id: &str, count: usize) -> Vec<u16> {
    let body = stripe_body(id);
    let headers = stripe(&body);
    let mut senders = JoinSet::new();
    for n in 0..count {
        let server = servers[n % servers.len()];
        let mut request = server
            .client
            .post(format!("http://{}/webhooks/stripe", server.public()))
            .body(body.clone());
        for (name, value) in &headers {
            request = request.header(name, value);
        }
        senders.spawn(async move { request.send().await.unwrap().status().as_u16() });
    }
    senders.join_all().await
}
