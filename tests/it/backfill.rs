//! What never arrived is fetched from the sender's own API: against stand-ins that page, limit and authenticate as the
//! documented APIs do.

use std::process::Output;

use jiff::{Timestamp, ToSpan as _};
use serde_json::{Value, json};

use crate::support::{Api, Asked, Said, Server, Setup, Sink, TestStore, now, on_both_stores, stripe, wait_until};

on_both_stores!(
    what_stripe_sent_while_nobody_listened_is_fetched_once,
    a_delivery_of_github_is_fetched_under_its_webhooks_id,
    events_of_derived_identity_are_stored_only_when_asked_for,
    payments_of_asaas_are_paged_by_offset,
    pages_that_never_end_are_given_up,
    a_schedule_makes_up_for_what_was_missed,
);

const KEY: &str = "sk_test_of_the_api";

fn provider(name: &str, api: &Api, more: &str) -> String {
    format!(
        "[[provider]]\nname = \"{name}\"\nsecrets = [\"token-of-the-webhook-1234567890\"]\napi_key = \"{KEY}\"\n\
         api_url = \"{}\"\n{more}\n",
        api.url()
    )
}

fn report(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_else(|| panic!("{output:?}"));
    serde_json::from_str(line).unwrap_or_else(|_| panic!("{output:?}"))
}

fn backfill(server: &Server, arguments: &[&str]) -> Value {
    let output = server.cli(&[&["backfill"], arguments, &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    report(&output)
}

fn counts(report: &Value) -> [u64; 5] {
    ["seen", "known", "missing", "stored", "held_back"].map(|name| report[name].as_u64().unwrap())
}

fn stripe_event(n: i64, created: i64) -> Value {
    json!({
        "id": format!("evt_{n}"), "object": "event", "created": created, "type": "invoice.paid",
        "data": {"object": {"id": format!("in_{n}"), "customer": "cus_1", "big": 12_345_678_901_234_567_890_u64}},
    })
}

/// `GET /v1/events`: newest first, `starting_after`, `has_more`, `created[gte]`.
fn stripe_list(asked: &Asked, events: &[Value]) -> Said {
    if asked.headers.get("authorization") != Some(&format!("Bearer {KEY}")) {
        return Said::status(401);
    }
    assert_eq!(asked.path, "/v1/events");
    let limit: usize = asked.query("limit").parse().unwrap();
    let since: i64 = asked.query("created[gte]").parse().unwrap();
    let after = asked.query("starting_after");
    let start = events
        .iter()
        .position(|event| event["id"] == after)
        .map_or(0, |at| at + 1);
    let matching: Vec<&Value> = events[start..]
        .iter()
        .filter(|e| e["created"].as_i64().unwrap() >= since)
        .collect();
    let page = &matching[..matching.len().min(limit)];
    Said::json(&json!({"object": "list", "has_more": matching.len() > limit, "data": page}))
}

async fn what_stripe_sent_while_nobody_listened_is_fetched_once(store: TestStore) {
    let began = now() - 3600;
    // One is older than what is asked for.
    let mut events: Vec<Value> = (1..=230).map(|n| stripe_event(n, began + n)).collect();
    events.insert(0, stripe_event(0, began - 7 * 86_400));
    events.reverse();
    let listed = events.clone();
    let api = Api::with(move |asked, n| match n {
        1 => Said::status(429).header("Retry-After", "0"),
        2 => Said::status(503),
        _ => stripe_list(asked, &listed),
    })
    .await;
    let sink = Sink::start().await;
    let setup = Setup::new(&store).lease("60s").http("forward", &sink.url());
    let lines = format!("api_key = \"{KEY}\"\napi_url = \"{}\"", api.url());
    let server = setup.stripe_lines(&lines).start().await;
    // Of two, the webhook came.
    for n in [7, 8] {
        let body = serde_json::to_vec_pretty(&stripe_event(n, began + n)).unwrap();
        assert_eq!(server.send("stripe", stripe(&body), body).await.status, 200);
    }

    let looked = backfill(&server, &["stripe", "--since", "2d", "--dry-run"]);
    assert_eq!(counts(&looked), [230, 2, 228, 0, 0], "{looked}");
    assert_eq!(store.number("select count(*) from webhook_events").await, 2);
    let fetched = backfill(&server, &["stripe", "--since", "2d"]);
    assert_eq!(counts(&fetched), [230, 2, 228, 228, 0], "{fetched}");
    assert_eq!(fetched["pages"], 3);
    let again = backfill(&server, &["stripe", "--since", "2d"]);
    assert_eq!(counts(&again), [230, 230, 0, 0, 0], "{again}");

    wait_until("all have had their effect", async || sink.count() == 230).await;
    let event = server.wait_for("stripe", "evt_100", "done").await;
    assert_eq!(event["event_type"], "invoice.paid");
    assert_eq!(event["ordering_key"], "cus_1");
    let payload = String::from_utf8(server.payload("stripe", "evt_100").await).unwrap();
    assert!(payload.contains("12345678901234567890"), "digits are kept: {payload}");
    let received = sink.received();
    let is_marked = |r: &&crate::support::Received| !r.header("cerca-backfilled").is_empty();
    assert_eq!(received.iter().filter(is_marked).count(), 228);

    // Its webhook comes after all, in other spacing: the same event, and no conflict.
    let body = serde_json::to_vec_pretty(&stripe_event(100, began + 100)).unwrap();
    assert_eq!(server.send("stripe", stripe(&body), body).await.status, 200);
    let event = server.event("stripe", "evt_100").await;
    assert_eq!(
        (&event["conflicts"], &event["status"]),
        (&json!(0), &json!("done")),
        "{event}"
    );
    assert_eq!(sink.count(), 230);
    assert!(!server.log().contains(KEY), "the key is in the log");
}

async fn a_delivery_of_github_is_fetched_under_its_webhooks_id(store: TestStore) {
    let at = |minutes: i64| (Timestamp::now() - minutes.minutes()).to_string();
    // Newest first; guid-2 was redelivered.
    let list: Vec<Value> = [(14, 1, 5), (13, 2, 10), (12, 2, 20), (11, 3, 30)]
        .map(|(id, guid, minutes)| {
            json!({"id": id, "guid": format!("guid-{guid}"), "delivered_at": at(minutes), "event": "push", "action": null})
        })
        .to_vec();
    let api = Api::with(move |asked, _| {
        assert_eq!(asked.headers["authorization"], format!("Bearer {KEY}"));
        let Some(id) = asked.path.strip_prefix("/orgs/acme/hooks/7/deliveries/") else {
            assert_eq!(asked.path, "/orgs/acme/hooks/7/deliveries");
            let (page, next) = match asked.query("cursor") {
                "" => (&list[..2], true),
                _ => (&list[2..], false),
            };
            let said = Said::json(&json!(page));
            let host = &asked.headers["host"];
            let link = format!("<http://{host}{}?per_page=100&cursor=v1_12>; rel=\"next\"", asked.path);
            return if next { said.header("Link", link) } else { said };
        };
        let guid = &list.iter().find(|one| one["id"].as_u64() == id.parse().ok()).unwrap()["guid"];
        Said::json(&json!({
            "id": id, "guid": guid, "event": "push",
            "request": {
                "headers": {"X-GitHub-Delivery": guid, "X-GitHub-Event": "push", "X-Hub-Signature-256": "sha256=ab",
                            "User-Agent": "GitHub-Hookshot/1", "Content-Type": "application/x-www-form-urlencoded"},
                "payload": {"ref": "refs/heads/main", "repository": {"id": 99}, "n": 1.10}
            },
            "response": {"headers": {}, "payload": "no"}
        }))
    })
    .await;
    let more = "adapter = \"github\"\noptions = { hook = \"orgs/acme/hooks/7\" }";
    let server = Setup::new(&store).with(&provider("hub", &api, more)).start().await;
    let body = br#"{"ref":"refs/heads/main"}"#;
    let signature = crate::support::hmac_hex("token-of-the-webhook-1234567890", body);
    let headers = [
        ("X-GitHub-Delivery", "guid-1".to_owned()),
        ("X-GitHub-Event", "push".to_owned()),
    ];
    let mut headers: Vec<(String, String)> = headers.map(|(name, value)| (name.to_owned(), value)).to_vec();
    headers.push(("X-Hub-Signature-256".into(), format!("sha256={signature}")));
    assert_eq!(server.send("hub", headers, body.to_vec()).await.status, 200);

    let fetched = backfill(&server, &["hub", "--since", "1h"]);
    assert_eq!(counts(&fetched), [3, 1, 2, 2, 0], "{fetched}");
    let details = api
        .asked()
        .iter()
        .filter(|asked| asked.path.contains("/deliveries/"))
        .count();
    assert_eq!(details, 2, "what is known costs no request");
    let event = server.event("hub", "guid-2").await;
    assert_eq!(
        (&event["event_type"], &event["ordering_key"]),
        (&json!("push"), &json!("99")),
        "{event}"
    );
    assert_eq!(event["content_type"], "application/json");
    assert!(server.payload("hub", "guid-2").await.ends_with(b"\"n\":1.1}"));
    let stored = store
        .number("select count(*) from webhook_events where headers like '%sha256=ab%'")
        .await;
    assert_eq!(stored, 0, "a signature is not kept");
}

async fn events_of_derived_identity_are_stored_only_when_asked_for(store: TestStore) {
    let at = (Timestamp::now() - 10.minutes()).to_string();
    let api = Api::with(move |asked, _| {
        assert_eq!(asked.headers["x-shopify-access-token"], KEY);
        assert_eq!(asked.path, "/admin/api/2026-10/orders.json");
        let order = |id: u64| json!({"id": id, "created_at": at, "updated_at": at, "total_price": "9.90"});
        if asked.query("page_info").is_empty() {
            assert!(asked.query("created_at_min").ends_with('Z'), "{asked:?}");
            assert_eq!(asked.query("status"), "any");
            let next = format!(
                "<http://{}{}?limit=250&page_info=abc>; rel=\"next\"",
                asked.headers["host"], asked.path
            );
            return Said::json(&json!({"orders": [order(450_789_469), order(2)]})).header("Link", next);
        }
        // With `page_info` no filter may be given, as the documentation says.
        assert!(asked.query("created_at_min").is_empty());
        Said::json(&json!({"orders": [order(3)]}))
    })
    .await;
    let more = "adapter = \"shopify\"\noptions = { shop = \"acme.myshopify.com\", api_version = \"2026-10\" }";
    let sink = Sink::start().await;
    let setup = Setup::new(&store)
        .lease("60s")
        .with(&provider("shop", &api, more))
        .http("forward", &sink.url());
    let server = setup.start().await;
    // The webhook of one order came, under the id that only webhooks have.
    let body = br#"{"id":2,"updated_at":"2026-01-02T03:04:05Z"}"#;
    let headers = shopify_headers(body);
    assert_eq!(server.send("shop", headers, body.to_vec()).await.status, 200);

    let held = backfill(&server, &["shop", "--since", "1h"]);
    assert_eq!(counts(&held), [3, 1, 2, 0, 2], "{held}");
    let stored = backfill(&server, &["shop", "--since", "1h", "--derived"]);
    assert_eq!(counts(&stored), [3, 1, 2, 2, 0], "{stored}");
    let again = backfill(&server, &["shop", "--since", "1h", "--derived"]);
    assert_eq!(counts(&again), [3, 3, 0, 0, 0], "{again}");
    wait_until("all have had their effect", async || sink.count() == 3).await;
}

fn shopify_headers(body: &[u8]) -> Vec<(String, String)> {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    let mac = hex::decode(crate::support::hmac_hex("token-of-the-webhook-1234567890", body)).unwrap();
    [
        ("X-Shopify-Hmac-Sha256", BASE64_STANDARD.encode(mac)),
        ("X-Shopify-Event-Id", "98880550-7158-44d4-b7cd-2c97c8a091b5".to_owned()),
        ("X-Shopify-Topic", "orders/create".to_owned()),
        ("X-Shopify-Shop-Domain", "acme.myshopify.com".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

async fn payments_of_asaas_are_paged_by_offset(store: TestStore) {
    let api = Api::with(|asked, _| {
        assert_eq!(asked.headers["access_token"], KEY);
        assert_eq!(asked.path, "/v3/payments");
        let is_received = asked.query("status") == "RECEIVED";
        let day = if is_received {
            "paymentDate[ge]"
        } else {
            "dateCreated[ge]"
        };
        assert_eq!(asked.query(day).len(), "2026-01-01".len(), "{asked:?}");
        let offset: usize = asked.query("offset").parse().unwrap();
        let total = if is_received { 1 } else { 130 };
        let payment = |n: usize| {
            json!({"object": "payment", "id": format!("pay_{n}"), "dateCreated": "2026-01-02",
                                        "paymentDate": "2026-01-03", "value": 10.50, "description": "a \"b\""})
        };
        let data: Vec<Value> = (offset..total.min(offset + 100)).map(payment).collect();
        Said::json(
            &json!({"object": "list", "hasMore": offset + 100 < total, "totalCount": total, "limit": 100,
                           "offset": offset, "data": data}),
        )
    })
    .await;
    let more = "adapter = \"asaas\"\nbackfill_derived = true";
    let server = Setup::new(&store).with(&provider("pix", &api, more)).start().await;
    // The webhook of one payment's creation came.
    let body = br#"{"id":"evt_05b7&36","event":"PAYMENT_CREATED","payment":{"id":"pay_5"}}"#;
    let token = vec![(
        "asaas-access-token".to_owned(),
        "token-of-the-webhook-1234567890".to_owned(),
    )];
    assert_eq!(server.send("pix", token, body.to_vec()).await.status, 200);

    let fetched = backfill(&server, &["pix", "--since", "2d"]);
    assert_eq!(counts(&fetched), [131, 1, 130, 130, 0], "{fetched}");
    let event = server.event("pix", "backfill:PAYMENT_RECEIVED:pay_0").await;
    assert_eq!(event["event_type"], "PAYMENT_RECEIVED", "{event}");
    assert_eq!(event["ordering_key"], "pay_0");
    let payload: Value =
        serde_json::from_slice(&server.payload("pix", "backfill:PAYMENT_CREATED:pay_129").await).unwrap();
    assert_eq!(payload["payment"]["description"], "a \"b\"");
}

async fn pages_that_never_end_are_given_up(store: TestStore) {
    let api = Api::with(|asked, _| {
        let target = match asked.query("cursor") {
            "" => "v1_1",
            _ => "v1_2",
        };
        let link = format!(
            "<http://{}{}?cursor={target}>; rel=\"next\"",
            asked.headers["host"], asked.path
        );
        let link = if asked.path.starts_with("/orgs/elsewhere") {
            "<https://attacker.example/deliveries>; rel=\"next\"".to_owned()
        } else {
            link
        };
        Said::json(&json!([])).header("Link", link)
    })
    .await;
    let hub = |name: &str, hook: &str| {
        let more = format!("adapter = \"github\"\noptions = {{ hook = \"{hook}\" }}");
        provider(name, &api, &more)
    };
    let server = Setup::new(&store)
        .with(&hub("circle", "orgs/circle/hooks/1"))
        .with(&hub("elsewhere", "orgs/elsewhere/hooks/1"))
        .with("[[provider]]\nname = \"keyless\"\nadapter = \"stripe\"\nsecrets = [\"whsec_0123456789\"]\n")
        .start()
        .await;
    for (name, said) in [
        ("circle", "does not end"),
        ("elsewhere", "at another host"),
        ("keyless", "has no `api_key`"),
        ("nobody", "no provider is called nobody"),
    ] {
        let output = server.cli(&["backfill", name, "--since", "1h"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains(said),
            "{name}: {output:?}"
        );
    }
}

async fn a_schedule_makes_up_for_what_was_missed(store: TestStore) {
    let began = now() - 7200;
    let events: Vec<Value> = (1..=3).rev().map(|n| stripe_event(n, began + n)).collect();
    let api = Api::with(move |asked, _| stripe_list(asked, &events)).await;
    let lines = format!(
        "api_key = \"{KEY}\"\napi_url = \"{}\"\nbackfill = \"1h\"\nbackfill_window = \"3h\"",
        api.url()
    );
    let server = Setup::new(&store).stripe_lines(&lines).start().await;
    // The timetable looks every minute.
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(150);
    while server.event("stripe", "evt_1").await.is_null() {
        assert!(tokio::time::Instant::now() < deadline, "{}", server.log());
        tokio::time::sleep(std::time::Duration::from_millis(250)).await;
    }
    wait_until("the turn is noted", async || {
        store
            .number("select count(*) from backfills where covered_until is not null")
            .await
            == 1
    })
    .await;
    let metrics = server.get("/metrics").await.text();
    let line = "cerca_backfill_events_total{provider=\"stripe\",outcome=\"stored\"} 3";
    assert!(metrics.contains(line), "{metrics}");
}
