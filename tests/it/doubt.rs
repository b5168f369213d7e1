//! Attempts that were sent and not answered: their outcome is unknown, and what follows is configured.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Answer, Setup, Signal, Sink, TestStore, on_both_stores, wait_until};

on_both_stores!(
    sent_and_not_answered_is_unknown_and_tried_again_under_the_same_key,
    an_unknown_outcome_is_held_for_a_person,
    a_crash_in_the_middle_is_held_too,
    a_probe_that_finds_the_effect_ends_the_delivery,
    a_probe_that_finds_none_lets_it_be_sent_again,
    a_probe_that_does_not_know_is_asked_again,
    a_probe_decides_after_a_crash,
    a_program_that_is_killed_at_its_timeout_is_unknown,
    a_program_that_is_killed_from_outside_is_held_too,
);

fn http(sink: &Sink, keys: &str) -> String {
    format!(
        "[[handler]]\nname = \"pay\"\nevents = [\"*\"]\nkind = \"http\"\nurl = \"{}\"\n{keys}\n\
         retry = {{ attempts = 6, base = \"50ms\", cap = \"100ms\" }}\n",
        sink.url()
    )
}

fn probe(sink: &Sink) -> String {
    format!("probe = \"{}/{{idempotency_key}}\"", sink.url())
}

/// Cuts the first requests, and answers the others.
async fn cutting(first: usize) -> Sink {
    Sink::with(move |_, n| if n < first { Answer::cut() } else { Answer::status(200) }).await
}

/// Answers the first request long after every test has ended, and the others at once.
async fn hanging() -> Sink {
    Sink::with(|_, n| Answer::status(200).after(Duration::from_secs(if n == 0 { 600 } else { 0 }))).await
}

fn outcomes(event: &Value) -> Vec<String> {
    let attempts = event["attempts"].as_array().unwrap();
    attempts
        .iter()
        .map(|a| a["outcome"].as_str().unwrap().to_owned())
        .collect()
}

async fn sent_and_not_answered_is_unknown_and_tried_again_under_the_same_key(store: TestStore) {
    let sink = cutting(2).await;
    let server = Setup::new(&store).with(&http(&sink, "")).start().await;
    server.stripe("evt_1").await;
    let event = server.wait_for("stripe", "evt_1", "done").await;
    assert_eq!(outcomes(&event), ["unknown", "unknown", "done"], "{event}");
    assert!(
        event["attempts"][0]["detail"].as_str().unwrap().contains("unknown"),
        "{event}"
    );
    for request in sink.received() {
        assert_eq!(request.header("idempotency-key"), "stripe:evt_1:pay");
    }
}

async fn an_unknown_outcome_is_held_for_a_person(store: TestStore) {
    let sink = cutting(1).await;
    let server = Setup::new(&store)
        .with(&http(&sink, "on_unknown = \"hold\""))
        .start()
        .await;
    server.stripe("evt_1").await;
    let event = server.wait_for("stripe", "evt_1", "failed").await;
    assert_eq!(outcomes(&event), ["unknown"], "{event}");
    assert_eq!(event["deliveries"][0]["state"], "dead", "{event}");
    assert!(
        event["deliveries"][0]["last_error"]
            .as_str()
            .unwrap()
            .contains("unknown"),
        "{event}"
    );
    assert_eq!(sink.count(), 1);

    let reply = server.post("/api/v1/events/stripe/evt_1/reprocess", &json!({})).await;
    assert!((200..300).contains(&reply.status), "{}", reply.text());
    server.wait_for("stripe", "evt_1", "done").await;
    assert_eq!(sink.count(), 2);
}

async fn a_crash_in_the_middle_is_held_too(store: TestStore) {
    let sink = hanging().await;
    let setup = Setup::new(&store)
        .lease("1s")
        .with(&http(&sink, "on_unknown = \"hold\""));
    let server = setup.start().await;
    server.stripe("evt_1").await;
    wait_until("it is sent", async || sink.count() == 1).await;
    server.kill();
    let server = setup.start().await;
    let event = server.wait_for("stripe", "evt_1", "failed").await;
    assert_eq!(outcomes(&event), ["lost", "unknown"], "{event}");
    assert_eq!(sink.count(), 1);
}

async fn a_probe_that_finds_the_effect_ends_the_delivery(store: TestStore) {
    let (sink, asked) = (cutting(1).await, Sink::start().await);
    let server = Setup::new(&store).with(&http(&sink, &probe(&asked))).start().await;
    server.stripe("evt_1").await;
    let event = server.wait_for("stripe", "evt_1", "done").await;
    assert_eq!(outcomes(&event), ["unknown", "done"], "{event}");
    let found = "the probe found that an earlier try had its effect; nothing was sent again";
    assert_eq!(event["attempts"][1]["detail"], found, "{event}");
    assert_eq!((sink.count(), asked.count()), (1, 1));
    let question = &asked.received()[0];
    assert_eq!(question.line, "GET /hook/stripe%3Aevt_1%3Apay HTTP/1.1");
    assert_eq!(question.header("idempotency-key"), "stripe:evt_1:pay");

    server.stripe("evt_2").await;
    server.wait_for("stripe", "evt_2", "done").await;
    assert_eq!(
        (sink.count(), asked.count()),
        (2, 1),
        "nothing is asked without a doubt"
    );
}

async fn a_probe_that_finds_none_lets_it_be_sent_again(store: TestStore) {
    let (sink, asked) = (cutting(1).await, Sink::with(|_, _| Answer::status(404)).await);
    let server = Setup::new(&store).with(&http(&sink, &probe(&asked))).start().await;
    server.stripe("evt_1").await;
    let event = server.wait_for("stripe", "evt_1", "done").await;
    assert_eq!(outcomes(&event), ["unknown", "done"], "{event}");
    assert_eq!((sink.count(), asked.count()), (2, 1));
}

async fn a_probe_that_does_not_know_is_asked_again(store: TestStore) {
    let (sink, asked) = (cutting(1).await, Sink::answering(&[500, 403]).await);
    let server = Setup::new(&store).with(&http(&sink, &probe(&asked))).start().await;
    server.stripe("evt_1").await;
    let event = server.wait_for("stripe", "evt_1", "done").await;
    assert_eq!(outcomes(&event), ["unknown", "unknown", "unknown", "done"], "{event}");
    assert_eq!((sink.count(), asked.count()), (1, 3));
}

async fn a_probe_decides_after_a_crash(store: TestStore) {
    let (sink, asked) = (hanging().await, Sink::start().await);
    let setup = Setup::new(&store).lease("1s").with(&http(&sink, &probe(&asked)));
    let server = setup.start().await;
    server.stripe("evt_1").await;
    wait_until("it is sent", async || sink.count() == 1).await;
    server.kill();
    let server = setup.start().await;
    let event = server.wait_for("stripe", "evt_1", "done").await;
    assert_eq!(outcomes(&event), ["lost", "done"], "{event}");
    assert_eq!((sink.count(), asked.count()), (1, 1));
}

async fn a_program_that_is_killed_at_its_timeout_is_unknown(store: TestStore) {
    let server = Setup::new(&store)
        .exec("slow", "sleep 600", "timeout = \"300ms\"\non_unknown = \"hold\"")
        .start()
        .await;
    server.stripe("evt_1").await;
    let event = server.wait_for("stripe", "evt_1", "failed").await;
    assert_eq!(outcomes(&event), ["unknown"], "{event}");
    assert!(
        event["attempts"][0]["detail"]
            .as_str()
            .unwrap()
            .starts_with("no answer within 300ms"),
        "{event}"
    );
}

async fn a_program_that_is_killed_from_outside_is_held_too(store: TestStore) {
    let server = Setup::new(&store)
        .exec(
            "slow",
            "echo $$ > pid.new; mv pid.new pid; sleep 600",
            "on_unknown = \"hold\"",
        )
        .start()
        .await;
    server.stripe("evt_1").await;
    let file = store.folder().join("pid");
    wait_until("the program runs", async || file.exists()).await;
    let pid = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    Signal::Kill.send(pid);
    let event = server.wait_for("stripe", "evt_1", "failed").await;
    assert_eq!(outcomes(&event), ["unknown"], "{event}");
    let detail = event["attempts"][0]["detail"].as_str().unwrap();
    assert!(detail.starts_with("signal: 9"), "{event}");
}
