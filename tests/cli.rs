//! The command line, through the real binary: what it prints, and how it exits.

#![allow(clippy::unwrap_used, reason = "this whole binary is tests")]

#[path = "cli/decryption.rs"]
mod decryption;
#[path = "cli/providers.rs"]
mod providers;
#[path = "cli/send.rs"]
mod send;
#[path = "cli/settings.rs"]
mod settings;
#[path = "cli/support.rs"]
mod support;

use std::{
    fs,
    io::{Read as _, Write as _},
    process::Stdio,
};

use support::{Place, STRIPE};

#[test]
fn init_writes_once_and_check_accepts_it() {
    let place = Place::new();
    assert!(place.run(&["init"]).ok().stdout.contains("cerca check"));
    place.run(&["init"]).fails(1, "is there already");
    let checked = place.run(&["check"]).ok().stdout;
    assert!(
        checked.contains("No provider is registered") && checked.contains("Everything is in order."),
        "{checked}"
    );
}

#[test]
fn check_prints_urls_and_hides_secrets() {
    let place = Place::new();
    place.write(
        "[server]\npublic_url = \"https://hooks.example.com\"\n[admin]\ntoken = \"env:STRIPE_SECRET\"\n\
         [store]\nurl = \"postgres://cerca:sesame@db/cerca\"\n\
         [[provider]]\nname = \"stripe-br\"\nadapter = \"stripe\"\nsecrets = [\"whsec_bGl0ZXJhbA==\"]\n",
    );
    let ran = place.run(&["check"]).ok();
    assert!(
        ran.stdout.contains("https://hooks.example.com/webhooks/stripe-br"),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stdout
            .contains("cerca.toml:10:12: provider[0].secrets[0]: the secret stands in the file")
    );
    for secret in ["sesame", "whsec_", "c2VjcmV0"] {
        assert!(!ran.stdout.contains(secret), "{}", ran.stdout);
    }
    let objects = place.run(&["check", "--json"]).ok().objects();
    let provider = objects.iter().find(|object| object["kind"] == "provider").unwrap();
    assert_eq!(provider["url"], "https://hooks.example.com/webhooks/stripe-br");
}

#[test]
fn adapters_are_listed_shown_and_checked() {
    let place = Place::new();
    let all = place.run(&["providers", "list", "--json"]).ok().objects();
    assert!(all.len() > 30 && all.iter().any(|adapter| adapter["name"] == "stripe"));
    let some = place.run(&["providers", "list", "strip"]).ok().stdout;
    assert!(some.contains("Stripe") && !some.contains("GitHub"), "{some}");
    assert!(
        place
            .run(&["providers", "show", "stripe"])
            .ok()
            .stdout
            .contains("secrets = [\"env:STRIPE_SECRET\"]")
    );
    let facts = place.run(&["providers", "show", "stripe"]).ok().stdout;
    assert!(
        facts.contains("Retries:") && !facts.contains("[[signature]]"),
        "{facts}"
    );
    let toml = place.run(&["providers", "show", "stripe", "--toml"]).ok().stdout;
    assert!(
        toml.contains("[[signature]]") && !toml.contains("In cerca.toml"),
        "{toml}"
    );
    place
        .run(&["providers", "show", "strype"])
        .fails(1, "did you mean stripe?");

    let one = place.run(&["providers", "list", "shopify"]).ok().stdout;
    for word in [
        "https://YOUR-HOST/webhooks/shopify",
        "Secret: ",
        "Retries: ",
        "Timeout: ",
        "Disabling: ",
        "1. ",
    ] {
        assert!(one.contains(word), "{word}: {one}");
    }
    let page = place.run(&["providers", "docs"]).ok().stdout;
    assert!(page.contains("| `stripe` | [Stripe](https://"), "{page}");

    let folder = place.path().join("adapters/mine");
    fs::create_dir_all(&folder).unwrap();
    fs::write(
        folder.join("adapter.toml"),
        "title = \"Mine\"\n[[signature]]\nscheme = \"hmac-sha257\"\n",
    )
    .unwrap();
    place
        .run(&["providers", "check", "mine", "--providers", "adapters"])
        .fails(1, "adapter.toml:3");
}

#[test]
fn the_registered_providers_are_looked_at() {
    let place = Place::with(
        "[[provider]]\nname = \"square\"\nsecrets = [\"abc\"]\n[[provider]]\nname = \"shop\"\nadapter = \"shopify\"\n\
         secrets = [\"shpat_0123456789abcdef\"]\n",
    );
    let ran = place.run(&["providers", "check"]).ok().stdout;
    for sentence in [
        "cerca.toml:7:1: provider[0].public_url: the sender signs the URL that it calls, and `public_url` is not set",
        "cerca.toml:13:12: provider[1].secrets[0]: secret 1 begins with `shpat_`: an Admin API access token",
        "2 registered providers looked at, 0 errors",
    ] {
        assert!(ran.contains(sentence), "{sentence}: {ran}");
    }
    assert!(!ran.contains("0123456789abcdef"), "{ran}");
    let shop = place.run(&["providers", "check", "shop", "--json"]).ok().objects();
    assert!(shop.iter().any(|line| line["kind"] == "warning"), "{shop:?}");
    assert_eq!(shop.last().unwrap()["registered"], 1);
    place.write("[[provider]]\nname = \"square\"\nsecrets = [\"env:NOT_SET_AT_ALL\"]\n");
    // The adapters can be checked where the secrets are not; `cerca check` is what refuses.
    let elsewhere = place.run(&["providers", "check"]).ok().stdout;
    assert!(
        elsewhere.contains("warning: cerca.toml:3:12: provider[0].secrets[0]: ")
            && elsewhere.contains("NOT_SET_AT_ALL"),
        "{elsewhere}"
    );
    place.run(&["check"]).fails(1, "NOT_SET_AT_ALL");
}

#[test]
fn an_event_is_triggered_looked_at_and_reprocessed() {
    let place = Place::with(STRIPE);
    place
        .run(&["trigger", "stripe"])
        .fails(1, "start one with `cerca serve`");
    place.run(&["events", "list"]).fails(1, "there is no database");
    let server = place.serve();

    place.run(&["trigger", "stripe", "payment_intent.succeeded"]).ok();
    let twice = place
        .run(&["trigger", "stripe", "--bad", "duplicate", "--json"])
        .ok()
        .objects();
    assert_eq!(
        twice
            .iter()
            .map(|reply| reply["status"].as_u64().unwrap())
            .collect::<Vec<_>>(),
        [200, 200]
    );
    for bad in ["stale", "tampered", "wrong-key"] {
        let ran = place.run(&["trigger", "stripe", "--bad", bad]).ok();
        assert!(
            ran.stdout.contains("401") && ran.stdout.contains("Refused, as it should be."),
            "{}",
            ran.stdout
        );
    }
    place.run(&["trigger", "stripe", "nothing"]).fails(
        1,
        "There are: charge.refunded, invoice.paid, payment_intent.payment_failed",
    );
    place.run(&["trigger", "strip"]).fails(1, "did you mean stripe?");

    let events = place.run(&["events", "list", "--json"]).ok().objects();
    assert_eq!(events.len(), 2);
    let id = events[1]["provider_event_id"].as_str().unwrap();
    assert_eq!(
        (&events[1]["event_type"], &events[1]["adapter"]),
        (&"payment_intent.succeeded".into(), &"stripe".into())
    );

    let payload = place
        .command(&["events", "payload", "stripe", id])
        .output()
        .unwrap()
        .stdout;
    assert_eq!(payload.len() as u64, events[1]["size"].as_u64().unwrap());
    let shown = place.run(&["events", "show", "stripe", id]).ok().stdout;
    assert!(
        shown.contains("payment_intent.succeeded") && shown.contains("cerca events payload stripe"),
        "{shown}"
    );
    let detail = &place.run(&["events", "show", "stripe", id, "--json"]).ok().objects()[0];
    assert!(detail["attempts"].is_array());
    let normalized = &detail["normalized"];
    assert_eq!(
        (&normalized["type"], &normalized["amount"], &normalized["currency"]),
        (&"payment.succeeded".into(), &4990.into(), &"EUR".into())
    );
    assert!(shown.contains("4990 (EUR, minor units)"), "{shown}");
    place
        .run(&["events", "show", "stripe", "--odd & id"])
        .fails(1, "there is no event --odd & id of stripe");

    place.run(&["events", "reprocess"]).fails(1, "name an event");
    place
        .run(&["events", "reprocess", "--provider", "stripe"])
        .fails(1, "pass --yes");
    place
        .run(&["events", "reprocess", "stripe", id, "--handler", "lgo"])
        .fails(1, "no handler is called lgo");
    let dry = place
        .run(&["events", "reprocess", "--provider", "stripe", "--dry-run", "--json"])
        .ok()
        .objects();
    assert_eq!((&dry[0]["events"], &dry[0]["dry_run"]), (&2.into(), &true.into()));
    let again = place
        .run(&["events", "reprocess", "stripe", id, "--handler", "log", "--json"])
        .ok()
        .objects();
    assert_eq!(again[0]["deliveries"], 1);

    let stats = place.run(&["stats", "--json"]).ok().objects();
    assert_eq!(stats[0]["events"], 2);
    place.run(&["stats"]).ok();
    let purged = place.run(&["purge", "--dry-run", "--json"]).ok().objects();
    assert_eq!(
        (&purged[0]["payloads"], &purged[0]["idempotency_keys"]),
        (&0.into(), &0.into())
    );
    server.stop();
    assert_eq!(place.run(&["events", "list", "--json"]).ok().objects().len(), 2);
}

#[test]
fn a_closed_pipe_ends_a_command_quietly() {
    let place = Place::new();
    let mut child = place
        .command(&["providers", "list", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_captured_request_is_explained() {
    let place = Place::new();
    place.write(STRIPE);
    let mut file = fs::File::create(place.path().join("request.http")).unwrap();
    file.write_all(b"POST /webhooks/stripe HTTP/1.1\nContent-Type: application/json\n\n{\"id\":\"evt_1\"}\n")
        .unwrap();
    let ran = place.run(&["verify", "stripe", "--request", "request.http"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.to_lowercase().contains("stripe-signature"), "{}", ran.stdout);
    place.run(&["verify"]).fails(2, "required");
}

#[test]
fn vectors_run_without_a_configuration() {
    let place = Place::new();
    let line = r#"{"provider":"generic_token","case":"CASE","method":"POST","url":"https://h.example/webhooks/generic_token","headers":[["Authorization","Bearer s3cret"]],"body_base64":"e30=","secrets":["s3cret"],"now":1767225600,"expect":{"verified":false,"status":"rejected"}}"#;
    let file = place.path().join("v.jsonl");
    fs::write(&file, line.replace("Bearer s3cret", "Bearer other") + "\n").unwrap();
    let results = place.run(&["verify", "--vectors", "v.jsonl"]).ok().objects();
    assert_eq!(
        (&results[0]["verified"], &results[0]["status"]),
        (&false.into(), &"rejected".into())
    );
    fs::write(&file, "{}\n").unwrap();
    place.run(&["verify", "--vectors", "v.jsonl"]).fails(1, "v.jsonl:1: ");
}

#[test]
fn the_demo_ends_with_sums_that_agree() {
    let place = Place::new();
    let listen = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    let text = place.run(&[&["demo", "--once"], &listen[..]].concat()).ok().stdout;
    assert!(
        text.contains("Every event was stored once and had its effect once."),
        "{text}"
    );
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let objects = place
        .run(&[&["demo", "--once", "--json"], &listen[..]].concat())
        .ok()
        .objects();
    let sums = objects.last().unwrap();
    assert_eq!(
        (&sums["right"], &sums["payments"]),
        (&true.into(), &sums["payments_expected"])
    );
}
