//! What forms do, and which are refused.

use super::{Browser, audit, encoded, event_page};
use crate::support::{Answer, Setup, Sink, TestStore, now, on_both_stores, stripe_at, stripe_body, wait_until};

on_both_stores!(
    reprocess_and_discard_work_once_and_are_in_the_audit,
    forms_that_are_not_ours_are_refused,
    refused_requests_are_shown_without_what_proves_and_taken_in,
    all_that_match_are_reprocessed_as_a_job,
);

/// As a form names it.
const EVT_1: &str = "provider=stripe&id=evt_1";

async fn reprocess_and_discard_work_once_and_are_in_the_audit(store: TestStore) {
    let sink = Sink::with(|_, _| Answer::status(410)).await;
    let server = Setup::new(&store)
        .lease("60s")
        .http("forward", &sink.url())
        .start()
        .await;
    let browser = Browser::new(&server);
    let id = "evt/1&2 '<%2F\r\n\t\u{202e}..";
    let event = format!("provider=stripe&id={}", encoded(id));
    let path = event_page("stripe", id);
    server.stripe(id).await;
    server.wait_for("stripe", id, "failed").await;
    assert_eq!(sink.count(), 1);

    let form = browser.page(&path).await.form("/event/reprocess");
    let fields = [
        ("form", form.as_str()),
        ("event", event.as_str()),
        ("reason", " the ledger was down "),
    ];
    let done = browser.submit("/event/reprocess", &fields).await;
    assert_eq!(done.status, 303, "{}", done.html);
    assert_eq!(done.header("location"), format!("{path}&done=reprocessed&count=1"));
    browser
        .page(done.header("location"))
        .await
        .shows(&["1 delivery made ready"]);
    wait_until("it is tried again", async || sink.count() == 2).await;
    server.wait_for("stripe", id, "failed").await;
    // The same form again: a second click, or the browser's back and reload.
    let again = browser.submit("/event/reprocess", &fields).await;
    assert_eq!(again.header("location"), format!("{path}&done=again&count=0"));
    browser
        .page(again.header("location"))
        .await
        .shows(&["was done already"]);
    assert_eq!(audit(&store, "reprocess", "the ledger was down").await, 1);
    assert_eq!(sink.count(), 2);

    // A form that did nothing can be sent again.
    let form = browser.page(&path).await.form("/event/reprocess");
    let wrong = [
        ("form", form.as_str()),
        ("event", event.as_str()),
        ("handlers", "nobody"),
    ];
    let refused = browser.submit("/event/reprocess", &wrong).await;
    assert_eq!(refused.status, 400);
    refused.is_a_safe_page().shows(&["nobody"]);
    let right = [
        ("form", form.as_str()),
        ("event", event.as_str()),
        ("handlers", "forward"),
        ("reason", "two"),
    ];
    assert_eq!(browser.submit("/event/reprocess", &right).await.status, 303);
    wait_until("it is tried a third time", async || sink.count() == 3).await;
    server.wait_for("stripe", id, "failed").await;

    let form = browser.page(&path).await.form("/event/discard");
    let fields = [
        ("form", form.as_str()),
        ("event", event.as_str()),
        ("reason", "not ours"),
    ];
    let done = browser.submit("/event/discard", &fields).await;
    assert_eq!(done.header("location"), format!("{path}&done=discarded&count=1"));
    browser
        .page(done.header("location"))
        .await
        .shows(&["badge discarded", "1 delivery given up"]);
    assert_eq!(audit(&store, "discard", "not ours").await, 1);
    assert_eq!(store.number("select count(*) from audit").await, 3);
}

async fn forms_that_are_not_ours_are_refused(store: TestStore) {
    let server = Setup::new(&store).start().await;
    let browser = Browser::new(&server);
    server.stripe("evt_1").await;
    let page = browser.page(&event_page("stripe", "evt_1")).await;
    let form = page.form("/event/reprocess");
    let own = browser.base.clone();
    let fields = [("form", form.as_str()), ("event", EVT_1)];
    let mut changed = form.clone().into_bytes();
    changed[40] = if changed[40] == b'A' { b'B' } else { b'A' };
    let changed = String::from_utf8(changed).unwrap();
    for forged in ["", "AAAA", &form[1..], &changed] {
        let fields = [("form", forged), ("event", EVT_1)];
        let refused = browser.submit("/event/reprocess", &fields).await;
        assert_eq!(refused.status, 403, "{forged}");
    }
    for headers in [
        &[("Origin", "https://evil.example")][..],
        &[("Origin", "null")],
        &[("Origin", "http://localhost:1")],
        &[("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate")],
        &[("Sec-Fetch-Site", "same-site"), ("Origin", &own)],
        &[("Host", "evil.example"), ("Origin", "http://evil.example")],
    ] {
        let refused = browser.submit_with("/event/reprocess", &fields, headers).await;
        assert_eq!(refused.status, 403, "{headers:?}");
    }
    for host in ["evil.example", "evil.example:8081"] {
        let rebound = browser
            .send(browser.request(reqwest::Method::GET, "/events").header("Host", host))
            .await;
        assert_eq!(rebound.status, 403, "{host}");
        rebound.hides(&["evt_1"]);
    }
    let wrong = browser
        .request(reqwest::Method::POST, "/event/reprocess")
        .header("Content-Type", "text/plain")
        .body("form=1");
    assert_eq!(browser.send(wrong).await.status, 415);
    let large = "y".repeat(70_000);
    assert_eq!(
        browser
            .submit("/event/reprocess", &[("form", &form), ("reason", &large)])
            .await
            .status,
        413
    );
    assert_eq!(store.number("select count(*) from audit").await, 0);
    assert_eq!(
        browser.submit("/event/reprocess", &fields).await.status,
        303,
        "the form itself is good"
    );
}

async fn refused_requests_are_shown_without_what_proves_and_taken_in(store: TestStore) {
    let server = Setup::new(&store).start().await;
    let browser = Browser::new(&server);
    let body = stripe_body("evt_stale");
    let headers = stripe_at(&body, now() - 3600);
    let signature = headers[1].1.rsplit('=').next().unwrap().to_owned();
    let target = "stripe?key=marker-of-the-query";
    assert_eq!(server.send(target, headers, body).await.status, 401);
    let mut id = String::new();
    wait_until("it is kept", async || {
        let page = server.get("/api/v1/quarantine").await.json();
        id = page["requests"][0]["id"].to_string();
        page["requests"][0]["id"].is_i64()
    })
    .await;
    let path = format!("/quarantine/request?id={id}");
    browser
        .page("/quarantine")
        .await
        .shows(&["stale", &format!("href=\"{path}\"")]);
    browser
        .page("/quarantine?provider=stripe&reason=")
        .await
        .shows(&["stale"]);
    browser
        .page("/quarantine?reason=other")
        .await
        .shows(&["Nothing is in quarantine"]);
    let one = browser.page(&path).await;
    one.shows(&["stripe-signature", "not shown", "/webhooks/stripe", "not proved"]);
    one.hides(&[&signature, "marker-of-the-query", "evt_stale"]);
    let shown = browser.page(&format!("{path}&body=1")).await;
    shown.shows(&["evt_stale"]).hides(&[&signature, "marker-of-the-query"]);

    let form = one.form("/quarantine/readmit");
    let refused = browser
        .submit("/quarantine/readmit", &[("form", &form), ("id", &id)])
        .await;
    assert_eq!(refused.status, 422);
    refused
        .is_a_safe_page()
        .shows(&["does not verify"])
        .hides(&[&signature]);
    let unsaid = browser
        .submit("/quarantine/readmit", &[("form", &form), ("id", &id), ("force", "1")])
        .await;
    assert_eq!(unsaid.status, 400);
    let fields = [
        ("form", form.as_str()),
        ("id", &id),
        ("force", "1"),
        ("reason", "clock was wrong"),
    ];
    let done = browser.submit("/quarantine/readmit", &fields).await;
    assert_eq!(done.header("location"), format!("{path}&done=readmitted&count=1"));
    browser
        .page(done.header("location"))
        .await
        .shows(&["events stored: 1", "Taken in"]);
    server.wait_for("stripe", "evt_stale", "done").await;
    browser
        .page(&event_page("stripe", "evt_stale"))
        .await
        .shows(&["badge done", "cerca-readmitted"]);
    assert_eq!(
        store
            .number("select count(*) from audit where actor = 'dashboard'")
            .await,
        1
    );
}

async fn all_that_match_are_reprocessed_as_a_job(store: TestStore) {
    let sink = Sink::with(|_, n| Answer::status(if n < 3 { 410 } else { 200 })).await;
    let server = Setup::new(&store)
        .lease("60s")
        .http("forward", &sink.url())
        .start()
        .await;
    let browser = Browser::new(&server);
    for n in 0..3 {
        server.stripe(&format!("evt_{n}")).await;
    }
    for n in 0..3 {
        server.wait_for("stripe", &format!("evt_{n}"), "failed").await;
    }
    assert_eq!(
        browser.get("/events/reprocess").await.status,
        400,
        "everything is never meant"
    );
    browser
        .page("/events?status=failed")
        .await
        .shows(&["href=\"/events/reprocess?status=failed\""]);
    let page = browser.page("/events/reprocess?status=failed").await;
    page.shows(&["3 events match"]);
    let form = page.form("/events/reprocess");
    let nothing = browser.submit("/events/reprocess", &[("form", &form)]).await;
    assert_eq!(nothing.status, 400);
    let fields = [
        ("form", form.as_str()),
        ("filter", "status=failed"),
        ("rate", "100"),
        ("reason", "fixed"),
    ];
    let begun = browser.submit("/events/reprocess", &fields).await;
    assert_eq!((begun.status, begun.header("location")), (303, "/jobs?done=begun"));
    assert_eq!(
        browser.submit("/events/reprocess", &fields).await.header("location"),
        "/jobs?done=again"
    );
    for n in 0..3 {
        server.wait_for("stripe", &format!("evt_{n}"), "done").await;
    }
    wait_until("the job is done", async || {
        browser.page("/jobs").await.html.contains("badge done")
    })
    .await;
    browser
        .page("/jobs")
        .await
        .shows(&["status=failed", "fixed", "dashboard", "3 of 3"]);
    assert_eq!(audit(&store, "reprocess", "fixed").await, 1);
    let form = browser.page("/events/reprocess?status=done").await;
    let form = form.form("/events/reprocess");
    let fields = [("form", form.as_str()), ("id", "999")];
    assert_eq!(browser.submit("/jobs/stop", &fields).await.status, 404);
    // A job that is stopped goes on when told to.
    for n in 3..43 {
        server.stripe(&format!("evt_{n}")).await;
        server.wait_for("stripe", &format!("evt_{n}"), "done").await;
    }
    let slow = [
        ("form", form.as_str()),
        ("filter", "status=done"),
        ("rate", "1"),
        ("reason", "slow"),
    ];
    assert_eq!(browser.submit("/events/reprocess", &slow).await.status, 303);
    let page = browser.page("/jobs").await;
    let stop = [("form", page.form("/jobs/stop")), ("id", "2".to_owned())];
    let stop: Vec<(&str, &str)> = stop.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let stopped = browser.submit("/jobs/stop", &stop).await;
    assert_eq!(stopped.header("location"), "/jobs?done=stopped", "{}", stopped.html);
    let page = browser.page("/jobs?done=stopped").await;
    page.shows(&["badge stopped", "The job is stopped"]);
    let resume = page.form("/jobs/resume");
    let resumed = browser.submit("/jobs/resume", &[("form", &resume), ("id", "2")]).await;
    assert_eq!(resumed.header("location"), "/jobs?done=resumed");
    browser.page("/jobs").await.shows(&["badge running"]);
}
