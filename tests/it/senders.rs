//! What senders are like: their clocks, secrets, proxies, challenges, and the answers that they want.

use crate::support::{
    STRIPE_SECRET, Server, Setup, TestStore, hmac_hex, now, on_both_stores, stripe, stripe_at, stripe_body,
    stripe_signature,
};

on_both_stores!(
    two_secrets_live_side_by_side_while_one_is_rotated,
    a_tolerance_can_be_wider_or_off,
    milliseconds_are_not_taken_for_seconds,
    a_trailing_slash_is_the_same_address,
    an_ownership_challenge_is_answered_as_plain_text_and_not_stored,
    the_answer_is_what_the_sender_wants_to_read,
    the_signed_url_is_the_public_one_whatever_the_host_header_says,
    a_signed_message_can_be_made_of_query_and_headers,
    a_sender_that_nobody_knows_is_described_in_the_configuration,
    the_operator_chooses_which_id_tells_events_apart,
);

const TITLE: &str = "title = \"Acme\"\ndocs = \"https://example.com/webhooks\"\n";

/// R1, R2
async fn two_secrets_live_side_by_side_while_one_is_rotated(store: TestStore) {
    let server = Setup::new(&store)
        .without_providers()
        .with("[[provider]]\nname = \"stripe\"\nsecrets = [\"whsec_new_secret\", \"whsec_old_secret\"]")
        .start()
        .await;
    for (secret, expected) in [
        ("whsec_new_secret", 200),
        ("whsec_old_secret", 200),
        ("whsec_none", 401),
    ] {
        let body = stripe_body(secret);
        let headers = vec![("Stripe-Signature".into(), stripe_signature(secret, &body, now()))];
        assert_eq!(server.send("stripe", headers, body).await.status, expected, "{secret}");
    }
    // A sender in rotation signs with both in one header.
    let body = stripe_body("evt_both");
    let at = now();
    let both = format!(
        "{},v1={}",
        stripe_signature("whsec_unknown", &body, at),
        hmac_hex("whsec_old_secret", &[format!("{at}.").as_bytes(), &body].concat())
    );
    let reply = server
        .send("stripe", vec![("Stripe-Signature".into(), both)], body)
        .await;
    assert_eq!(reply.status, 200);
}

/// T1, T9: some senders keep the first time in every retry.
async fn a_tolerance_can_be_wider_or_off(store: TestStore) {
    let server = Setup::new(&store)
        .with(&format!(
            "[[provider]]\nname = \"wide\"\nadapter = \"stripe\"\ntolerance = \"10m\"\nsecrets = [\"{STRIPE_SECRET}\"]\n\
             [[provider]]\nname = \"off\"\nadapter = \"stripe\"\ntolerance = \"none\"\nsecrets = [\"{STRIPE_SECRET}\"]"
        ))
        .start()
        .await;
    let ages = [
        (-200, [200, 200, 200]),
        (-500, [401, 200, 200]),
        (-4 * 3600, [401, 401, 200]),
        (500, [401, 200, 200]),
    ];
    for (age, expected) in ages {
        let body = stripe_body(&format!("evt_{age}"));
        for (provider, expected) in ["stripe", "wide", "off"].into_iter().zip(expected) {
            let reply = server.send(provider, stripe_at(&body, now() + age), body.clone()).await;
            assert_eq!(reply.status, expected, "{provider}, {age} s");
        }
    }
}

/// T8
async fn milliseconds_are_not_taken_for_seconds(store: TestStore) {
    let manifest = format!(
        "{TITLE}[[signature]]\nscheme = \"hmac-sha256\"\nsource = \"header:X-Signature\"\n\
         message = \"{{timestamp}}.{{body}}\"\ntimestamp = \"header:X-Time\"\ntimestamp_format = \"auto\"\ntolerance = \"5m\"\n\
         [event]\nid = \"body:/id\"\n"
    );
    let server = Setup::new(&store)
        .adapter("acme", &manifest)
        .with("[[provider]]\nname = \"acme\"\nsecrets = [\"acme-secret\"]")
        .start()
        .await;
    let times = [
        (now(), 200),
        (now() * 1000, 200),
        (now() - 900, 401),
        ((now() - 900) * 1000, 401),
        (now() + 900, 401),
    ];
    for (time, expected) in times {
        let body = format!("{{\"id\":\"{time}\"}}");
        let signature = hmac_hex("acme-secret", format!("{time}.{body}").as_bytes());
        let headers = vec![("X-Signature".into(), signature), ("X-Time".into(), time.to_string())];
        assert_eq!(server.send("acme", headers, body).await.status, expected, "{time}");
    }
}

/// H5: a redirect would count as a failure.
async fn a_trailing_slash_is_the_same_address(store: TestStore) {
    let server = Setup::new(&store).start().await;
    let body = stripe_body("evt_1");
    for path in ["stripe/", "stripe", "stripe/?source=dashboard"] {
        assert_eq!(
            server.send(path, stripe(&body), body.clone()).await.status,
            200,
            "{path}"
        );
    }
    assert_eq!(store.number("select count(*) from webhook_events").await, 1);
}

/// H1
async fn an_ownership_challenge_is_answered_as_plain_text_and_not_stored(store: TestStore) {
    let manifest = format!(
        "{TITLE}[[signature]]\nscheme = \"hmac-sha256\"\nsource = \"header:X-Signature\"\n[event]\nid = \"body:/id\"\n\
         [[handshake]]\nmethod = \"GET\"\nwhen = \"query:hub.challenge\"\n\
         require = \"query:hub.verify_token == config:verify_token\"\nbody = \"{{query:hub.challenge}}\"\nrefuse = 403\n"
    );
    let server = Setup::new(&store)
        .adapter("acme", &manifest)
        .with("[[provider]]\nname = \"acme\"\nsecrets = [\"acme-secret\"]\noptions = { verify_token = \"let-me-in\" }")
        .start()
        .await;
    let get = async |query: &str| {
        let url = format!("http://{}/webhooks/acme?{query}", server.public());
        let reply = server.client.get(url).send().await.unwrap();
        let content_type = reply
            .headers()
            .get("content-type")
            .map(|value| value.to_str().unwrap().to_owned());
        (reply.status().as_u16(), content_type, reply.text().await.unwrap())
    };
    let (status, content_type, body) =
        get("hub.mode=subscribe&hub.challenge=123%3Cb%3E&hub.verify_token=let-me-in").await;
    assert_eq!((status, body.as_str()), (200, "123<b>"));
    assert!(content_type.unwrap().starts_with("text/plain"));
    let (status, _, body) = get("hub.challenge=123&hub.verify_token=guess").await;
    assert_eq!(status, 403);
    assert!(!body.contains("123"));
    assert_ne!(get("").await.0, 200);
    assert_eq!(store.number("select count(*) from webhook_events").await, 0);
}

/// H4
async fn the_answer_is_what_the_sender_wants_to_read(store: TestStore) {
    let manifest = format!(
        "{TITLE}[[signature]]\nscheme = \"token\"\nsource = \"header:X-Token\"\n[event]\nid = \"body:/id\"\n\
         [response]\nstatus = 202\ncontent_type = \"text/plain\"\nbody = \"[accepted]\"\n"
    )
    .replace("[accepted]", "OK");
    let server = Setup::new(&store)
        .adapter("acme", &manifest)
        .with("[[provider]]\nname = \"acme\"\nsecrets = [\"acme-secret\"]")
        .start()
        .await;
    for _ in 0..2 {
        let headers = vec![("X-Token".into(), "acme-secret".into())];
        let reply = server.send("acme", headers, r#"{"id":"1"}"#).await;
        assert_eq!((reply.status, reply.text().as_str()), (202, "OK"));
        assert!(reply.header("content-type").starts_with("text/plain"));
    }
    let body = stripe_body("evt_1");
    let reply = server.send("stripe", stripe(&body), body).await;
    assert_eq!(reply.json(), serde_json::json!({"received": true}));
    assert!(reply.header("content-type").starts_with("application/json"));
}

/// S12
async fn the_signed_url_is_the_public_one_whatever_the_host_header_says(store: TestStore) {
    let manifest = format!(
        "{TITLE}[[signature]]\nscheme = \"hmac-sha256\"\nsource = \"header:X-Signature\"\nmessage = \"{{url}}{{body}}\"\n\
         [event]\nid = \"body:/id\"\n"
    );
    let server = Setup::new(&store)
        .adapter("acme", &manifest)
        .with(
            "[[provider]]\nname = \"acme\"\nsecrets = [\"acme-secret\"]\n\
             [[provider]]\nname = \"acme-own\"\nadapter = \"acme\"\npublic_url = \"https://own.example.net:8443\"\n\
             secrets = [\"acme-secret\"]",
        )
        .start()
        .await;
    let signed_for = async |server: &Server, path: &str, url: &str, host: &str| {
        let body = r#"{"id":"1"}"#;
        let signature = hmac_hex("acme-secret", format!("{url}{body}").as_bytes());
        let headers = vec![("X-Signature".into(), signature), ("Host".into(), host.into())];
        server.send(path, headers, body).await.status
    };
    let public = "https://hooks.example.com/webhooks/acme?a=b%20c";
    assert_eq!(signed_for(&server, "acme?a=b%20c", public, "internal:8080").await, 200);
    let own = "https://own.example.net:8443/webhooks/acme-own";
    assert_eq!(signed_for(&server, "acme-own", own, "internal:8080").await, 200);
    let forged = "http://evil.example/webhooks/acme";
    assert_eq!(signed_for(&server, "acme", forged, "evil.example").await, 401);
}

/// S11: the id comes in the query, in capitals, and is signed in small letters.
async fn a_signed_message_can_be_made_of_query_and_headers(store: TestStore) {
    let manifest = format!(
        "{TITLE}[[signature]]\nscheme = \"hmac-sha256\"\nsource = \"header:X-Signature\"\n\
         list = \",\"\nformat = [\"ts={{timestamp}}\", \"v1={{signature}}\"]\n\
         message = \"[id:{{lower(query:data.id)}};][request-id:{{header:X-Request-Id}};]ts:{{timestamp}};\"\n\
         [event]\nid = \"body:/id\"\n"
    );
    let server = Setup::new(&store)
        .adapter("acme", &manifest)
        .with("[[provider]]\nname = \"acme\"\nsecrets = [\"acme-secret\"]")
        .start()
        .await;
    let cases = [
        ("acme?data.id=ABC9", "id:abc9;request-id:r-1;ts:1700;", 200),
        ("acme", "request-id:r-1;ts:1700;", 200),
        ("acme?data.id=ABC9", "id:ABC9;request-id:r-1;ts:1700;", 401),
    ];
    for (path, message, expected) in cases {
        let headers = vec![
            (
                "X-Signature".into(),
                format!("ts=1700,v1={}", hmac_hex("acme-secret", message.as_bytes())),
            ),
            ("X-Request-Id".into(), "r-1".into()),
        ];
        assert_eq!(
            server.send(path, headers, r#"{"id":7}"#).await.status,
            expected,
            "{path} {message}"
        );
    }
}

async fn a_sender_that_nobody_knows_is_described_in_the_configuration(store: TestStore) {
    let server = Setup::new(&store)
        .with(
            "[[provider]]\nname = \"inhouse\"\nadapter = \"generic_hmac\"\nsecrets = [\"inhouse-secret\"]\n\
             signature = { header = \"X-Inhouse\", format = \"sha256={signature}\" }\n\
             event = { id = \"body:/uuid\", type = \"body:/kind\" }",
        )
        .start()
        .await;
    let body = r#"{"uuid":"u-1","kind":"order.made"}"#;
    let signature = format!("sha256={}", hmac_hex("inhouse-secret", body.as_bytes()));
    let reply = server
        .send("inhouse", vec![("X-Inhouse".into(), signature)], body)
        .await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let event = server.wait_for("inhouse", "u-1", "done").await;
    assert_eq!(event["event_type"], "order.made");
    assert_eq!(event["adapter"], "generic_hmac");
    let forged = vec![(
        "X-Inhouse".into(),
        format!("sha256={}", hmac_hex("guess", body.as_bytes())),
    )];
    assert_eq!(server.send("inhouse", forged, body).await.status, 401);
}

/// D6: some senders give one event two ids.
async fn the_operator_chooses_which_id_tells_events_apart(store: TestStore) {
    let server = Setup::new(&store)
        .with(&format!(
            "[[provider]]\nname = \"by-body\"\nadapter = \"stripe\"\nsecrets = [\"{STRIPE_SECRET}\"]\n\
             event = {{ id = [\"header:X-Event-Key\", \"body:/data/object/id\"] }}"
        ))
        .start()
        .await;
    let body = stripe_body("evt_1");
    assert_eq!(server.send("by-body", stripe(&body), body.clone()).await.status, 200);
    assert_eq!(
        server.event("by-body", "pi_evt_1").await["provider_event_id"],
        "pi_evt_1"
    );
    let mut headers = stripe(&body);
    headers.push(("X-Event-Key".into(), "key-1".into()));
    assert_eq!(server.send("by-body", headers, body).await.status, 200);
    assert_eq!(server.event("by-body", "key-1").await["provider_event_id"], "key-1");
}
