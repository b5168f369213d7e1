//! The adapter language at work, on small adapters written out here.

use jiff::Timestamp;
use secrecy::SecretString;

use super::*;
use crate::{
    adapters::{Adapter, Digester, Hash, ProviderError, ProviderSpec, Registry},
    domain::HeaderList,
};

pub(crate) const STRIPE: &str = r#"
title = "Stripe"
docs = "https://docs.stripe.com/webhooks"
[[signature]]
scheme = "hmac-sha256"
source = "header:Stripe-Signature"
list = ","
format = ["t={timestamp}", "v1={signature}"]
message = "{timestamp}.{body}"
tolerance = "5m"
[event]
id = "body:/id"
type = "body:/type"
time = "body:/created"
ordering = "body:/data/object/customer"
[secret]
pattern = "whsec_"
"#;

const GITHUB: &str = r#"
title = "GitHub"
[[signature]]
scheme = "hmac-sha256"
source = "header:X-Hub-Signature-256"
format = "sha256={signature}"
[body]
form_field = "payload"
[event]
id = "header:X-GitHub-Delivery"
type = "header:X-GitHub-Event"
ordering = "body:/repository/id"
"#;

pub(crate) const NOW: i64 = 1_767_225_600;

pub(crate) fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

pub(crate) fn spec(secrets: &[&str]) -> ProviderSpec {
    ProviderSpec {
        name: "p".into(),
        secrets: secrets
            .iter()
            .map(|secret| SecretString::from(*secret))
            .collect(),
        public_url: "https://hooks.example.com".into(),
        ..ProviderSpec::default()
    }
}

pub(crate) fn registry(manifest: &str) -> Registry {
    let mut registry = Registry::default();
    registry.insert(Adapter::parse("p", manifest).unwrap_or_else(|error| panic!("{error}")));
    registry
}

pub(crate) fn provider(manifest: &str, secrets: &[&str]) -> Provider {
    Provider::new(spec(secrets), &registry(manifest)).unwrap()
}

pub(crate) fn hmac(secret: &str, message: &[u8]) -> String {
    let mut mac = Digester::keyed(Hash::Sha256, secret.as_bytes());
    mac.update(message);
    hex::encode(mac.finish().bytes())
}

fn run<'a>(
    provider: &Provider,
    headers: &'a HeaderList<'a>,
    body: &'a [u8],
) -> Result<Ingested<'a>, Rejection> {
    request(
        provider,
        "POST",
        "https://hooks.example.com/webhooks/p",
        headers,
        body,
    )
}

fn request<'a>(
    provider: &Provider,
    method: &'a str,
    url: &'a str,
    headers: &'a HeaderList<'a>,
    body: &'a [u8],
) -> Result<Ingested<'a>, Rejection> {
    let request = RawRequest {
        method,
        url,
        headers,
        body,
    };
    ingest(provider, &request, now())
}

fn events(result: Result<Ingested<'_>, Rejection>) -> Vec<Identified<'_>> {
    match result.unwrap() {
        Ingested::Events { events, .. } => events,
        Ingested::Handshake(answer) => panic!("a handshake: {answer:?}"),
    }
}

fn answer(result: Result<Ingested<'_>, Rejection>) -> Answer {
    match result.unwrap() {
        Ingested::Events { events, .. } => panic!("events: {events:?}"),
        Ingested::Handshake(answer) => answer,
    }
}

fn stripe_header(secret: &str, time: &str, body: &[u8]) -> String {
    let message = [time.as_bytes(), b".", body].concat();
    format!("t={time},v1={}", hmac(secret, &message))
}

fn stripe(header: &str, body: &[u8]) -> Result<String, Rejection> {
    let provider = provider(STRIPE, &["whsec_new", "whsec_old"]);
    let headers = HeaderList::new(vec![("stripe-signature", header.as_bytes())]);
    match run(&provider, &headers, body)? {
        Ingested::Events { events, .. } => Ok(events[0].id.clone()),
        Ingested::Handshake(_) => unreachable!(),
    }
}

const BODY: &[u8] =
    br#"{"id":"evt_1","type":"a.b","created":1767225000,"data":{"object":{"customer":"cus_1"}}}"#;

#[test]
fn stripe_events_verify_and_are_identified() {
    let provider = provider(STRIPE, &["whsec_new", "whsec_old"]);
    let header = stripe_header("whsec_old", &NOW.to_string(), BODY);
    let headers = HeaderList::new(vec![("Stripe-Signature", header.as_bytes())]);
    let Ok(Ingested::Events { events, verified }) = run(&provider, &headers, BODY) else {
        panic!()
    };
    assert_eq!(
        verified,
        Verified {
            signature: Some(0),
            secret: Some(1)
        }
    );
    assert_eq!(
        events,
        [Identified {
            id: "evt_1".into(),
            sender_id: None,
            event_type: Some("a.b".into()),
            occurred_at: Timestamp::from_second(1_767_225_000).ok(),
            ordering_key: Some("cus_1".into()),
            payload: Cow::Borrowed(BODY),
        }]
    );
    assert!(matches!(events[0].payload, Cow::Borrowed(_)));
}

#[test]
fn every_rejection_has_its_reason() {
    let good = stripe_header("whsec_new", &NOW.to_string(), BODY);
    assert_eq!(stripe(&good, BODY).unwrap(), "evt_1");
    assert_eq!(stripe(&good, b"{}"), Err(Rejection::WrongSignature));
    assert_eq!(stripe("", BODY), Err(Rejection::MissingSignature));
    assert_eq!(stripe("garbage", BODY), Err(Rejection::MalformedSignature));
    assert_eq!(
        stripe(&format!("t={NOW}"), BODY),
        Err(Rejection::MalformedSignature)
    );
    let only = good.split_once(',').unwrap().1;
    assert_eq!(stripe(only, BODY), Err(Rejection::MissingTimestamp));
    let old = stripe_header("whsec_new", &(NOW - 301).to_string(), BODY);
    assert_eq!(stripe(&old, BODY), Err(Rejection::Stale { seconds: 301 }));
    let edge = stripe_header("whsec_new", &(NOW - 300).to_string(), BODY);
    assert!(stripe(&edge, BODY).is_ok());
    let ahead = stripe_header("whsec_new", &(NOW + 301).to_string(), BODY);
    assert_eq!(
        stripe(&ahead, BODY),
        Err(Rejection::Future { seconds: 301 })
    );
}

#[test]
fn odd_signatures_are_rejections_and_never_a_panic() {
    let digest = hmac(
        "whsec_new",
        &[NOW.to_string().as_bytes(), b".", BODY].concat(),
    );
    for value in [
        digest[..62].to_owned(),
        digest[..63].to_owned(),
        format!("{digest}00"),
        digest.replace(|c: char| c.is_ascii_digit(), "\u{e9}"),
        "z".repeat(64),
        "a".repeat(1 << 20),
        String::new(),
        ",".repeat(1000),
    ] {
        assert!(stripe(&format!("t={NOW},v1={value}"), BODY).is_err());
    }
    assert!(stripe(&format!("t={NOW},v1=00,v1={}", digest.to_uppercase()), BODY).is_ok());
    assert!(stripe(&format!(" t={NOW} , v0=x, v1={digest} "), BODY).is_ok());
}

#[test]
fn odd_times_are_missing_ones() {
    for time in [
        "1e400",
        "99999999999999999999",
        "x",
        "\u{661}",
        "1767225600 ",
    ] {
        let header = stripe_header("whsec_new", time, BODY);
        assert!(stripe(&header, BODY).is_err(), "{time}");
    }
    let header = stripe_header("whsec_new", "-1", BODY);
    assert_eq!(
        stripe(&header, BODY),
        Err(Rejection::Stale { seconds: NOW + 1 })
    );
}

#[test]
fn two_headers_of_one_name_are_joined() {
    let provider = provider(STRIPE, &["whsec_new"]);
    let good = stripe_header("whsec_new", &NOW.to_string(), BODY);
    let headers = HeaderList::new(vec![
        ("Stripe-Signature", b"t=1,v1=00"),
        ("stripe-signature", good.as_bytes()),
    ]);
    assert_eq!(
        run(&provider, &headers, BODY).unwrap_err(),
        Rejection::WrongSignature,
        "the first time counts"
    );
    let headers = HeaderList::new(vec![
        ("Stripe-Signature", good.as_bytes()),
        ("stripe-signature", b"v1=00"),
    ]);
    assert!(run(&provider, &headers, BODY).is_ok());
}

#[test]
fn ids_are_kept_or_refused_but_never_cut() {
    let id = |json: &str| {
        let body = format!("{{\"id\":{json}}}");
        stripe(
            &stripe_header("whsec_new", &NOW.to_string(), body.as_bytes()),
            body.as_bytes(),
        )
    };
    assert_eq!(
        id("12345678901234567890123").unwrap(),
        "12345678901234567890123"
    );
    assert_eq!(id("\"evt_a&1/\\u00e9\"").unwrap(), "evt_a&1/é");
    assert_eq!(id("\"\\ud800\"").unwrap(), "\\ud800");
    assert_eq!(id("null"), Err(Rejection::MissingId));
    assert_eq!(id("\"\""), Err(Rejection::MissingId));
    assert!(matches!(
        id("\"a\\u0000b\""),
        Err(Rejection::MalformedBody(_))
    ));
    assert!(id(&format!("\"{}\"", "a".repeat(1024))).is_ok());
    assert!(matches!(
        id(&format!("\"{}\"", "a".repeat(1025))),
        Err(Rejection::MalformedBody(_))
    ));
    assert!(matches!(id("1,}"), Err(Rejection::MalformedBody(_))));
    assert!(matches!(
        id(&"[".repeat(100_000)),
        Err(Rejection::MalformedBody(_))
    ));
}

#[test]
fn a_body_that_nothing_needs_is_not_read() {
    let provider = provider(GITHUB, &["s"]);
    for (body, key) in [
        (&b"\xff\xfe"[..], None),
        (b"{\"repository\":{\"id\":7}}", Some("7")),
    ] {
        let signature = format!("sha256={}", hmac("s", body));
        let headers = HeaderList::new(vec![
            ("X-Hub-Signature-256", signature.as_bytes()),
            ("X-GitHub-Delivery", b"d-1"),
            ("X-GitHub-Event", b"push"),
        ]);
        let events = events(run(&provider, &headers, body));
        assert_eq!(
            (events[0].id.as_str(), events[0].ordering_key.as_deref()),
            ("d-1", key)
        );
        assert_eq!(&*events[0].payload, body);
    }
}

#[test]
fn json_in_a_form_field_is_read() {
    let provider = provider(GITHUB, &["s"]);
    let body = b"payload=%7B%22repository%22%3A%7B%22id%22%3A7%7D%7D";
    let signature = format!("sha256={}", hmac("s", body));
    let headers = HeaderList::new(vec![
        ("Content-Type", b"application/x-www-form-urlencoded"),
        ("X-Hub-Signature-256", signature.as_bytes()),
        ("X-GitHub-Delivery", b"d-1"),
    ]);
    let events = events(run(&provider, &headers, body));
    assert_eq!(events[0].ordering_key.as_deref(), Some("7"));
    assert_eq!(&*events[0].payload, body);
}

#[test]
fn providers_that_could_not_tell_true_from_false_are_refused() {
    let error = |manifest: &str, secrets: &[&str]| {
        Provider::new(spec(secrets), &registry(manifest)).unwrap_err()
    };
    assert!(matches!(error(STRIPE, &[]), ProviderError::NoSecret { .. }));
    assert!(matches!(
        error(STRIPE, &["whsec_a", " \n"]),
        ProviderError::Secret { number: 2, .. }
    ));
    let whsec = STRIPE.replace("tolerance = \"5m\"", "key = \"whsec\"");
    let shown = error(&whsec, &["whsec_!secret!"]).to_string();
    assert!(
        shown.contains("not base64") && !shown.contains("!secret!"),
        "{shown}"
    );
    assert!(
        error(&whsec, &["whsec_"])
            .to_string()
            .contains("decodes to nothing")
    );
    let mut none = spec(&[]);
    none.verify = Some("none".into());
    let provider = Provider::new(none, &registry(STRIPE)).unwrap();
    assert!(provider.warnings()[0].contains("anyone"));
    assert!(provider.warnings().len() == 1 && !provider.verifies());
}

#[test]
fn overrides_change_the_rules_and_mistakes_are_named() {
    let mut spec = spec(&["s"]);
    spec.tolerance = Some("none".into());
    spec.event = toml::from_str("id = 'body:/type'").unwrap();
    spec.signature = toml::from_str("source = 'header:X-Sig'").unwrap();
    let provider = Provider::new(spec.clone(), &registry(STRIPE)).unwrap();
    let header = stripe_header("s", "1", BODY);
    let headers = HeaderList::new(vec![("x-sig", header.as_bytes())]);
    assert_eq!(events(run(&provider, &headers, BODY))[0].id, "a.b");

    spec.event = toml::from_str("id = 'nope:/type'").unwrap();
    let error = Provider::new(spec.clone(), &registry(STRIPE))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("event.id") && error.contains("nope:/type"),
        "{error}"
    );
    spec.event = toml::from_str("idd = 'body:/type'").unwrap();
    let error = Provider::new(spec.clone(), &registry(STRIPE))
        .unwrap_err()
        .to_string();
    assert!(error.contains("idd"), "{error}");
    spec.event.clear();
    spec.accept = Some(vec!["other".into()]);
    assert!(Provider::new(spec, &registry(STRIPE)).is_err());
}

#[test]
fn manifest_mistakes_name_file_line_and_key() {
    let error = Adapter::parse("p", &STRIPE.replace("{timestamp}.{body}", "{nonce}")).unwrap_err();
    assert_eq!(
        (error.file.as_str(), error.line, error.key.as_str()),
        ("p/adapter.toml", 9, "signature[0].message")
    );
    let error = Adapter::parse("p", &STRIPE.replace("tolerance", "tolerence")).unwrap_err();
    assert!(
        error.to_string().starts_with("p/adapter.toml:10: "),
        "{error}"
    );
    let error = Adapter::parse("p", "title = \"x\"").unwrap_err();
    assert_eq!(error.key, "signature");
}

#[test]
fn tokens_basic_and_hashes_prove() {
    let check = |manifest: &str, secret: &str, headers: Vec<(&str, &[u8])>| {
        let provider = provider(manifest, &[secret]);
        let headers = HeaderList::new(headers);
        run(&provider, &headers, b"{\"id\":1}").map(|_| ())
    };
    let token = "title='t'\n[[signature]]\nscheme='token'\nsource='header:Authorization'\nformat='Bearer {signature}'\n[event]\nid='body:/id'";
    assert_eq!(
        check(token, "tok", vec![("authorization", b"Bearer tok")]),
        Ok(())
    );
    assert_eq!(
        check(token, "tok", vec![("authorization", b"Bearer to")]),
        Err(Rejection::WrongSignature)
    );
    assert_eq!(
        check(token, "tok", vec![("authorization", b"tok")]),
        Err(Rejection::MalformedSignature)
    );
    let basic = "title='t'\n[[signature]]\nscheme='basic'\n[event]\nid='body:/id'";
    assert_eq!(
        check(basic, "u:p", vec![("authorization", b"basic dTpw")]),
        Ok(())
    );
    assert_eq!(
        check(basic, "u:p", vec![("authorization", b"Basic dTpx")]),
        Err(Rejection::WrongSignature)
    );
    assert_eq!(
        check(
            basic,
            "u:p",
            vec![("authorization", b"\xff\xff\xff\xff\xff\xff\xff")]
        ),
        Err(Rejection::WrongSignature)
    );
    assert_eq!(
        check(basic, "u:p", vec![]),
        Err(Rejection::MissingSignature)
    );
    let hashed = "title='t'\n[[signature]]\nscheme='sha256'\nsource='header:X-S'\nmessage='{secret}-{body}'\n[event]\nid='body:/id'";
    let digest = hex::encode(crate::adapters::hash(Hash::Sha256, b"s-{\"id\":1}").bytes());
    assert_eq!(check(hashed, "s", vec![("x-s", digest.as_bytes())]), Ok(()));
    assert_eq!(
        check(hashed, "t", vec![("x-s", digest.as_bytes())]),
        Err(Rejection::WrongSignature)
    );
}

const OPEN: &str = "title='t'\nverify='none'\n";

#[test]
fn batches_keep_the_bytes_of_each_item() {
    let manifest = format!(
        "{OPEN}[event]\nid='item:/id'\ntype='key_of:item b a'\nordering='body:/shop'\n[batch]\nitems=['body:/e/*/x/*','body:/f/*/w']"
    );
    let provider = provider(&manifest, &[]);
    let headers = HeaderList::default();
    let body = b"{\"shop\":9,\"e\":[{\"x\":[{\"id\" : 1,\"a\":\"\xff\"}]},{},{\"x\":[{\"id\":2}]}],\"f\":[{\"w\":{\"id\":3,\"b\":null}}]}";
    let found = events(run(&provider, &headers, body));
    let ids: Vec<_> = found.iter().map(|event| event.id.as_str()).collect();
    assert_eq!(ids, ["1", "2", "3"]);
    assert_eq!(&*found[0].payload, b"{\"id\" : 1,\"a\":\"\xff\"}");
    assert_eq!(found[0].event_type.as_deref(), Some("a"));
    assert_eq!(found[2].event_type.as_deref(), Some("b"));
    assert_eq!(found[1].ordering_key.as_deref(), Some("9"));
    assert_eq!(events(run(&provider, &headers, b"{\"e\":[]}")), []);
    assert_eq!(
        run(&provider, &headers, b"{\"f\":[{\"w\":{}}]}").unwrap_err(),
        Rejection::MissingId
    );
    assert_eq!(
        run(&provider, &headers, b"{}").unwrap_err(),
        Rejection::MissingId
    );
    assert!(matches!(
        run(&provider, &headers, b"{\"e\":[").unwrap_err(),
        Rejection::MalformedBody(_)
    ));
}

#[test]
fn handshakes_are_answered_or_refused() {
    let manifest = "title='t'\n[[signature]]\nscheme='token'\nsource='header:X-T'\n[event]\nid='body:/id'\n\
        [[handshake]]\nmethod='GET'\nwhen='query:challenge'\nrequire='query:v == config:v'\nbody='{query:challenge}'\nrefuse=403\n\
        [[handshake]]\nwhen='body:/kind == hello'\nbody='{{\"h\":{json(hmac_sha256(body:/n))}}}'\ncontent_type='application/json'\n\
        [[handshake]]\nmethod='HEAD'\n\
        [[handshake]]\nsigned=false\nwhen='query:h'\nheaders={X-Echo='{query:h}'}";
    let mut spec = spec(&["s"]);
    spec.options.insert("v".into(), "right".into());
    let provider = Provider::new(spec, &registry(manifest)).unwrap();
    let none = HeaderList::default();
    let get =
        |url: &'static str| request(&provider, "GET", url, &HeaderList::default(), b"").map(|_| ());
    let url = "https://h/p?challenge=a%2Bb&v=right";
    assert_eq!(
        answer(request(&provider, "GET", url, &none, b"")).body,
        b"a+b"
    );
    assert_eq!(
        get("https://h/p?challenge=1&v=wrong"),
        Err(Rejection::Handshake { status: 403 })
    );
    assert_eq!(
        get("https://h/p?challenge=1"),
        Err(Rejection::Handshake { status: 403 })
    );
    assert_eq!(get("https://h/p"), Err(Rejection::MissingSignature));
    let hello = b"{\"kind\":\"hello\",\"n\":\"x\"}";
    assert_eq!(
        run(&provider, &none, hello).unwrap_err(),
        Rejection::MissingSignature
    );
    let token = HeaderList::new(vec![("X-T", b"s")]);
    let expected = format!("{{\"h\":\"{}\"}}", hmac("s", b"x"));
    assert_eq!(
        answer(run(&provider, &token, hello)).body,
        expected.as_bytes()
    );
    assert_eq!(
        answer(request(&provider, "HEAD", "https://h/p", &none, b"")).status,
        200
    );
    let echoed = answer(request(&provider, "POST", "https://h/p?h=1", &none, b""));
    assert!(echoed.headers.contains(&("X-Echo".into(), "1".into())));
    let split = request(
        &provider,
        "POST",
        "https://h/p?h=1%0d%0aSet-Cookie:a",
        &none,
        b"",
    );
    assert_eq!(split.unwrap_err(), Rejection::Handshake { status: 401 });
}

#[test]
fn optional_parts_of_a_message_drop_out() {
    let manifest = "title='t'\n[[signature]]\nscheme='hmac-sha256'\nsource='header:x-signature'\nlist=','\nformat=['ts={timestamp}','v1={signature}']\n\
        message='[id:{lower(query:data.id)};][request-id:{header:x-request-id};]ts:{timestamp};'\n[event]\nid='body:/id'";
    let provider = provider(manifest, &["s"]);
    for (url, message) in [
        ("https://h/p?data.id=AB", "id:ab;ts:1;"),
        ("https://h/p", "ts:1;"),
    ] {
        let header = format!("ts=1,v1={}", hmac("s", message.as_bytes()));
        let headers = HeaderList::new(vec![("x-signature", header.as_bytes())]);
        assert!(
            request(&provider, "POST", url, &headers, b"{\"id\":1}").is_ok(),
            "{url}"
        );
    }
}
