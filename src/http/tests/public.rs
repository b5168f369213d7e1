//! Each row of the public table of statuses.

use std::{sync::atomic::Ordering, time::Duration};

use crate::store::StoreError;

use super::*;

#[tokio::test]
async fn an_authentic_event_is_stored_and_then_acknowledged() {
    let servers = serve();
    let request = post(
        "/webhooks/acme?x=1",
        "Content-Type: application/json\r\nX-Acme-Proof: right\r\nX-Acme-Topic: a\r\nAuthorization: Bearer s3cret\r\n",
        r#"{"id":"evt_1","type":"paid"}"#,
    );
    let reply = send(servers.public, request).await;
    assert_eq!((reply.status, &*reply.body), (200, &br#"{"received":true}"#[..]));
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let stored = servers.store.stored();
    assert_eq!(stored.len(), 1);
    assert_eq!(&stored[0].payload[..], br#"{"id":"evt_1","type":"paid"}"#);
    assert_eq!(stored[0].content_type.as_deref(), Some("application/json"));
    assert_eq!(
        stored[0].headers,
        r#"{"content-type":"application/json","x-acme-topic":"a"}"#
    );
    assert_eq!(&*stored[0].routes, "ledger,mail");
    let digest = <sha2::Sha256 as sha2::Digest>::digest(&stored[0].payload);
    assert_eq!(stored[0].body_sha256[..], digest[..]);
}

#[tokio::test]
async fn a_duplicate_is_acknowledged_like_the_first_and_a_conflict_as_configured() {
    let servers = serve();
    for provider in ["acme", "strict"] {
        for _ in 0..2 {
            assert_eq!(send(servers.public, webhook(provider, r#"{"id":1}"#)).await.status, 200);
        }
    }
    assert_eq!(servers.store.stored().len(), 2);
    assert_eq!(
        send(servers.public, webhook("acme", r#"{"id":1,"x":1}"#)).await.status,
        200
    );
    let reply = send(servers.public, webhook("strict", r#"{"id":1,"x":1}"#)).await;
    assert_eq!(reply.status, 409);
    reply.problem();
}

#[tokio::test]
async fn a_batch_is_one_event_an_item_and_an_empty_one_is_none() {
    let servers = serve();
    let body = r#"{"items":[{"id":"a"} , {"id":"b"}]}"#;
    assert_eq!(send(servers.public, webhook("acme", body)).await.status, 200);
    let payloads: Vec<_> = servers.store.stored().into_iter().map(|event| event.payload).collect();
    assert_eq!(payloads, [&br#"{"id":"a"}"#[..], br#"{"id":"b"}"#]);
    assert_eq!(
        send(servers.public, webhook("acme", r#"{"items":[]}"#)).await.status,
        200
    );
    assert_eq!(servers.store.stored().len(), 2);
}

#[tokio::test]
async fn an_unproved_request_is_told_nothing_but_unauthorized() {
    let servers = serve();
    for headers in ["", "X-Acme-Proof: wrong\r\n"] {
        let reply = send(servers.public, post("/webhooks/acme", headers, r#"{"id":1}"#)).await;
        assert_eq!((reply.status, &*reply.problem()), (401, "unauthorized"));
    }
    assert!(servers.store.stored().is_empty());
}

#[tokio::test]
async fn who_takes_a_password_asks_for_one() {
    let (servers, _) = adapters::serve_all();
    let basic = r#"Basic realm="webhooks", charset="UTF-8""#;
    for (name, asked) in [
        ("chargebee", basic),
        ("generic_basic", basic),
        ("stripe", "Bearer"),
        ("generic_token", "Bearer"),
    ] {
        let reply = send(servers.public, post(&format!("/webhooks/{name}"), "", r#"{"id":1}"#)).await;
        assert_eq!(
            (reply.status, reply.header("www-authenticate")),
            (401, Some(asked)),
            "{name}"
        );
    }
}

#[tokio::test]
async fn an_authentic_request_without_an_id_is_400() {
    let servers = serve();
    for body in ["{}", "not json", ""] {
        let reply = send(servers.public, webhook("acme", body)).await;
        assert_eq!(reply.status, 400, "{body}");
        // Nobody verified it where the provider says `verify = "none"`.
        assert!(!reply.problem().contains("authentic"));
    }
}

#[tokio::test]
async fn a_trailing_slash_is_fine_and_nothing_is_redirected() {
    let servers = serve();
    let proof = "X-Acme-Proof: right\r\n";
    assert_eq!(
        send(servers.public, post("/webhooks/acme/", proof, r#"{"id":1}"#))
            .await
            .status,
        200
    );
    for target in [
        "/webhooks/acme//",
        "/webhooks",
        "/webhooks/",
        "//webhooks/acme",
        "/webhooks/acme/x",
        "/",
        "/api/v1/events",
        "/metrics",
    ] {
        assert_eq!(
            send(servers.public, post(target, proof, r#"{"id":1}"#)).await.status,
            404,
            "{target}"
        );
    }
}

#[tokio::test]
async fn odd_provider_names_are_unknown_and_their_bodies_unread() {
    let servers = serve();
    for name in [
        "nobody",
        "%00",
        "acme%00",
        "..",
        "../acme",
        "..%2facme",
        "acme%2f",
        "%2e%2e",
        "%ff",
        "ACME",
        "%",
        "acme;x",
    ] {
        let mut client = Client::connect(servers.public).await;
        client
            .write(format!(
                "POST /webhooks/{name} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{{"
            ))
            .await;
        let reply = client.reply().await;
        assert_eq!(reply.status, 404, "{name}");
        reply.problem();
        assert_eq!(reply.header("connection"), Some("close"), "{name}");
    }
    let long = "a".repeat(30_000);
    assert_eq!(send(servers.public, webhook(&long, "{}")).await.status, 404);
    assert_eq!(send(servers.public, webhook("%61cme", r#"{"id":1}"#)).await.status, 200);
}

#[tokio::test]
async fn other_methods_are_405_with_allow() {
    let servers = serve();
    for method in ["PUT", "DELETE", "PATCH", "OPTIONS", "BREW"] {
        let reply = send(
            servers.public,
            format!("{method} /webhooks/acme HTTP/1.1\r\nHost: x\r\n\r\n"),
        )
        .await;
        assert_eq!(
            (reply.status, reply.header("allow")),
            (405, Some("POST, GET, HEAD")),
            "{method}"
        );
    }
    let reply = get(servers.public, "/webhooks/acme").await;
    assert_eq!((reply.status, reply.header("allow")), (405, Some("POST, GET, HEAD")));
    let reply = send(servers.public, "DELETE /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, HEAD")));
}

#[tokio::test]
async fn handshakes_are_answered_and_not_stored() {
    let servers = serve();
    let reply = get(servers.public, "/webhooks/acme?challenge=12%0034&verify=me").await;
    assert_eq!((reply.status, &*reply.body), (200, &b"12\x0034"[..]));
    assert_eq!(reply.header("content-type"), Some("text/plain"));
    assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
    let reply = get(servers.public, "/webhooks/acme?challenge=1234&verify=other").await;
    assert_eq!(reply.status, 403);
    let mut client = Client::connect(servers.public).await;
    client.write("HEAD /webhooks/acme HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(client.read_reply(false).await.status, 200);
    client.write("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(client.reply().await.body, b"ok\n");
    assert!(servers.store.stored().is_empty());
}

#[tokio::test]
async fn what_cannot_be_stored_now_is_503_and_may_come_again() {
    let servers = serve();
    let errors = [
        StoreError::Full,
        StoreError::Unavailable("down".into()),
        StoreError::Closed,
    ];
    for error in errors {
        servers.store.fail(error);
        let reply = send(servers.public, webhook("acme", r#"{"id":1}"#)).await;
        assert_eq!(reply.status, 503);
        assert!(!reply.problem().contains("down"));
        let seconds: u32 = reply.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=5).contains(&seconds));
    }
    servers.store.fail(StoreError::Refused("a NUL".into()));
    let reply = send(servers.public, webhook("acme", r#"{"id":1}"#)).await;
    assert_eq!(reply.status, 400);
    assert!(!reply.problem().contains("NUL"));
    servers.store.fail(None);
    assert_eq!(send(servers.public, webhook("acme", r#"{"id":1}"#)).await.status, 200);
}

#[tokio::test]
async fn bytes_in_flight_have_a_limit_over_all_requests() {
    let servers = serve_with(Settings {
        max_bytes_in_flight: 1000,
        ..settings()
    });
    let mut slow = Client::connect(servers.public).await;
    slow.write(format!(
        "POST /webhooks/acme HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{}",
        "y".repeat(900)
    ))
    .await;
    let body = format!(r#"{{"id":1,"x":"{}"}}"#, "y".repeat(200));
    let mut status = 200;
    for _ in 0..500 {
        status = send(servers.public, webhook("acme", &body)).await.status;
        if status == 503 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(status, 503);
    drop(slow);
    for _ in 0..500 {
        status = send(servers.public, webhook("acme", &body)).await.status;
        if status == 200 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("the bytes of the request that went away were not given back");
}

#[tokio::test]
async fn an_event_is_stored_though_its_sender_goes_away() {
    let servers = serve();
    servers.store.stalled.store(true, Ordering::SeqCst);
    let mut client = Client::connect(servers.public).await;
    client.write(webhook("acme", r#"{"id":1}"#)).await;
    while servers.store.stored().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    client.0.set_zero_linger().unwrap();
    drop(client);
    servers.store.stalled.store(false, Ordering::SeqCst);
    assert_eq!(send(servers.public, webhook("acme", r#"{"id":1}"#)).await.status, 200);
    assert_eq!(servers.store.stored().len(), 1);
}

#[tokio::test]
async fn a_slow_store_is_an_answer_within_seconds() {
    let servers = serve();
    servers.store.stalled.store(true, Ordering::SeqCst);
    let start = std::time::Instant::now();
    let reply = send(servers.public, webhook("acme", r#"{"id":1}"#)).await;
    assert_eq!(reply.status, 503);
    assert!(reply.header("retry-after").is_some());
    assert!(start.elapsed() < Duration::from_secs(8));
    servers.store.stalled.store(false, Ordering::SeqCst);
    assert_eq!(send(servers.public, webhook("acme", r#"{"id":1}"#)).await.status, 200);
    assert_eq!(servers.store.stored().len(), 1);
}

#[tokio::test]
async fn health_follows_the_process_and_readiness_the_store() {
    let servers = serve();
    assert_eq!(get(servers.public, "/healthz").await.status, 200);
    servers.store.fail(StoreError::Unavailable("down".into()));
    assert_eq!(get(servers.public, "/healthz").await.status, 200);
    assert_eq!(get(servers.public, "/readyz").await.status, 503);
    servers.store.fail(None);
    for _ in 0..100 {
        if get(servers.public, "/readyz").await.status == 200 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not ready again");
}

#[tokio::test]
async fn shutdown_finishes_and_then_refuses() {
    let mut servers = serve();
    let mut idle = Client::connect(servers.public).await;
    idle.write(webhook("acme", r#"{"id":1}"#)).await;
    assert_eq!(idle.reply().await.status, 200);
    let mut half = Client::connect(servers.public).await;
    half.write("POST /webhooks/acme HTTP/1.1\r\nHost: x\r\nX-Acme-Proof: right\r\nContent-Length: 8\r\n\r\n{\"id")
        .await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    servers.shutdown.cancel();
    assert!(idle.is_closed().await);
    half.write("\":2}").await;
    assert_eq!(half.reply().await.status, 200);
    servers.running.take().unwrap().stopped().await.unwrap();
    assert!(TcpStream::connect(servers.public).await.is_err());
    assert_eq!(servers.store.stored().len(), 2);
}

#[tokio::test]
async fn a_pure_worker_has_the_admin_listener_only() {
    let settings = Settings {
        webhooks: false,
        // Taken by another: it is not asked for.
        listen: std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap(),
        ..settings()
    };
    let _taken = std::net::TcpListener::bind(settings.listen).unwrap();
    let shutdown = CancellationToken::new();
    let running = start(settings, services(Arc::new(MemoryStore::default())), shutdown.clone()).unwrap();
    assert_eq!(running.public, None);
    assert_eq!(get(running.admin, "/readyz").await.status, 200);
    assert_eq!(send(running.admin, webhook("acme", r#"{"id":1}"#)).await.status, 404);
    shutdown.cancel();
    running.stopped().await.unwrap();
}
