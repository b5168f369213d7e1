//! The gateway: a write with a key happens once, whatever the client, the upstream and the process do.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;

use crate::support::{Answer, Server, Setup, Sink, TestStore, on_both_stores, raw_exchange};

on_both_stores!(
    a_write_with_a_key_happens_once_and_is_answered_again_byte_for_byte,
    a_hundred_at_once_make_one_call,
    what_is_not_a_keyed_write_passes_through_or_is_refused,
    two_principals_never_meet,
    what_began_nothing_frees_its_key,
    an_upstream_that_cannot_be_reached_frees_or_keeps_the_key,
    an_upstream_that_takes_no_connection_is_down,
    an_answer_too_large_to_keep_reaches_the_client_once,
    keys_are_visible_to_the_operator,
    a_write_of_the_admin_api_takes_a_key,
);

/// A gateway at /api/orders.
pub(crate) fn gateway(store: &TestStore, upstream: &str, more: &str) -> Setup {
    Setup::new(store).with(&format!(
        "[[gateway]]\npath = \"/api/orders\"\nupstream = \"{upstream}\"\ntimeout = \"60s\"\n{more}\n"
    ))
}

/// Counts its calls, and answers each with a Location and a body of its own.
pub(crate) async fn orders() -> Sink {
    Sink::with(|_, n| {
        Answer::status(201)
            .header("Location", &format!("/orders/{n}"))
            .header("ETag", "\"v1\"")
            .header("Content-Type", "application/json")
            .header("X-Private", "1")
            .header("Set-Cookie", "s=1")
    })
    .await
}

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap_or_default())
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == "true"
    }

    pub(crate) fn code(&self) -> String {
        let problem: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        assert_eq!(self.header("content-type"), "application/problem+json");
        assert_eq!(problem["status"], self.status);
        problem["code"].as_str().unwrap_or_default().to_owned()
    }
}

async fn call(server: &Server, headers: &[(&str, &str)], body: &str) -> Reply {
    try_call(server, headers, body).await.unwrap()
}

pub(crate) async fn try_call(server: &Server, headers: &[(&str, &str)], body: &str) -> Result<Reply, reqwest::Error> {
    let url = format!("http://{}/api/orders", server.public());
    let mut request = server.client.post(url).body(body.to_owned());
    if !headers.iter().any(|(name, _)| *name == "authorization") {
        request = request.header("authorization", "Bearer ana");
    }
    request = request.header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await?;
    Ok(Reply {
        status: response.status().as_u16(),
        headers: response.headers().clone(),
        body: response.bytes().await?.to_vec(),
    })
}

pub(crate) async fn keyed(server: &Server, key: &str, body: &str) -> Reply {
    call(server, &[("idempotency-key", key)], body).await
}

async fn a_write_with_a_key_happens_once_and_is_answered_again_byte_for_byte(store: TestStore) {
    let upstream = orders().await;
    let setup = gateway(&store, &upstream.url(), "");
    let server = setup.start().await;
    let first = keyed(&server, "k1", r#"{"a":1,"b":[true]}"#).await;
    assert_eq!((first.status, first.is_replay()), (201, false));
    assert_eq!(first.header("set-cookie"), "s=1");
    let same = |again: &Reply| {
        assert_eq!((again.status, again.is_replay()), (201, true));
        assert_eq!(again.body, first.body);
        for name in ["location", "etag", "content-type"] {
            assert_eq!(again.header(name), first.header(name), "{name}");
        }
        assert_eq!(again.header("set-cookie"), "", "what may be a credential is not kept");
    };
    // Spelt in another way it is the same request, and the same key.
    same(&keyed(&server, "\"k1\"", "{ \"b\":[true], \"a\":1.0 }").await);
    let other = keyed(&server, "k1", r#"{"a":2,"b":[true]}"#).await;
    assert_eq!((other.status, other.code().as_str()), (422, "idempotency_key_reused"));

    // It is on disk, not only in memory.
    server.kill();
    let server = setup.start().await;
    same(&keyed(&server, "k1", r#"{"a":1,"b":[true]}"#).await);
    let other = keyed(&server, "k1", "{}").await;
    assert_eq!(other.status, 422);
    assert_eq!(upstream.count(), 1);
    let received = &upstream.received()[0];
    assert_eq!(
        received.body, br#"{"a":1,"b":[true]}"#,
        "the bytes are passed on as they came"
    );
    assert_eq!(received.header("idempotency-key"), "k1");
    assert_eq!(received.header("x-forwarded-for"), "127.0.0.1");
    assert_eq!(received.header("x-forwarded-proto"), "http");
    assert!(received.header("x-forwarded-host").starts_with("127.0.0.1:"));
}

async fn a_hundred_at_once_make_one_call(store: TestStore) {
    let upstream = Sink::with(|_, _| Answer::status(201).after(Duration::from_millis(500))).await;
    let server = gateway(&store, &upstream.url(), "").start().await;
    let replies = join_all((0..100).map(|_| keyed(&server, "k", "{}"))).await;
    assert_eq!(upstream.count(), 1);
    let mut firsts = 0;
    for reply in &replies {
        match reply.status {
            201 if reply.is_replay() => {}
            201 => firsts += 1,
            409 => {
                assert_eq!(reply.code(), "request_in_progress");
                let seconds: u64 = reply.header("retry-after").parse().unwrap();
                assert!((1..=5).contains(&seconds));
            }
            other => panic!("{other}"),
        }
    }
    assert_eq!(firsts, 1);
    assert!(keyed(&server, "k", "{}").await.is_replay());
}

async fn what_is_not_a_keyed_write_passes_through_or_is_refused(store: TestStore) {
    let upstream = orders().await;
    let server = gateway(&store, &upstream.url(), "required = true\nmax_body = \"1KiB\"")
        .start()
        .await;
    for (headers, status, code) in [
        (vec![], 400, "idempotency_key_missing"),
        (vec![("idempotency-key", "")], 400, "idempotency_key_invalid"),
        (vec![("idempotency-key", "\"open")], 400, "idempotency_key_invalid"),
        (
            vec![("idempotency-key", "a"), ("idempotency-key", "a")],
            400,
            "idempotency_key_invalid",
        ),
        (
            vec![("idempotency-key", "a"), ("authorization", "")],
            401,
            "principal_missing",
        ),
    ] {
        let reply = call(&server, &headers, "{}").await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{headers:?}");
    }
    let large = keyed(&server, "a", &"x".repeat(2000)).await;
    assert_eq!((large.status, large.code().as_str()), (413, "body_too_large"));
    assert_eq!(upstream.count(), 0);

    // Other methods go by, with the path and the query.
    let url = format!("http://{}/api/orders/7?x=1", server.public());
    let reply = server.client.get(&url).send().await.unwrap();
    assert_eq!(reply.status(), 201);
    assert_eq!(reply.text().await.unwrap(), "ok");
    let reply = server.client.put(&url).body("{}").send().await.unwrap();
    assert_eq!(reply.status(), 201);
    assert_eq!(upstream.received()[1].body, b"{}");
    for bad in ["/api/orders/%2e%2e/admin", "/api/orders/..%2Fadmin", "/api/ordersx"] {
        let head = format!("GET {bad} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let answer = raw_exchange(server.public(), head.as_bytes(), Duration::from_secs(30)).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{bad}: {answer}");
    }
    assert_eq!(upstream.count(), 2);
}

/// Nothing was sent, so the key is free, and the next try is one of the same kind.
async fn an_upstream_that_takes_no_connection_is_down(store: TestStore) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    // Nobody accepts these; once the queue is full, the next one waits for its connection.
    let mut queue = Vec::new();
    let full = Duration::from_millis(500);
    while let Ok(stream) = tokio::time::timeout(full, tokio::net::TcpStream::connect(address)).await {
        queue.push(stream.unwrap());
        assert!(queue.len() < 1000);
    }
    let route = format!("[[gateway]]\npath = \"/api/orders\"\nupstream = \"http://{address}/\"\ntimeout = \"2s\"\n");
    let server = Setup::new(&store).with(&route).start().await;
    for _ in 0..2 {
        let reply = call(&server, &[("idempotency-key", "k")], "{}").await;
        assert_eq!((reply.status, reply.code().as_str()), (503, "upstream_down"));
    }
}

async fn two_principals_never_meet(store: TestStore) {
    let upstream = orders().await;
    let server = gateway(&store, &upstream.url(), "").start().await;
    for (nth, who) in ["Bearer ana", "Bearer bob"].into_iter().enumerate() {
        let reply = call(&server, &[("idempotency-key", "k"), ("authorization", who)], "{}").await;
        assert_eq!((reply.status, reply.is_replay()), (201, false));
        assert_eq!(reply.header("location"), format!("/orders/{nth}"));
    }
    let stored = store
        .number("select count(*) from api_idempotency_keys where scope like '%ana%'")
        .await;
    assert_eq!(stored, 0, "the credential itself is not stored");
}

async fn what_began_nothing_frees_its_key(store: TestStore) {
    let upstream = Sink::answering(&[429, 422, 409, 500]).await;
    let server = gateway(&store, &upstream.url(), "").start().await;
    for status in [429, 422, 409, 500] {
        let reply = keyed(&server, "k", "{}").await;
        assert_eq!((reply.status, reply.is_replay()), (status, false));
    }
    let reply = keyed(&server, "k", "{}").await;
    assert_eq!(
        (reply.status, reply.is_replay()),
        (500, true),
        "execution began, so it is not repeated"
    );
    assert_eq!(upstream.count(), 4);
}

async fn an_upstream_that_cannot_be_reached_frees_or_keeps_the_key(store: TestStore) {
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let upstream = format!("http://{nobody}/x");
    let keeps = format!("[[gateway]]\npath = \"/api/kept\"\nupstream = \"{upstream}\"\non_upstream_down = \"keep\"\n");
    let server = gateway(&store, &upstream, "").with(&keeps).start().await;
    let reply = keyed(&server, "k", "{}").await;
    assert_eq!((reply.status, reply.code().as_str()), (503, "upstream_down"));
    assert_ne!(reply.header("retry-after"), "");
    assert_eq!(store.number("select count(*) from api_idempotency_keys").await, 0);
    assert_eq!(keyed(&server, "k", "{\"another\":1}").await.status, 503);

    let kept = async |body: &'static str| {
        let url = format!("http://{}/api/kept", server.public());
        let request = server
            .client
            .post(url)
            .header("authorization", "x")
            .header("idempotency-key", "k");
        request.body(body).send().await.unwrap().status().as_u16()
    };
    assert_eq!(kept("1").await, 503);
    assert_eq!(kept("2").await, 422, "the key is bound to its first request");
    assert_eq!(kept("1").await, 503, "which may be sent again");
}

async fn an_answer_too_large_to_keep_reaches_the_client_once(store: TestStore) {
    let upstream = Sink::with(|_, _| Answer::status(201).header("Location", "/orders/1")).await;
    let server = gateway(&store, &upstream.url(), "max_answer = \"1B\"").start().await;
    let first = keyed(&server, "k", "{}").await;
    assert_eq!((first.status, first.body.as_slice()), (201, &b"ok"[..]));
    let again = keyed(&server, "k", "{}").await;
    assert_eq!((again.status, again.code().as_str()), (409, "answer_not_kept"));
    assert_eq!(again.header("location"), "/orders/1");
    assert_eq!(upstream.count(), 1);
}

async fn keys_are_visible_to_the_operator(store: TestStore) {
    let upstream = orders().await;
    let server = gateway(&store, &upstream.url(), "").start().await;
    for key in ["a", "b"] {
        keyed(&server, key, "{}").await;
    }
    keyed(&server, "a", "{}").await;
    keyed(&server, "a", "[]").await;
    let page = server.get("/api/v1/idempotency?limit=1").await.json();
    assert_eq!(page["keys"][0]["key"], "b");
    assert_eq!(page["keys"][0]["resource_id"], "1");
    let next = page["next"].as_str().unwrap();
    let page = server
        .get(&format!("/api/v1/idempotency?limit=1&cursor={next}"))
        .await
        .json();
    assert_eq!(page["keys"][0]["key"], "a");
    let id = page["keys"][0]["id"].as_i64().unwrap();
    let shown = server.get(&format!("/api/v1/idempotency/{id}")).await.json();
    assert_eq!(
        (&shown["status"], &shown["answer"]["status"]),
        (&"completed".into(), &201.into())
    );
    assert_eq!(server.get("/api/v1/idempotency/999999").await.status, 404);
    assert_eq!(server.get("/api/v1/idempotency?x=1").await.status, 400);

    let listed = server.cli(&["idempotency", "list", "--json", "--route", "/api/orders"]);
    assert_eq!(String::from_utf8(listed.stdout).unwrap().lines().count(), 2);
    let shown = server.cli(&["idempotency", "show", &id.to_string()]);
    assert!(shown.status.success() && String::from_utf8(shown.stdout).unwrap().contains("/orders/0"));
    assert!(!server.cli(&["idempotency", "show", "999999"]).status.success());
    let stats = server.cli(&["idempotency", "stats", "--json"]);
    let stats: Value = serde_json::from_slice(&stats.stdout).unwrap();
    assert_eq!(stats["completed"], 2);

    let metrics = server.get("/metrics").await.text();
    for line in [
        "cerca_idempotency_requests_total{route=\"/api/orders\",outcome=\"first\"} 2",
        "cerca_idempotency_requests_total{route=\"/api/orders\",outcome=\"replayed\"} 1",
        "cerca_idempotency_requests_total{route=\"/api/orders\",outcome=\"idempotency_key_reused\"} 1",
        "cerca_idempotency_keys{state=\"completed\"} 2",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}

async fn a_write_of_the_admin_api_takes_a_key(store: TestStore) {
    let server = Setup::new(&store).start().await;
    let write = async |key: &'static str, body: &'static str| {
        let url = format!("http://{}/api/v1/events/reprocess", server.admin());
        let request = server.client.post(url).header("idempotency-key", key);
        let reply = request
            .header("content-type", "application/json")
            .body(body)
            .send()
            .await
            .unwrap();
        let replayed = reply.headers().contains_key("idempotent-replayed");
        (reply.status().as_u16(), replayed)
    };
    assert_eq!(write("k", r#"{"provider":"stripe"}"#).await, (200, false));
    assert_eq!(write("k", r#"{ "provider": "stripe" }"#).await, (200, true));
    assert_eq!(write("k", r#"{"provider":"github"}"#).await.0, 422);
    // A refusal keeps nothing: the corrected request may use the key.
    assert_eq!(write("typo", r#"{"provder":"stripe"}"#).await.0, 400);
    assert_eq!(write("typo", r#"{"provider":"stripe"}"#).await, (200, false));
}
