//! Consumers that take their work themselves.

use std::{collections::HashMap, time::Duration};

use serde_json::{Value, json};

use crate::support::{Reply, Server, Setup, TestStore, on_both_stores, stripe_body, wait_until};

on_both_stores!(
    two_consumers_share_the_work_and_one_may_die,
    a_waiting_consumer_is_served_at_once_and_an_idle_one_is_told_so,
    each_result_has_an_answer_and_the_same_again_is_answered_alike,
    a_retry_waits_as_long_as_was_asked_and_the_last_attempt_is_the_last,
    a_lease_is_extended_while_its_consumer_says_so,
    a_consumer_that_hangs_up_holds_nothing,
    what_cannot_be_meant_is_refused,
);

fn setup(store: &TestStore, lease: &str, more: &str) -> Setup {
    Setup::new(store).with(&format!(
        "[[handler]]\nname = \"work\"\nevents = [\"stripe:*\"]\nkind = \"pull\"\ntimeout = \"{lease}\"\n{more}\n"
    ))
}

async fn pull(server: &Server, query: &str) -> Vec<Value> {
    let reply = server.get(&format!("/api/v1/pull/work?{query}")).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["deliveries"].as_array().unwrap().clone()
}

async fn settle(server: &Server, results: Value) -> Reply {
    server
        .post("/api/v1/pull/work/settle", &json!({ "results": results }))
        .await
}

/// What became of each result.
async fn settled(server: &Server, results: Value) -> Vec<String> {
    let reply = settle(server, results).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let reply = reply.json();
    let results = reply["results"].as_array().unwrap();
    results
        .iter()
        .map(|result| {
            let text = result["result"].as_str().unwrap();
            assert_eq!(result["ok"], !matches!(text, "stale" | "invalid"), "{result}");
            text.to_owned()
        })
        .collect()
}

fn id(delivery: &Value) -> String {
    delivery["event"]["provider_event_id"].as_str().unwrap().to_owned()
}

fn outcomes(event: &Value) -> Vec<&str> {
    let attempts = event["attempts"].as_array().unwrap();
    attempts
        .iter()
        .map(|attempt| attempt["outcome"].as_str().unwrap())
        .collect()
}

async fn two_consumers_share_the_work_and_one_may_die(store: TestStore) {
    const EVENTS: usize = 120;
    let server = setup(&store, "3s", "").start().await;
    for n in 0..EVENTS {
        server.stripe(&format!("evt_{n}")).await;
    }
    // One takes some and is never heard of again.
    let lost = pull(&server, "max=20").await;
    assert_eq!(lost.len(), 20);
    let consumer = async |name: &str| {
        let mut seen: Vec<(String, String, u64)> = Vec::new();
        loop {
            let some = pull(&server, "max=7&wait=10s").await;
            if some.is_empty() {
                return seen;
            }
            let results: Vec<Value> = some
                .iter()
                .map(|delivery| json!({"token": delivery["token"], "outcome": "done", "detail": name}))
                .collect();
            assert!(
                settled(&server, results.into())
                    .await
                    .iter()
                    .all(|result| result == "done")
            );
            seen.extend(some.iter().map(|delivery| {
                let token = delivery["token"].as_str().unwrap().to_owned();
                (id(delivery), token, delivery["attempt"].as_u64().unwrap())
            }));
        }
    };
    let (one, two) = tokio::join!(consumer("one"), consumer("two"));
    let mut attempts: HashMap<String, u64> = HashMap::new();
    let mut tokens = std::collections::HashSet::new();
    for (id, token, attempt) in one.into_iter().chain(two) {
        assert!(tokens.insert(token), "a token was given twice");
        assert!(attempts.insert(id, attempt).is_none(), "a delivery was given twice");
    }
    assert_eq!(attempts.len(), EVENTS);
    let again: Vec<String> = lost.iter().map(id).collect();
    for (id, attempt) in attempts {
        assert_eq!(attempt, 1 + u64::from(again.contains(&id)), "{id}");
    }
    let event = server.event("stripe", &again[0]).await;
    assert_eq!(
        (&event["status"], outcomes(&event)),
        (&"done".into(), vec!["lost", "done"])
    );
    // The late consumer is told so, for each.
    let late: Vec<Value> = lost
        .iter()
        .map(|delivery| json!({"token": delivery["token"], "outcome": "done"}))
        .collect();
    assert!(
        settled(&server, late.into())
            .await
            .iter()
            .all(|result| result == "stale")
    );
    assert_eq!(store.number("select count(*) from deliveries").await, 0);
}

async fn a_waiting_consumer_is_served_at_once_and_an_idle_one_is_told_so(store: TestStore) {
    let server = setup(&store, "30s", "").start().await;
    assert!(pull(&server, "").await.is_empty());
    assert!(pull(&server, "wait=100ms").await.is_empty());
    let (served, ()) = tokio::join!(pull(&server, "wait=60s"), async {
        server.stripe("evt_1").await;
    });
    let delivery = &served[0];
    assert_eq!((served.len(), id(delivery)), (1, "evt_1".to_owned()));
    assert_eq!(delivery["attempt"], 1);
    assert_eq!(delivery["idempotency_key"], "stripe:evt_1:work");
    assert_eq!(delivery["event"]["event_type"], "payment_intent.succeeded");
    assert_eq!(delivery["event"]["adapter"], "stripe");
    let payload = base64::Engine::decode(
        &base64::engine::general_purpose::STANDARD,
        delivery["payload"].as_str().unwrap(),
    );
    assert_eq!(payload.unwrap(), stripe_body("evt_1"));
    // A waiting consumer does not hold up the end of the server.
    let waiting = server
        .client
        .get(format!("http://{}/api/v1/pull/work?wait=60s", server.admin()));
    let waiting = tokio::spawn(async move { waiting.send().await });
    tokio::time::timeout(Duration::from_secs(30), server.stop())
        .await
        .unwrap();
    drop(waiting.await);
}

async fn each_result_has_an_answer_and_the_same_again_is_answered_alike(store: TestStore) {
    let server = setup(&store, "60s", "").start().await;
    for n in 0..4 {
        server.stripe(&format!("evt_{n}")).await;
    }
    let some = pull(&server, "").await;
    let token = |n: usize| some[n]["token"].clone();
    let results = json!([
        {"token": token(0), "outcome": "done"},
        {"token": token(1), "outcome": "retry", "after": "1h", "detail": "busy"},
        {"token": token(2), "outcome": "dead", "detail": "no such order"},
        {"token": "nonsense", "outcome": "done"},
    ]);
    for _ in 0..2 {
        assert_eq!(
            settled(&server, results.clone()).await,
            ["done", "retry", "dead", "invalid"]
        );
    }
    // Another word about the same attempt changes nothing.
    let other = json!([{"token": token(0), "outcome": "dead"}, {"token": token(3), "outcome": "done"}]);
    assert_eq!(settled(&server, other).await, ["stale", "done"]);
    let dead = server.event("stripe", &id(&some[2])).await;
    assert_eq!((&dead["status"], outcomes(&dead)), (&"failed".into(), vec!["dead"]));
    assert_eq!(dead["attempts"][0]["detail"], "no such order");
    let later = server.event("stripe", &id(&some[1])).await;
    assert_eq!(later["deliveries"][0]["last_error"], "busy");
    assert!(pull(&server, "").await.is_empty());
    // A dead one comes back like any other.
    let reprocess = format!("/api/v1/events/stripe/{}/reprocess", id(&some[2]));
    assert_eq!(server.post(&reprocess, &json!({})).await.status, 200);
    let again = pull(&server, "wait=30s").await;
    assert_eq!((id(&again[0]), &again[0]["attempt"]), (id(&some[2]), &1.into()));
}

async fn a_retry_waits_as_long_as_was_asked_and_the_last_attempt_is_the_last(store: TestStore) {
    let retry = "retry = { attempts = 3, base = \"100ms\", cap = \"200ms\" }";
    let server = setup(&store, "60s", retry).start().await;
    server.stripe("evt_1").await;
    for (attempt, result) in [(1, "retry"), (2, "retry"), (3, "dead")] {
        let some = pull(&server, "wait=30s").await;
        assert_eq!((some.len(), &some[0]["attempt"]), (1, &attempt.into()));
        let mut asked = json!({"token": some[0]["token"], "outcome": "retry"});
        if attempt == 2 {
            asked["after"] = "10ms".into();
        }
        assert_eq!(settled(&server, json!([asked])).await, [result]);
    }
    let event = server.event("stripe", "evt_1").await;
    assert_eq!(
        (&event["status"], outcomes(&event)),
        (&"failed".into(), vec!["retry", "retry", "dead"])
    );
    // So is one that nobody speaks of: the lease of the last attempt ends in death, not in limbo.
    store.execute("delete from deliveries").await;
    let server_2 = {
        server.stop().await;
        setup(
            &store,
            "1s",
            "retry = { attempts = 1, base = \"100ms\", cap = \"200ms\" }",
        )
        .start()
        .await
    };
    server_2.stripe("evt_2").await;
    assert_eq!(pull(&server_2, "wait=30s").await.len(), 1);
    let event = server_2.wait_for("stripe", "evt_2", "failed").await;
    assert_eq!(outcomes(&event), ["lost"]);
}

async fn a_lease_is_extended_while_its_consumer_says_so(store: TestStore) {
    let server = setup(&store, "2s", "").start().await;
    server.stripe("evt_1").await;
    let some = pull(&server, "wait=30s").await;
    let extend = json!([{"token": some[0]["token"], "outcome": "extend", "after": "10m"}]);
    assert_eq!(settled(&server, extend.clone()).await, ["extended"]);
    // Longer than the lease was.
    assert!(pull(&server, "wait=6s").await.is_empty());
    let done = json!([{"token": some[0]["token"], "outcome": "done"}]);
    assert_eq!(settled(&server, done).await, ["done"]);
    assert_eq!(settled(&server, extend).await, ["stale"]);
    let event = server.event("stripe", "evt_1").await;
    assert_eq!(outcomes(&event), ["done"]);
}

async fn a_consumer_that_hangs_up_holds_nothing(store: TestStore) {
    let server = setup(&store, "10m", "").start().await;
    for _ in 0..5 {
        let url = format!("http://{}/api/v1/pull/work?wait=60s", server.admin());
        let impatient = server.client.get(url).timeout(Duration::from_millis(300));
        assert!(impatient.send().await.is_err());
    }
    server.stripe("evt_1").await;
    let mut some = Vec::new();
    wait_until("another consumer gets it", async || {
        some = pull(&server, "wait=5s").await;
        !some.is_empty()
    })
    .await;
    assert_eq!(some[0]["attempt"], 1);
}

async fn what_cannot_be_meant_is_refused(store: TestStore) {
    let server = setup(&store, "30s", "")
        .http("other", "http://127.0.0.1:9/")
        .start()
        .await;
    server.stripe("evt_1").await;
    for path in [
        "work?max=0",
        "work?max=501",
        "work?wait=2m",
        "work?wait=x",
        "work?limit=1",
    ] {
        assert_eq!(server.get(&format!("/api/v1/pull/{path}")).await.status, 400, "{path}");
    }
    for path in ["other", "nobody", "nobody/settle"] {
        let status = server.get(&format!("/api/v1/pull/{path}")).await.status;
        assert!([404, 405].contains(&status), "{path}: {status}");
    }
    let some = pull(&server, "").await;
    let token = some[0]["token"].clone();
    for results in [
        json!([]),
        json!([{"token": token, "outcome": "maybe"}]),
        json!([{"token": token, "outcome": "retry", "after": "soon"}]),
        json!([{"token": token, "outcome": "done", "after": "1s"}]),
        json!([{"token": token, "outcome": "extend", "after": "100d"}]),
        json!([{"token": token, "outcome": "done", "note": "x"}]),
        json!([{"outcome": "done"}]),
    ] {
        assert_eq!(settle(&server, results.clone()).await.status, 400, "{results}");
    }
    // A page that a person looks at, and a question without an answer, take no work.
    let url = format!("http://{}/api/v1/pull/work", server.admin());
    let page = server
        .client
        .get(&url)
        .header("Sec-Fetch-Mode", "navigate")
        .send()
        .await
        .unwrap();
    assert_eq!(page.status(), 403);
    assert_eq!(server.client.head(&url).send().await.unwrap().status(), 405);
    assert_eq!(
        settled(&server, json!([{"token": token, "outcome": "done"}])).await,
        ["done"]
    );
}
