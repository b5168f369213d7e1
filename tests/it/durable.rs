//! What was acknowledged is on disk and gets its effect, whatever happens to the process.

use std::collections::{HashMap, HashSet};

use crate::support::{
    Engine, Load, Server, Setup, Signal, Sink, TestStore, cerca, on_both_stores, run, stripe, stripe_body, wait_until,
};

on_both_stores!(
    what_was_acknowledged_survives_sigkill_and_has_its_effects,
    a_graceful_stop_under_load_loses_nothing,
    an_event_that_no_handler_wants_is_kept_and_can_be_processed_later,
    an_event_that_its_handler_cannot_read_is_a_visible_failure,
);

/// L1, L2, L4, L12
async fn what_was_acknowledged_survives_sigkill_and_has_its_effects(store: TestStore) {
    let sink = Sink::start().await;
    let setup = Setup::new(&store)
        .lease("1s")
        .http("forward", &sink.url())
        .sql("ledger");
    let server = setup.start().await;
    server.create_effects().await;

    let load = Load::start(&server, "evt", 16);
    load.reaches(150).await;
    server.kill();
    let acknowledged = load.stop().await;

    let server = setup.start().await;
    everything_is_done(&store).await;
    has_its_effects(&store, &server, &sink, &acknowledged).await;
}

/// W6, G12
async fn a_graceful_stop_under_load_loses_nothing(store: TestStore) {
    let sink = Sink::start().await;
    let setup = Setup::new(&store).http("forward", &sink.url()).sql("ledger");
    let server = setup.start().await;
    server.create_effects().await;

    let load = Load::start(&server, "evt", 16);
    load.reaches(150).await;
    let status = server.stop().await;
    assert!(status.success(), "{status}");
    let acknowledged = load.stop().await;

    // What was claimed at the time has been given back: no lease has to run out, and no attempt is lost.
    assert_eq!(
        store
            .number("select count(*) from deliveries where state = 'claimed'")
            .await,
        0
    );
    let server = setup.start().await;
    everything_is_done(&store).await;
    has_its_effects(&store, &server, &sink, &acknowledged).await;
    assert_eq!(
        store
            .number("select count(*) from attempts where outcome = 'lost'")
            .await,
        0
    );
}

/// L5, L8, G8
async fn an_event_that_no_handler_wants_is_kept_and_can_be_processed_later(store: TestStore) {
    let sink = Sink::start().await;
    let only_invoices = |events: &str| {
        format!(
            "[[handler]]\nname = \"forward\"\nevents = [\"{events}\"]\nkind = \"http\"\nurl = \"{}\"",
            sink.url()
        )
    };
    let server = Setup::new(&store)
        .with(&only_invoices("stripe:invoice.*"))
        .start()
        .await;
    server.stripe("evt_1").await;
    assert_eq!(server.event("stripe", "evt_1").await["status"], "unrouted");
    let page = server.get("/api/v1/events?status=unrouted").await.json();
    assert_eq!(page["events"].as_array().unwrap().len(), 1, "{page}");
    assert!(server.stop().await.success());

    let server = Setup::new(&store).with(&only_invoices("stripe:*")).start().await;
    let reply = server
        .post(
            "/api/v1/events/stripe/evt_1/reprocess",
            &serde_json::json!({"handlers": ["forward"]}),
        )
        .await;
    assert!((200..300).contains(&reply.status), "{}", reply.text());
    server.wait_for("stripe", "evt_1", "done").await;
    assert_eq!(sink.count(), 1);
}

/// L14: a strict reader of a loose sender loses nothing; it fails where people see it.
async fn an_event_that_its_handler_cannot_read_is_a_visible_failure(store: TestStore) {
    let server = Setup::new(&store)
        .with(
            r#"
[[handler]]
name = "strict"
events = ["*"]
kind = "sql"
statement = "insert into links (link) values ($1)"
params = ["body:/paymentLink"]
retry = { attempts = 2, base = "50ms", cap = "50ms" }
"#,
        )
        .start()
        .await;
    store.execute("create table links (link text not null)").await;
    server.github("guid-1", br#"{"paymentLink":null}"#).await;
    let event = server.wait_for("github", "guid-1", "failed").await;
    assert_eq!(event["deliveries"][0]["state"], "dead");
    assert!(event["deliveries"][0]["last_error"].is_string(), "{event}");
    assert_eq!(server.payload("github", "guid-1").await, br#"{"paymentLink":null}"#);
}

/// A process that is told to stop while a handler works lets it finish.
#[test]
fn a_graceful_stop_waits_for_the_handler_at_work() {
    run(Engine::Sqlite, async |store: TestStore| {
        let sink =
            Sink::with(|_, _| crate::support::Answer::status(200).after(std::time::Duration::from_millis(700))).await;
        let setup = Setup::new(&store).http("forward", &sink.url());
        let server = setup.start().await;
        server.stripe("evt_1").await;
        wait_until("the handler is at work", async || sink.count() == 1).await;
        assert!(server.stop().await.success());
        let server = setup.start().await;
        let event = server.event("stripe", "evt_1").await;
        assert_eq!(event["status"], "done", "{event}");
        assert_eq!(sink.count(), 1);
    });
}

/// The second server on an address says so and exits; the first goes on.
#[test]
fn an_address_that_is_taken_is_a_failure_to_start() {
    run(Engine::Sqlite, async |store: TestStore| {
        let mut server = Setup::new(&store).start().await;
        let second = cerca()
            .args(["serve", "--config"])
            .arg(Setup::new(&store).write_config())
            .env("CERCA_SERVER__LISTEN", server.public().to_string())
            .output()
            .unwrap();
        assert!(!second.status.success());
        let told = String::from_utf8_lossy(&second.stderr).into_owned();
        assert!(told.contains(&server.public().to_string()), "{told}");
        assert!(server.is_running());
        server.stripe("evt_1").await;
        server.signal(Signal::Term);
        assert!(server.wait_for_exit().await.success());
    });
}

async fn everything_is_done(store: &TestStore) {
    wait_until("no delivery is left", async || {
        store.number("select count(*) from deliveries").await == 0
    })
    .await;
}

/// Every acknowledged event is there and done; the target in the store has one row for each, the one outside at least
/// one request, all under the same key.
async fn has_its_effects(store: &TestStore, server: &Server, sink: &Sink, acknowledged: &[String]) {
    let events = server.all_events("stripe").await;
    let statuses: HashMap<_, _> = events
        .iter()
        .map(|event| (event["provider_event_id"].as_str().unwrap(), &event["status"]))
        .collect();
    let mut keys: HashMap<String, HashSet<String>> = HashMap::new();
    for request in sink.received() {
        let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
        let id = body["id"].as_str().unwrap().to_owned();
        keys.entry(id)
            .or_default()
            .insert(request.header("idempotency-key").to_owned());
    }
    for id in acknowledged {
        assert_eq!(statuses.get(id.as_str()).copied(), Some(&"done".into()), "{id}");
        let key = format!("stripe:{id}:forward");
        assert_eq!(keys.get(id), Some(&HashSet::from([key])), "{id}");
    }
    let rows = i64::try_from(events.len()).unwrap();
    assert_eq!(store.number("select count(*) from webhook_events").await, rows);
    assert_eq!(store.number("select count(*) from effects").await, rows);
    assert_eq!(store.number("select count(distinct id) from effects").await, rows);
}

/// As a full disk does. Only SQLite writes files of its own.
#[cfg(target_os = "linux")]
#[test]
fn a_limit_on_files_turns_webhooks_away_and_kills_nothing() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};

    run(Engine::Sqlite, async |store: TestStore| {
        let mut server = Setup::new(&store).start().await;
        let pid = Pid::from_raw(server.pid().cast_signed());
        let limit = |bytes: Option<u64>| {
            let limit = Rlimit {
                current: bytes,
                maximum: None,
            };
            prlimit(pid, Resource::Fsize, limit).unwrap();
        };
        let send = async |n: usize| {
            let mut body = stripe_body(&format!("evt_{n}"));
            body.extend(vec![b' '; 60_000]);
            server.send("stripe", stripe(&body), body).await.status
        };
        limit(Some(1 << 20));
        let mut accepted = 0;
        let refused = loop {
            match send(accepted).await {
                200 => accepted += 1,
                status => break status,
            }
            assert!(accepted < 1_000, "the limit was never met");
        };
        assert_eq!(refused, 503);
        limit(None);
        wait_until("it takes webhooks again", async || send(accepted).await == 200).await;
        assert!(server.is_running());
        let stored = store.number("select count(*) from webhook_events").await;
        assert_eq!(usize::try_from(stored).unwrap(), accepted + 1);
    });
}
