//! Lengths, heads and connections: what a request is before anyone asks whose it is.

use std::time::Duration;

use super::*;

#[tokio::test]
async fn a_declared_length_beyond_the_limit_is_refused_before_it_is_read() {
    let servers = serve();
    let mut client = Client::connect(servers.public).await;
    let head = format!(
        "POST /webhooks/acme HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
        MAX_BODY + 1
    );
    client.write(head).await;
    let reply = client.reply().await;
    assert_eq!(reply.status, 413);
    reply.problem();
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn a_chunked_body_is_counted_as_it_comes() {
    let servers = serve();
    let head = "POST /webhooks/acme HTTP/1.1\r\nHost: x\r\nX-Acme-Proof: right\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut client = Client::connect(servers.public).await;
    client
        .write(format!("{head}5\r\n{{\"id\"\r\n3\r\n:1}}\r\n0\r\n\r\n"))
        .await;
    assert_eq!(client.reply().await.status, 200);

    client.write(head).await;
    let chunk = format!("{:x}\r\n{}\r\n", 16_384, "y".repeat(16_384));
    for _ in 0..5 {
        client.write(&chunk).await;
    }
    let reply = client.reply().await;
    assert_eq!(reply.status, 413);
    // It never ends, and yet the connection does.
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn the_largest_allowed_body_is_stored_as_it_came() {
    let servers = serve();
    let mut body = br#"{"id":"big","x":""#.to_vec();
    body.resize(MAX_BODY - 2, 0xff);
    body.extend_from_slice(b"\"}");
    let mut request =
        format!("POST /webhooks/acme HTTP/1.1\r\nHost: x\r\nX-Acme-Proof: right\r\nContent-Length: {MAX_BODY}\r\n\r\n")
            .into_bytes();
    request.extend_from_slice(&body);
    assert_eq!(send(servers.public, request).await.status, 200);
    assert_eq!(servers.store.stored()[0].payload, body);
}

#[tokio::test]
async fn a_body_that_does_not_come_is_408_and_the_connection_is_closed() {
    let servers = serve_with(Settings {
        body_timeout: Duration::from_millis(100),
        ..settings()
    });
    for framing in [
        "Content-Length: 10\r\n\r\n{",
        "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
    ] {
        let mut client = Client::connect(servers.public).await;
        client
            .write(format!("POST /webhooks/acme HTTP/1.1\r\nHost: x\r\n{framing}"))
            .await;
        let reply = client.reply().await;
        assert_eq!(reply.status, 408);
        reply.problem();
        assert!(client.is_closed().await);
    }
}

#[tokio::test]
async fn a_post_without_a_length_has_an_empty_body() {
    let servers = serve();
    let reply = send(
        servers.public,
        "POST /webhooks/acme HTTP/1.1\r\nHost: x\r\nX-Acme-Proof: right\r\n\r\n",
    )
    .await;
    assert_eq!(reply.status, 400);
}

#[tokio::test]
async fn encoded_bodies_are_415_and_identity_is_not_encoded() {
    let servers = serve();
    for encoding in ["gzip", "br", "identity, gzip"] {
        let headers = format!("X-Acme-Proof: right\r\nContent-Encoding: {encoding}\r\n");
        let reply = send(servers.public, post("/webhooks/acme", &headers, r#"{"id":1}"#)).await;
        assert_eq!(reply.status, 415, "{encoding}");
        reply.problem();
    }
    let headers = "X-Acme-Proof: right\r\nContent-Encoding: Identity\r\n";
    assert_eq!(
        send(servers.public, post("/webhooks/acme", headers, r#"{"id":1}"#))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn expect_continue_is_answered() {
    let servers = serve();
    let mut client = Client::connect(servers.public).await;
    client
        .write("POST /webhooks/acme HTTP/1.1\r\nHost: x\r\nX-Acme-Proof: right\r\nContent-Length: 8\r\nExpect: 100-continue\r\n\r\n")
        .await;
    assert_eq!(client.reply().await.status, 100);
    client.write(r#"{"id":1}"#).await;
    assert_eq!(client.reply().await.status, 200);
}

#[tokio::test]
async fn an_upgrade_is_ignored() {
    let servers = serve();
    for value in ["websocket", "h2c", "websocket, foo"] {
        let body = format!("{{\"id\":\"{value}\"}}");
        let mut client = Client::connect(servers.public).await;
        // What comes after the body is not part of it.
        client
            .write(format!(
                "POST /webhooks/acme HTTP/1.1\r\nHost: x\r\nX-Acme-Proof: right\r\nConnection: Upgrade\r\n\
                 Upgrade: {value}\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ))
            .await;
        assert_eq!(client.reply().await.status, 200, "{value}");
        assert_eq!(servers.store.stored().last().unwrap().payload, body);
    }
    let mut client = Client::connect(servers.public).await;
    client
        .write("POST /webhooks/acme HTTP/1.1\r\nHost: x\r\nX-Acme-Proof: right\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .await;
    assert_eq!(client.reply().await.status, 400, "no length is no body");
    assert!(client.is_closed().await);
    let mut client = Client::connect(servers.admin).await;
    client
        .write("POST /api/v1/events/reprocess HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n[]")
        .await;
    assert_eq!(client.reply().await.status, 400);
}

#[tokio::test]
async fn a_connection_survives_a_refusal_whose_body_was_read() {
    let servers = serve();
    let mut client = Client::connect(servers.public).await;
    client.write(post("/webhooks/acme", "", r#"{"id":1}"#)).await;
    assert_eq!(client.reply().await.status, 401);
    client.write(webhook("acme", r#"{"id":1}"#)).await;
    assert_eq!(client.reply().await.status, 200);
    // Two at once.
    client
        .write(webhook("acme", r#"{"id":2}"#) + &webhook("acme", r#"{"id":3}"#))
        .await;
    assert_eq!(client.reply().await.status, 200);
    assert_eq!(client.reply().await.status, 200);
    assert_eq!(servers.store.stored().len(), 3);
}

#[tokio::test]
async fn large_heads_are_taken_or_refused_but_never_grow() {
    let servers = serve();
    let header = |size| format!("X-Acme-Proof: right\r\nX-Padding: {}\r\n", "y".repeat(size));
    let reply = send(
        servers.public,
        post("/webhooks/acme", &header(32 * 1024), r#"{"id":1}"#),
    )
    .await;
    assert_eq!(reply.status, 200);
    assert!(servers.store.stored()[0].headers.len() < 1000);
    let mut client = Client::connect(servers.public).await;
    let request = post("/webhooks/acme", &header(140 * 1024), r#"{"id":1}"#);
    let _ = client.0.write_all(request.as_bytes()).await;
    assert_eq!(client.reply().await.status, 431);
    let many: String = (0..200).map(|i| format!("X-H{i}: 1\r\n")).collect();
    assert_eq!(
        send(servers.public, post("/webhooks/acme", &many, "{}")).await.status,
        431
    );
}

#[tokio::test]
async fn garbage_is_400_and_closed() {
    let servers = serve();
    for garbage in [
        "\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        "GET\r\n\r\n",
        "POST /webhooks/acme HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        "POST /webhooks/acme HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        "POST /webhooks/acme HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n{}",
    ] {
        let mut client = Client::connect(servers.public).await;
        client.write(garbage).await;
        assert_eq!(client.reply().await.status, 400, "{garbage:?}");
        assert!(client.is_closed().await, "{garbage:?}");
    }
    let broken = "POST /webhooks/acme HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
    assert_eq!(send(servers.public, broken).await.status, 400);
}

#[tokio::test]
async fn a_connection_that_stops_in_the_middle_of_a_head_is_closed() {
    let servers = serve_with(Settings {
        silence: Duration::from_millis(400),
        ..settings()
    });
    let mut half = Client::connect(servers.public).await;
    half.write(webhook("acme", r#"{"id":1}"#)).await;
    assert_eq!(half.reply().await.status, 200);
    half.write("POST /webhooks/acme HTTP/1.1\r\nHo").await;
    assert!(half.is_closed().await);
    let mut busy = Client::connect(servers.public).await;
    for _ in 0..8 {
        busy.write("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert_eq!(busy.reply().await.status, 200);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_first_head_that_never_ends_is_408() {
    let servers = serve();
    let mut client = Client::connect(servers.public).await;
    client.write("POST /webhooks/acme HTTP/1.1\r\nHo").await;
    assert_eq!(client.reply().await.status, 408);
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn a_sender_can_read_its_refusal_after_sending_everything() {
    let servers = serve();
    let body = "y".repeat(8 << 20);
    for (target, status) in [("/webhooks/nobody", 404), ("/webhooks/acme", 413), ("/elsewhere", 404)] {
        let mut client = Client::connect(servers.public).await;
        client.write(post(target, "", &body)).await;
        assert_eq!(client.reply().await.status, status, "{target}");
    }
}
