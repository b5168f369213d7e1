//! The adapter language at work, on small adapters written out here.

use jiff::Timestamp;
use secrecy::SecretString;

use super::*;
use crate::{
    adapters::{Adapter, Digester, Hash, ProviderSpec, Registry},
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

pub(crate) const NOW: i64 = 1_767_225_600;

pub(crate) fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

pub(crate) fn spec(secrets: &[&str]) -> ProviderSpec {
    ProviderSpec {
        name: "p".into(),
        secrets: secrets.iter().map(|secret| SecretString::from(*secret)).collect(),
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

pub(crate) fn run<'a>(
    provider: &Provider,
    headers: &'a HeaderList<'a>,
    body: &'a [u8],
) -> Result<Ingested<'a>, Rejection> {
    request(provider, "POST", "https://hooks.example.com/webhooks/p", headers, body)
}

pub(crate) fn request<'a>(
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

pub(crate) fn events(result: Result<Ingested<'_>, Rejection>) -> Vec<Identified<'_>> {
    match result.unwrap() {
        Ingested::Events { events, .. } => events,
        Ingested::Handshake { answer, .. } => panic!("a handshake: {answer:?}"),
    }
}

pub(crate) fn stripe_header(secret: &str, time: &str, body: &[u8]) -> String {
    let message = [time.as_bytes(), b".", body].concat();
    format!("t={time},v1={}", hmac(secret, &message))
}

pub(crate) fn stripe(header: &str, body: &[u8]) -> Result<String, Rejection> {
    let provider = provider(STRIPE, &["whsec_new", "whsec_old"]);
    let headers = HeaderList::new(vec![("stripe-signature", header.as_bytes())]);
    match run(&provider, &headers, body)? {
        Ingested::Events { events, .. } => Ok(events[0].id.clone()),
        Ingested::Handshake { .. } => unreachable!(),
    }
}

pub(crate) const BODY: &[u8] =
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
            kept: Vec::new(),
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
    assert_eq!(stripe(&format!("t={NOW}"), BODY), Err(Rejection::MalformedSignature));
    let only = good.split_once(',').unwrap().1;
    assert_eq!(stripe(only, BODY), Err(Rejection::MissingTimestamp));
    let old = stripe_header("whsec_new", &(NOW - 301).to_string(), BODY);
    assert_eq!(stripe(&old, BODY), Err(Rejection::Stale { seconds: 301 }));
    let edge = stripe_header("whsec_new", &(NOW - 300).to_string(), BODY);
    assert!(stripe(&edge, BODY).is_ok());
    let ahead = stripe_header("whsec_new", &(NOW + 301).to_string(), BODY);
    assert_eq!(stripe(&ahead, BODY), Err(Rejection::Future { seconds: 301 }));
}

#[test]
fn odd_signatures_are_rejections_and_never_a_panic() {
    let digest = hmac("whsec_new", &[NOW.to_string().as_bytes(), b".", BODY].concat());
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
    for time in ["1e400", "99999999999999999999", "x", "\u{661}", "1767225600 "] {
        let header = stripe_header("whsec_new", time, BODY);
        assert!(stripe(&header, BODY).is_err(), "{time}");
    }
    let header = stripe_header("whsec_new", "-1", BODY);
    assert_eq!(stripe(&header, BODY), Err(Rejection::Stale { seconds: NOW + 1 }));
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
fn tokens_basic_and_hashes_prove() {
    let check = |manifest: &str, secret: &str, headers: Vec<(&str, &[u8])>| {
        let provider = provider(manifest, &[secret]);
        let headers = HeaderList::new(headers);
        run(&provider, &headers, b"{\"id\":1}").map(|_| ())
    };
    let token = "title='t'\n[[signature]]\nscheme='token'\nsource='header:Authorization'\nformat='Bearer {signature}'\n[event]\nid='body:/id'";
    assert_eq!(check(token, "tok", vec![("authorization", b"Bearer tok")]), Ok(()));
    assert_eq!(
        check(token, "tok", vec![("authorization", b"Bearer to")]),
        Err(Rejection::WrongSignature)
    );
    assert_eq!(
        check(token, "tok", vec![("authorization", b"tok")]),
        Err(Rejection::MalformedSignature)
    );
    let basic = "title='t'\n[[signature]]\nscheme='basic'\n[event]\nid='body:/id'";
    assert_eq!(check(basic, "u:p", vec![("authorization", b"basic dTpw")]), Ok(()));
    assert_eq!(
        check(basic, "u:p", vec![("authorization", b"Basic dTpx")]),
        Err(Rejection::WrongSignature)
    );
    assert_eq!(
        check(basic, "u:p", vec![("authorization", b"\xff\xff\xff\xff\xff\xff\xff")]),
        Err(Rejection::WrongSignature)
    );
    assert_eq!(check(basic, "u:p", vec![]), Err(Rejection::MissingSignature));
    let hashed = "title='t'\n[[signature]]\nscheme='sha256'\nsource='header:X-S'\nmessage='{secret}-{body}'\n[event]\nid='body:/id'";
    let digest = hex::encode(crate::adapters::hash(Hash::Sha256, b"s-{\"id\":1}").bytes());
    assert_eq!(check(hashed, "s", vec![("x-s", digest.as_bytes())]), Ok(()));
    assert_eq!(
        check(hashed, "t", vec![("x-s", digest.as_bytes())]),
        Err(Rejection::WrongSignature)
    );
}

#[test]
fn optional_parts_of_a_message_drop_out() {
    let manifest = "title='t'\n[[signature]]\nscheme='hmac-sha256'\nsource='header:x-signature'\nlist=','\nformat=['ts={timestamp}','v1={signature}']\n\
        message='[id:{lower(query:data.id)};][request-id:{header:x-request-id};]ts:{timestamp};'\n[event]\nid='body:/id'";
    let provider = provider(manifest, &["s"]);
    for (url, message) in [("https://h/p?data.id=AB", "id:ab;ts:1;"), ("https://h/p", "ts:1;")] {
        let header = format!("ts=1,v1={}", hmac("s", message.as_bytes()));
        let headers = HeaderList::new(vec![("x-signature", header.as_bytes())]);
        assert!(
            request(&provider, "POST", url, &headers, b"{\"id\":1}").is_ok(),
            "{url}"
        );
    }
}
