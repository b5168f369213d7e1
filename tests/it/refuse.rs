//! Bad input gets one clear answer and costs nothing more.

use std::time::Duration;

use crate::support::{
    GITHUB_SECRET, STRIPE_SECRET, Server, Setup, TestStore, github, hmac_hex, now, on_both_stores, raw_exchange,
    resident_kib, stripe, stripe_at, stripe_body, stripe_signature,
};

on_both_stores!(
    what_is_not_proved_is_answered_401,
    what_is_proved_and_unreadable_is_answered_400,
    what_is_too_large_is_answered_413_however_it_is_sent,
    what_is_not_a_webhook_is_refused_by_its_status,
    a_hundred_bad_senders_cost_no_memory,
);

/// S7, S18, S21, T3
async fn what_is_not_proved_is_answered_401(store: TestStore) {
    let mut server = Setup::new(&store).start().await;
    let body = stripe_body("evt_1");
    let signed = |signature: &str| vec![("Stripe-Signature".to_owned(), signature.to_owned())];
    let time = now();
    let good = stripe_signature(STRIPE_SECRET, &body, time);
    let hex = good.split_once("v1=").unwrap().1;
    let cases = [
        ("none", vec![]),
        ("empty", signed("")),
        (
            "of another secret",
            signed(&stripe_signature("whsec_other", &body, time)),
        ),
        ("of the empty secret", signed(&stripe_signature("", &body, time))),
        ("of other bytes", signed(&stripe_signature(STRIPE_SECRET, b"{}", time))),
        ("without a time", signed(&format!("v1={hex}"))),
        ("without a signature", signed(&format!("t={time}"))),
        ("of another time", signed(&format!("t={},v1={hex}", time + 1))),
        ("with a time that is no number", signed(&format!("t=now,v1={hex}"))),
        (
            "with an endless time",
            signed(&format!("t=99999999999999999999999,v1={hex}")),
        ),
        ("in another version", signed(&format!("t={time},v0={hex}"))),
        ("cut", signed(&format!("t={time},v1={}", &hex[..62]))),
        ("longer", signed(&format!("t={time},v1={hex}00"))),
        ("not hex", signed(&format!("t={time},v1={}zz", &hex[..62]))),
        ("multi-byte", signed(&format!("t={time},v1=é{}", &hex[..62]))),
        ("garbage", signed(",,==,t=,v1=,")),
        ("too old", stripe_at(&body, time - 400)),
        ("too new", stripe_at(&body, time + 400)),
        ("from 1970", stripe_at(&body, 0)),
        ("before time", stripe_at(&body, -5)),
    ];
    for (what, headers) in cases {
        let reply = server.send("stripe", headers, body.clone()).await;
        assert_eq!(reply.status, 401, "{what}: {}", reply.text());
        assert!(reply.text().contains("unauthorized"), "{what}: {}", reply.text());
        assert!(!reply.text().contains(hex), "{what} is told the signature");
        assert!(
            reply.header("content-type").starts_with("application/problem+json"),
            "{what}: {}",
            reply.header("content-type")
        );
    }
    let mut sha1_only = github("guid-1", "push", b"{}");
    sha1_only[3] = (
        "X-Hub-Signature".into(),
        "sha1=0000000000000000000000000000000000000000".into(),
    );
    assert_eq!(server.send("github", sha1_only, *b"{}").await.status, 401);
    nothing_is_stored(&store, &mut server).await;
}

async fn what_is_proved_and_unreadable_is_answered_400(store: TestStore) {
    let mut server = Setup::new(&store).start().await;
    let bodies: [&[u8]; 10] = [
        b"",
        b"{",
        b"not json",
        b"\xff\xfe",
        b"{\"id\":\"evt\xff\"}",
        br#"{"type":"no id"}"#,
        br#"{"id":null}"#,
        br#"{"id":""}"#,
        b"[]",
        br#"{"id":"a"} trailing"#,
    ];
    for body in bodies {
        let reply = server.send("stripe", stripe(body), body).await;
        assert_eq!(reply.status, 400, "{}: {}", String::from_utf8_lossy(body), reply.text());
    }
    let deep = [b"{\"id\":".as_slice(), &b"[".repeat(100_000)].concat();
    assert_eq!(server.send("stripe", stripe(&deep), deep.clone()).await.status, 400);
    let headers = vec![(
        "X-Hub-Signature-256".to_owned(),
        format!("sha256={}", hmac_hex(GITHUB_SECRET, b"{}")),
    )];
    assert_eq!(
        server.send("github", headers, *b"{}").await.status,
        400,
        "no delivery id"
    );
    nothing_is_stored(&store, &mut server).await;
}

/// B1, B4: one limit, for every content type and every way of sending.
async fn what_is_too_large_is_answered_413_however_it_is_sent(store: TestStore) {
    let mut server = Setup::new(&store)
        .server("max_body = \"64KiB\"")
        .with(&format!(
            "[[provider]]\nname = \"large\"\nadapter = \"github\"\nmax_body = \"128KiB\"\nsecrets = [\"{GITHUB_SECRET}\"]"
        ))
        .start()
        .await;
    let body = vec![b'x'; 64 * 1024 + 1];
    for content_type in ["application/json", "application/x-www-form-urlencoded", "text/plain"] {
        let mut headers = github("guid-1", "push", &body);
        headers[0].1 = content_type.into();
        assert_eq!(
            server.send("github", headers, body.clone()).await.status,
            413,
            "{content_type}"
        );
    }

    let mut chunked = b"POST /webhooks/github HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..9 {
        chunked.extend_from_slice(b"2000\r\n");
        chunked.extend_from_slice(&[b'x'; 0x2000]);
        chunked.extend_from_slice(b"\r\n");
    }
    assert_eq!(status(&raw(&server, &chunked).await), 413);

    // A length that is only claimed is refused before a byte of it arrives.
    let claimed = b"POST /webhooks/github HTTP/1.1\r\nHost: x\r\nContent-Length: 70000\r\n\r\n";
    assert_eq!(status(&raw(&server, claimed).await), 413);
    nothing_is_stored(&store, &mut server).await;

    let reply = server
        .send("large", github("guid-1", "push", &body), body.clone())
        .await;
    assert_eq!(reply.status, 200, "a provider may have a limit of its own");
    let exact = vec![b'x'; 64 * 1024];
    server.github("guid-2", &exact).await;
}

/// B5, H5, S16, S17
async fn what_is_not_a_webhook_is_refused_by_its_status(store: TestStore) {
    let mut server = Setup::new(&store).server("body_timeout = \"1s\"").start().await;
    let body = stripe_body("evt_1");
    for path in ["unknown", "Stripe", "stripe/more", "..%2Fstripe", "%00", ""] {
        let reply = server.send(path, stripe(&body), body.clone()).await;
        assert_eq!(reply.status, 404, "{path}: {}", reply.text());
    }
    for method in ["PUT", "DELETE", "PATCH"] {
        let method: reqwest::Method = method.parse().unwrap();
        let url = format!("http://{}/webhooks/stripe", server.public());
        let reply = server.client.request(method.clone(), url).send().await.unwrap();
        assert_eq!(reply.status(), 405, "{method}");
        assert!(reply.headers().contains_key("allow"), "{method}");
    }
    // Ten megabytes of zeros, compressed: refused by its name, never unpacked.
    for encoding in ["gzip", "br", "deflate", "zstd", "gzip, gzip"] {
        let mut headers = stripe(&body);
        headers.push(("Content-Encoding".into(), encoding.into()));
        assert_eq!(
            server.send("stripe", headers, body.clone()).await.status,
            415,
            "{encoding}"
        );
    }
    let slow = b"POST /webhooks/stripe HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{";
    assert_eq!(status(&raw(&server, slow).await), 408);

    for garbage in [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".as_slice(),
        b"GET\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
        b"POST /webhooks/stripe HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /webhooks/stripe HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST /webhooks/stripe HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello",
    ] {
        let answer = raw(&server, garbage).await;
        let status = status(&answer);
        assert!(
            status == 0 || (400..500).contains(&status),
            "{}: {answer}",
            String::from_utf8_lossy(garbage)
        );
    }
    let endless = [b"GET / HTTP/1.1\r\nX: ".as_slice(), &vec![b'x'; 300_000]].concat();
    let answer = raw(&server, &endless).await;
    assert!(
        status(&answer) == 0 || (400..500).contains(&status(&answer)),
        "{answer}"
    );
    nothing_is_stored(&store, &mut server).await;
}

/// G10
async fn a_hundred_bad_senders_cost_no_memory(store: TestStore) {
    let mut server = Setup::new(&store).server("body_timeout = \"1s\"").start().await;
    let mut senders = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let address = server.public();
        senders.spawn(async move {
            let head = "POST /webhooks/stripe HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n";
            let half = [head.as_bytes(), &vec![b'x'; 500_000]].concat();
            raw_exchange(address, &half, Duration::from_secs(20)).await
        });
    }
    let forged = vec![b'x'; 1_000_000];
    for _ in 0..50 {
        let reply = server
            .send("github", github("guid-1", "push", b"{}"), forged.clone())
            .await;
        assert!(reply.status == 401 || reply.status == 503, "{}", reply.status);
    }
    for answer in senders.join_all().await {
        assert!([0, 408, 503].contains(&status(&answer)), "{answer}");
    }
    nothing_is_stored(&store, &mut server).await;
}

async fn raw(server: &Server, bytes: &[u8]) -> String {
    raw_exchange(server.public(), bytes, Duration::from_secs(8)).await
}

/// The status of a raw answer; 0 when the connection was closed without one.
fn status(answer: &str) -> u16 {
    answer
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3))
        .map_or(0, |status| status.parse().unwrap())
}

/// After all that the process is alive, small, and takes an honest event.
async fn nothing_is_stored(store: &TestStore, server: &mut Server) {
    assert_eq!(store.number("select count(*) from webhook_events").await, 0);
    assert!(server.is_running());
    if let Some(kib) = resident_kib(server.pid()) {
        // An unoptimised program with the bodies in flight, the store's cache and what quarantine holds.
        assert!(kib < 220 * 1024, "{kib} KiB");
    }
    server.stripe("evt_honest").await;
    assert_eq!(store.number("select count(*) from webhook_events").await, 1);
}
