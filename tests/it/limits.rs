//! Rate limits, and a sender's redelivery of what failed.

use serde_json::json;

use crate::support::{
    GITHUB_SECRET, STRIPE_SECRET, Setup, Sink, TestStore, on_both_stores, stripe, stripe_body, wait_until,
};

on_both_stores!(
    a_provider_over_its_rate_limit_is_told_when_to_come_again,
    a_redelivery_of_a_failed_event_revives_it,
);

async fn a_provider_over_its_rate_limit_is_told_when_to_come_again(store: TestStore) {
    let server = Setup::new(&store)
        .without_providers()
        .with(&format!(
            "[[provider]]\nname = \"stripe\"\nsecrets = [\"{STRIPE_SECRET}\"]\nrate_limit = \"1/h\"\n\
             [[provider]]\nname = \"github\"\nsecrets = [\"{GITHUB_SECRET}\"]\n"
        ))
        .start()
        .await;
    server.stripe("evt_1").await;
    let body = stripe_body("evt_2");
    let reply = server.send("stripe", stripe(&body), body).await;
    assert_eq!(reply.status, 429);
    assert_eq!(reply.header("content-type"), "application/problem+json");
    let seconds: u64 = reply.header("retry-after").parse().unwrap();
    assert!(seconds > 3_000 && seconds <= 3_600, "{seconds}");
    server.github("d-1", b"{}").await;
    assert!(server.event("stripe", "evt_2").await.is_null());
    let metrics = server.get("/metrics").await.text();
    let counted = "cerca_requests_rejected_total{provider=\"stripe\",reason=\"rate_limited\"} 1";
    assert!(metrics.contains(counted), "{metrics}");
}

/// GitHub redelivers only when a person asks it to, with the same id.
async fn a_redelivery_of_a_failed_event_revives_it(store: TestStore) {
    let sink = Sink::answering(&[410, 410]).await;
    let server = Setup::new(&store).http("deploy", &sink.url()).start().await;
    server.github("d-1", b"{\"ref\":\"main\"}").await;
    server.wait_for("github", "d-1", "failed").await;
    server.stripe("evt_1").await;
    server.wait_for("stripe", "evt_1", "failed").await;

    // Stripe repeats by itself; that is no wish of a person.
    server.stripe("evt_1").await;
    server.github("d-1", b"{\"ref\":\"main\"}").await;
    let event = server.wait_for("github", "d-1", "done").await;
    let outcomes: Vec<_> = event["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| a["outcome"].clone())
        .collect();
    assert_eq!(outcomes, [json!("dead"), json!("done")], "{event}");
    assert_eq!(server.event("stripe", "evt_1").await["status"], "failed");
    let audited =
        "select count(*) from audit where actor = 'provider:github' and action = 'reprocess' and deliveries = 1";
    assert_eq!(store.number(audited).await, 1);
    wait_until("it is counted", async || {
        let metrics = server.get("/metrics").await.text();
        metrics.contains("cerca_deliveries_revived_total{provider=\"github\"} 1")
    })
    .await;
}
