//! The gateway between an upstream and clients that are at odds with HTTP, and a store that goes away meanwhile.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    sync::Notify,
};

use crate::{
    gateway::{gateway, keyed, orders, try_call},
    support::{Answer, Engine, Received, Setup, Sink, TestStore, on_both_stores, raw_exchange, run, wait_until},
};

on_both_stores!(
    answers_without_a_body_leave_the_connection_in_order,
    a_switch_of_protocols_that_nobody_asked_for_is_no_answer,
    a_replay_has_the_headers_of_the_first_answer,
    nobody_gets_a_tunnel,
    an_answer_of_many_headers_is_an_answer,
    an_upgrade_is_not_offered_and_harms_nothing,
    a_principal_comes_from_a_token_or_a_certificate,
    what_was_sent_and_not_answered_in_time_is_not_sent_again,
);

/// Says these bytes to every request on a connection.
async fn saying(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                    let _ = stream.write_all(answer.as_bytes()).await;
                }
            });
        }
    });
    address
}

const PATIENCE: Duration = Duration::from_secs(30);

async fn answers_without_a_body_leave_the_connection_in_order(store: TestStore) {
    let mut setup = Setup::new(&store);
    for (path, answer) in [
        ("none", "HTTP/1.1 204 No Content\r\nETag: \"1\"\r\n\r\n"),
        (
            "same",
            "HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\nContent-Length: 100\r\n\r\n",
        ),
        ("head", "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 100\r\n\r\n"),
        (
            "chunks",
            "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nTransfer-Encoding: chunked\r\n\r\n",
        ),
    ] {
        let upstream = saying(answer).await;
        setup = setup.with(&format!(
            "[[gateway]]\npath = \"/{path}\"\nupstream = \"http://{upstream}/\"\n"
        ));
    }
    let server = setup.start().await;
    for (method, path, status) in [
        ("GET", "none", 204),
        ("GET", "same", 304),
        ("HEAD", "none", 204),
        ("HEAD", "head", 200),
        ("HEAD", "chunks", 200),
    ] {
        let requests = format!(
            "{method} /{path} HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        );
        let answers = raw_exchange(server.public(), requests.as_bytes(), PATIENCE).await;
        let (first, second) = answers.split_once("\r\n\r\n").unwrap();
        assert!(first.starts_with(&format!("HTTP/1.1 {status}")), "{answers}");
        assert!(first.to_ascii_lowercase().contains("etag: \"1\""), "{answers}");
        assert!(second.starts_with("HTTP/1.1 200"), "{method} {path}: {answers}");
        if path == "head" {
            assert!(first.to_ascii_lowercase().contains("content-length: 100"), "{answers}");
        }
    }
}

async fn a_switch_of_protocols_that_nobody_asked_for_is_no_answer(store: TestStore) {
    let upstream = saying("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nx").await;
    let server = gateway(&store, &format!("http://{upstream}/"), "").start().await;
    let get = server.client.get(format!("http://{}/api/orders", server.public()));
    assert_eq!(get.send().await.unwrap().status(), 502);
    let first = keyed(&server, "k", "{}").await;
    assert_eq!((first.status, first.code().as_str()), (502, "upstream_broke"));
    let again = keyed(&server, "k", "{}").await;
    assert_eq!((again.status, again.code().as_str()), (409, "outcome_unknown"));
}

async fn a_replay_has_the_headers_of_the_first_answer(store: TestStore) {
    let upstream = saying(
        "HTTP/1.1 201 Created\r\nConnection: ETag\r\nETag: \"hop\"\r\nLocation: /orders/1\r\nContent-Length: 2\r\n\r\nok",
    )
    .await;
    let server = gateway(&store, &format!("http://{upstream}/"), "").start().await;
    for replayed in [false, true] {
        let reply = keyed(&server, "k", "{}").await;
        assert_eq!((reply.status, reply.is_replay()), (201, replayed));
        assert_eq!((reply.header("location"), reply.header("etag")), ("/orders/1", ""));
    }
}

async fn nobody_gets_a_tunnel(store: TestStore) {
    let upstream = Sink::start().await;
    let server = gateway(&store, &upstream.url(), "").start().await;
    let connect = "CONNECT /api/orders HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\n\r\n";
    let answer = raw_exchange(server.public(), connect.as_bytes(), Duration::from_secs(8)).await;
    assert!(answer.starts_with("HTTP/1.1 501"), "{answer}");
    assert_eq!(upstream.count(), 0);
}

async fn an_answer_of_many_headers_is_an_answer(store: TestStore) {
    let many = |_: &Received, _| {
        let headers = (0..150).map(|n| (format!("X-Many-{n}"), "v".repeat(100)));
        headers.fold(
            Answer::status(201).header("Location", "/orders/1"),
            |answer, (name, value)| answer.header(&name, &value),
        )
    };
    let upstream = Sink::with(many).await;
    let server = gateway(&store, &upstream.url(), "keep_headers = [\"X-Many-149\"]")
        .start()
        .await;
    // The client of these tests takes a hundred headers.
    let post = "POST /api/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ana\r\nIdempotency-Key: k\r\n\
                Content-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    let first = raw_exchange(server.public(), post.as_bytes(), PATIENCE).await;
    assert!(first.starts_with("HTTP/1.1 201"), "{first}");
    assert_eq!(first.to_ascii_lowercase().matches("x-many-").count(), 150);
    let again = keyed(&server, "k", "{}").await;
    assert_eq!((again.status, again.is_replay()), (201, true));
    assert_eq!(
        (again.header("location"), again.header("x-many-149").len()),
        ("/orders/1", 100)
    );
    assert_eq!(upstream.count(), 1);
}

async fn an_upgrade_is_not_offered_and_harms_nothing(store: TestStore) {
    let upstream = orders().await;
    let server = gateway(&store, &upstream.url(), "").start().await;
    for (nth, line) in ["POST", "PUT", "GET"].into_iter().enumerate() {
        let request = format!(
            "{line} /api/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ana\r\nIdempotency-Key: k\r\n\
             Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nContent-Length: 2\r\n\r\n{{}}\
             what follows is no request"
        );
        // Not the time of a body that never ends.
        let answer = raw_exchange(server.public(), request.as_bytes(), Duration::from_secs(8)).await;
        assert!(answer.starts_with("HTTP/1.1 201"), "{line}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
        let received = &upstream.received()[nth];
        assert_eq!((received.header("upgrade"), received.header("connection")), ("", ""));
        if line != "GET" {
            assert_eq!(received.body, b"{}", "{line}");
        }
    }
    assert!(
        keyed(&server, "k", "").await.status == 422,
        "the body is part of the request"
    );
    assert_eq!(upstream.count(), 3);
}

/// Signed with the secret below: two of Ana's, one of Bob's, and one of Ana's that somebody else signed.
const TOKENS: [&str; 4] = [
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbmEiLCJqdGkiOiIxIn0.QqQRbHzSb2KQHI8tN-uUlfj8Beizv6Jvsbc3Sh4OoY4",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbmEiLCJqdGkiOiIyIn0.KyKhPuqS0NA0wZRTpeeBpqZmURbTX3YRATQuCk8AL0c",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJib2IifQ.EGRrluUVBheUq2pnVwFo_0G3FJIypp5PTyAPu2TlM_Y",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbmEifQ.Z-twk7NSbRHmw9NdVquD_SiVrpAHKKoO4lmUyb1RldY",
];

async fn a_principal_comes_from_a_token_or_a_certificate(store: TestStore) {
    let upstream = Sink::start().await;
    let more = "principal = \"jwt:sub\"\njwt_key = \"0123456789abcdef0123\"";
    let certificate = "principal = \"client-cert:X-Client-Cert\"";
    {
        let server = gateway(&store, &upstream.url(), more).start().await;
        let mut said = Vec::new();
        for token in TOKENS {
            let bearer = format!("Bearer {token}");
            let headers = [("idempotency-key", "k"), ("authorization", bearer.as_str())];
            let reply = try_call(&server, &headers, "{}").await.unwrap();
            said.push((reply.status, reply.is_replay()));
        }
        assert_eq!(said, [(200, false), (200, true), (200, false), (401, false)]);
        assert_eq!(upstream.count(), 2);
    }
    let headers = [("idempotency-key", "k"), ("x-client-cert", "CN=ana")];
    let server = gateway(&store, &upstream.url(), certificate).start().await;
    let reply = try_call(&server, &headers, "{}").await.unwrap();
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (401, "principal_missing"),
        "no proxy is trusted"
    );
    let server = gateway(&store, &upstream.url(), certificate)
        .server("trusted_proxies = [\"127.0.0.0/8\"]")
        .start()
        .await;
    for replayed in [false, true] {
        let reply = try_call(&server, &headers, "{}").await.unwrap();
        assert_eq!((reply.status, reply.is_replay()), (200, replayed));
    }
    let other = [("idempotency-key", "k"), ("x-client-cert", "CN=bob")];
    assert!(!try_call(&server, &other, "{}").await.unwrap().is_replay());
    assert_eq!(upstream.count(), 4);
}

async fn what_was_sent_and_not_answered_in_time_is_not_sent_again(store: TestStore) {
    let upstream = Sink::with(|_, n| match n {
        0 => Answer::status(201).after(Duration::from_secs(60)),
        _ => Answer::cut(),
    })
    .await;
    let route = format!(
        "[[gateway]]\npath = \"/api/orders\"\nupstream = \"{}\"\ntimeout = \"1s\"\n",
        upstream.url()
    );
    let server = Setup::new(&store).with(&route).start().await;
    for (key, status, code) in [("slow", 504, "upstream_slow"), ("cut", 502, "upstream_broke")] {
        let reply = keyed(&server, key, "{}").await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code));
        let again = keyed(&server, key, "{}").await;
        assert_eq!((again.status, again.code().as_str()), (409, "outcome_unknown"));
        assert_ne!(again.header("retry-after"), "");
    }
    assert_eq!(upstream.count(), 2);
}

/// The store is away when the answer comes, for longer than the client waits; its next try hears the answer all the same.
#[test]
fn an_answer_that_could_not_be_kept_at_once_is_kept_later() {
    run(Engine::Postgres, async |store: TestStore| {
        let when = Arc::new(Notify::new());
        let go_on = Arc::clone(&when);
        let upstream = Sink::with(move |_, _| Answer::status(201).header("Location", "/orders/1").when(&go_on)).await;
        let server = gateway(&store, &upstream.url(), "").start().await;
        let headers = [("idempotency-key", "k")];
        let (first, ()) = tokio::join!(try_call(&server, &headers, "{}"), async {
            wait_until("the upstream has the request", async || upstream.count() == 1).await;
            store.take_away().await;
            when.notify_one();
        });
        let first = first.unwrap();
        assert_eq!((first.status, first.header("location")), (201, "/orders/1"));
        store.restore().await;
        wait_until("the answer is kept", async || {
            let again = keyed(&server, "k", "{}").await;
            again.status == 201 && again.is_replay() && again.header("location") == "/orders/1"
        })
        .await;
        assert_eq!(upstream.count(), 1);
    });
}
