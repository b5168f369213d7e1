//! The admin API.

use std::sync::atomic::Ordering;

use serde_json::json;

use crate::store::{ReprocessScope, StoreError};

use super::*;

async fn with_event(id: &str) -> Servers {
    let servers = serve();
    let body = json!({"id": id, "type": "paid"}).to_string();
    let headers = "X-Acme-Proof: right\r\nContent-Type: text/html\r\n";
    assert_eq!(
        send(servers.public, post("/webhooks/acme", headers, &body))
            .await
            .status,
        200
    );
    servers
}

#[tokio::test]
async fn ids_are_opaque_in_paths() {
    let long = "é/&?#%2F ".repeat(40);
    for id in ["evt/a&b", "a%2Fb", "a+b", "..", ".", "%00", &long] {
        let servers = with_event(id).await;
        let encoded: String = id.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let path = format!("/api/v1/events/acme/{encoded}");
        let reply = get(servers.admin, &path).await;
        assert_eq!(reply.status, 200, "{id}");
        let event = reply.json();
        assert_eq!(event["provider_event_id"], id);
        assert_eq!((&event["adapter"], &event["attempts"]), (&json!("acme"), &json!([])));
        assert_eq!(get(servers.admin, &format!("{path}/payload")).await.status, 200);
        for action in ["reprocess", "discard"] {
            let reply = send(servers.admin, post(&format!("{path}/{action}"), "", "")).await;
            assert_eq!(reply.status, 200, "{id}");
        }
    }
    let servers = with_event("evt/a&b").await;
    assert_eq!(get(servers.admin, "/api/v1/events/acme/evt%2Fa%26b").await.status, 200);
    assert_eq!(get(servers.admin, "/api/v1/events/acme/evt%2Fa&b").await.status, 200);
    for target in ["evt/a&b", "evt%252Fa%26b", "%00", "..%2f..%2fx", "nothing"] {
        let reply = get(servers.admin, &format!("/api/v1/events/acme/{target}")).await;
        assert_eq!(reply.status, 404, "{target}");
        reply.problem();
    }
    assert_eq!(get(servers.admin, "/api/v1/events/acme/%ff").await.status, 400);
}

#[tokio::test]
async fn a_payload_is_given_as_it_came_and_no_browser_runs_it() {
    let servers = with_event("e").await;
    let reply = get(servers.admin, "/api/v1/events/acme/e/payload").await;
    assert_eq!(reply.body, servers.store.stored()[0].payload);
    assert_eq!(reply.header("content-type"), Some("text/html"));
    assert!(reply.header("content-disposition").unwrap().starts_with("attachment"));
    assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
    servers.store.purged.store(true, Ordering::SeqCst);
    let reply = get(servers.admin, "/api/v1/events/acme/e/payload").await;
    assert_eq!(reply.status, 410);
    reply.problem();
}

#[tokio::test]
async fn lists_are_filtered_and_paged() {
    let servers = with_event("e").await;
    let reply = get(servers.admin, "/api/v1/events?provider=acme&status=pending&limit=3").await;
    let page = reply.json();
    assert_eq!(page["events"][0]["provider_event_id"], "e");
    assert!(page["events"][0].get("attempts").is_none());
    let next = page["next"].as_str().unwrap();
    assert_eq!(
        get(servers.admin, &format!("/api/v1/events?cursor={next}"))
            .await
            .status,
        200
    );
    let asked = servers.store.asked.lock().unwrap();
    assert_eq!(asked[0].0.provider.as_deref(), Some("acme"));
    assert_eq!((asked[0].1, asked[0].2), (None, 3));
    assert_eq!((asked[1].1, asked[1].2), (Some(7), 50));
}

#[tokio::test]
async fn unknown_names_are_400_and_named() {
    let servers = with_event("e").await;
    for target in [
        "/api/v1/events?colour=red",
        "/api/v1/events/acme/e?colour=red",
        "/api/v1/events/acme/e/payload?colour=red",
        "/api/v1/stats?colour=red",
        "/api/v1/providers?colour=red",
    ] {
        let reply = get(servers.admin, target).await;
        assert_eq!(reply.status, 400, "{target}");
        assert!(reply.problem().contains("colour"), "{target}");
    }
    for target in [
        "/api/v1/events/acme/e/reprocess",
        "/api/v1/events/acme/e/discard",
        "/api/v1/events/reprocess",
    ] {
        let reply = send(servers.admin, post(target, "", r#"{"colour":"red"}"#)).await;
        assert_eq!(reply.status, 400, "{target}");
        assert!(reply.problem().contains("colour"), "{target}");
        let reply = send(servers.admin, post(&format!("{target}?colour=red"), "", "{}")).await;
        assert_eq!(reply.status, 400, "{target}");
        let reply = send(servers.admin, post(target, "", r#"{"reason":"a\u0000b"}"#)).await;
        assert_eq!(reply.status, 400, "{target}");
        assert!(reply.problem().contains("`reason` holds a NUL"), "{target}");
    }
    for body in ["[", "[]", "{\"reason\":1}", "null{}"] {
        let reply = send(servers.admin, post("/api/v1/events/acme/e/reprocess", "", body)).await;
        assert_eq!(reply.status, 400, "{body}");
    }
    let large = format!(r#"{{"reason":"{}"}}"#, "y".repeat(70_000));
    let reply = send(servers.admin, post("/api/v1/events/reprocess", "", &large)).await;
    assert_eq!(reply.status, 413);
}

#[tokio::test]
async fn reprocessing_names_its_handlers_and_its_reason() {
    let servers = with_event("e").await;
    let one = "/api/v1/events/acme/e/reprocess";
    let reply = send(servers.admin, post(one, "", r#"{"handlers":["mail"],"reason":"lost"}"#)).await;
    assert_eq!(reply.json(), json!({"events": 1, "deliveries": 2, "dry_run": false}));
    {
        let asked = servers.store.reprocessed.lock().unwrap();
        let (what, who) = asked.last().unwrap();
        assert_eq!(what.handlers.as_deref(), Some(&["mail".into()][..]));
        assert_eq!((&*who.actor, who.reason.as_deref()), ("api", Some("lost")));
    }
    let reply = send(servers.admin, post(one, "", r#"{"handlers":["nobody"]}"#)).await;
    assert_eq!(reply.status, 400);
    assert!(reply.problem().contains("nobody"));
    let reply = send(servers.admin, post("/api/v1/events/acme/none/reprocess", "", "")).await;
    assert_eq!(reply.status, 404);

    let many = "/api/v1/events/reprocess";
    servers.store.purged.store(true, Ordering::SeqCst);
    let reply = send(servers.admin, post(one, "", "")).await;
    assert_eq!(reply.status, 409);
    assert!(reply.problem().contains("retention has removed the payload"));
    servers.store.purged.store(false, Ordering::SeqCst);
    assert_eq!(send(servers.admin, post(many, "", "{}")).await.status, 400);
    let reply = send(servers.admin, post(many, "", r#"{"status":"failed","dry_run":true}"#)).await;
    assert_eq!(reply.json(), json!({"events": 1, "deliveries": 2, "dry_run": true}));
    let asked = servers.store.reprocessed.lock().unwrap();
    let (what, _) = asked.last().unwrap();
    assert!(what.dry_run && matches!(&what.filter, ReprocessScope::Filter(filter) if filter.status.is_some()));
}

#[tokio::test]
async fn the_rest_answers_and_tells_no_secret() {
    let servers = with_event("e").await;
    assert_eq!(get(servers.admin, "/").await.status, 200);
    assert_eq!(get(servers.admin, "/metrics").await.status, 200);
    assert_eq!(get(servers.admin, "/api/v1/stats").await.json()["events"], 1);
    let reply = get(servers.admin, "/api/v1/providers").await;
    assert_eq!(
        reply.json()["providers"][0],
        json!({"name": "acme", "adapter": "acme", "url": "https://hooks.example.com/webhooks/acme", "verify": "token", "sender": {"success": null, "timeout": null, "timeout_ms": null, "retries": null, "retries_for_ms": null, "resigns": null, "disables": null, "disables_after_ms": null, "disables_failures": null, "redelivers": null}})
    );
    assert!(!String::from_utf8_lossy(&reply.body).contains("right"));
    let reply = get(servers.admin, "/api/v1/nothing").await;
    assert_eq!(reply.status, 404);
    reply.problem();
    let reply = send(servers.admin, post("/api/v1/stats", "", "")).await;
    assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, HEAD")));
    servers.store.fail(StoreError::Unavailable("down".into()));
    let reply = get(servers.admin, "/api/v1/stats").await;
    assert_eq!(reply.status, 503);
    assert!(reply.header("retry-after").is_some() && !reply.problem().contains("down"));
    assert_eq!(get(servers.admin, "/metrics").await.status, 200);
}

#[tokio::test]
async fn without_a_token_foreign_hosts_and_pages_are_refused() {
    let servers = serve();
    for headers in [
        "Host: evil.example",
        "Host: evil.example:8081",
        "Host: localhost\r\nOrigin: http://evil.example",
        "Host: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: cors",
    ] {
        for target in ["/", "/metrics", "/api/v1/events", "/nothing"] {
            let reply = send(servers.admin, format!("GET {target} HTTP/1.1\r\n{headers}\r\n\r\n")).await;
            assert_eq!(reply.status, 403, "{headers} {target}");
            reply.problem();
        }
    }
}

#[tokio::test]
async fn with_a_token_nothing_answers_without_it() {
    let servers = serve_with(Settings {
        admin_token: Some(SecretString::from("s3cret")),
        ..settings()
    });
    for target in ["/", "/metrics", "/api/v1/events", "/api/v1/providers", "/nothing"] {
        let reply = get(servers.admin, target).await;
        assert_eq!(reply.status, 401, "{target}");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
    }
    for target in ["/healthz", "/readyz"] {
        assert_eq!(
            get(servers.admin, target).await.status,
            200,
            "{target}: whoever watches over a worker has none"
        );
    }
    let mut client = Client::connect(servers.admin).await;
    let request = "GET /api/v1/events HTTP/1.1\r\nHost: admin.example\r\nAuthorization: Bearer s3cret\r\n\r\n";
    client.write(request).await;
    assert_eq!(client.reply().await.status, 200);
    let chunked = "POST /api/v1/events/reprocess HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n";
    client.write(chunked).await;
    assert_eq!(client.reply().await.status, 401);
    assert!(client.is_closed().await);
}
