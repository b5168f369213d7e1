//! Long jobs of people: reprocessing at a rate and after a crash, shadow runs, export.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::{Answer, Asleep, Setup, Signal, Sink, TestStore, on_both_stores, stripe, stripe_body, wait_until};

on_both_stores!(
    reprocessing_goes_on_after_a_crash_and_repeats_nothing,
    the_api_reprocesses_as_a_job,
    a_shadow_run_shows_what_would_differ_and_changes_nothing,
    an_export_holds_every_event_with_its_bytes,
    who_did_what_is_shown,
);

fn lines(output: &std::process::Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{output:?}"));
    text.lines().map(read).collect()
}

/// How often each event arrived.
fn arrivals(sink: &Sink) -> BTreeMap<String, usize> {
    let mut count = BTreeMap::new();
    for received in sink.received() {
        *count.entry(received.header("cerca-event-id").to_owned()).or_default() += 1;
    }
    count
}

async fn reprocessing_goes_on_after_a_crash_and_repeats_nothing(store: TestStore) {
    const EVENTS: usize = 40;
    // Given up at first, taken after that.
    let sink = Sink::with(|_, n| Answer::status(if n < EVENTS { 410 } else { 200 })).await;
    let server = Setup::new(&store)
        .lease("60s")
        .http("forward", &sink.url())
        .start()
        .await;
    for n in 0..EVENTS {
        server.stripe(&format!("evt_{n}")).await;
    }
    wait_until("all are dead", async || {
        store
            .number("select count(*) from deliveries where state = 'dead'")
            .await
            == 40
    })
    .await;

    let arguments = [
        "events",
        "reprocess",
        "--status",
        "failed",
        "--yes",
        "--rate",
        "10/s",
        "--reason",
        "fixed",
    ];
    let mut cut = server.start_cli(&arguments);
    let mut job = Value::Null;
    wait_until("it is in the middle", async || {
        job = server.get("/api/v1/jobs").await.json()["jobs"][0].clone();
        job["events"].as_u64().is_some_and(|events| events >= 4)
    })
    .await;
    Signal::Kill.send(cut.id());
    cut.wait().unwrap();
    let id = job["id"].to_string();
    let job = server.get(&format!("/api/v1/jobs/{id}")).await.json();
    assert!(job["events"].as_u64().unwrap() < 40, "it was cut in the middle: {job}");
    assert_eq!(
        (&job["state"], &job["reason"], &job["total"]),
        (&json!("running"), &json!("fixed"), &json!(40))
    );

    let output = server.cli(&["events", "reprocess", "--resume", &id, "--json"]);
    assert!(output.status.success(), "{output:?}");
    let done = lines(&output).remove(0);
    assert_eq!(
        (&done["events"], &done["deliveries"], &done["state"]),
        (&json!(40), &json!(40), &json!("done"))
    );
    wait_until("all have had their effect", async || sink.count() >= 2 * EVENTS).await;
    let count = arrivals(&sink);
    assert_eq!(count.len(), EVENTS);
    assert!(count.values().all(|times| *times == 2), "{count:?}");
    // One line of the audit for all of it.
    let audit = "select count(*) from audit where action = 'reprocess' and reason = 'fixed' and deliveries = 40";
    assert_eq!(store.number(audit).await, 1);
    let again = server.cli(&["events", "reprocess", "--resume", &id, "--json"]);
    assert!(
        again.status.success() && lines(&again)[0]["deliveries"] == 40,
        "{again:?}"
    );
    assert_eq!(
        server.cli(&["events", "reprocess", "--resume", "999"]).status.code(),
        Some(1)
    );
}

async fn the_api_reprocesses_as_a_job(store: TestStore) {
    let sink = Sink::with(|_, n| Answer::status(if n < 6 { 410 } else { 200 })).await;
    let server = Setup::new(&store)
        .lease("60s")
        .http("forward", &sink.url())
        .start()
        .await;
    for n in 0..6 {
        server.stripe(&format!("evt_{n}")).await;
    }
    wait_until("all are dead", async || {
        store
            .number("select count(*) from deliveries where state = 'dead'")
            .await
            == 6
    })
    .await;
    let asked = json!({"status": "failed", "rate": "50/s", "reason": "again"});
    let reply = server.post("/api/v1/events/reprocess", &asked).await;
    assert_eq!(reply.status, 202, "{}", reply.text());
    let id = reply.json()["job"]["id"].to_string();
    wait_until("the job is done", async || {
        server.get(&format!("/api/v1/jobs/{id}")).await.json()["state"] == "done"
    })
    .await;
    let job = server.get(&format!("/api/v1/jobs/{id}")).await.json();
    assert_eq!(
        (&job["deliveries"], &job["actor"], &job["rate"]),
        (&json!(6), &json!("api"), &json!("50/s")),
        "{job}"
    );
    wait_until("all have had their effect", async || sink.count() == 12).await;
    for rate in [json!(0), json!("0/s"), json!("5/m"), json!(1.5), json!([1])] {
        let asked = json!({"status": "failed", "rate": rate});
        let wrong = server.post("/api/v1/events/reprocess", &asked).await;
        assert_eq!(wrong.status, 400, "{rate}");
        assert!(wrong.text().contains("100/s"), "{rate}: {}", wrong.text());
    }
    assert_eq!(server.get("/api/v1/jobs/77").await.status, 404);
    let stopped = server.post(&format!("/api/v1/jobs/{id}/stop"), &json!({})).await;
    assert_eq!(stopped.json()["state"], "done", "what is done stays done");
}

async fn a_shadow_run_shows_what_would_differ_and_changes_nothing(store: TestStore) {
    let real = Sink::with(|request, _| {
        let is_bad = request.header("cerca-event-id") == "evt_1";
        Answer::status(if is_bad { 410 } else { 200 })
    })
    .await;
    // The new version takes evt_1 and breaks on evt_2.
    let next = Sink::with(|request, _| {
        let is_bad = request.header("cerca-event-id") == "evt_2";
        Answer::status(if is_bad { 500 } else { 200 })
    })
    .await;
    let setup = Setup::new(&store)
        .lease("60s")
        .http("forward", &real.url())
        .with("breaker = { failures = 1, pause = \"1h\" }")
        .sql("write");
    let setup = setup.exec("program", "true", "");
    let server = setup.start().await;
    server.create_effects().await;
    for n in 1..=3 {
        server.stripe(&format!("evt_{n}")).await;
    }
    wait_until("everything is settled", async || {
        store
            .number("select count(*) from deliveries where state <> 'dead'")
            .await
            == 0
    })
    .await;
    let state = async || {
        let mut counts = Vec::new();
        for table in ["deliveries", "attempts", "effects", "audit"] {
            counts.push(store.number(&format!("select count(*) from {table}")).await);
        }
        counts
    };
    let before = state().await;

    let output = server.cli(&["events", "shadow", "forward", "--url", &next.url(), "--json"]);
    assert_eq!(output.status.code(), Some(1), "one is worse: {output:?}");
    let said = lines(&output);
    let verdicts: BTreeMap<&str, &str> = said[..3]
        .iter()
        .map(|line| {
            (
                line["provider_event_id"].as_str().unwrap(),
                line["verdict"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        verdicts,
        BTreeMap::from([("evt_1", "better"), ("evt_2", "worse"), ("evt_3", "same")])
    );

    let nobody = Asleep::new();
    let output = server.cli(&["events", "shadow", "forward", "--url", &nobody.url(), "--json"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.matches("tcp connect error").count(), 3, "each was tried: {text}");
    let worse = said.iter().find(|line| line["verdict"] == "worse").unwrap();
    assert_eq!(
        (&worse["then"]["outcome"], &worse["now"]["status"]),
        (&json!("done"), &json!(500)),
        "{worse}"
    );
    let better = said.iter().find(|line| line["verdict"] == "better").unwrap();
    assert_eq!(
        (&better["then"]["outcome"], &better["then"]["status"]),
        (&json!("dead"), &json!(410))
    );
    assert_eq!((&said[3]["events"], &said[3]["worse"]), (&json!(3), &json!(1)));
    assert!(
        next.received()
            .iter()
            .all(|request| request.header("cerca-shadow") == "1")
    );
    assert_eq!((next.count(), real.count()), (3, 3), "nothing goes to the real target");

    let output = server.cli(&["events", "shadow", "write", "--json"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(lines(&output)[3]["same"], 3);
    assert_eq!(state().await, before, "a statement is undone, and nothing else changes");

    for (handler, said) in [
        ("forward", "--url"),
        ("program", "--command"),
        ("frward", "did you mean forward?"),
    ] {
        let output = server.cli(&["events", "shadow", handler]);
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains(said), "{output:?}");
    }
    let output = server.cli(&["events", "shadow", "program", "--json", "--command", "/bin/false"]);
    assert_eq!(lines(&output)[3]["worse"], 3, "{output:?}");
}

async fn an_export_holds_every_event_with_its_bytes(store: TestStore) {
    let server = Setup::new(&store).start().await;
    let mut bodies: Vec<(String, Vec<u8>)> = Vec::new();
    for n in 0..5 {
        bodies.push((format!("evt_{n}"), stripe_body(&format!("evt_{n}"))));
    }
    // Over two lines, with digits that no double holds; and one that is no text.
    bodies.push((
        "evt_digits".into(),
        b"{\n\"id\":\"evt_digits\",\"n\":12345678901234567890.10}".to_vec(),
    ));
    bodies.push(("evt_raw".into(), b"{\"id\":\"evt_raw\",\"x\":\"\xff\"}".to_vec()));
    for (_, body) in &bodies {
        assert_eq!(server.send("stripe", stripe(body), body.clone()).await.status, 200);
    }
    let output = server.cli(&["events", "export", "--payload", "base64"]);
    assert!(output.status.success(), "{output:?}");
    let all = lines(&output);
    let decode = |line: &Value| {
        use base64::{Engine as _, prelude::BASE64_STANDARD};
        BASE64_STANDARD
            .decode(line["payload_base64"].as_str().unwrap())
            .unwrap()
    };
    let ids: Vec<&str> = all
        .iter()
        .rev()
        .map(|line| line["provider_event_id"].as_str().unwrap())
        .collect();
    let expected: Vec<&str> = bodies.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, expected);
    assert!(
        all.iter()
            .rev()
            .zip(&bodies)
            .all(|(line, (_, body))| decode(line) == *body)
    );

    // In two parts, as JSON.
    let first = server.cli(&["events", "export", "--limit", "3"]);
    let last = lines(&first)[2]["id"].to_string();
    let second = server.cli(&["events", "export", "--after", &last]);
    let text = String::from_utf8([first.stdout, second.stdout].concat()).unwrap();
    assert_eq!(text.lines().count(), bodies.len());
    assert!(text.contains("\"n\":12345678901234567890.10"), "{text}");
    let raw = text.lines().find(|line| line.contains("evt_raw")).unwrap();
    assert!(raw.contains("payload_base64"), "{raw}");
    let filtered = server.cli(&["events", "export", "--payload", "none", "--q", "evt_1"]);
    assert_eq!(lines(&filtered).len(), 1);
}

async fn who_did_what_is_shown(store: TestStore) {
    let server = Setup::new(&store).start().await;
    server.stripe("evt_1").await;
    for (what, reason) in [
        ("reprocess", "one"),
        ("discard", "two\u{1b}[31m"),
        ("reprocess", "three"),
    ] {
        let path = format!("/api/v1/events/stripe/evt_1/{what}");
        assert_eq!(server.post(&path, &json!({"reason": reason})).await.status, 200);
    }
    let done = server.cli(&["events", "discard", "stripe", "evt_1", "--reason", "four"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));

    let page = server.get("/api/v1/audit?limit=3").await.json();
    let reasons = |page: &Value| -> Vec<String> {
        let rows = page["audit"].as_array().unwrap();
        rows.iter()
            .map(|row| row["reason"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(reasons(&page), ["four", "three", "two\u{1b}[31m"]);
    let newest = &page["audit"][0];
    assert_eq!(
        (&newest["actor"], &newest["action"], &newest["target"]),
        (&json!("cli"), &json!("discard"), &json!("stripe:evt_1"))
    );
    assert!(newest["at"].as_str().unwrap().starts_with("20"));
    let next = page["next"].as_str().unwrap();
    let rest = server.get(&format!("/api/v1/audit?limit=3&cursor={next}")).await.json();
    assert_eq!((reasons(&rest), &rest["next"]), (vec!["one".to_owned()], &Value::Null));
    let of_one = server.get("/api/v1/audit?actor=api&action=reprocess").await.json();
    assert_eq!(reasons(&of_one), ["three", "one"]);
    for bad in ["limit=0", "actr=x", "cursor=1", "actor=%00"] {
        assert_eq!(server.get(&format!("/api/v1/audit?{bad}")).await.status, 400, "{bad}");
    }

    let listed = lines(&server.cli(&["audit", "--json", "--actor", "api", "--limit", "2"]));
    assert_eq!(listed.len(), 2);
    assert_eq!(
        (&listed[0]["reason"], &listed[1]["action"]),
        (&json!("three"), &json!("discard"))
    );
    let table = server.cli(&["audit"]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("stripe:evt_1") && table.contains("four"), "{table}");
    assert!(!table.contains('\u{1b}'), "{table}");
    let page = server.get("/audit?action=discard").await.text();
    assert!(page.contains("four") && !page.contains("three"), "{page}");
}
