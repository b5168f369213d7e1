//! Filters, transforms and formats: what a handler is given, and what becomes of an event that it does not want.

use serde_json::{Value, json};

use crate::support::{Setup, Sink, TestStore, cerca, on_both_stores};

on_both_stores!(
    an_event_that_a_filter_does_not_want_is_done_and_says_so,
    a_transform_makes_the_payload_of_every_kind_of_handler,
    a_format_wraps_the_exact_payload,
    a_filter_that_fails_or_never_ends_is_a_failed_attempt,
    a_wrong_filter_is_found_at_the_start,
);

/// An http handler for everything with these keys.
fn http(name: &str, url: &str, keys: &str) -> String {
    format!(
        "[[handler]]\nname = \"{name}\"\nevents = [\"*\"]\nkind = \"http\"\nurl = \"{url}\"\n{keys}\n\
         retry = {{ attempts = 2, base = \"50ms\", cap = \"50ms\" }}\n"
    )
}

fn names(value: &Value, field: &str) -> Vec<String> {
    let list = value.as_array().cloned().unwrap_or_default();
    list.iter()
        .map(|item| item[field].as_str().unwrap().to_owned())
        .collect()
}

async fn an_event_that_a_filter_does_not_want_is_done_and_says_so(store: TestStore) {
    let (large, small) = (Sink::start().await, Sink::start().await);
    let server = Setup::new(&store)
        .with(&http("large", &large.url(), "when = '.data.object.amount > 5000'"))
        .with(&http("small", &small.url(), "when = '.data.object.amount <= 5000'"))
        .start()
        .await;
    server.stripe("evt_1").await;
    let event = server.wait_for("stripe", "evt_1", "done").await;
    assert_eq!(event["filtered"], json!(["large"]), "{event}");
    assert_eq!(names(&event["deliveries"], "handler"), ["small"], "{event}");
    let attempts = event["attempts"].as_array().unwrap();
    let filtered = attempts.iter().find(|attempt| attempt["handler"] == "large").unwrap();
    assert_eq!(
        (&filtered["outcome"], &filtered["detail"]),
        (&json!("filtered"), &json!("`when` gave false")),
        "{event}"
    );
    assert_eq!((large.count(), small.count()), (0, 1));
    assert_eq!(store.number("select count(*) from deliveries").await, 0);
    assert_eq!(
        store
            .number("select count(*) from inbox where status = 'done' and processed_at is not null")
            .await,
        1
    );
    let listed = server.all_events("stripe").await;
    assert_eq!(listed[0]["filtered"], json!(["large"]), "{listed:?}");
    let metrics = server.get("/metrics").await.text();
    assert!(
        metrics.contains(r#"cerca_attempts_total{handler="large",outcome="filtered"} 1"#),
        "{metrics}"
    );
}

async fn a_transform_makes_the_payload_of_every_kind_of_handler(store: TestStore) {
    let sink = Sink::start().await;
    let transform = "transform = '{id: (\"made of \" + .id), cents: .data.object.amount, kind: $event.event_type}'";
    let retry = "retry = { attempts = 20, base = \"100ms\", cap = \"300ms\" }";
    let server = Setup::new(&store)
        .with(&http("web", &sink.url(), transform))
        .exec("program", "cat >seen.json", transform)
        .with(&format!(
            "[[handler]]\nname = \"ledger\"\nevents = [\"*\"]\nkind = \"sql\"\n{transform}\n{retry}\n\
             statement = \"insert into effects (id) values ($1)\"\nparams = [\"body:/id\"]\n"
        ))
        .start()
        .await;
    server.create_effects().await;
    server.stripe("evt_1").await;
    server.wait_for("stripe", "evt_1", "done").await;
    let expected = r#"{"id":"made of evt_1","cents":4200,"kind":"payment_intent.succeeded"}"#;
    let received = &sink.received()[0];
    assert_eq!(String::from_utf8_lossy(&received.body), expected);
    assert_eq!(received.header("content-type"), "application/json");
    let seen: Value = serde_json::from_slice(&std::fs::read(store.folder().join("seen.json")).unwrap()).unwrap();
    assert_eq!(seen["payload"]["cents"], 4200, "{seen}");
    assert_eq!(
        store
            .number("select count(*) from effects where id = 'made of evt_1'")
            .await,
        1
    );
    let stored = server.payload("stripe", "evt_1").await;
    assert_eq!(stored, crate::support::stripe_body("evt_1"), "what came in stays");
}

async fn a_format_wraps_the_exact_payload(store: TestStore) {
    let (cloud, whole) = (Sink::start().await, Sink::answering(&[500]).await);
    let server = Setup::new(&store)
        .with(&http("cloud", &cloud.url(), "format = \"cloudevents\""))
        .with(&http("whole", &whole.url(), "format = \"json\""))
        .start()
        .await;
    let body = br#"{"n": 12345678901234567890.10}"#;
    server.github("d-1", body).await;
    server.wait_for("github", "d-1", "done").await;

    let received = &cloud.received()[0];
    let text = String::from_utf8(received.body.clone()).unwrap();
    assert_eq!(received.header("content-type"), "application/cloudevents+json");
    assert!(text.contains(r#""data":{"n": 12345678901234567890.10}"#), "{text}");
    let event: Value = serde_json::from_str(&text).unwrap();
    for (name, value) in [
        ("specversion", "1.0"),
        ("id", "d-1"),
        ("source", "/webhooks/github"),
        ("type", "push"),
        ("idempotencykey", "github:d-1:cloud"),
    ] {
        assert_eq!(event[name], value, "{event}");
    }

    let received = whole.received();
    assert_eq!(received[0].body, received[1].body, "the same in every try");
    let text = String::from_utf8(received[0].body.clone()).unwrap();
    assert!(text.contains(r#""payload":{"n": 12345678901234567890.10}"#), "{text}");
    assert_eq!(received[0].header("content-type"), "application/json");
}

async fn a_filter_that_fails_or_never_ends_is_a_failed_attempt(store: TestStore) {
    let sink = Sink::start().await;
    let server = Setup::new(&store)
        .with(&http("reads", &sink.url(), "when = '.id'"))
        .with(&http("endless", &sink.url(), "transform = 'def f: f; f'"))
        .with(&http("deep", &sink.url(), "transform = 'def f: 1 + f; f'"))
        .http("plain", &sink.url())
        .start()
        .await;
    let body = b"\xff not json";
    server.github("d-1", body).await;
    server.stripe("evt_1").await;
    let details = async |provider, id, handler: &str| {
        let event = server.wait_for(provider, id, "failed").await;
        let attempts = event["attempts"].as_array().unwrap().clone();
        let of_handler = attempts.iter().filter(|attempt| attempt["handler"] == handler);
        let details: Vec<String> = of_handler
            .map(|a| a["detail"].as_str().unwrap_or_default().to_owned())
            .collect();
        details
    };
    let found = details("github", "d-1", "reads").await;
    // It stays so: one attempt.
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("the body is not JSON: "), "{found:?}");
    let found = details("stripe", "evt_1", "endless").await;
    assert!(found[0].starts_with("`transform` failed: it "), "{found:?}");
    let found = details("stripe", "evt_1", "deep").await;
    assert!(found[0].starts_with("`transform` failed: it "), "{found:?}");
    // `plain` for both, and `reads` for what is JSON.
    let keys: Vec<String> = sink
        .received()
        .iter()
        .map(|r| r.header("idempotency-key").to_owned())
        .collect();
    for key in ["github:d-1:plain", "stripe:evt_1:plain", "stripe:evt_1:reads"] {
        assert_eq!(keys.iter().filter(|k| *k == key).count(), 1, "{key} in {keys:?}");
    }
}

async fn a_wrong_filter_is_found_at_the_start(store: TestStore) {
    let config = Setup::new(&store)
        .with(&http("h", "http://127.0.0.1:1/", "when = '.amount | nope(1)'"))
        .write_config();
    let output = cerca().args(["check", "--config"]).arg(&config).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("line 1, column 11: there is no filter nope/1"), "{text}");
    assert!(
        text.contains("when") && text.contains(&*config.file_name().unwrap().to_string_lossy()),
        "{text}"
    );
}
