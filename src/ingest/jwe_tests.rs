//! Bodies that are encrypted to a key of ours, with the signature inside.

use proptest::prelude::*;
use secrecy::SecretString;

use super::{
    suite_tests::{ED25519, RSA, RSA_2},
    tests::{now, registry, spec},
    *,
};
use crate::adapters::{Adapter, Cipher, ProviderSpec};

/// The same two keys in another form, and ones that must not be taken.
const PKCS1: &str = include_str!("../../tests/vectors/keys/rsa-pkcs1.pem");
const SHORT: &str = include_str!("../../tests/vectors/keys/rsa1024.pem");

const SEALED: &str = "title='t'\n[decrypt]\nsource='at(/c, body)'\ncipher='jwe'\nalgorithms='RSA-OAEP-256'\nencryption='A256GCM'\n\
    envelope='{\"c\":\"{{encrypted}}\"}'\n[[signature]]\nscheme='jwt'\nsource='decrypted'\nalgorithms=['RS256']\n\
    [body]\nfrom='claim:'\npayload='claim:'\n[event]\nid='body:/id'\ntype='claim:/type'\n";

fn with_keys(keys: &[&str]) -> ProviderSpec {
    ProviderSpec {
        decryption_keys: keys.iter().map(|key| SecretString::from(*key)).collect(),
        ..spec(&[RSA])
    }
}

fn provider() -> Provider {
    Provider::new(with_keys(&[RSA_2]), &registry(SEALED)).unwrap()
}

fn sample() -> OwnedRequest {
    let text = "POST /webhooks/p HTTP/1.1\nContent-Type: application/json\n\n{\"id\":\"evt_1\",\"type\":\"a\"}";
    OwnedRequest::parse_sample(text.as_bytes(), "https://hooks.example.com").unwrap()
}

fn take(provider: &Provider, request: &OwnedRequest) -> Result<Vec<u8>, Rejection> {
    let headers = request.header_list();
    match ingest(provider, &request.raw(&headers), now())? {
        Ingested::Events { mut events, .. } => Ok(events.remove(0).payload.into_owned()),
        other => panic!("{other:?}"),
    }
}

/// A text of our choice, encrypted as the sender would.
fn sealed(provider: &Provider, text: &[u8]) -> String {
    let Cipher::Jwe(jwe) = &provider.rules.decrypt.as_ref().unwrap().cipher else {
        panic!("another cipher");
    };
    jwe.seal(&provider.decryption_keys[0], text).unwrap()
}

#[test]
fn what_was_signed_and_encrypted_is_stored_as_it_was_written() {
    let provider = provider();
    let request = sign(&provider, &sample(), now(), Bad::None).unwrap();
    assert!(!String::from_utf8_lossy(&request.body).contains("evt_1"));
    let payload = String::from_utf8(take(&provider, &request).unwrap()).unwrap();
    assert!(payload.contains("\"id\":\"evt_1\""), "{payload}");
}

#[test]
fn every_wrong_ciphertext_has_one_answer() {
    let provider = provider();
    let token = b"not a token";
    let good = sealed(&provider, token);
    let other = Provider::new(with_keys(&[PKCS1]), &registry(SEALED)).unwrap();
    let mut wrong = vec![
        sealed(&other, token),
        "x".into(),
        "....".into(),
        format!("{good}."),
        good.replacen('.', "", 1),
    ];
    for at in 0..5 {
        let mut parts: Vec<&str> = good.split('.').collect();
        let flipped = match parts[at].as_bytes()[0] {
            b'A' => format!("B{}", &parts[at][1..]),
            _ => format!("A{}", &parts[at][1..]),
        };
        parts[at] = &flipped;
        wrong.push(parts.join("."));
        parts[at] = "";
        wrong.push(parts.join("."));
    }
    for text in wrong {
        let mut request = sample();
        request.body = format!("{{\"c\":\"{text}\"}}").into_bytes();
        assert_eq!(
            take(&provider, &request).unwrap_err(),
            Rejection::CannotDecrypt,
            "{text}"
        );
    }
    // Opened, and it proves nothing: anybody has the public half.
    let mut request = sample();
    request.body = format!("{{\"c\":\"{good}\"}}").into_bytes();
    assert_eq!(take(&provider, &request).unwrap_err(), Rejection::MalformedSignature);
    request.body = b"{\"id\":\"evt_1\"}".to_vec();
    assert_eq!(take(&provider, &request).unwrap_err(), Rejection::MissingSignature);
}

#[test]
fn any_of_the_keys_opens_it() {
    let request = sign(&provider(), &sample(), now(), Bad::None).unwrap();
    for keys in [[RSA_2, PKCS1], [PKCS1, RSA_2]] {
        assert!(take(&Provider::new(with_keys(&keys), &registry(SEALED)).unwrap(), &request).is_ok());
    }
}

#[test]
fn keys_that_cannot_decrypt_are_named_at_the_start() {
    let escaped = RSA_2.trim().replace('\n', "\\n");
    assert!(Provider::new(with_keys(&[&escaped]), &registry(SEALED)).is_ok());
    let block = |label: &str| format!("-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n");
    let old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n";
    for (keys, expected) in [
        (vec![], "expected the private RSA key"),
        (vec!["".to_owned()], "no private RSA key"),
        (vec!["s3cret".to_owned()], "no private RSA key"),
        (vec![block("PUBLIC KEY")], "is public"),
        (vec![block("RSA PUBLIC KEY")], "is public"),
        (vec![block("CERTIFICATE")], "is public"),
        (vec![block("ENCRYPTED PRIVATE KEY")], "passphrase"),
        (vec![old.to_owned()], "passphrase"),
        (vec![block("PRIVATE KEY")], "can be used"),
        (vec![block("EC PRIVATE KEY")], "can be used"),
        (vec![ED25519.to_owned()], "can be used"),
        (vec![SHORT.to_owned()], "1024 bits"),
        (vec![RSA_2.to_owned(), "s3cret".to_owned()], "key 2 is no"),
    ] {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let error = Provider::new(with_keys(&keys), &registry(SEALED))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("`decryption_keys`") && error.contains(expected),
            "{expected}: {error}"
        );
        assert!(!error.contains("s3cret") && !error.contains("AAAA"), "{error}");
    }
    let other = "title='t'\n[[signature]]\nscheme='token'\nsource='header:X'\n[event]\nid='body:/id'";
    let spec = ProviderSpec {
        secrets: vec!["secret".into()],
        ..with_keys(&[RSA_2])
    };
    let error = Provider::new(spec, &registry(other)).unwrap_err().to_string();
    assert!(error.contains("encrypts nothing"), "{error}");
}

#[test]
fn manifests_that_would_answer_before_the_proof_are_refused() {
    let refused = |change: &str, with: &str| {
        assert!(SEALED.contains(change), "{change}");
        Adapter::parse("p", &SEALED.replace(change, with))
            .unwrap_err()
            .to_string()
    };
    for (change, with, expected) in [
        ("cipher='jwe'", "cipher='aes'", "`aes-256-cbc` or `jwe`"),
        ("cipher='jwe'", "cipher='jwe'\niv='key'", "brings its own"),
        ("cipher='jwe'", "cipher='jwe'\nkey='hex'", "decryption_keys"),
        ("cipher='jwe'", "cipher='jwe'\nframe=1", "no frame"),
        (
            "algorithms='RSA-OAEP-256'",
            "algorithms='RSA1_5'",
            "one of RSA-OAEP-256",
        ),
        ("encryption='A256GCM'", "encryption='A256CBC-HS512'", "one of A256GCM"),
        ("algorithms='RSA-OAEP-256'\n", "", "decrypt.algorithms"),
        ("encryption='A256GCM'\n", "", "decrypt.encryption"),
        ("payload='claim:'", "payload='decrypt(body)'", "keyed with the secret"),
        (
            "[body]",
            "[[handshake]]\nsigned=false\nwhen='body:/c'\nbody='{decrypted}'\n[body]",
            "after verification",
        ),
        (
            "algorithms=['RS256']",
            "algorithms=['RS256']\nwhen='decrypted'",
            "after verification",
        ),
    ] {
        let error = refused(change, with);
        assert!(error.contains(expected), "{with}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_text_in_the_field_is_refused(header in "\\{(\"(alg|enc|zip)\":\"(RSA-OAEP-256|A256GCM|dir)\",?){0,3}\\}", rest in "[A-Za-z0-9_.-]{0,60}", text in "[ -~]{0,40}") {
        use base64::Engine as _;
        let provider = provider();
        let header = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(header);
        for text in [format!("{header}.{rest}"), format!("{header}.{rest}.AAAAAAAAAAAAAAAA.AA.AAAAAAAAAAAAAAAAAAAAAA"), text] {
            let mut request = sample();
            request.body = serde_json::json!({ "c": text }).to_string().into_bytes();
            prop_assert_eq!(take(&provider, &request).unwrap_err().status(), 401);
        }
    }
}
