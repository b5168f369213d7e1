//! Whatever is changed in what a sender signs, nothing else is accepted and nothing panics.

use proptest::prelude::*;

use super::{
    tests::{STRIPE, now, provider},
    *,
};

const SECRET: &str = "whsec_c2VjcmV0c2VjcmV0";
const SAMPLE: &str = "POST /webhooks/p HTTP/1.1\nContent-Type: application/json\n\n\
    {\"id\":\"evt_1\",\"type\":\"a\",\"created\":1767225600,\"data\":{\"object\":{\"customer\":\"c\",\"list\":[1,{\"b\":null}]}}}";

/// Schemes of every kind, over all that a message can hold.
fn schemes() -> Vec<(&'static str, String)> {
    let rule = |lines: &str| format!("title='t'\n[[signature]]\n{lines}\n[event]\nid='body:/id'\n");
    vec![
        ("stripe", STRIPE.to_owned()),
        (
            "hex",
            rule("scheme='hmac-sha512'\nsource='header:X-S'\nformat='sha512={signature}'"),
        ),
        (
            "base64",
            rule("scheme='hmac-sha1'\nsource='header:X-S'\nencoding='base64'\nmessage='{url}{method}{body}'"),
        ),
        (
            "base64url",
            rule(
                "scheme='hmac-sha384'\nsource='header:X-S'\nencoding='base64url'\nkey='whsec'\nmessage='{body}{header:content-type}'",
            ),
        ),
        (
            "list",
            rule(
                "scheme='hmac-sha256'\nsource='header:X-S'\nlist=' '\nformat='v1,{signature}'\ntimestamp='header:X-T'\ntolerance='5m'\nmessage='{timestamp}.{body}'\nencoding='base64'",
            ),
        ),
        (
            "hash",
            rule("scheme='sha256'\nsource='header:X-S'\nmessage='{secret}{body}'"),
        ),
        ("query", rule("scheme='hmac-sha256'\nsource='query:sig'")),
    ]
}

fn signed(manifest: &str) -> (Provider, OwnedRequest) {
    let provider = provider(manifest, &[SECRET]);
    let sample = OwnedRequest::parse_sample(SAMPLE.as_bytes(), &provider.public_url).unwrap();
    let request = sign(&provider, &sample, now(), Bad::None).unwrap();
    assert!(accepts(&provider, &request));
    (provider, request)
}

fn accepts(provider: &Provider, request: &OwnedRequest) -> bool {
    let headers = request.header_list();
    let raw = request.raw(&headers);
    let _ = explain(provider, &raw, now());
    ingest(provider, &raw, now()).is_ok()
}

#[test]
fn no_bit_of_a_body_can_be_flipped() {
    for (name, manifest) in schemes() {
        let (provider, request) = signed(&manifest);
        for bit in 0..request.body.len() * 8 {
            let mut changed = request.clone();
            changed.body[bit / 8] ^= 1 << (bit % 8);
            let headers = changed.header_list();
            let result = ingest(&provider, &changed.raw(&headers), now());
            assert_eq!(result.unwrap_err(), Rejection::WrongSignature, "{name}: bit {bit}");
        }
    }
}

/// A change of one text.
fn change(text: &[u8]) -> impl Strategy<Value = Vec<u8>> + use<> {
    let text = text.to_vec();
    let len = text.len();
    (0..=len, 0..=len, prop::collection::vec(any::<u8>(), 0..6)).prop_map(move |(from, to, with)| {
        let (from, to) = (from.min(to), from.max(to));
        [&text[..from], &with, &text[to..]].concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn changed_bodies_are_refused(pick in any::<prop::sample::Index>(), body in change(SAMPLE.split_once("\n\n").unwrap().1.as_bytes())) {
        let all = schemes();
        let (name, manifest) = &all[pick.index(all.len())];
        let (provider, request) = signed(manifest);
        let changed = OwnedRequest { body: body.clone(), ..request.clone() };
        prop_assert_eq!(accepts(&provider, &changed), body == request.body, "{}", name);
    }

    #[test]
    fn changed_headers_never_panic_and_prove_no_other_body(
        pick in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        from in any::<prop::sample::Index>(),
        with in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let all = schemes();
        let (name, manifest) = &all[pick.index(all.len())];
        let (provider, mut request) = signed(manifest);
        let at = at.index(request.headers.len());
        let value = &mut request.headers[at].1;
        let from = from.index(value.len());
        value.splice(from.., with);
        accepts(&provider, &request);
        request.body.push(b' ');
        prop_assert!(!accepts(&provider, &request), "{}", name);
    }

    #[test]
    fn any_body_of_any_adapter_is_an_answer(body in prop::collection::vec(any::<u8>(), 0..200), text in "[\\[\\]{}\":,a-z0-9 &=%]{0,80}") {
        let manifest = "title='t'\nverify='none'\n[body]\nform_field='payload'\n[batch]\nitems=['body:/*','form:e:/*','body:/a/*/b/*']\n\
            [event]\nid=['item:/id','body:/a/*/id','key_of:/ a b','form:sorted','{sorted(form:a, query:x)}','{header_values(query:x)}','{form:pairs:a}','{at(/a, first(xml(b, form:e), xml(body)))}','{sha256(body)}']\ntype='{json(item)}'\ntime='form:t'\n\
            [[handshake]]\nwhen='body:/c'\nbody='{unbase64(body:/c)}{url_encode(url_decode(query:x))}'";
        let provider = provider(manifest, &[]);
        for content_type in ["application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a"] {
            for body in [&body[..], text.as_bytes(), format!("payload={text}&e={text}").as_bytes()] {
                let request = OwnedRequest {
                    method: "POST".into(),
                    url: format!("https://h/p?x={}", text.replace(' ', "+")),
                    headers: vec![("content-type".into(), content_type.into())],
                    body: body.to_vec(),
                };
                accepts(&provider, &request);
            }
        }
    }

    #[test]
    fn any_text_is_a_request_or_an_error(text in prop::collection::vec(any::<u8>(), 0..100), line in "[A-Z]{0,4} ?/?[ -~]{0,20}\r?\n([ -~]{0,10}:?[ -~]{0,5}\r?\n){0,3}\r?\n?[ -~]{0,5}") {
        for text in [&text[..], line.as_bytes()] {
            let _ = OwnedRequest::parse(text, "https://h");
            let _ = OwnedRequest::parse_sample(text, "https://h");
        }
    }

    #[test]
    fn any_text_is_an_expression_or_an_error(text in "[a-z_:/{}()\\[\\]= !.*]{0,40}") {
        let manifest = |line: String| format!("title='t'\n[[signature]]\nscheme='hmac-sha1'\nsource='header:a'\n{line}");
        for line in [
            format!("message='{text}'"),
            format!("when='{text}'"),
            format!("format='{text}'"),
            format!("[event]\nid='{text}'"),
            format!("[batch]\nitems='{text}'"),
            format!("tolerance='{text}'"),
        ] {
            let _ = crate::adapters::Adapter::parse("p", &manifest(line));
        }
    }
}
