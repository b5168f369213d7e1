//! What events come of a request, and what is answered without one.

use super::{
    tests::{NOW, events, hmac, provider, registry, request, run, spec, stripe, stripe_header},
    *,
};
use crate::domain::HeaderList;

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

fn answer(result: Result<Ingested<'_>, Rejection>) -> Answer {
    match result.unwrap() {
        Ingested::Events { events, .. } => panic!("events: {events:?}"),
        Ingested::Handshake { answer, .. } => answer,
    }
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
    assert_eq!(id("12345678901234567890123").unwrap(), "12345678901234567890123");
    assert_eq!(id("\"evt_a&1/\\u00e9\"").unwrap(), "evt_a&1/é");
    assert_eq!(id("\"\\ud800\"").unwrap(), "\\ud800");
    assert_eq!(id("null"), Err(Rejection::MissingId));
    assert_eq!(id("\"\""), Err(Rejection::MissingId));
    assert!(matches!(id("\"a\\u0000b\""), Err(Rejection::MalformedBody(_))));
    assert!(id(&format!("\"{}\"", "a".repeat(1024))).is_ok());
    assert!(matches!(
        id(&format!("\"{}\"", "a".repeat(1025))),
        Err(Rejection::MalformedBody(_))
    ));
    assert!(matches!(id("1,}"), Err(Rejection::MalformedBody(_))));
    assert!(matches!(id(&"[".repeat(100_000)), Err(Rejection::MalformedBody(_))));
}

#[test]
fn a_body_that_nothing_needs_is_not_read() {
    let provider = provider(GITHUB, &["s"]);
    for (body, key) in [(&b"\xff\xfe"[..], None), (b"{\"repository\":{\"id\":7}}", Some("7"))] {
        let signature = format!("sha256={}", hmac("s", body));
        let headers = HeaderList::new(vec![
            ("X-Hub-Signature-256", signature.as_bytes()),
            ("X-GitHub-Delivery", b"d-1"),
            ("X-GitHub-Event", b"push"),
        ]);
        let events = events(run(&provider, &headers, body));
        assert_eq!((events[0].id.as_str(), events[0].ordering_key.as_deref()), ("d-1", key));
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
    assert_eq!(run(&provider, &headers, b"{}").unwrap_err(), Rejection::MissingId);
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
    let get = |url: &'static str| request(&provider, "GET", url, &HeaderList::default(), b"").map(|_| ());
    let url = "https://h/p?challenge=a%2Bb&v=right";
    assert_eq!(answer(request(&provider, "GET", url, &none, b"")).body, b"a+b");
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
    assert_eq!(run(&provider, &none, hello).unwrap_err(), Rejection::MissingSignature);
    let token = HeaderList::new(vec![("X-T", b"s")]);
    let expected = format!("{{\"h\":\"{}\"}}", hmac("s", b"x"));
    assert_eq!(answer(run(&provider, &token, hello)).body, expected.as_bytes());
    assert_eq!(
        answer(request(&provider, "HEAD", "https://h/p", &none, b"")).status,
        200
    );
    let echoed = answer(request(&provider, "POST", "https://h/p?h=1", &none, b""));
    assert!(echoed.headers.contains(&("X-Echo".into(), "1".into())));
    let split = request(&provider, "POST", "https://h/p?h=1%0d%0aSet-Cookie:a", &none, b"");
    assert_eq!(split.unwrap_err(), Rejection::Handshake { status: 401 });
}

#[test]
fn an_item_takes_along_what_it_is_an_item_of() {
    let manifest = "title='t'\n[[signature]]\nscheme='token'\nsource='header:X-T'\n[event]\nid='item:/id'\n\
        [batch]\nitems='body:/of/*/items/*'\nheaders={ realm-id='body:/of/*/realm', kind='{body:/a}-{body:/b}' }";
    let provider = provider(manifest, &["s"]);
    let token = HeaderList::new(vec![("X-T", b"s")]);
    let body = br#"{"a":1,"of":[{"realm":"x","items":[{"id":1},{"id":2}]},{"realm":{"y":1},"items":[{"id":3}]},{"items":[{"id":4}]}],"b":2}"#;
    let events = events(run(&provider, &token, body));
    let kept = |index: usize| events[index].headers("{\"x-a\":\"1\"}");
    for index in [0, 1] {
        assert_eq!(
            kept(index),
            r#"{"x-a":"1","x-batch-kind":"1-2","x-batch-realm-id":"x"}"#
        );
    }
    assert_eq!(
        kept(2),
        r#"{"x-a":"1","x-batch-kind":"1-2","x-batch-realm-id":"{\"y\":1}"}"#
    );
    assert_eq!(kept(3), r#"{"x-a":"1","x-batch-kind":"1-2"}"#);
    assert_eq!(&*events[3].payload, br#"{"id":4}"#);

    let wrong = manifest.replace("realm-id", "Realm");
    let error = crate::adapters::Adapter::parse("p", &wrong).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("`batch.headers.Realm`: expected a name of a-z"),
        "{error}"
    );
}

#[test]
fn beside_arrays_lines_are_what_is_no_document() {
    let manifest = "title='t'\n[[signature]]\nscheme='token'\nsource='header:X-T'\n[event]\nid=['item:/id','body:/id']\n\
        [batch]\nitems=['body:/*','lines']";
    let provider = provider(manifest, &["s"]);
    let token = HeaderList::new(vec![("X-T", b"s")]);
    let ids = |body: &'static [u8]| -> Vec<String> {
        let events = events(run(&provider, &token, body));
        events.into_iter().map(|event| event.id).collect()
    };
    assert_eq!(ids(b"[{\"id\":1},\n{\"id\":2}]\n"), ["1", "2"]);
    assert_eq!(ids(b"{\"id\":1}\n\n{\"id\":2}\r\n"), ["1", "2"]);
    assert_eq!(ids(b"{\"id\":1}\n"), ["1"]);
    assert_eq!(ids(b"{\n\"id\":1\n}"), ["1"]);
    let cut = run(&provider, &token, b"{\"id\":1}\n{\"id\"");
    assert!(matches!(cut, Err(Rejection::MalformedBody(_))), "{cut:?}");
}
