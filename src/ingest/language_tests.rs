//! What the language says of lists, keys, bodies and handshakes, on small adapters after documented senders.

use base64::Engine as _;
use secrecy::ExposeSecret as _;

use super::{
    tests::{NOW, events, hmac, now, provider, registry, request, run, spec},
    *,
};
use crate::{
    adapters::{Adapter, Digester, Hash, Provider, Refresher},
    domain::HeaderList,
};

/// An adapter with one rule and more.
fn adapter(rule: &str, rest: &str) -> String {
    format!("title='t'\n[[signature]]\n{rule}\n{rest}\n")
}

fn proves(provider: &Provider, header: &str, body: &[u8]) -> Result<(), Rejection> {
    let headers = HeaderList::new(vec![("X-S", header.as_bytes())]);
    run(provider, &headers, body).map(|_| ())
}

fn mac(hash: Hash, key: &[u8], message: &[u8]) -> String {
    let mut mac = Digester::keyed(hash, key);
    mac.update(message);
    hex::encode(mac.finish().bytes())
}

#[test]
fn groups_have_times_of_their_own() {
    // Persona, in a rotation.
    let rule = "scheme='hmac-sha256'\nsource='header:X-S'\ngroup=' '\nlist=','\nformat=['t={timestamp}','v1={signature}']\nmessage='{timestamp}.{body}'\ntolerance='5m'";
    let provider = provider(&adapter(rule, "[event]\nid='{sha256(body)}'"), &["s"]);
    let group = |secret: &str, at: i64| format!("t={at},v1={}", hmac(secret, format!("{at}.b").as_bytes()));
    let (old, good) = (group("old", NOW - 9), group("s", NOW - 8));
    assert_eq!(proves(&provider, &format!("{old} {good}"), b"b"), Ok(()));
    assert_eq!(proves(&provider, &format!("{good} {old}"), b"b"), Ok(()));
    assert_eq!(proves(&provider, &old, b"b"), Err(Rejection::WrongSignature));
    // The time of one group does not serve another.
    let (_, signature) = good.split_once(',').unwrap();
    let mixed = format!("t={},{signature} t={}", NOW - 9, NOW - 8);
    assert_eq!(proves(&provider, &mixed, b"b"), Err(Rejection::WrongSignature));
    let stale = format!("{} {old}", group("s", NOW - 999));
    assert_eq!(proves(&provider, &stale, b"b"), Err(Rejection::Stale { seconds: 999 }));
}

#[test]
fn places_in_a_list_have_meanings() {
    // Recurly.
    let rule = "scheme='hmac-sha256'\nsource='header:X-S'\nlist=','\npositional=true\nformat=['{timestamp}','{signature}']\nmessage='{timestamp}.{body}'\ntimestamp_format='unix-ms'\ntolerance='5m'";
    let provider = provider(&adapter(rule, "[event]\nid='{sha256(body)}'"), &["s"]);
    let good = hmac("s", format!("{NOW}000.b").as_bytes());
    assert_eq!(proves(&provider, &format!("{NOW}000,{good}"), b"b"), Ok(()));
    assert_eq!(proves(&provider, &format!("{NOW}000,00,{good}"), b"b"), Ok(()));
    assert!(proves(&provider, &format!("{good},{NOW}000"), b"b").is_err());
    assert!(proves(&provider, &good, b"b").is_err());
}

#[test]
fn pairs_name_the_secret_that_counts() {
    // Braintree: pairs of public key and signature; the key is the SHA-1 of the private key.
    let rule =
        "scheme='hmac-sha1'\nsource='header:X-S'\nlist='&'\nformat='{secret_id}|{signature}'\nkey=['pair','sha1']";
    let shake = "[[handshake]]\nmethod='GET'\nwhen='query:bt_challenge'\nrequire='unhex(query:bt_challenge)'\nbody='{secret_id}|{hmac_sha1(query:bt_challenge)}'\n[event]\nid='{sha256(body)}'";
    let provider = provider(&adapter(rule, shake), &["pub:private"]);
    let key = hex::decode(mac_free_sha1("private")).unwrap();
    let good = mac(Hash::Sha1, &key, b"b");
    assert_eq!(proves(&provider, &format!("other|00&pub|{good}"), b"b"), Ok(()));
    assert_eq!(
        proves(&provider, &format!("other|{good}"), b"b"),
        Err(Rejection::WrongSignature)
    );
    let headers = HeaderList::new(Vec::new());
    let ask = |url| request(&provider, "GET", url, &headers, b"");
    let Ok(Ingested::Handshake { answer, .. }) = ask("https://h/p?bt_challenge=20ab") else {
        panic!()
    };
    assert_eq!(
        String::from_utf8(answer.body).unwrap(),
        format!("pub|{}", mac(Hash::Sha1, &key, b"20ab"))
    );
    assert!(ask("https://h/p?bt_challenge=not-hex").is_err());
}

fn mac_free_sha1(text: &str) -> String {
    hex::encode(crate::adapters::hash(Hash::Sha1, text.as_bytes()).bytes())
}

#[test]
fn secrets_become_keys_step_by_step() {
    let works = |key: &str, secret: &str, bytes: &[u8]| {
        let rule = format!("scheme='hmac-sha256'\nsource='header:X-S'\nkey={key}");
        let provider = provider(&adapter(&rule, "[event]\nid='{sha256(body)}'"), &[secret]);
        assert_eq!(
            proves(&provider, &mac(Hash::Sha256, bytes, b"b"), b"b"),
            Ok(()),
            "{key}"
        );
    };
    // EasyPost.
    works("'nfkd'", "we\u{e9}\u{fb01}", "wee\u{301}fi".as_bytes());
    works("'sha256'", "s", crate::adapters::hash(Hash::Sha256, b"s").bytes());
    works("['strip:key_','hex']", "key_0a0b", &[10, 11]);
    works("['strip:key_','hex']", "0a0b", &[10, 11]);
    works("['pair','base64']", "name:AQI=", &[1, 2]);
    for key in ["'rot13'", "['hex','pair']", "[]"] {
        let rule = format!("scheme='hmac-sha256'\nsource='header:X-S'\nkey={key}");
        assert!(Adapter::parse("p", &adapter(&rule, "")).is_err(), "{key}");
    }
    let rule = "scheme='hmac-sha256'\nsource='header:X-S'\nkey='pair'";
    assert!(Provider::new(spec(&["no colon"]), &registry(&adapter(rule, ""))).is_err());
}

#[test]
fn an_answer_that_cannot_be_sent_is_no_adapter() {
    let rule = "scheme='hmac-sha256'\nsource='header:X-S'";
    let parsed = |rest: &str| Adapter::parse("p", &adapter(rule, &format!("[event]\nid='body:/id'\n{rest}")));
    for (rest, key, said) in [
        (
            "[response]\ncontent_type=\"a\\nb\"",
            "response.content_type",
            "visible ASCII",
        ),
        (
            "[response.headers]\nX-A=\"a\\rb\"",
            "response.headers.X-A",
            "visible ASCII",
        ),
        ("[response.headers]\n\"X Y\"='a'", "response.headers.X Y", "no spaces"),
        ("[response]\nstatus=500", "response.status", "200 to 299"),
        ("[response]\nstatus=302", "response.status", "200 to 299"),
        ("[response]\nstatus=204\nbody='ok'", "response.status", "no body"),
        (
            "[[handshake]]\nmethod='GET'\nwhen='query:c'\nsigned=false\ncontent_type=\"a\\u0000\"",
            "handshake[0].content_type",
            "visible ASCII",
        ),
    ] {
        let error = parsed(rest).unwrap_err();
        assert_eq!(error.key, key, "{error}");
        assert!(error.message.contains(said), "{error}");
    }
    assert!(parsed("[response]\nstatus=204").is_ok());
    let rule = "scheme='hmac-sha256'\nheader='X Y'";
    let error = Adapter::parse("p", &adapter(rule, "[event]\nid='body:/id'")).unwrap_err();
    assert_eq!(error.key, "signature[0].header", "{error}");
}

#[test]
fn a_text_that_never_changes_is_warned_of_where_it_is_written() {
    let manifest = adapter("scheme='hmac-sha256'\nsource='header:X-S'", "[event]\nid='body:/id'");
    let mut overridden = spec(&["a-long-enough-secret"]);
    overridden.signature = toml::from_str("message='x'").unwrap();
    let warned = |spec| Provider::new(spec, &registry(&manifest)).unwrap().warnings().join("\n");
    assert!(warned(overridden).contains("signs the same text each time"));
    assert!(!warned(spec(&["a-long-enough-secret"])).contains("the same text"));
}

#[test]
fn bodies_come_in_lines_lists_and_wraps() {
    let rule = "scheme='hmac-sha256'\nsource='header:X-S'";
    let all = |rest: &str, content_type: &str, body: &[u8]| {
        let provider = provider(&adapter(rule, rest), &["s"]);
        let signature = hmac("s", body);
        let headers = HeaderList::new(vec![
            ("X-S", signature.as_bytes()),
            ("Content-Type", content_type.as_bytes()),
        ]);
        let events = events(run(&provider, &headers, body));
        let told = events.iter().map(|event| {
            let payload = String::from_utf8_lossy(&event.payload);
            format!("{}={payload}", event.id)
        });
        told.collect::<Vec<_>>()
    };
    // Vercel's drains.
    let lines = b"{\"id\":1}\r\n\n {\"id\":2}\n";
    assert_eq!(
        all(
            "[batch]\nitems='lines'\n[event]\nid='item:/id'",
            "application/x-ndjson",
            lines
        ),
        ["1={\"id\":1}", "2={\"id\":2}"]
    );
    // EBANX.
    let form = b"operation=x&hash_codes=a%2Cb,,c";
    assert_eq!(
        all(
            "[batch]\nitems='list:form:hash_codes'\n[event]\nid='{form:operation}:{item}'",
            "application/x-www-form-urlencoded",
            form
        ),
        ["x:a=a", "x:b=b", "x:c=c"]
    );
    // JSON in base64, and JSON in a text in JSON.
    let inner = base64::engine::general_purpose::STANDARD.encode("{\"id\":\"7\",\"text\":\"{\\\"id\\\":8}\"}");
    assert_eq!(
        all(
            "[body]\nfrom='unbase64(body)'\n[event]\nid='{body:/id}.{at(/id, body:/text)}.{join(method, upper(body:/id), path)}'",
            "text/plain",
            inner.as_bytes()
        ),
        [format!("7.8.POST7/webhooks/p={inner}")]
    );
    for wrong in [
        "from='body:/a'",
        "from='form:a'\nform_field='a'",
        "form_field='a'\nredact='/b'",
        "from='claim:/a'",
    ] {
        assert!(
            Adapter::parse("p", &adapter(rule, &format!("[body]\n{wrong}"))).is_err(),
            "{wrong}"
        );
    }
}

#[test]
fn choices_may_have_conditions() {
    let rule = "scheme='hmac-sha256'\nsource='header:X-S'";
    let rest = "[event]\nid={ value='body:/id', when='body:/v == 2' }\nkey='body:/none'\ntype=[{ text='gone', when=['body:/gone','body:/v != 3'] }, 'body:/type']";
    let provider = provider(&adapter(rule, rest), &["s"]);
    let read = |body: &str| {
        let signature = hmac("s", body.as_bytes());
        let headers = HeaderList::new(vec![("X-S", signature.as_bytes())]);
        run(&provider, &headers, body.as_bytes()).map(|result| match result {
            Ingested::Events { mut events, .. } => events.remove(0).event_type,
            Ingested::Handshake { .. } => None,
        })
    };
    assert_eq!(read("{\"v\":2,\"id\":1,\"gone\":1}").unwrap().as_deref(), Some("gone"));
    assert_eq!(read("{\"v\":2,\"id\":1,\"type\":\"t\"}").unwrap().as_deref(), Some("t"));
    assert_eq!(read("{\"v\":1,\"id\":1}"), Err(Rejection::MissingId));
    for wrong in [
        "{ value='body:/a' }",
        "{ when='body:/a' }",
        "{ value='body:/a', text='b', when='body' }",
        "{ valu='x', when='body' }",
        "[]",
    ] {
        assert!(
            Adapter::parse("p", &adapter(rule, &format!("[event]\nid={wrong}"))).is_err(),
            "{wrong}"
        );
    }
}

#[test]
fn what_must_not_be_stored_is_not() {
    let rule = "scheme='token'\nsource='body:/pass'";
    let one = provider(
        &adapter(rule, "[body]\nredact=['/pass','/a/b','/a']\n[event]\nid='body:/id'"),
        &["s3cret"],
    );
    let headers = HeaderList::new(Vec::new());
    let payload = |body: &'static str| {
        let events = events(run(&one, &headers, body.as_bytes()));
        String::from_utf8(events[0].payload.to_vec()).unwrap()
    };
    assert_eq!(
        payload("{ \"pass\" : \"s3cret\", \"id\":1, \"a\":{\"b\":[1,\"]\"]} }"),
        "{ \"pass\" : \"[redacted]\", \"id\":1, \"a\":\"[redacted]\" }"
    );
    assert_eq!(
        payload("{\"id\":1,\"pass\":\"s\\u0033cret\"}"),
        "{\"id\":1,\"pass\":\"[redacted]\"}"
    );
    let batch = provider(
        &adapter(
            "scheme='hmac-sha256'\nsource='header:X-S'",
            "[batch]\nitems='body:/*'\n[body]\nredact='/s'\n[event]\nid='item:/id'",
        ),
        &["s"],
    );
    let body = b"[{\"s\":1,\"id\":1},{\"id\":2}]";
    let signature = hmac("s", body);
    let headers = HeaderList::new(vec![("X-S", signature.as_bytes())]);
    let events = events(run(&batch, &headers, body));
    assert_eq!(&*events[0].payload, b"{\"s\":\"[redacted]\",\"id\":1}");
    assert_eq!(&*events[1].payload, b"{\"id\":2}");
}

#[test]
fn a_genuine_request_for_somebody_else_is_refused() {
    let rule = "scheme='hmac-sha256'\nsource='header:X-S'";
    let manifest = format!(
        "bind='body:/account == config:account'\n{}",
        adapter(rule, "[event]\nid='body:/id'")
    );
    let check = |account: Option<&str>, body: &str| {
        let mut with = spec(&["s"]);
        with.options = account
            .map(|account| ("account".to_owned(), account.to_owned()))
            .into_iter()
            .collect();
        let provider = Provider::new(with, &registry(&manifest)).unwrap();
        assert_eq!(provider.warnings().is_empty(), account.is_some());
        proves(&provider, &hmac("s", body.as_bytes()), body.as_bytes())
    };
    let wrong = Rejection::WrongRecipient("body:/account == config:account".into());
    assert_eq!(wrong.status(), 401);
    let refused = Err(wrong);
    assert_eq!(check(Some("a"), "{\"account\":\"a\",\"id\":1}"), Ok(()));
    assert_eq!(check(Some("a"), "{\"account\":\"b\",\"id\":1}"), refused);
    assert_eq!(check(Some("a"), "{\"id\":1}"), refused);
    assert_eq!(check(None, "{\"account\":\"a\",\"id\":1}"), refused);
}

#[test]
fn handshakes_hand_over_secrets_and_urls() {
    let rule = "scheme='hmac-sha256'\nsource='header:X-S'";
    let rest = "[[handshake]]\nwhen='header:X-Hook'\nsigned=false\nkeep='header:X-Hook'\n\
        [[handshake]]\nwhen='body:/confirm'\nsigned=false\nconfirm='body:/confirm'\nhosts=['*.example.com/c']\n[event]\nid='body:/id'";
    // It must be able to arrive before it is known.
    let provider = Provider::new(spec(&[]), &registry(&adapter(rule, rest))).unwrap();
    assert_eq!(provider.warnings().len(), 1);
    let headers = HeaderList::new(vec![("X-Hook", b"handed-over")]);
    let Ok(Ingested::Handshake {
        keep: Some(keep),
        confirm: None,
        ..
    }) = run(&provider, &headers, b"")
    else {
        panic!()
    };
    assert_eq!(keep.expose_secret(), "handed-over");
    assert!(!format!("{:?}", run(&provider, &headers, b"")).contains("handed-over"));
    let none = HeaderList::new(Vec::new());
    let confirm = |url: &str| run(&provider, &none, format!("{{\"confirm\":\"{url}\"}}").as_bytes()).map(|_| ());
    assert_eq!(confirm("https://a.example.com/c?t=1"), Ok(()));
    for bad in [
        "https://evil.example/c",
        "http://a.example.com/c",
        "https://a.example.com/d",
    ] {
        assert_eq!(confirm(bad), Err(Rejection::Handshake { status: 401 }), "{bad}");
    }
    assert_eq!(
        proves(&provider, &hmac("", b"{\"id\":1}"), b"{\"id\":1}"),
        Err(Rejection::MissingSignature)
    );
}

#[test]
fn times_of_http_are_read() {
    let rule = "scheme='hmac-sha256'\nsource='header:X-S'\ntimestamp='header:Date'\ntimestamp_format='http'\ntolerance='5m'\nmessage='{timestamp}{body}'";
    let provider = provider(&adapter(rule, "[event]\nid='{sha256(body)}'"), &["s"]);
    let check = |date: &str| {
        let signature = hmac("s", format!("{date}b").as_bytes());
        let headers = HeaderList::new(vec![("X-S", signature.as_bytes()), ("Date", date.as_bytes())]);
        run(&provider, &headers, b"b").map(|_| ())
    };
    assert_eq!(check("Thu, 01 Jan 2026 00:00:00 GMT"), Ok(()));
    assert!(matches!(
        check("Thu, 01 Jan 2026 00:06:00 GMT"),
        Err(Rejection::Future { .. })
    ));
    assert_eq!(check("yesterday"), Err(Rejection::MissingTimestamp));
}

#[tokio::test]
async fn keys_are_fetched_once_and_a_failure_waits() {
    let manifest = "title='t'\n[[signature]]\nscheme='rsa-sha256'\nkey='fetched'\nsource='header:X-S'\n\
        [keys]\nurl='{header:X-Cert}'\nhosts=['certs.example.com']\nformat='pem'\npointer='/key'\n[event]\nid='body:/id'";
    let provider = Provider::new(spec(&[]), &registry(manifest)).unwrap();
    assert!(provider.due_keys(now()).is_empty());
    let bad = |url: &str| {
        let headers = HeaderList::new(vec![("X-S", b"00"), ("X-Cert", url.as_bytes())]);
        run(&provider, &headers, b"{}").unwrap_err()
    };
    assert_eq!(bad("https://evil.example/c"), Rejection::UntrustedKey);
    let url = "https://certs.example.com/c".to_owned();
    assert_eq!(bad(&url), Rejection::CannotVerifyNow { url: url.clone() });
    for number in 0..100 {
        provider.want_key(&format!("{url}{number}"));
    }
    assert!(provider.due_keys(now()).len() <= 8, "nobody fills our memory");

    let refresher = Refresher::default();
    provider.want_key(&url);
    let nothing = |_: String| async { Ok(b"{\"key\":\"-----BEGIN\"}".to_vec()) };
    let (fetched, errors) = refresher.refresh(&provider, now(), nothing).await;
    assert_eq!((fetched, errors.len()), (0, 1));
    provider.want_key(&url);
    let key = suite_tests::RSA.replace('\n', "\\n");
    let text = |_: String| async { Ok(format!("{{\"key\":\"{key}\"}}").into_bytes()) };
    assert_eq!(
        refresher.refresh(&provider, now(), text).await.0,
        0,
        "it failed a moment ago"
    );
    provider.want_key(&url);
    let later = now() + jiff::SignedDuration::from_secs(60);
    assert_eq!(refresher.refresh(&provider, later, text).await.0, 1);
    assert_eq!(bad(&url), Rejection::WrongSignature);
}
