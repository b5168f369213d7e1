//! Refused requests: kept within bounds, shown, and taken in.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{Setup, Sink, TestStore, now, on_both_stores, stripe, stripe_at, stripe_body, wait_until};

on_both_stores!(
    what_was_refused_is_kept_and_can_be_taken_in,
    a_secret_that_was_wrong_here_is_put_right_and_the_events_come_in,
    a_flood_of_strangers_neither_fills_the_disk_nor_pushes_out_what_was_proved,
    no_credential_is_kept,
    a_header_that_is_no_text_is_kept_as_far_as_it_is_and_named,
);

async fn kept(server: &crate::support::Server, count: usize) -> Vec<Value> {
    let mut requests = Vec::new();
    wait_until(&format!("{count} are kept"), async || {
        let page = server.get("/api/v1/quarantine?limit=500").await.json();
        requests = page["requests"].as_array().unwrap().clone();
        requests.len() == count
    })
    .await;
    requests
}

async fn what_was_refused_is_kept_and_can_be_taken_in(store: TestStore) {
    let sink = Sink::start().await;
    let server = Setup::new(&store).http("forward", &sink.url()).start().await;
    let body = stripe_body("evt_stale");
    let stale = server
        .send("stripe", stripe_at(&body, now() - 3600), body.clone())
        .await;
    assert_eq!((stale.status, stale.text().contains("unauthorized")), (401, true));
    let no_id = br#"{"type":"invoice.paid"}"#;
    assert_eq!(server.send("stripe", stripe(no_id), no_id.to_vec()).await.status, 400);

    let requests = kept(&server, 2).await;
    let shown: Vec<(&str, bool)> = requests
        .iter()
        .map(|one| (one["reason"].as_str().unwrap(), one["authentic"].as_bool().unwrap()))
        .collect();
    assert_eq!(shown, [("missing_id", true), ("stale", false)]);
    let stale = &requests[1];
    let path = format!("/api/v1/quarantine/{}", stale["id"]);
    assert_eq!(server.get(&format!("{path}/body")).await.body, body);
    assert_eq!(
        server.get("/api/v1/quarantine?reason=stale").await.json()["requests"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(server.get("/api/v1/quarantine?resaon=stale").await.status, 400);
    assert_eq!(server.get("/api/v1/quarantine/999999").await.status, 404);

    // It was too old when it came, and is so for ever: a person must say that it is right.
    let refused = server.post(&format!("{path}/readmit"), &json!({})).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    let unsaid = server.post(&format!("{path}/readmit"), &json!({"force": true})).await;
    assert_eq!(unsaid.status, 400, "{}", unsaid.text());
    assert_eq!(sink.count(), 0);
    let forced = server
        .post(
            &format!("{path}/readmit"),
            &json!({"force": true, "reason": "our clock was off"}),
        )
        .await;
    assert_eq!(
        (forced.status, &forced.json()["stored"]),
        (200, &json!(1)),
        "{}",
        forced.text()
    );
    server.wait_for("stripe", "evt_stale", "done").await;
    assert!(!sink.received()[0].header("cerca-readmitted").is_empty());
    let again = server.cli(&[
        "quarantine",
        "readmit",
        &stale["id"].to_string(),
        "--force",
        "--reason",
        "twice",
        "--json",
    ]);
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(
        (&again["stored"], &again["duplicates"]),
        (&json!(0), &json!(1)),
        "one event, one effect"
    );
    let audit =
        "select count(*) from audit where action = 'readmit' and reason = 'our clock was off' and actor = 'api'";
    assert_eq!(store.number(audit).await, 1);
    assert!(!server.get(&path).await.json()["readmitted_at"].is_null());

    // Without an id there is no event, whoever says so.
    let unreadable = format!("/api/v1/quarantine/{}/readmit", requests[0]["id"]);
    let unreadable = server.post(&unreadable, &json!({"force": true, "reason": "x"})).await;
    assert_eq!(unreadable.status, 422);
    let listed = server.cli(&["quarantine", "list", "--json"]);
    assert_eq!(String::from_utf8_lossy(&listed.stdout).lines().count(), 2);
    let shown = server.cli(&["quarantine", "show", &stale["id"].to_string(), "--body"]);
    assert_eq!(shown.stdout, body);
    let shown = server.cli(&["quarantine", "show", &stale["id"].to_string()]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("stale"), "{shown:?}");
}

async fn a_secret_that_was_wrong_here_is_put_right_and_the_events_come_in(store: TestStore) {
    let provider =
        |secret: &str| format!("[[provider]]\nname = \"acme\"\nadapter = \"stripe\"\nsecrets = [\"{secret}\"]\n");
    let server = Setup::new(&store)
        .with(&provider("whsec_a_wrong_one_of_another"))
        .start()
        .await;
    let body = stripe_body("evt_1");
    assert_eq!(server.send("acme", stripe(&body), body.clone()).await.status, 401);
    let requests = kept(&server, 1).await;
    assert_eq!(requests[0]["reason"], "wrong_signature");
    let id = requests[0]["id"].to_string();
    let still = server.cli(&["quarantine", "readmit", &id]);
    assert_eq!(still.status.code(), Some(1), "{still:?}");
    assert!(server.stop().await.success());

    let server = Setup::new(&store)
        .with(&provider(crate::support::STRIPE_SECRET))
        .start()
        .await;
    let done = server.cli(&["quarantine", "readmit", &id, "--reason", "the right secret"]);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(server.payload("acme", "evt_1").await, body);
}

async fn a_flood_of_strangers_neither_fills_the_disk_nor_pushes_out_what_was_proved(store: TestStore) {
    let setup = Setup::new(&store).with("[quarantine]\nrows = 20\nbytes = \"256KiB\"\nrate = 1000\n");
    let server = setup.start().await;
    let no_id = br#"{"type":"invoice.paid"}"#;
    assert_eq!(server.send("stripe", stripe(no_id), no_id.to_vec()).await.status, 400);
    kept(&server, 1).await;
    let junk = vec![b'x'; 30_000];
    for _ in 0..60 {
        let headers = vec![(
            "Stripe-Signature".to_owned(),
            format!("t={},v1={}", now(), "ab".repeat(32)),
        )];
        assert_eq!(server.send("stripe", headers, junk.clone()).await.status, 401);
    }
    server.stripe("evt_1").await;
    // All 60 were written or dropped once the counters say so.
    let metric = |text: &str, name: &str| -> f64 {
        let lines = text.lines().filter(|line| line.starts_with(name));
        lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    };
    wait_until("the flood is dealt with", async || {
        let text = server.get("/metrics").await.text();
        let dealt = metric(&text, "cerca_quarantined_total") + metric(&text, "cerca_quarantine_dropped_total");
        (dealt - 61.0).abs() < 0.5
    })
    .await;
    let rows = store.number("select count(*) from quarantine").await;
    assert!(rows <= 20, "{rows} rows");
    let bytes = store.number("select cast(sum(size) as bigint) from quarantine").await;
    assert!(bytes <= 256 << 10, "{bytes} bytes");
    assert_eq!(
        store
            .number("select count(*) from quarantine where reason = 'missing_id'")
            .await,
        1
    );

    // What one provider's strangers may write in a minute is bounded too.
    assert!(server.stop().await.success());
    let server = Setup::new(&store).with("[quarantine]\nrate = 2\n").start().await;
    let before = store
        .number("select count(*) from quarantine where provider = 'github'")
        .await;
    for _ in 0..10 {
        assert_eq!(server.send("github", Vec::new(), b"{}".to_vec()).await.status, 401);
    }
    tokio::time::timeout(Duration::from_secs(60), async {
        while metric(
            &server.get("/metrics").await.text(),
            "cerca_quarantine_dropped_total{cause=\"over_rate\"}",
        ) < 8.0
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .unwrap();
    assert!(server.stop().await.success());
    let after = store
        .number("select count(*) from quarantine where provider = 'github'")
        .await;
    assert_eq!(after - before, 2, "what was queued at the stop is written");
}

async fn no_credential_is_kept(store: TestStore) {
    let provider = "[[provider]]\nname = \"pix\"\nadapter = \"asaas\"\nsecrets = [\"right-token-0123456789\"]\n";
    let server = Setup::new(&store).with(provider).start().await;
    let headers = [
        ("asaas-access-token", "almost-right-token"),
        ("Authorization", "Bearer of-a-proxy"),
        ("Cookie", "session=of-a-browser"),
        ("User-Agent", "Asaas/1"),
    ];
    let headers = headers
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
    let body = br#"{"id":"evt_1","event":"PAYMENT_CREATED","payment":{"id":"pay_1"}}"#.to_vec();
    assert_eq!(server.send("pix?token=in-the-query", headers, body).await.status, 401);
    let requests = kept(&server, 1).await;
    let text = requests[0].to_string();
    for secret in ["almost-right-token", "of-a-proxy", "of-a-browser", "in-the-query"] {
        assert!(!text.contains(secret), "{text}");
    }
    assert!(
        text.contains("Asaas/1") && text.contains("asaas-access-token"),
        "it says what is not kept: {text}"
    );
    let id = requests[0]["id"].to_string();
    let forced = server.cli(&[
        "quarantine",
        "readmit",
        &id,
        "--force",
        "--reason",
        "checked at the sender",
    ]);
    assert!(forced.status.success(), "{forced:?}");
    assert!(!server.event("pix", "evt_1").await.is_null());
}

async fn a_header_that_is_no_text_is_kept_as_far_as_it_is_and_named(store: TestStore) {
    let server = Setup::new(&store).start().await;
    let mut request =
        b"POST /webhooks/stripe HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 2\r\nX-Note: caf".to_vec();
    request.extend_from_slice(b"\xe9 au lait\r\nX-Plain: gr\xc3\xbcn\r\nStripe-Signature: t=1,v1=00\r\n\r\n{}");
    let mut stream = tokio::net::TcpStream::connect(server.public()).await.unwrap();
    stream.write_all(&request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    let requests = kept(&server, 1).await;
    let headers = requests[0]["headers"].as_array().unwrap();
    let value = |name: &str| {
        headers
            .iter()
            .find(|pair| pair[0] == name)
            .map(|pair| pair[1].as_str().unwrap())
    };
    assert_eq!(value("x-note"), Some("caf\u{fffd} au lait"));
    assert_eq!(value("x-plain"), Some("grün"));
    assert_eq!(requests[0]["left_out"], "the exact bytes of x-note");
}
