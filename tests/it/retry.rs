//! Handlers that fail: tried again, given up, brought back; and never in each other's way.

use std::time::Duration;

use serde_json::json;

use crate::support::{Answer, Setup, Sink, TestStore, hmac_hex, now, on_both_stores, stripe, stripe_body, wait_until};

on_both_stores!(
    a_handler_that_fails_twice_is_tried_three_times_under_one_key,
    a_failing_handler_neither_blocks_nor_repeats_the_others,
    a_dead_delivery_comes_back_with_events_reprocess,
    gone_is_given_up_at_once,
    retry_after_is_honoured,
    exit_codes_say_whether_to_try_again,
    an_event_that_kills_the_worker_runs_out_of_attempts,
    no_more_deliveries_run_at_once_than_the_handler_allows,
    credentials_are_not_forwarded_and_nothing_secret_is_logged,
    what_is_forwarded_carries_a_standard_webhooks_signature,
);

async fn a_handler_that_fails_twice_is_tried_three_times_under_one_key(store: TestStore) {
    let sink = Sink::answering(&[500, 503]).await;
    let server = Setup::new(&store).http("forward", &sink.url()).start().await;
    let body = stripe_body("evt_1");
    assert_eq!(server.send("stripe", stripe(&body), body.clone()).await.status, 200);

    let event = server.wait_for("stripe", "evt_1", "done").await;
    let outcomes: Vec<_> = event["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|attempt| {
            (
                attempt["attempt"].as_i64().unwrap(),
                attempt["outcome"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(outcomes, [(1, "retry"), (2, "retry"), (3, "done")], "{event}");
    assert!(
        event["attempts"][0]["detail"].as_str().unwrap().contains("500"),
        "{event}"
    );
    assert!(event["processed_at"].is_string(), "{event}");

    let received = sink.received();
    assert_eq!(received.len(), 3);
    for (n, request) in received.iter().enumerate() {
        assert_eq!(request.header("idempotency-key"), "stripe:evt_1:forward");
        assert_eq!(request.header("cerca-attempt"), (n + 1).to_string());
        assert_eq!(request.header("cerca-provider"), "stripe");
        assert_eq!(request.header("content-type"), "application/json; charset=utf-8");
        assert_eq!(request.body, body);
    }
}

/// G7
async fn a_failing_handler_neither_blocks_nor_repeats_the_others(store: TestStore) {
    let (good, bad) = (Sink::start().await, Sink::with(|_, _| Answer::status(500)).await);
    let server = Setup::new(&store)
        .http("bad", &bad.url())
        .http("good", &good.url())
        .start()
        .await;
    for n in 0..5 {
        server.stripe(&format!("evt_{n}")).await;
    }
    wait_until("the good handler is done", async || good.count() == 5).await;
    for n in 0..5 {
        server.wait_for("stripe", &format!("evt_{n}"), "failed").await;
    }
    assert_eq!(bad.count(), 25);
    assert_eq!(good.count(), 5);
}

/// G8, V4
async fn a_dead_delivery_comes_back_with_events_reprocess(store: TestStore) {
    let sink = Sink::answering(&[500; 5]).await;
    let other = Sink::start().await;
    let server = Setup::new(&store)
        .http("forward", &sink.url())
        .http("other", &other.url())
        .start()
        .await;
    server.stripe("evt_1").await;
    let event = server.wait_for("stripe", "evt_1", "failed").await;
    assert_eq!(event["attempts"].as_array().unwrap().len(), 6, "{event}");

    let output = server.cli(&["events", "reprocess", "stripe", "evt_1"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let event = server.wait_for("stripe", "evt_1", "done").await;
    assert_eq!(sink.count(), 6);
    assert_eq!(other.count(), 1, "what was done is not done again: {event}");
    assert_eq!(sink.received()[5].header("idempotency-key"), "stripe:evt_1:forward");
}

async fn gone_is_given_up_at_once(store: TestStore) {
    let sink = Sink::answering(&[410]).await;
    let server = Setup::new(&store).http("forward", &sink.url()).start().await;
    server.stripe("evt_1").await;
    let event = server.wait_for("stripe", "evt_1", "failed").await;
    assert_eq!(event["attempts"].as_array().unwrap().len(), 1, "{event}");
    assert_eq!(event["attempts"][0]["outcome"], "dead");
    assert_eq!(sink.count(), 1);

    let reply = server.post("/api/v1/events/stripe/evt_1/reprocess", &json!({})).await;
    assert!((200..300).contains(&reply.status), "{}", reply.text());
    server.wait_for("stripe", "evt_1", "done").await;
    assert_eq!(sink.count(), 2);
}

async fn retry_after_is_honoured(store: TestStore) {
    let sink = Sink::with(|_, n| match n {
        0 => Answer::status(503).header("Retry-After", "2"),
        _ => Answer::status(200),
    })
    .await;
    let server = Setup::new(&store).http("forward", &sink.url()).start().await;
    server.stripe("evt_1").await;
    server.wait_for("stripe", "evt_1", "done").await;
    let received = sink.received();
    let waited = received[1].at - received[0].at;
    assert!(waited >= Duration::from_millis(1900), "only {waited:?}");
}

async fn exit_codes_say_whether_to_try_again(store: TestStore) {
    let retry = "retry = { attempts = 3, base = \"50ms\", cap = \"50ms\" }";
    let server = Setup::new(&store)
        .exec("fine", "cat >fine.json; exit 0", retry)
        .exec("later", "exit 75", retry)
        .exec("never", "echo reason >&2; exit 65", retry)
        .start()
        .await;
    server.stripe("evt_1").await;
    let event = server.wait_for("stripe", "evt_1", "failed").await;
    wait_until("the last retry", async || {
        server.event("stripe", "evt_1").await["deliveries"]
            .as_array()
            .unwrap()
            .iter()
            .all(|delivery| delivery["state"] != "ready" && delivery["state"] != "claimed")
    })
    .await;
    let state = server.event("stripe", "evt_1").await;
    let delivery = |name: &str| {
        let deliveries = state["deliveries"].as_array().unwrap();
        let found = deliveries.iter().find(|delivery| delivery["handler"] == name);
        found.map(|delivery| (delivery["state"].clone(), delivery["attempts"].clone()))
    };
    assert_eq!(delivery("fine"), Some(("done".into(), 1.into())), "{event}");
    assert_eq!(delivery("later"), Some(("dead".into(), 3.into())), "{state}");
    assert_eq!(delivery("never"), Some(("dead".into(), 1.into())), "{state}");
    let input = std::fs::read(store.folder().join("fine.json")).unwrap();
    let input: serde_json::Value = serde_json::from_slice(&input).unwrap();
    assert_eq!(input["provider_event_id"], "evt_1", "{input}");
}

/// W1: the attempt is counted when it is claimed, so that no event can kill the process for ever.
async fn an_event_that_kills_the_worker_runs_out_of_attempts(store: TestStore) {
    let setup = Setup::new(&store).lease("1s").exec(
        "poison",
        "kill -9 $PPID",
        "retry = { attempts = 2, base = \"50ms\", cap = \"50ms\" }",
    );
    let mut server = setup.start().await;
    let body = stripe_body("evt_1");
    // The worker may be dead before the answer is read.
    let _ = server.try_send("stripe", stripe(&body), body).await;
    server.wait_for_exit().await;

    let mut second = setup.spawn();
    second.wait_for_exit().await;

    let server = setup.start().await;
    let event = server.wait_for("stripe", "evt_1", "failed").await;
    let lost = event["attempts"].as_array().unwrap();
    assert!(lost.iter().all(|attempt| attempt["outcome"] == "lost"), "{event}");
    assert_eq!(lost.len(), 2, "{event}");
}

/// W8
async fn no_more_deliveries_run_at_once_than_the_handler_allows(store: TestStore) {
    let sink = Sink::with(|_, _| Answer::status(200).after(Duration::from_millis(30))).await;
    let server = Setup::new(&store)
        .with(&format!(
            "[[handler]]\nname = \"narrow\"\nevents = [\"*\"]\nkind = \"http\"\nurl = \"{}\"\nconcurrency = 3",
            sink.url()
        ))
        .start()
        .await;
    for n in 0..20 {
        server.stripe(&format!("evt_{n}")).await;
    }
    wait_until("all are delivered", async || sink.count() == 20).await;
    assert!(sink.most_at_once() <= 3, "{} at once", sink.most_at_once());
}

/// R5, R6, G11
async fn credentials_are_not_forwarded_and_nothing_secret_is_logged(store: TestStore) {
    let sink = Sink::start().await;
    let server = Setup::new(&store).http("forward", &sink.url()).start().await;
    let body = br#"{"id":"evt_1","type":"x","note":"canary-body"}"#;
    let mut headers = stripe(body);
    let signature = headers[1].1.split_once("v1=").unwrap().1.to_owned();
    headers.push(("Authorization".into(), "Bearer canary-authorization".into()));
    headers.push(("Cookie".into(), "session=canary-cookie".into()));
    assert_eq!(server.send("stripe", headers, *body).await.status, 200);
    let mut forged = stripe(br#"{"id":"evt_2"}"#);
    forged[1].1.push_str("canary");
    assert_eq!(server.send("stripe", forged, *body).await.status, 401);
    server.wait_for("stripe", "evt_1", "done").await;

    let received = format!("{:?}", sink.received()[0].headers);
    let event = server.event("stripe", "evt_1").await.to_string();
    let metrics = server.get("/metrics").await.text();
    for canary in [
        "canary-authorization",
        "canary-cookie",
        signature.as_str(),
        crate::support::STRIPE_SECRET,
    ] {
        for (place, text) in [
            ("request", &received),
            ("event", &event),
            ("metrics", &metrics),
            ("log", &server.log()),
        ] {
            assert!(!text.contains(canary), "{canary} in the {place}");
        }
    }
    assert!(!server.log().contains("canary"), "{}", server.log());
}

async fn what_is_forwarded_carries_a_standard_webhooks_signature(store: TestStore) {
    use base64::{Engine as _, engine::general_purpose::STANDARD};

    let key = "the key of the target, 32 bytes.";
    let sink = Sink::answering(&[500]).await;
    let server = Setup::new(&store)
        .with(&format!(
            "[[handler]]\nname = \"forward\"\nevents = [\"*\"]\nkind = \"http\"\nurl = \"{}\"\nsecret = \"whsec_{}\"\n\
             retry = {{ attempts = 3, base = \"50ms\", cap = \"50ms\" }}",
            sink.url(),
            STANDARD.encode(key)
        ))
        .start()
        .await;
    server.stripe("evt_1").await;
    server.wait_for("stripe", "evt_1", "done").await;
    let received = sink.received();
    for request in &received {
        let id = request.header("webhook-id");
        let time = request.header("webhook-timestamp");
        let signed = [id.as_bytes(), b".", time.as_bytes(), b".", &request.body].concat();
        let expected = STANDARD.encode(hex::decode(hmac_hex(key, &signed)).unwrap());
        assert_eq!(request.header("webhook-signature"), format!("v1,{expected}"));
        assert!((now() - time.parse::<i64>().unwrap()).abs() < 60);
    }
    assert_eq!(
        received[0].header("webhook-id"),
        received[1].header("webhook-id"),
        "the same in every try"
    );
}
