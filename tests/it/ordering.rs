//! Events of one ordering key, end to end.

use serde_json::json;

use crate::support::{Answer, Server, Setup, Sink, TestStore, on_both_stores, stripe, wait_until};

on_both_stores!(
    events_of_one_customer_are_handled_one_at_a_time_and_others_go_on,
    a_dead_event_holds_its_customer_until_it_is_discarded,
);

fn ordered(setup: Setup, sink: &Sink, more: &str) -> Setup {
    setup.with(&format!(
        "[[handler]]\nname = \"orders\"\nevents = [\"*\"]\nkind = \"http\"\nurl = \"{}\"\nordering = \"key\"\n{more}\n\
         retry = {{ attempts = 3, base = \"50ms\", cap = \"200ms\" }}\n",
        sink.url()
    ))
}

async fn send(server: &Server, id: &str, customer: &str, created: i64) {
    let body = json!({
        "id": id, "object": "event", "type": "customer.updated", "created": created,
        "data": {"object": {"id": id, "customer": customer}},
    });
    let body = body.to_string().into_bytes();
    assert_eq!(server.send("stripe", stripe(&body), body).await.status, 200);
}

/// The ids that the target was sent, in order.
fn ids(sink: &Sink) -> Vec<String> {
    let id = |body: &[u8]| {
        let event: serde_json::Value = serde_json::from_slice(body).unwrap();
        event["id"].as_str().unwrap().to_owned()
    };
    sink.received().iter().map(|request| id(&request.body)).collect()
}

/// O1, O4, O5
async fn events_of_one_customer_are_handled_one_at_a_time_and_others_go_on(store: TestStore) {
    let sink = Sink::with(|request, _| {
        let is_first = request.header("cerca-attempt") == "1";
        let fails = String::from_utf8_lossy(&request.body).contains("evt_a1") && is_first;
        Answer::status(if fails { 500 } else { 200 })
    })
    .await;
    let server = ordered(Setup::new(&store), &sink, "").start().await;
    send(&server, "evt_a1", "cus_a", 1_790_000_001).await;
    // Late, and older than what came before it.
    send(&server, "evt_a3", "cus_a", 1_790_000_003).await;
    send(&server, "evt_a2", "cus_a", 1_790_000_002).await;
    send(&server, "evt_b1", "cus_b", 1_790_000_001).await;
    for id in ["evt_a1", "evt_a2", "evt_a3", "evt_b1"] {
        server.wait_for("stripe", id, "done").await;
    }
    let of_a: Vec<String> = ids(&sink).into_iter().filter(|id| id.starts_with("evt_a")).collect();
    assert_eq!(
        of_a[..2],
        ["evt_a1", "evt_a1"],
        "the failed one is tried again before any other of its customer"
    );
    assert_eq!(of_a.len(), 4);
}

/// What is dead stays in front, because what comes after it may need it.
async fn a_dead_event_holds_its_customer_until_it_is_discarded(store: TestStore) {
    let sink = Sink::with(|request, _| {
        let fails = String::from_utf8_lossy(&request.body).contains("evt_a1");
        Answer::status(if fails { 410 } else { 200 })
    })
    .await;
    let server = ordered(Setup::new(&store), &sink, "").start().await;
    send(&server, "evt_a1", "cus_a", 1_790_000_001).await;
    send(&server, "evt_a2", "cus_a", 1_790_000_002).await;
    send(&server, "evt_b1", "cus_b", 1_790_000_001).await;
    server.wait_for("stripe", "evt_a1", "failed").await;
    server.wait_for("stripe", "evt_b1", "done").await;
    let waiting = server.event("stripe", "evt_a2").await;
    assert_eq!(waiting["deliveries"][0]["state"], "blocked", "{waiting}");
    // By another process, as an operator would.
    let output = server.cli(&["events", "discard", "stripe", "evt_a1"]);
    assert!(output.status.success(), "{output:?}");
    server.wait_for("stripe", "evt_a2", "done").await;
    assert_eq!(server.event("stripe", "evt_a1").await["status"], "discarded");

    // Where it is configured, nobody waits for the dead.
    drop(server);
    let server = ordered(Setup::new(&store), &sink, "ordering_dead = \"skip\"")
        .start()
        .await;
    send(&server, "evt_a1_again", "cus_a", 1_790_000_005).await;
    send(&server, "evt_a4", "cus_a", 1_790_000_006).await;
    server.wait_for("stripe", "evt_a1_again", "failed").await;
    server.wait_for("stripe", "evt_a4", "done").await;
    wait_until("all were sent", async || ids(&sink).contains(&"evt_a4".to_owned())).await;
}
