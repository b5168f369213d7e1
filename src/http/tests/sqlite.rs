//! From the socket to the disk and back.

use crate::store::{self, Options};

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_acknowledged_is_on_disk_and_the_api_shows_it() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("inbox.db").display());
    let store = store::open(&url, Options::default()).await.unwrap();
    let shutdown = CancellationToken::new();
    let running = start(settings(), services(store.clone()), shutdown.clone()).unwrap();
    let (public, admin) = (running.public.unwrap(), running.admin);

    let body = r#"{"id":"evt/a&b","type":"paid","amount":1.005,"x":"\u0000\ud800"}"#;
    let headers = "X-Acme-Proof: right\r\nX-Acme-Topic: t\r\nContent-Type: application/json\r\n";
    let sent: Vec<_> = (0..8)
        .map(|_| tokio::spawn(send(public, post("/webhooks/acme", headers, body))))
        .collect();
    for reply in sent {
        assert_eq!(reply.await.unwrap().status, 200);
    }
    let conflict = webhook("acme", r#"{"id":"evt/a&b","type":"other"}"#);
    assert_eq!(send(public, conflict).await.status, 200);
    assert_eq!(
        send(public, webhook("acme", r#"{"id":"2","type":"ignored"}"#))
            .await
            .status,
        200
    );

    let path = "/api/v1/events/acme/evt%2Fa%26b";
    let event = get(admin, path).await.json();
    assert_eq!(
        (&event["status"], &event["conflicts"], &event["size"]),
        (&"pending".into(), &1.into(), &body.len().into())
    );
    assert_eq!(event["deliveries"].as_array().unwrap().len(), 2);
    let normalized = serde_json::json!({
        "type": "payment.succeeded", "amount": 1005, "currency": "KWD", "reference": "t", "customer": null,
        "occurred_at": null,
    });
    assert_eq!(event["normalized"], normalized);
    assert!(get(admin, "/api/v1/events/acme/2").await.json()["normalized"].is_null());
    assert_eq!(get(admin, &format!("{path}/payload")).await.body, body.as_bytes());
    let page = get(admin, "/api/v1/events?limit=1").await.json();
    assert_eq!(
        (&page["events"][0]["status"], &page["events"][0]["adapter"]),
        (&"unrouted".into(), &"acme".into())
    );
    let next = page["next"].as_str().unwrap();
    let page = get(admin, &format!("/api/v1/events?limit=1&cursor={next}"))
        .await
        .json();
    assert_eq!(page["events"][0]["provider_event_id"], "evt/a&b");
    assert!(page["events"][0].get("normalized").is_none());
    assert_eq!(get(admin, "/api/v1/stats").await.json()["events"], 2);

    let reply = send(admin, post(&format!("{path}/discard"), "", r#"{"reason":"a test"}"#)).await;
    assert_eq!(reply.json()["deliveries"], 2);
    assert_eq!(get(admin, path).await.json()["status"], "discarded");
    let reply = send(
        admin,
        post(&format!("{path}/reprocess"), "", r#"{"handlers":["mail"]}"#),
    )
    .await;
    assert_eq!(reply.json()["deliveries"], 1);
    assert_eq!(get(admin, path).await.json()["status"], "pending");
    assert_eq!(get(public, "/readyz").await.status, 200);

    shutdown.cancel();
    running.stopped().await.unwrap();
    store.close().await;
}
