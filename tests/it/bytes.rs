//! Bytes out equal bytes in, and ids are opaque.

use crate::support::{Setup, Sink, TestStore, github, on_both_stores, stripe};

/// A header holds visible ASCII only. The percent sign is encoded too, so that no two ids share a key.
const HIDDEN: &percent_encoding::AsciiSet = &percent_encoding::CONTROLS.add(b' ').add(b'%');

on_both_stores!(
    every_body_comes_back_byte_for_byte,
    ids_are_opaque,
    a_form_body_is_kept_as_it_came_and_read_through_its_field,
);

/// G9, S1, S2, S19, S23, U1, U5, U6
async fn every_body_comes_back_byte_for_byte(store: TestStore) {
    let bodies: [(&str, &[u8]); 18] = [
        ("escaped-nul", br#"{"a":"\u0000"}"#),
        ("raw-nul", b"{\"a\":\"\0\"}"),
        ("lone-surrogate", br#"{"a":"\ud800"}"#),
        ("not-utf8-in-a-string", b"{\"a\":\"\xff\"}"),
        ("not-utf8", b"\xff\xfe"),
        (
            "large-integers",
            br#"{"n":9007199254740993,"m":-9223372036854775808,"k":18446744073709551615123}"#,
        ),
        ("number-forms", br#"{"a":1.0,"b":1e400,"c":-0,"d":0.1000}"#),
        ("crlf", b"{\r\n\t\"a\" : 1\r\n}\r\n"),
        ("key-order-and-repeats", br#"{"b":1,"a":2,"b":3}"#),
        ("emoji", "{\"a\":\"😀 é ß\"}".as_bytes()),
        ("zero-width", "{\"a\":\"\u{200b}\u{feff}\"}".as_bytes()),
        ("byte-order-mark", b"\xef\xbb\xbf{}"),
        ("only-space", b" \n"),
        ("empty", b""),
        ("not-json", b"<xml/>"),
        ("scalar", b"null"),
        ("sql", br#"{"a":"'; drop table webhook_events; --"}"#),
        ("utf16", b"{\0}\0"),
    ];
    let sink = Sink::start().await;
    let server = Setup::new(&store).http("forward", &sink.url()).start().await;
    for (name, body) in bodies {
        server.github(name, body).await;
    }
    let large = [b"{\"pad\":\"", vec![b'x'; 900_000].as_slice(), b"\"}"].concat();
    server.github("large", &large).await;
    for (name, body) in bodies.into_iter().chain([("large", large.as_slice())]) {
        server.wait_for("github", name, "done").await;
        assert_eq!(server.payload("github", name).await, body, "{name}, from the API");
        let key = format!("github:{name}:forward");
        let received = sink.received();
        let request = received
            .iter()
            .find(|request| request.header("idempotency-key") == key)
            .unwrap_or_else(|| panic!("{name} was not forwarded"));
        assert_eq!(request.body, body, "{name}, from the handler");
    }
    let output = server.cli(&["events", "payload", "github", "not-utf8"]);
    assert_eq!(output.stdout, b"\xff\xfe");
}

/// U8: `&`, `/`, quotes, spaces, 300 characters; in the API, the handler's key and the command line.
async fn ids_are_opaque(store: TestStore) {
    let long = "x".repeat(300);
    let ids = [
        "evt_a&1",
        "evt/a/b",
        "evt?a=b#c",
        "evt%2Fa",
        "evt a+b",
        "evt\"'`$(id)",
        "evt;drop",
        "évt_😀",
        "1",
        long.as_str(),
    ];
    let sink = Sink::start().await;
    let server = Setup::new(&store).http("forward", &sink.url()).start().await;
    for id in ids {
        server.stripe(id).await;
        server.stripe(id).await;
    }
    for id in ids {
        let event = server.wait_for("stripe", id, "done").await;
        assert_eq!(event["provider_event_id"], id);
        assert_eq!(event["conflicts"], 0);
        let output = server.cli(&["events", "show", "stripe", id, "--json"]);
        assert!(
            output.status.success(),
            "{id}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(shown["provider_event_id"], id);
    }
    assert_eq!(server.all_events("stripe").await.len(), ids.len());
    assert_eq!(sink.count(), ids.len());
    for request in sink.received() {
        let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
        let id = body["id"].as_str().unwrap();
        let id = percent_encoding::utf8_percent_encode(id, HIDDEN);
        assert_eq!(request.header("idempotency-key"), format!("stripe:{id}:forward"));
    }
    // An id that is a number keeps its digits.
    let body = br#"{"id":12345678901234567890,"type":"x"}"#;
    assert_eq!(server.send("stripe", stripe(body), *body).await.status, 200);
    server.wait_for("stripe", "12345678901234567890", "done").await;
}

/// S4
async fn a_form_body_is_kept_as_it_came_and_read_through_its_field(store: TestStore) {
    let sink = Sink::start().await;
    let server = Setup::new(&store)
        .http("forward", &sink.url())
        .sql("ledger")
        .start()
        .await;
    server.create_effects().await;
    let body = b"payload=%7B%22id%22%3A%22x%22%2C%22repository%22%3A+%7B%22id%22%3A+41%7D%2C%22s%22%3A%22a%26b%22%7D";
    let mut headers = github("guid-1", "issues", body);
    headers[0].1 = "application/x-www-form-urlencoded".into();
    assert_eq!(server.send("github", headers, *body).await.status, 200);
    let event = server.wait_for("github", "guid-1", "done").await;
    assert_eq!(event["event_type"], "issues");
    assert_eq!(event["ordering_key"], "41");
    assert_eq!(server.payload("github", "guid-1").await, body);
    assert_eq!(store.number("select count(*) from effects where id = 'x'").await, 1);
    assert_eq!(sink.received()[0].body, body);
    assert_eq!(
        sink.received()[0].header("content-type"),
        "application/x-www-form-urlencoded"
    );
}
