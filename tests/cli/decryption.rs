//! Senders that encrypt to a key of ours.

use std::fs;

use crate::support::Place;

/// A key pair for tests.
fn key(name: &str) -> String {
    format!("file:{}/tests/vectors/keys/{name}.pem", env!("CARGO_MANIFEST_DIR"))
}

/// The sender signs with a test key that is pinned, so that nothing is fetched.
fn stone(decryption_key: &str) -> String {
    format!(
        "[[provider]]\nname = \"stone\"\naccept = [\"pinned\"]\nsecrets = [\"{}\"]\ndecryption_keys = [\"{decryption_key}\"]\n",
        key("rsa-1")
    )
}

#[test]
fn what_was_encrypted_is_stored_readable_and_a_forgery_is_refused() {
    let place = Place::with(&stone(&key("rsa-pkcs1")));
    let _server = place.serve();
    for sample in ["cash_in_internal_transfer", "cash_out_payment_finished"] {
        place.run(&["trigger", "stone", sample]).ok();
    }
    place.run(&["trigger", "stone", "--bad", "duplicate"]).ok();
    for bad in ["tampered", "wrong-key"] {
        let ran = place.run(&["trigger", "stone", "--bad", bad]).ok();
        assert!(ran.stdout.contains("Refused, as it should be."), "{}", ran.stdout);
    }
    // What is signed names its own end; nothing else makes it stale.
    place
        .run(&["trigger", "stone", "--bad", "stale"])
        .fails(1, "signs no time");
    let events = place.run(&["events", "list", "--json"]).ok().objects();
    assert_eq!(events.len(), 3);
    for event in events {
        let id = event["provider_event_id"].as_str().unwrap();
        let payload = place.run(&["events", "payload", "stone", id]).ok().stdout;
        let claims: serde_json::Value = serde_json::from_str(&payload).unwrap();
        assert_eq!(claims["event_type"], event["event_type"]);
        assert!(claims["target_data"]["account_id"].is_string(), "{claims}");
    }
}

#[test]
fn check_names_what_is_wrong_with_a_key() {
    let public = "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----\n";
    let sealed = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n";
    for (text, expected) in [(public, "is public"), (sealed, "openssl pkey"), ("", "")] {
        let place = Place::with(&stone("file:key.pem"));
        if !text.is_empty() {
            fs::write(place.path().join("key.pem"), text).unwrap();
        }
        let ran = place.run(&["check"]);
        let all = format!("{}{}", ran.stdout, ran.stderr);
        assert!(
            all.contains("provider[0].decryption_keys") && all.contains(expected),
            "{all}"
        );
        assert!(!all.contains("MIIB"), "{all}");
        assert_eq!(ran.code, 1, "{all}");
    }
    Place::with(&stone(&key("rsa1024")))
        .run(&["check"])
        .fails(1, "1024 bits only");
    Place::with(&stone(&key("rsa-pkcs1"))).run(&["check"]).ok();
    let without = stone("x").replace("decryption_keys = [\"x\"]\n", "");
    Place::with(&without).run(&["check"]).fails(1, "decryption_keys");
}
