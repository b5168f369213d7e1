//! What operators do: start, check, look, bring back.

use std::{process::Output, sync::Arc};

use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::{
    Answer, Engine, Setup, Sink, TestStore, cerca, on_both_stores, run, stripe, stripe_body, wait_until,
};

on_both_stores!(
    an_event_is_the_same_in_the_api_and_on_the_command_line,
    events_are_listed_by_filter_and_page_by_page,
    many_are_brought_back_by_filter_with_a_count_beforehand,
    a_discarded_event_is_left_alone,
    discarding_tells_of_what_is_in_flight,
    migrate_says_what_it_did,
    metrics_count_what_happened,
    retention_removes_bytes_and_still_knows_the_id,
);

/// S6, V7: without a secret anybody's signature would be valid.
#[test]
fn a_provider_without_a_secret_does_not_start() {
    run(Engine::Sqlite, async |store: TestStore| {
        for provider in [
            "name = \"stripe\"\nsecrets = [\"\"]",
            "name = \"stripe\"\nsecrets = []",
            "name = \"stripe\"",
            "name = \"stripe\"\nsecrets = [\"env:CERCA_E2E_NOT_SET\"]",
            "name = \"stripe\"\nsecrets = [\"  \"]",
        ] {
            let setup = Setup::new(&store)
                .without_providers()
                .with(&format!("[[provider]]\n{provider}"));
            let mut server = setup.spawn();
            let status = server.wait_for_exit().await;
            assert!(!status.success(), "{provider}");
            assert!(server.log().contains("secret"), "{provider}: {}", server.log());
        }
    });
}

#[test]
fn mistakes_in_the_configuration_are_named() {
    run(Engine::Sqlite, async |store: TestStore| {
        for (toml, named) in [
            (
                "[[handler]]\nname = \"a\"\nevents = [\"*\"]\nkind = \"http\"\nurl = \"x\"\nurll = \"y\"",
                "urll",
            ),
            ("[[handler]]\nname = \"a\"\nevents = [\"*\"]\nkind = \"http\"", "url"),
            ("[[handler]]\nname = \"a\"\nevents = [\"*\"]\nkind = \"fax\"", "fax"),
            (
                "[[provider]]\nname = \"nobody-knows\"\nsecrets = [\"s3cret-value\"]",
                "nobody-knows",
            ),
            (
                "[[provider]]\nname = \"stripe\"\nsecrets = [\"s3cret-value\"]",
                "stripe",
            ),
            ("[wroker]\nlease = \"2s\"", "wroker"),
            ("[retention]\ndone = \"soon\"", "soon"),
        ] {
            let config = Setup::new(&store).with(toml).write_config();
            let output = run_cli(&["check", "--config", config.to_str().unwrap()]);
            assert!(!output.status.success(), "{toml}");
            let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            assert!(told.contains(named), "{toml}:\n{told}");
            assert!(!told.contains("s3cret-value"), "{toml}:\n{told}");
        }
        let config = Setup::new(&store)
            .http("forward", "http://127.0.0.1:9/x")
            .write_config();
        let output = run_cli(&["check", "--config", config.to_str().unwrap()]);
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{told}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(told.contains("https://hooks.example.com/webhooks/stripe"), "{told}");
        assert!(!told.contains(crate::support::STRIPE_SECRET), "{told}");
    });
}

async fn an_event_is_the_same_in_the_api_and_on_the_command_line(store: TestStore) {
    let sink = Sink::answering(&[500]).await;
    let server = Setup::new(&store).http("forward", &sink.url()).start().await;
    server.stripe("evt_1").await;
    let event = server.wait_for("stripe", "evt_1", "done").await;
    for field in [
        "id",
        "provider",
        "adapter",
        "provider_event_id",
        "event_type",
        "status",
        "occurred_at",
        "created_at",
        "processed_at",
        "ordering_key",
        "content_type",
        "size",
        "body_sha256",
        "conflicts",
        "deliveries",
        "attempts",
        "normalized",
    ] {
        assert!(event.get(field).is_some(), "{field} is missing in {event}");
    }
    assert_eq!(event["adapter"], "stripe");
    assert_eq!(event["event_type"], "payment_intent.succeeded");
    assert_eq!(event["ordering_key"], "cus_1");
    assert_eq!(event["normalized"]["amount"], 4200);
    assert_eq!(event["size"], stripe_body("evt_1").len());
    assert_eq!(event["occurred_at"].as_str().unwrap().get(..10), Some("2026-09-21"));

    let shown: Value =
        serde_json::from_slice(&server.cli(&["events", "show", "stripe", "evt_1", "--json"]).stdout).unwrap();
    assert_eq!(shown, event);
    let listed = server.cli(&["events", "list", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let mut in_a_list = event.clone();
    in_a_list.as_object_mut().unwrap().remove("attempts");
    in_a_list.as_object_mut().unwrap().remove("normalized");
    assert_eq!(listed, in_a_list);
    let page = server.get("/api/v1/events").await.json();
    assert_eq!(page, json!({"events": [in_a_list], "next": null}));

    let output = server.cli(&["events", "payload", "stripe", "evt_1"]);
    assert_eq!(output.stdout, stripe_body("evt_1"));
    assert!(
        !server
            .cli(&["events", "show", "stripe", "evt_unknown"])
            .status
            .success()
    );
    assert_eq!(server.get("/api/v1/events/stripe/evt_unknown").await.status, 404);
    assert!(server.cli(&["stats"]).status.success());
}

async fn events_are_listed_by_filter_and_page_by_page(store: TestStore) {
    let server = Setup::new(&store)
        .with("[[handler]]\nname = \"never\"\nevents = [\"stripe:never.*\"]\nkind = \"log\"")
        .start()
        .await;
    for n in 0..7 {
        server.stripe(&format!("evt_{n}")).await;
        server.github(&format!("guid_{n}"), b"{}").await;
    }
    let ids = |page: &Value| -> Vec<String> {
        let events = page["events"].as_array().unwrap();
        events
            .iter()
            .map(|event| event["provider_event_id"].as_str().unwrap().to_owned())
            .collect()
    };
    let first = server.get("/api/v1/events?provider=stripe&limit=3").await.json();
    assert_eq!(ids(&first), ["evt_6", "evt_5", "evt_4"]);
    // What arrives meanwhile moves no page.
    server.stripe("evt_late").await;
    let next = first["next"]
        .as_str()
        .map_or_else(|| first["next"].to_string(), str::to_owned);
    let second = server
        .get(&format!("/api/v1/events?provider=stripe&limit=3&cursor={next}"))
        .await
        .json();
    assert_eq!(ids(&second), ["evt_3", "evt_2", "evt_1"]);

    let by_type = server
        .get("/api/v1/events?type=push&status=unrouted&limit=50")
        .await
        .json();
    assert_eq!(ids(&by_type).len(), 7);
    let by_text = server.get("/api/v1/events?q=evt_la").await.json();
    assert_eq!(ids(&by_text), ["evt_late"]);
    assert_eq!(
        ids(&server.get("/api/v1/events?since=2100-01-01T00:00:00Z").await.json()),
        [""; 0]
    );
    for wrong in [
        "status=nonsense",
        "limit=x",
        "cursor=x%20y",
        "since=yesterday-ish",
        "colour=red",
    ] {
        let reply = server.get(&format!("/api/v1/events?{wrong}")).await;
        assert_eq!(reply.status, 400, "{wrong}: {}", reply.text());
    }
}

/// V3, V4
async fn many_are_brought_back_by_filter_with_a_count_beforehand(store: TestStore) {
    let sink = Sink::with(|_, n| Answer::status(if n < 6 { 410 } else { 200 })).await;
    let server = Setup::new(&store).http("forward", &sink.url()).start().await;
    for n in 0..6 {
        server.stripe(&format!("evt_{n}")).await;
    }
    for n in 0..6 {
        server.wait_for("stripe", &format!("evt_{n}"), "failed").await;
    }
    server.stripe("evt_fine").await;
    server.wait_for("stripe", "evt_fine", "done").await;

    let wanted = json!({"status": "failed", "provider": "stripe", "dry_run": true});
    let plan = server.post("/api/v1/events/reprocess", &wanted).await;
    assert_eq!(plan.status, 200, "{}", plan.text());
    assert_eq!(plan.json()["events"], 6, "{}", plan.text());
    assert_eq!(sink.count(), 7, "a dry run does nothing");

    let reply = server
        .post(
            "/api/v1/events/reprocess",
            &json!({"status": "failed", "provider": "stripe"}),
        )
        .await;
    assert!((200..300).contains(&reply.status), "{}", reply.text());
    for n in 0..6 {
        server.wait_for("stripe", &format!("evt_{n}"), "done").await;
    }
    assert_eq!(sink.count(), 13);
}

async fn a_discarded_event_is_left_alone(store: TestStore) {
    let sink = Sink::with(|_, _| Answer::status(410)).await;
    let server = Setup::new(&store).http("forward", &sink.url()).start().await;
    server.stripe("evt_1").await;
    server.wait_for("stripe", "evt_1", "failed").await;
    let reply = server
        .post("/api/v1/events/stripe/evt_1/discard", &json!({"reason": "a test"}))
        .await;
    assert!((200..300).contains(&reply.status), "{}", reply.text());
    assert_eq!(server.event("stripe", "evt_1").await["status"], "discarded");
    // A copy is still a duplicate.
    server.stripe("evt_1").await;
    assert_eq!(server.event("stripe", "evt_1").await["status"], "discarded");
    assert_eq!(sink.count(), 1);
}

async fn discarding_tells_of_what_is_in_flight(store: TestStore) {
    let go = Arc::new(Notify::new());
    let held = Arc::clone(&go);
    let sink = Sink::with(move |_, _| Answer::status(500).when(&held)).await;
    let server = Setup::new(&store).http("forward", &sink.url()).start().await;
    server.stripe("evt_1").await;
    wait_until("the attempt is in flight", async || sink.count() == 1).await;
    let discard = || {
        let done = server.cli(&["events", "discard", "-y", "stripe", "evt_1"]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let first = discard();
    assert!(
        first.contains("Discarded 1 delivery; 1 of them is in flight: its attempt ends first"),
        "{first}"
    );
    let second = discard();
    assert!(
        second.contains("discarded, or in flight and discarded when its attempt ends."),
        "{second}"
    );
    go.notify_one();
    server.wait_for("stripe", "evt_1", "discarded").await;
}

async fn migrate_says_what_it_did(store: TestStore) {
    let config = Setup::new(&store).write_config();
    for told in ["was created.", "is up to date already."] {
        let done = cerca().arg("migrate").arg("--config").arg(&config).output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(done.status.success() && said.contains(told), "{said}");
    }
}

async fn metrics_count_what_happened(store: TestStore) {
    let server = Setup::new(&store).start().await;
    server.stripe("evt_1").await;
    server.stripe("evt_1").await;
    let body = stripe_body("evt_2");
    let mut forged = stripe(&body);
    forged[1].1.push('0');
    assert_eq!(server.send("stripe", forged, body).await.status, 401);
    let metrics = server.get("/metrics").await.text();
    for word in ["accepted", "duplicate", "reject"] {
        let counted = metrics.lines().any(|line| {
            !line.starts_with('#') && line.contains(word) && line.contains("stripe") && line.ends_with(" 1")
        });
        assert!(counted, "{word} in\n{metrics}");
    }
    // What an unknown sender makes up does not become a label.
    let reply = server.send("made-up-name", vec![], "{}").await;
    assert_eq!(reply.status, 404);
    assert!(!server.get("/metrics").await.text().contains("made-up-name"));
}

/// N1, N3
async fn retention_removes_bytes_and_still_knows_the_id(store: TestStore) {
    let sink = Sink::start().await;
    let server = Setup::new(&store)
        .http("forward", &sink.url())
        .with("[retention]\ndone = \"1s\"\nfailed = \"90d\"\ndedupe = \"365d\"")
        .start()
        .await;
    server.github("guid-1", b"{}").await;
    server.wait_for("github", "guid-1", "done").await;
    let would = server.cli(&["purge", "--dry-run"]);
    assert!(would.status.success(), "{}", String::from_utf8_lossy(&would.stderr));
    assert_eq!(
        server.payload("github", "guid-1").await,
        b"{}",
        "a dry run does nothing"
    );

    wait_until("the payload is old enough and goes", async || {
        assert!(server.cli(&["purge"]).status.success());
        server.get("/api/v1/events/github/guid-1/payload").await.status == 410
    })
    .await;
    let again = server.cli(&["events", "reprocess", "github", "guid-1"]);
    let told = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(
        !again.status.success() && told.contains("retention has removed the payload"),
        "{told}"
    );
    let again = server.post("/api/v1/events/github/guid-1/reprocess", &json!({})).await;
    assert_eq!(again.status, 409, "{}", again.text());
    server.github("guid-1", b"{}").await;
    let event = server.event("github", "guid-1").await;
    assert_eq!(event["conflicts"], 0, "{event}");
    server.github("guid-1", b"[]").await;
    assert_eq!(server.event("github", "guid-1").await["conflicts"], 1);
    assert_eq!(sink.count(), 1);
}

fn run_cli(arguments: &[&str]) -> Output {
    cerca().args(arguments).output().unwrap()
}
