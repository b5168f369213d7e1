//! Events of one's own: rows that an application writes in its own transaction, and events published through the API.

use std::{collections::HashSet, time::Duration};

use crate::support::{Engine, Reply, Server, Setup, Sink, TestStore, on_both_stores, run, wait_until};

on_both_stores!(
    a_row_of_an_application_is_delivered,
    a_sql_handler_reaches_the_world_through_the_outbox,
    nothing_is_lost_or_doubled_when_the_server_is_killed,
    an_event_is_published_once_under_its_key,
);

fn rows(from: usize, to: usize) -> String {
    let rows: Vec<String> = (from..to)
        .map(|n| format!("('order-{n}', 'order.paid', '{{\"id\":\"order-{n}\"}}')"))
        .collect();
    format!(
        "insert into outbox (idempotency_key, topic, payload) values {}",
        rows.join(", ")
    )
}

fn http(name: &str, events: &str, sink: &Sink) -> String {
    format!(
        "[[handler]]\nname = \"{name}\"\nevents = [\"{events}\"]\nkind = \"http\"\nurl = \"{}\"\n\
         retry = {{ attempts = 50, base = \"50ms\", cap = \"200ms\" }}\n",
        sink.url()
    )
}

async fn a_row_of_an_application_is_delivered(store: TestStore) {
    let sink = Sink::start().await;
    let server = Setup::new(&store)
        .with(&http("mail", "outbox:order.*", &sink))
        .start()
        .await;
    store.execute(&rows(0, 1)).await;
    server.wait_for("outbox", "order-0", "done").await;
    let received = &sink.received()[0];
    assert_eq!(received.body, br#"{"id":"order-0"}"#);
    assert_eq!(received.header("idempotency-key"), "outbox:order-0:mail");
    assert_eq!(received.header("content-type"), "application/json");
    assert_eq!(received.header("cerca-event-type"), "order.paid");
    assert_eq!(store.number("select count(*) from outbox").await, 0);
    let metrics = server.get("/metrics").await.text();
    for line in [
        "cerca_outbox_relayed_total{outcome=\"stored\"} 1",
        "cerca_outbox_rows{state=\"waiting\"} 0",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

async fn a_sql_handler_reaches_the_world_through_the_outbox(store: TestStore) {
    let sink = Sink::answering(&[500]).await;
    let server = Setup::new(&store)
        .with(
            "[[handler]]\nname = \"intent\"\nevents = [\"stripe:*\"]\nkind = \"sql\"\n\
             statement = \"insert into outbox (idempotency_key, topic, payload) values ($1, 'receipt', $2)\"\n\
             params = [\"body:/id\", \"body:/data/object/id\"]\n",
        )
        .with(&http("mail", "outbox:receipt", &sink))
        .start()
        .await;
    for id in ["evt_1", "evt_2", "evt_1"] {
        server.stripe(id).await;
    }
    for id in ["evt_1", "evt_2"] {
        server.wait_for("outbox", id, "done").await;
    }
    let bodies: HashSet<Vec<u8>> = sink.received().into_iter().map(|received| received.body).collect();
    assert_eq!(bodies, HashSet::from([b"pi_evt_1".to_vec(), b"pi_evt_2".to_vec()]));
    // The first one was refused once.
    assert_eq!(sink.count(), 3);
}

async fn nothing_is_lost_or_doubled_when_the_server_is_killed(store: TestStore) {
    const ROWS: usize = 3_000;
    let sink = Sink::start().await;
    let setup = Setup::new(&store).with(&http("mail", "outbox:*", &sink));
    let server = setup.start().await;
    let writing = {
        let store = store.clone();
        tokio::spawn(async move {
            for from in (0..ROWS).step_by(100) {
                store.execute(&rows(from, from + 100)).await;
            }
        })
    };
    wait_until("some rows are relayed", async || {
        store.number("select count(*) from webhook_events").await > 200
    })
    .await;
    server.kill();
    writing.await.unwrap();
    let _server = setup.start().await;
    each_row_is_done_once(&store, ROWS as i64).await;
    let keys: HashSet<String> = sink
        .received()
        .iter()
        .map(|one| one.header("idempotency-key").to_owned())
        .collect();
    assert_eq!(keys.len(), ROWS);
}

async fn each_row_is_done_once(store: &TestStore, rows: i64) {
    let done = "select count(*) from attempts where outcome = 'done'";
    let deadline = tokio::time::Instant::now() + Duration::from_secs(240);
    while store.number(done).await < rows {
        assert!(
            tokio::time::Instant::now() < deadline,
            "rows of the outbox are not delivered"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for (sql, expected) in [
        (done, rows),
        (
            "select count(distinct event_id) from attempts where outcome = 'done'",
            rows,
        ),
        ("select count(*) from webhook_events", rows),
        ("select count(*) from outbox", 0),
        ("select count(*) from deliveries", 0),
        ("select count(*) from conflicts", 0),
    ] {
        assert_eq!(store.number(sql).await, expected, "{sql}");
    }
}

async fn publish(server: &Server, query: &str, key: Option<&str>, body: &'static str) -> Reply {
    let mut request = server
        .client
        .post(format!("http://{}/api/v1/events{query}", server.admin()))
        .header("Content-Type", "text/plain")
        .body(body);
    if let Some(key) = key {
        request = request.header("Idempotency-Key", key);
    }
    let response = request.send().await.unwrap();
    Reply {
        status: response.status().as_u16(),
        headers: response.headers().clone(),
        body: response.bytes().await.unwrap().to_vec(),
    }
}

async fn an_event_is_published_once_under_its_key(store: TestStore) {
    let sink = Sink::start().await;
    let server = Setup::new(&store)
        .with(&http("mail", "outbox:order.*", &sink))
        .start()
        .await;
    let first = publish(&server, "?type=order.paid", Some("a/1"), "hello").await;
    assert_eq!(first.status, 201, "{}", first.text());
    assert_eq!(first.header("location"), "/api/v1/events/outbox/a%2F1");
    assert_eq!(first.json()["duplicate"], false);
    let again = publish(&server, "?type=order.paid", Some("\"a/1\""), "hello").await;
    assert_eq!((again.status, &again.json()["duplicate"]), (200, &true.into()));
    let other = publish(&server, "?type=order.paid", Some("a/1"), "goodbye").await;
    assert_eq!(other.status, 422, "{}", other.text());
    for (query, named) in [
        ("?type=order.lost", "another `type`"),
        ("?type=order.paid&ordering_key=7", "another `ordering_key`"),
    ] {
        let other = publish(&server, query, Some("a/1"), "hello").await;
        assert_eq!(other.status, 422, "{}", other.text());
        assert!(other.text().contains(named), "{}", other.text());
    }
    server.wait_for("outbox", "a/1", "done").await;
    assert_eq!(server.event("outbox", "a/1").await["conflicts"], 1);
    assert_eq!((sink.count(), sink.received()[0].body.clone()), (1, b"hello".to_vec()));
    assert_eq!(sink.received()[0].header("content-type"), "text/plain");
    // The outbox and the API share their keys.
    store
        .execute("insert into outbox (idempotency_key, topic, payload) values ('a/1', 'order.paid', 'hello')")
        .await;
    wait_until("the row is a duplicate", async || {
        store.number("select count(*) from outbox").await == 0
    })
    .await;
    assert_eq!(store.number("select count(*) from webhook_events").await, 1);

    for (query, key, named) in [
        ("?type=order.paid", None, "Idempotency-Key is required"),
        ("?type=order.paid", Some("\"open"), "printable"),
        ("", Some("k"), "`type` is required"),
        ("?type=", Some("k"), "topic"),
        ("?type=a&type=b", Some("k"), "twice"),
        ("?kind=a", Some("k"), "kind"),
    ] {
        let refused = publish(&server, query, key, "x").await;
        assert_eq!(refused.status, 400, "{query}");
        assert!(refused.text().contains(named), "{named}: {}", refused.text());
    }
    assert_eq!(store.number("select count(*) from webhook_events").await, 1);
}

/// Replicas relay in turns; every row becomes one event.
#[test]
fn two_replicas_make_one_event_of_each_row() {
    run(Engine::Postgres, async |store: TestStore| {
        let sink = Sink::start().await;
        let setup = Setup::new(&store).with(&http("mail", "outbox:*", &sink));
        let _one = setup.start().await;
        let _two = setup.start().await;
        for from in (0..4_000).step_by(200) {
            store.execute(&rows(from, from + 200)).await;
        }
        each_row_is_done_once(&store, 4_000).await;
    });
}
