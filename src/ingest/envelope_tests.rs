//! Bodies in envelopes, and what is read out of them: several parts, XML, ciphertexts, values of headers.

use super::{
    tests::{NOW, hmac, now, provider, registry, run, spec},
    *,
};
use crate::{
    adapters::{Adapter, Cipher, ProviderSpec},
    domain::{HeaderList, RawRequest},
};

const OPEN: &str = "title='t'\nverify='none'\n";

/// The first event of a body, or why there is none.
fn event(manifest: &str, headers: &[(&str, &str)], body: &str) -> Result<(String, Vec<u8>), Rejection> {
    let provider = provider(manifest, &[]);
    let headers = HeaderList::new(headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect());
    match run(&provider, &headers, body.as_bytes())? {
        Ingested::Events { events, .. } => Ok(events
            .into_iter()
            .next()
            .map(|e| (e.id, e.payload.into_owned()))
            .unwrap()),
        other => panic!("{other:?}"),
    }
}

fn id(selector: &str, headers: &[(&str, &str)], body: &str) -> Result<String, Rejection> {
    let manifest = format!("{OPEN}[event]\nid={selector}");
    event(&manifest, headers, body).map(|(id, _)| id)
}

#[test]
fn an_object_or_a_boolean_is_no_id() {
    for body in [
        r#"{"id":{"a":1}}"#,
        r#"{"id":[1]}"#,
        r#"{"id":true}"#,
        r#"{"id":false}"#,
    ] {
        for selector in [
            "'body:/id'",
            "'{lower(body:/id)}'",
            "'{first(header:X, body:/id)}'",
            "['body:/id', '{sha256(body)}']",
        ] {
            let refused = id(selector, &[], body).unwrap_err();
            assert_eq!(refused.status(), 400, "{selector} {body}: {refused}");
        }
    }
    // A boolean is a fine part of a name, an object is not; a hash says what it is of.
    assert_eq!(
        id("'{body:/n}:{body:/id}'", &[], r#"{"n":7,"id":true}"#).unwrap(),
        "7:true"
    );
    assert!(id("'{body:/n}:{body:/id}'", &[], r#"{"n":7,"id":{}}"#).is_err());
    assert!(id("'{at(/id, body)}'", &[], r#"{"id":{}}"#).is_err());
    assert_eq!(id("'{sha256(body:/id)}'", &[], r#"{"id":{}}"#).unwrap().len(), 64);
    for (body, expected) in [
        (r#"{"id":7}"#, "7"),
        (r#"{"id":"true"}"#, "true"),
        (r#"{"id":"{x}"}"#, "{x}"),
    ] {
        assert_eq!(id("'body:/id'", &[], body).unwrap(), expected);
    }
}

#[test]
fn fields_of_several_parts_are_read() {
    let manifest = format!("{OPEN}[body]\nform_field='json'\n[event]\nid='body:/id'");
    let headers = [("content-type", "multipart/form-data; boundary=x")];
    let body = "--x\r\nContent-Disposition: form-data; name=\"json\"\r\n\r\n{\"id\":\"a\"}\r\n--x--\r\n";
    let (id, payload) = event(&manifest, &headers, body).unwrap();
    assert_eq!((id.as_str(), payload.as_slice()), ("a", body.as_bytes()));
    assert_eq!(event(&manifest, &headers, "--x\r\n").unwrap_err().status(), 400);
}

#[test]
fn values_are_sorted_chosen_and_joined() {
    let headers = [("X-B", "b"), ("X-A", "a"), ("X-Names", "x-b X-A")];
    let read = |text: &str| id(&format!("'{text}'"), &headers, "{\"z\":\"z\"}");
    assert_eq!(read("{sorted(header:X-B, header:X-A, body:/z)}").unwrap(), "abz");
    assert_eq!(read("{first(header:X-C, header:X-B)}").unwrap(), "b");
    assert_eq!(read("{header_values(header:X-Names)}").unwrap(), "b.a");
    assert_eq!(
        read("{sorted(header:X-B, header:X-C)}").unwrap_err(),
        Rejection::MissingId
    );
    assert_eq!(read("{header_values(body:/z)}").unwrap_err(), Rejection::MissingId);
}

#[test]
fn xml_is_read_like_json() {
    let manifest = format!(
        "{OPEN}[body]\nfrom='xml(n, body)'\n[batch]\nitems='body:/a/n/*'\n[event]\nid='{{body:/a/@k}}:{{item:/i}}'"
    );
    let (id, payload) = event(&manifest, &[], "<x:a k='v'><n><i>1</i></n></x:a>").unwrap();
    assert_eq!((id.as_str(), payload.as_slice()), ("v:1", &b"{\"i\":\"1\"}"[..]));
    assert_eq!(event(&manifest, &[], "<a><n>").unwrap_err().status(), 400);
}

#[test]
fn the_name_of_an_authentication_scheme_has_no_case() {
    let manifest = "title='t'\n[[signature]]\nscheme='token'\nsource='header:Authorization'\nformat='Bearer {signature}'\n[event]\nid='body:/id'";
    let provider = provider(manifest, &["s3cret"]);
    let answer = |value: &str| {
        let headers = HeaderList::new(vec![("Authorization", value.as_bytes())]);
        run(&provider, &headers, b"{\"id\":1}").map(|_| ())
    };
    for right in ["Bearer s3cret", "bearer s3cret", "BEARER s3cret"] {
        assert_eq!(answer(right), Ok(()), "{right}");
    }
    for wrong in ["s3cret", "Bearers3cret", "Basic s3cret", "bearer S3cret"] {
        assert!(answer(wrong).is_err(), "{wrong}");
    }
}

const SEALED: &str = "title='t'\n[[signature]]\nscheme='hmac-sha256'\nsource='header:X-S'\nkey='pair'\n[decrypt]\nsource='body:/c'\n\
    cipher='aes-256-cbc'\nkey=['pair','sha256']\niv='front'\n[body]\nfrom='decrypted'\npayload='decrypted'\n[event]\nid='body:/id'";

/// A body with a ciphertext made with a secret, beside the signature of another.
fn sealed(cipher: &str, signer: &str, text: &str) -> (Vec<u8>, String) {
    let other = provider(&SEALED.replace("source='body:/c'", "source='body'"), &[cipher]);
    let Cipher::Cbc(rule) = &other.rules.decrypt.as_ref().unwrap().cipher else {
        panic!("another cipher");
    };
    let body = rule
        .seal(other.ciphers[0].as_ref().unwrap(), text.as_bytes())
        .unwrap()
        .into_bytes();
    let secret = signer.split_once(':').unwrap().1;
    let signature = hmac(secret, &body);
    (body, signature)
}

#[test]
fn what_is_decrypted_is_what_the_proved_secret_opens() {
    let manifest = SEALED.replace("source='body:/c'", "source='body'");
    let provider = provider(&manifest, &["a:one", "b:two"]);
    let answer = |(body, signature): (Vec<u8>, String)| {
        let headers = HeaderList::new(vec![("X-S", signature.as_bytes())]);
        let request = RawRequest {
            method: "POST",
            url: "https://hooks.example.com/webhooks/p",
            headers: &headers,
            body: &body,
        };
        match ingest(&provider, &request, now())? {
            Ingested::Events { mut events, .. } => Ok::<_, Rejection>(events.remove(0).payload.into_owned()),
            other => panic!("{other:?}"),
        }
    };
    let text = format!("{{\"id\":{NOW}}}");
    assert_eq!(answer(sealed("a:one", "a:one", &text)).unwrap(), text.as_bytes());
    assert_eq!(answer(sealed("b:two", "b:two", &text)).unwrap(), text.as_bytes());
    // Authentic, and unreadable all the same.
    assert_eq!(answer(sealed("a:one", "b:two", &text)).unwrap_err().status(), 400);
    assert_eq!(
        answer(sealed("a:one", "c:three", &text)).unwrap_err(),
        Rejection::WrongSignature
    );
}

#[test]
fn nothing_is_decrypted_before_it_is_proved() {
    // The adapter asks for it in the condition of a signature, where there is none yet.
    let error = Adapter::parse(
        "p",
        &SEALED.replace("key='pair'\n[decrypt]", "key='pair'\nwhen='decrypted'\n[decrypt]"),
    );
    assert!(error.unwrap_err().to_string().contains("after verification"));
    let reads = SEALED.replace("key='pair'\n[decrypt]", "key='pair'\nwhen='!body:/id'\n[decrypt]");
    let provider = provider(&reads.replace("source='body:/c'", "source='body'"), &["a:one"]);
    let (body, signature) = sealed("a:one", "a:one", "{\"id\":1}");
    let headers = HeaderList::new(vec![("X-S", signature.as_bytes())]);
    assert!(run(&provider, &headers, &body).is_ok());
}

#[test]
fn an_unsigned_challenge_is_decrypted_where_it_must_hold_a_secret() {
    let shake = |require: &str| {
        let shake = format!(
            "[[handshake]]\nwhen='at(/type, decrypted) == hello'\n{require}\nsigned=false\nbody='{{at(/c, decrypted)}}'\n[event]"
        );
        let manifest = SEALED.replace("source='body:/c'", "source='body'");
        manifest.replace("[event]", &shake)
    };
    for careless in [
        "",
        "require='at(/c, decrypted)'",
        "require='at(/k, decrypted) == x'",
        "require='body == {secret_id}'",
    ] {
        let error = Adapter::parse("p", &shake(careless)).unwrap_err().to_string();
        assert!(error.contains("handshake[0].require"), "{careless}: {error}");
    }
    let provider = provider(
        &shake("require='at(/k, decrypted) == {secret_id}'"),
        &["a:one", "b:two"],
    );
    let answer = |cipher: &str, text: &str| {
        let (body, _) = sealed(cipher, cipher, text);
        match run(&provider, &HeaderList::new(Vec::new()), &body)? {
            Ingested::Handshake { answer, .. } => Ok::<_, Rejection>(answer.body),
            other => panic!("{other:?}"),
        }
    };
    let text = r#"{"type":"hello","k":"a","c":"xyz"}"#;
    assert_eq!(answer("a:one", text).unwrap(), b"xyz");
    for (cipher, text) in [
        ("a:one", r#"{"type":"hello","k":"b","c":"xyz"}"#),
        ("a:one", r#"{"type":"hello","c":"xyz"}"#),
        ("a:one", r#"{"type":"other","k":"a","c":"xyz"}"#),
        ("a:one", r#"{"id":1}"#),
        ("b:two", text),
        ("c:three", text),
    ] {
        assert_eq!(answer(cipher, text).unwrap_err().status(), 401, "{cipher} {text}");
    }
}

#[test]
fn a_sample_is_encrypted_where_the_secret_can() {
    let registry = crate::adapters::Registry::embedded();
    let lark = registry.get("lark").unwrap();
    let sample = lark.samples().values().next().unwrap();
    for (secret, encrypted) in [("token:key", true), ("token", false)] {
        let spec = ProviderSpec {
            adapter: Some("lark".into()),
            ..spec(&[secret])
        };
        let provider = Provider::new(spec, &registry).unwrap();
        let sample = OwnedRequest::parse_sample(sample, "https://hooks.example.com").unwrap();
        let signed = sign(&provider, &sample, now(), Bad::None).unwrap();
        assert_eq!(signed.body.starts_with(b"{\"encrypt\":"), encrypted);
        let headers = signed.header_list();
        let Ok(Ingested::Events { events, .. }) = ingest(&provider, &signed.raw(&headers), now()) else {
            panic!("{secret}");
        };
        let payload = std::str::from_utf8(&events[0].payload).unwrap();
        assert!(
            payload.contains("\"token\":\"token\"") && !payload.contains("token:key"),
            "{payload}"
        );
        for bad in [Bad::Tampered, Bad::WrongKey] {
            let request = sign(&provider, &sample, now(), bad).unwrap();
            let headers = request.header_list();
            assert_eq!(
                ingest(&provider, &request.raw(&headers), now()).unwrap_err().status(),
                401,
                "{secret} {bad:?}"
            );
        }
    }
}

#[test]
fn a_subscription_is_confirmed_where_it_is_proved() {
    let manifest = "title='t'\n[[signature]]\nscheme='hmac-sha256'\nsource='header:X-S'\n[[handshake]]\nwhen='body:/u'\n\
        confirm='body:/u'\ncall=true\nhosts=['*.example.com/c']\n[event]\nid='body:/id'";
    let body = br#"{"u":"https://a.example.com/c?t=1"}"#;
    let signature = hmac("s", body);
    let headers = HeaderList::new(vec![("X-S", signature.as_bytes())]);
    let made = |confirm, verify: Option<&str>| {
        let spec = ProviderSpec {
            confirm,
            verify: verify.map(Into::into),
            ..spec(&["s"])
        };
        Provider::new(spec, &registry(manifest)).unwrap()
    };
    for (confirm, verify, call) in [
        (None, None, true),
        (Some(true), None, true),
        (Some(false), None, false),
        (Some(true), Some("none"), false),
    ] {
        match run(&made(confirm, verify), &headers, body) {
            Ok(Ingested::Handshake {
                confirm: Some(found), ..
            }) => assert_eq!(found.call, call, "{confirm:?} {verify:?}"),
            other => panic!("{other:?}"),
        }
    }
    let unsigned = HeaderList::new(Vec::new());
    assert_eq!(
        run(&made(None, None), &unsigned, body).unwrap_err(),
        Rejection::MissingSignature
    );
    let mistake = Adapter::parse("p", &manifest.replace("call=true", "call=true\nsigned=false")).unwrap_err();
    assert!(mistake.to_string().contains("that is signed"), "{mistake}");
    let none = manifest.replace("confirm='body:/u'\ncall=true\nhosts=['*.example.com/c']\n", "");
    let spec = ProviderSpec {
        confirm: Some(true),
        ..spec(&["s"])
    };
    let mistake = Provider::new(spec, &registry(&none)).unwrap_err().to_string();
    assert!(mistake.contains("`confirm`"), "{mistake}");
}
