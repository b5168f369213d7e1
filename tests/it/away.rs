//! A target that is away: it is left alone, and what waits for it loses no attempt.

use std::time::Duration;

use serde_json::json;

use crate::support::{Answer, Asleep, Setup, Sink, TestStore, on_both_stores, wait_until};

on_both_stores!(
    a_dead_target_eats_no_attempts_and_is_seen_by_its_breaker,
    each_handler_says_how_its_breaker_stands,
    a_path_that_hangs_does_not_keep_the_others_of_its_host,
);

async fn a_dead_target_eats_no_attempts_and_is_seen_by_its_breaker(store: TestStore) {
    const EVENTS: usize = 20;
    let (asleep, other) = (Asleep::new(), Sink::start().await);
    let handler = |name: &str, url: &str| {
        format!(
            "[[handler]]\nname = \"{name}\"\nevents = [\"*\"]\nkind = \"http\"\nurl = \"{url}\"\nconcurrency = 1\n\
             breaker = {{ failures = 2, pause = \"400ms\" }}\n\
             retry = {{ attempts = 10, base = \"1s\", cap = \"1s\" }}\n"
        )
    };
    let server = Setup::new(&store)
        .with(&handler("away", &asleep.url()))
        .with(&handler("there", &other.url()))
        .start()
        .await;
    for n in 0..EVENTS {
        server.stripe(&format!("evt_{n}")).await;
    }
    let metric = async |handler: &str| {
        let metrics = server.get("/metrics").await.text();
        let of_breaker = format!("cerca_breaker_state{{handler=\"{handler}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&of_breaker));
        line.map(str::to_owned)
    };
    wait_until("the breaker is open", async || {
        metric("away").await.as_deref() == Some("2")
    })
    .await;
    assert_eq!(metric("there").await.as_deref(), Some("0"));
    wait_until("the other target has everything", async || other.count() == EVENTS).await;
    wait_until("it was looked whether the target is back", async || {
        store
            .number("select count(*) from attempts where handler = 'away'")
            .await
            >= 4
    })
    .await;
    assert!(server.log().contains("a target does not answer"), "{}", server.log());

    let sink = asleep.wake();
    for n in 0..EVENTS {
        server.wait_for("stripe", &format!("evt_{n}"), "done").await;
    }
    assert_eq!(sink.count(), EVENTS);
    wait_until("the breaker is closed", async || {
        metric("away").await.as_deref() == Some("0")
    })
    .await;
}

async fn each_handler_says_how_its_breaker_stands(store: TestStore) {
    let (asleep, other) = (Asleep::new(), Sink::start().await);
    let away = format!(
        "[[handler]]\nname = \"away\"\nevents = [\"*\"]\nkind = \"http\"\nurl = \"{}\"\n\
         breaker = {{ failures = 1, pause = \"1h\" }}\n",
        asleep.url()
    );
    let server = Setup::new(&store)
        .http("there", &other.url())
        .with(&away)
        .exec("program", "exit 0", "")
        .start()
        .await;
    let words = |stats: &serde_json::Value| {
        let rows = stats["handlers"].as_array().unwrap().clone();
        let word = |row: serde_json::Value| (row["handler"].clone(), row["breaker"].clone());
        rows.into_iter().map(word).collect::<Vec<_>>()
    };
    let expected = |away: &str| {
        [
            (json!("away"), json!(away)),
            (json!("program"), json!(null)),
            (json!("there"), json!("closed")),
        ]
    };
    let stats = async || server.get("/api/v1/stats").await.json();
    assert_eq!(words(&stats().await), expected("closed"));
    server.stripe("evt_1").await;
    wait_until("the breaker is open", async || {
        words(&stats().await) == expected("open")
    })
    .await;

    let page = server.get("/").await.text();
    assert!(page.contains("<span class=\"bad\">open</span>"), "{page}");
    let told = server.cli_at_server(&["stats", "--json"]);
    assert_eq!(words(&serde_json::from_slice(&told.stdout).unwrap()), expected("open"));
    let table = String::from_utf8(server.cli_at_server(&["stats"]).stdout).unwrap();
    let row = table.lines().find(|line| line.starts_with("away")).unwrap();
    assert!(row.ends_with("open"), "{table}");
    // Nobody answers at the address of the configuration, which is port 0.
    let told = server.cli(&["stats", "--json"]);
    assert!(told.status.success());
    assert_eq!(words(&serde_json::from_slice(&told.stdout).unwrap())[0].1, json!(null));
}

/// A path that hangs is its handler's own affair, whatever else is at that host.
async fn a_path_that_hangs_does_not_keep_the_others_of_its_host(store: TestStore) {
    let host = Sink::with(|request, _| {
        let hangs = request.line.contains("/slow ");
        Answer::status(200).after(Duration::from_secs(if hangs { 600 } else { 0 }))
    })
    .await;
    let handler = |name: &str, more: &str| {
        format!(
            "[[handler]]\nname = \"{name}\"\nevents = [\"*\"]\nkind = \"http\"\nurl = \"{}/{name}\"\n{more}\n",
            host.url()
        )
    };
    let hanging = "timeout = \"300ms\"\nbreaker = { failures = 1, pause = \"1h\" }";
    let server = Setup::new(&store)
        .with(&handler("slow", hanging))
        .with(&handler("quick", "breaker = { failures = 1, pause = \"1h\" }"))
        .start()
        .await;
    server.stripe("evt_1").await;
    wait_until("the breaker of the hanging path is open", async || {
        server
            .get("/metrics")
            .await
            .text()
            .contains("cerca_breaker_state{handler=\"slow\"} 2")
    })
    .await;
    for n in 2..12 {
        server.stripe(&format!("evt_{n}")).await;
    }
    let quick = async || {
        let of_quick = "select count(*) from attempts where handler = 'quick' and outcome = 'done'";
        store.number(of_quick).await
    };
    wait_until("the other path has everything", async || quick().await == 11).await;
}
