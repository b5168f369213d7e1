//! Signatures and tokens that are made with private keys, and whatever somebody might pass off as one.

use base64::Engine as _;
use jiff::ToSpan as _;
use proptest::prelude::*;
use secrecy::SecretString;

use super::{
    suite_tests::{ED25519, P256, RSA},
    tests::{events, now, provider, registry, run, spec},
    *,
};
use crate::{
    adapters::{Adapter, KeySet, Provider},
    domain::HeaderList,
};

const SAMPLE: &str =
    "POST /webhooks/p HTTP/1.1\nX-T: {{unix}}\nContent-Type: application/json\n\n{\"id\":\"evt_1\",\"n\":[1,2]}";

/// Schemes, each with a key pair.
fn schemes() -> Vec<(&'static str, String, &'static str)> {
    let rule = |lines: &str| format!("title='t'\n[[signature]]\n{lines}\n[event]\nid='body:/id'\n");
    let timed = "source='header:X-S'\ntimestamp='header:X-T'\ntolerance='5m'\nmessage='{timestamp}.{body}'";
    let token = "source='header:X-S'\nscheme='jwt'\nclaims=['claim:/h == {sha256(body)}','claim:/exp']\ntolerance='5m'";
    vec![
        ("ed25519", rule(&format!("scheme='ed25519'\n{timed}")), ED25519),
        (
            "ecdsa",
            rule(&format!("scheme='ecdsa-p256-sha256'\nencoding='base64'\n{timed}")),
            P256,
        ),
        (
            "ecdsa raw",
            rule(&format!(
                "scheme='ecdsa-p256-sha256-raw'\nencoding='base64url'\n{timed}"
            )),
            P256,
        ),
        (
            "rsa",
            rule(&format!("scheme='rsa-sha256'\nencoding='base64'\n{timed}")),
            RSA,
        ),
        ("RS256", rule(&format!("algorithms=['RS256']\n{token}")), RSA),
        ("RS512", rule(&format!("algorithms=['RS512']\n{token}")), RSA),
        ("ES256", rule(&format!("algorithms=['ES256']\n{token}")), P256),
        ("EdDSA", rule(&format!("algorithms=['EdDSA']\n{token}")), ED25519),
        (
            "HS384",
            rule(&format!("algorithms=['HS384']\n{token}")),
            "a shared secret of the sender",
        ),
        (
            "detached",
            rule("source='header:X-S'\nscheme='jwt'\nalgorithms=['RS256']\ndetached=true\nmessage='{body}'"),
            RSA,
        ),
    ]
}

fn signed(manifest: &str, secret: &str) -> (Provider, OwnedRequest) {
    let provider = provider(manifest, &[secret]);
    let sample = OwnedRequest::parse_sample(SAMPLE.as_bytes(), &provider.public_url).unwrap();
    let request = sign(&provider, &sample, now(), Bad::None).unwrap();
    assert_eq!(judge(&provider, &request), Ok(()));
    (provider, request)
}

fn judge(provider: &Provider, request: &OwnedRequest) -> Result<(), Rejection> {
    let headers = request.header_list();
    let raw = request.raw(&headers);
    let _ = explain(provider, &raw, now());
    ingest(provider, &raw, now()).map(|_| ())
}

fn signature(request: &OwnedRequest) -> String {
    String::from_utf8(request.header("X-S").unwrap().to_vec()).unwrap()
}

fn with_signature(request: &OwnedRequest, value: &str) -> OwnedRequest {
    let mut request = request.clone();
    request.set_header("X-S", value.to_owned());
    request
}

fn encode(text: &str) -> String {
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text)
}

#[test]
fn no_bit_of_a_body_can_be_flipped() {
    for (name, manifest, secret) in schemes() {
        let (provider, request) = signed(&manifest, secret);
        for bit in (0..request.body.len() * 8).step_by(3) {
            let mut changed = request.clone();
            changed.body[bit / 8] ^= 1 << (bit % 8);
            assert!(judge(&provider, &changed).is_err(), "{name}: bit {bit}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn changed_signatures_are_refused_and_never_panic(
        pick in any::<prop::sample::Index>(),
        from in any::<prop::sample::Index>(),
        to in any::<prop::sample::Index>(),
        with in "[ -~]{0,6}",
    ) {
        let all = schemes();
        let (name, manifest, secret) = &all[pick.index(all.len())];
        let (provider, request) = signed(manifest, secret);
        let good = signature(&request);
        let (from, to) = (from.index(good.len()), to.index(good.len()));
        let bad = [&good[..from.min(to)], &with, &good[from.max(to)..]].concat();
        let same = bad.trim_end_matches('=') == good.trim_end_matches('=') || bad.eq_ignore_ascii_case(&good);
        prop_assert_eq!(judge(&provider, &with_signature(&request, &bad)).is_ok(), same, "{}: {}", name, bad);
    }

    #[test]
    fn any_text_is_a_key_or_an_error(text in "[ -~\n]{0,80}", bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        let encoded = base64::engine::general_purpose::STANDARD.encode(&bytes);
        for text in [text.clone(), encoded.clone(), format!("whpk_{text}"), format!("{{\"kty\":\"EC\",\"x\":\"{text}\"}}"),
            format!("-----BEGIN PUBLIC KEY-----\n{encoded}\n-----END PUBLIC KEY-----"),
            format!("-----BEGIN PRIVATE KEY-----\n{encoded}\n-----END PRIVATE KEY-----")] {
            let _ = KeySet::parse(&text);
            let _ = KeySet::parse_ed25519(&text);
        }
    }
}

#[test]
fn the_header_of_a_token_chooses_nothing_that_is_not_allowed() {
    let (_, manifest, _) = schemes().remove(4);
    let (provider, request) = signed(&manifest, RSA);
    let token = signature(&request);
    let parts: Vec<&str> = token.split('.').collect();
    let payload = parts[1];
    let public = KeySet::parse(RSA).unwrap().keys[0].key.bytes.clone();
    for (header, signature) in [
        (r#"{"alg":"none"}"#, String::new()),
        (r#"{"alg":"None"}"#, parts[2].to_owned()),
        (r#"{"alg":"RS384"}"#, parts[2].to_owned()),
        (r#"{"alg":"RS256","crit":["b64"],"b64":false}"#, parts[2].to_owned()),
        (r#"{"alg":"RS256","alg":"none"}"#, parts[2].to_owned()),
        (r#"{"alg":"RS256","kid":"other"}"#, parts[2].to_owned()),
        (r#"{}"#, parts[2].to_owned()),
        (r#"["RS256"]"#, parts[2].to_owned()),
    ] {
        let forged = format!("{}.{payload}.{signature}", encode(header));
        assert!(
            judge(&provider, &with_signature(&request, &forged)).is_err(),
            "{header}"
        );
    }
    // A MAC with the public key, in every form that somebody may have of it.
    let pem = crate::adapters::Digester::keyed(crate::adapters::Hash::Sha256, &public);
    let text = format!("{}.{payload}", encode(r#"{"alg":"HS256"}"#));
    let mut mac = pem.clone();
    mac.update(text.as_bytes());
    let forged = format!(
        "{text}.{}",
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(mac.finish().bytes())
    );
    assert_eq!(
        judge(&provider, &with_signature(&request, &forged)),
        Err(Rejection::WrongSignature)
    );
    for token in [
        format!("{token}."),
        format!(".{token}"),
        format!("{}.{payload}", parts[0]),
        String::from(".."),
    ] {
        assert!(judge(&provider, &with_signature(&request, &token)).is_err(), "{token}");
    }
}

#[test]
fn a_payload_that_is_elsewhere_may_be_signed_as_it_is() {
    let rule = "title='t'\n[[signature]]\nscheme='jwt'\nalgorithms=['HS256']\nsource='header:X-S'\n[event]\nid='{sha256(body)}'";
    let detached = rule.replace("source", "detached=true\nsource");
    let check = |manifest: &str, head: &str, payload: &str| {
        let provider = Provider::new(spec(&["s"]), &registry(manifest)).unwrap();
        let head = encode(head);
        let mut mac = crate::adapters::Digester::keyed(crate::adapters::Hash::Sha256, b"s");
        mac.update(format!("{head}.{payload}").as_bytes());
        let mac = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(mac.finish().bytes());
        let shown = if manifest.contains("detached") { "" } else { payload };
        let token = format!("{head}.{shown}.{mac}");
        let headers = HeaderList::new(vec![("x-s", token.as_bytes())]);
        run(&provider, &headers, b"{\"exp\":1}").is_ok()
    };
    let (plain, encoded) = ("{\"exp\":1}", encode("{\"exp\":1}"));
    for (head, as_it_is, in_base64) in [
        (r#"{"alg":"HS256"}"#, false, true),
        (r#"{"alg":"HS256","b64":true}"#, false, true),
        (r#"{"alg":"HS256","b64":false}"#, true, false),
        (r#"{"alg":"HS256","b64":false,"crit":["b64"]}"#, true, false),
        (r#"{"alg":"HS256","b64":true,"crit":["b64"]}"#, false, true),
        (r#"{"alg":"HS256","crit":["b64"]}"#, false, false),
        (r#"{"alg":"HS256","b64":false,"crit":[]}"#, false, false),
        (r#"{"alg":"HS256","b64":false,"crit":["b64","exp"]}"#, false, false),
        (r#"{"alg":"HS256","b64":false,"crit":["exp"]}"#, false, false),
        (r#"{"alg":"HS256","b64":false,"crit":"b64"}"#, false, false),
        (r#"{"alg":"HS256","b64":"false"}"#, false, false),
    ] {
        assert_eq!(check(&detached, head, plain), as_it_is, "{head}");
        assert_eq!(check(&detached, head, &encoded), in_base64, "{head}");
    }
    let claims = encode("{}");
    assert!(check(rule, r#"{"alg":"HS256"}"#, &claims));
    assert!(!check(rule, r#"{"alg":"HS256","b64":false}"#, &claims));
    assert!(!check(rule, r#"{"alg":"HS256","b64":false,"crit":["b64"]}"#, &claims));
}

#[test]
fn a_token_is_judged_by_its_claims() {
    let manifest = "title='t'\n[[signature]]\nscheme='jwt'\nalgorithms=['HS256']\nsource='header:X-S'\n\
        claims=['claim:/iss == config:issuer','claim:/aud/name == {method}']\n[event]\nid='claim:/jti'";
    let mut with = spec(&["s"]);
    with.options.insert("issuer".into(), "me".into());
    let provider = Provider::new(with, &registry(manifest)).unwrap();
    let check = |claims: &str| {
        let text = format!("{}.{}", encode(r#"{"alg":"HS256"}"#), encode(claims));
        let mut mac = crate::adapters::Digester::keyed(crate::adapters::Hash::Sha256, b"s");
        mac.update(text.as_bytes());
        let mac = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(mac.finish().bytes());
        let token = format!("{text}.{mac}");
        let headers = HeaderList::new(vec![("x-s", token.as_bytes())]);
        run(&provider, &headers, b"").map(|result| events(Ok(result))[0].id.clone())
    };
    let now = now().as_second();
    let claims = |more: &str| format!("{{\"iss\":\"me\",\"aud\":{{\"name\":\"POST\"}},\"jti\":\"j\"{more}}}");
    assert_eq!(check(&claims("")).unwrap(), "j");
    assert_eq!(check(&claims(&format!(",\"exp\":{}", now - 59))).unwrap(), "j");
    assert_eq!(
        check(&claims(&format!(",\"exp\":{}", now - 61))),
        Err(Rejection::Stale { seconds: 61 })
    );
    assert_eq!(
        check(&claims(&format!(",\"nbf\":{}", now + 61))),
        Err(Rejection::Future { seconds: 61 })
    );
    assert_eq!(check(&claims(",\"exp\":\"soon\"")), Err(Rejection::MissingTimestamp));
    for bad in [
        "{}",
        "[]",
        "{\"iss\":\"me\"}",
        "{\"iss\":\"you\",\"aud\":{\"name\":\"POST\"}}",
    ] {
        assert!(matches!(check(bad), Err(Rejection::WrongClaim(_))), "{bad}");
    }
    assert_eq!(check("{"), Err(Rejection::MalformedSignature));
}

#[test]
fn an_ecdsa_signature_has_a_twin_and_no_other() {
    // (r, s) and (r, n - s) are both right for the same bytes. That changes nothing: the event is the same.
    let (_, manifest, secret) = schemes().remove(2);
    let (provider, request) = signed(&manifest, secret);
    let raw = base64::engine::general_purpose::URL_SAFE
        .decode(signature(&request))
        .unwrap();
    let twin = {
        let signature = p256::ecdsa::Signature::from_slice(&raw).unwrap();
        let (r, s) = signature.split_scalars();
        p256::ecdsa::Signature::from_scalars(r.to_bytes(), (-*s).to_bytes()).unwrap()
    };
    let written = |bytes: &[u8]| base64::engine::general_purpose::URL_SAFE.encode(bytes);
    let twin = with_signature(&request, &written(&twin.to_bytes()));
    assert_eq!(judge(&provider, &twin), Ok(()));
    let mut changed = twin.clone();
    changed.body.push(b' ');
    assert!(judge(&provider, &changed).is_err());
    // Zeros, DER where two numbers are expected, and what is longer.
    for bad in [vec![0; 64], vec![0; 72], [&raw[..], &[0]].concat(), raw[..63].to_vec()] {
        assert!(judge(&provider, &with_signature(&request, &written(&bad))).is_err());
    }
}

#[test]
fn a_public_key_is_no_shared_secret() {
    let pem = |name: &str| {
        let public = match name {
            "spki" => "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEwvtSGNAKyRl0tniv7t2r+4yPPZcCkAWqnr9UcFH6C7Zqd6kJsnpzCNWNLnYGU0luNxpDpb4JNvP/dJjSkYeRjw==".to_owned(),
            "whpk" => format!("whpk_{}", base64::engine::general_purpose::STANDARD.encode([7; 32])),
            _ => P256.to_owned(),
        };
        SecretString::from(public)
    };
    for scheme in [
        "scheme='hmac-sha256'\nkey='base64'",
        "scheme='hmac-sha256'\nkey='whsec'",
        "scheme='hmac-sha1'",
        "scheme='token'",
        "scheme='sha256'\nmessage='{secret}{body}'",
        "scheme='jwt'\nalgorithms=['HS256']",
    ] {
        let manifest = format!("title='t'\n[[signature]]\nsource='header:X-S'\n{scheme}\n[event]\nid='body:/id'");
        for name in ["spki", "whpk", "pem"] {
            let mut with = spec(&[]);
            with.secrets = vec![pem(name)];
            assert!(Provider::new(with, &registry(&manifest)).is_err(), "{scheme} {name}");
        }
    }
    let mixed = "title='t'\n[[signature]]\nsource='header:a'\nscheme='hmac-sha256'\n[[signature]]\nsource='header:b'\nscheme='ed25519'";
    let error = Adapter::parse("p", mixed).unwrap_err();
    assert!(error.message.contains("whpk"), "{error}");
}

#[test]
fn a_provider_with_a_public_key_cannot_sign() {
    let (_, manifest, _) = schemes().remove(0);
    let public = hex::encode(&KeySet::parse(ED25519).unwrap().keys[0].key.bytes);
    let (_, request) = signed(&manifest, ED25519);
    let provider = provider(&manifest, &[&public]);
    assert_eq!(judge(&provider, &request), Ok(()));
    let sample = OwnedRequest::parse_sample(SAMPLE.as_bytes(), &provider.public_url).unwrap();
    assert_eq!(sign(&provider, &sample, now(), Bad::None), Err(SignError::NoPrivateKey));
    assert!(!format!("{provider:?}").contains(&public));
}

#[test]
fn a_key_that_is_not_at_hand_is_neither_right_nor_wrong() {
    let manifest = "title='t'\n[[signature]]\nscheme='jwt'\nalgorithms=['ES256']\nkey='fetched'\nsource='header:X-S'\n\
        claims=['claim:/h == {sha256(body)}']\n[keys]\nurl='https://keys.example.com/jwks'\nformat='jwks'\ncache='1h'\n[event]\nid='body:/id'";
    let (_, request) = {
        let pinned = manifest.replace("key='fetched'\n", "");
        let pinned = pinned.split("[keys]").next().unwrap().to_owned() + "[event]\nid='body:/id'";
        signed(&pinned, P256)
    };
    let provider = Provider::new(spec(&[]), &registry(manifest)).unwrap();
    let url = "https://keys.example.com/jwks".to_owned();
    let missing = Err(Rejection::CannotVerifyNow { url: url.clone() });
    assert_eq!(judge(&provider, &request), missing);
    assert_eq!(Rejection::CannotVerifyNow { url: url.clone() }.status(), 503);
    assert_eq!(provider.due_keys(now()), std::slice::from_ref(&url));
    assert!(provider.put_keys(&url, b"<html>", now()).is_err());

    let jwk = |kid: &str| {
        let point = &KeySet::parse(P256).unwrap().keys[0].key.bytes;
        let part = |bytes: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
        format!(
            "{{\"keys\":[{{\"kty\":\"oct\",\"k\":\"c2VjcmV0\"}},{{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":\"{kid}\",\"x\":\"{}\",\"y\":\"{}\"}}]}}",
            part(&point[1..33]),
            part(&point[33..])
        )
    };
    provider.put_keys(&url, jwk("a").as_bytes(), now()).unwrap();
    assert_eq!(judge(&provider, &request), Ok(()));
    assert!(provider.due_keys(now()).is_empty());
    assert_eq!(
        provider.due_keys(now() + 31.minutes()),
        std::slice::from_ref(&url),
        "before it ends"
    );
    // Too old to be used: again neither.
    provider
        .put_keys(&url, jwk("a").as_bytes(), now() - 61.minutes())
        .unwrap();
    assert_eq!(judge(&provider, &request), missing);
    // An unknown key id is a reason to fetch, but not again and again.
    let token = signature(&request);
    let (_, rest) = token.split_once('.').unwrap();
    let other = with_signature(&request, &format!("{}.{rest}", encode(r#"{"alg":"ES256","kid":"b"}"#)));
    provider
        .put_keys(&url, jwk("a").as_bytes(), now() - 10.minutes())
        .unwrap();
    assert_eq!(judge(&provider, &other), missing);
    provider.put_keys(&url, jwk("a").as_bytes(), now()).unwrap();
    assert_eq!(judge(&provider, &other), Err(Rejection::WrongSignature));
}
