//! What `providers check`, `providers show` and `trigger` say of adapters that are wrong, and of senders that are odd.

use std::fs;

use crate::support::Place;

const MINE: &str = "title = \"Mine\"\ndocs = \"https://example.com\"\n[[signature]]\nscheme = \"hmac-sha256\"\nheader = \"X-S\"\n\
    message = \"{header:X-Id}.{body}\"\n[event]\nid = \"body:/id\"\ntype = \"body:/type\"\n[secret]\nhint = \"h\"\n";

/// Writes a folder `adapters/NAME` with these files.
fn folder(place: &Place, name: &str, files: &[(&str, &str)]) {
    let folder = place.path().join("adapters").join(name);
    fs::create_dir_all(folder.join("samples")).unwrap();
    for (file, text) in files {
        fs::write(folder.join(file), text).unwrap();
    }
}

#[test]
fn check_looks_into_samples_and_vectors() {
    let place = Place::new();
    let good = "POST /webhooks/mine HTTP/1.1\nX-Id: 1\n\n{\"id\":\"{{uuid}}\",\"type\":\"a\"}\n";
    let check = |files: &[(&str, &str)]| {
        let _ = fs::remove_dir_all(place.path().join("adapters"));
        folder(&place, "mine", files);
        place.run(&["providers", "check", "mine", "--providers", "adapters"])
    };
    let vector = |body: &str| {
        format!(
            "{{\"provider\":\"mine\",\"case\":\"c\",\"method\":\"POST\",\"url\":\"https://h/webhooks/mine\",\"headers\":[],\
             \"body_base64\":\"{body}\",\"secrets\":[\"s\"],\"now\":1,\"expect\":{{\"verified\":true,\"status\":\"event\"}}}}\n"
        )
    };
    let unmet = format!("\n{}", vector("e30="));
    let not_base64 = vector("e30");
    for (files, expected) in [
        (
            vec![(
                "samples/a.http",
                "POST /webhooks/mine HTTP/1.1\nX-Id: 1\n\n{\"type\":\"a\"}\n",
            )],
            "adapters/mine/samples/a.http: event.id: nothing is found in it: body:/id",
        ),
        (
            vec![(
                "samples/a.http",
                "POST /webhooks/mine HTTP/1.1\n\n{\"id\":1,\"type\":\"a\"}\n",
            )],
            "adapters/mine/samples/a.http: signature[0].message: `header:X-Id` is signed, and has no value in it",
        ),
        (
            vec![("samples/a.http", "POST\n")],
            "adapters/mine/samples/a.http:1: expected a request line",
        ),
        (
            vec![("samples/a.http", good), ("samples/b.normalized.json", "{}")],
            "adapters/mine/samples/b.normalized.json: there is no samples/b.http beside it",
        ),
        (
            vec![("samples/a.http", good), ("vectors.jsonl", &unmet)],
            "adapters/mine/vectors.jsonl:2: c: verified: expected true, found false",
        ),
        (
            vec![("samples/a.http", good), ("vectors.jsonl", &not_base64)],
            "adapters/mine/vectors.jsonl:1: `body_base64`",
        ),
        (
            vec![("samples/a.http", good), ("vectors.jsonl", "{\"provider\":\"mine\",\n")],
            "adapters/mine/vectors.jsonl:1: EOF while parsing",
        ),
    ] {
        let files = [vec![("adapter.toml", MINE)], files].concat();
        check(&files).fails(1, expected);
    }
    let nameless = MINE.replace("id = \"body:/id\"\n", "");
    check(&[("adapter.toml", &nameless), ("samples/a.http", good)]).fails(
        1,
        "adapters/mine/adapter.toml: event.id: is missing, so every request is answered 400",
    );
    // What is only incomplete is said, and is no error.
    let ran = check(&[("adapter.toml", MINE), ("samples/a.http", good), ("vector.jsonl", "")])
        .ok()
        .stdout;
    for note in [
        "adapters/mine/vector.jsonl: nothing reads this file",
        "no vectors: nothing shows that the rules are right",
    ] {
        assert!(ran.contains(note), "{note}: {ran}");
    }
    let ran = check(&[("adapter.toml", MINE)]).ok().stdout;
    assert!(ran.contains("no samples: `trigger` has nothing to send"), "{ran}");
}

#[test]
fn a_newcomer_adds_a_sender_as_contributing_says() {
    let text = include_str!("../../CONTRIBUTING.md");
    let block = |before: &str, mark: &str| {
        let rest = text.split_once(before).unwrap().1.split_once(mark).unwrap().1;
        rest.split_once("```").unwrap().0.to_owned()
    };
    let place = Place::new();
    fs::create_dir_all(place.path().join("docs")).unwrap();
    fs::create_dir_all(place.path().join("providers/acme/samples")).unwrap();
    for (file, mark) in [
        ("providers/acme/adapter.toml", "```toml\n"),
        ("providers/acme/samples/order.paid.http", "```\n"),
        ("providers/acme/samples/order.refunded.http", "```\n"),
    ] {
        fs::write(place.path().join(file), block(&format!("`{file}`"), mark)).unwrap();
    }
    let commands = block("two commands:", "```sh\n");
    assert_eq!(commands.lines().count(), 2);
    let run = |command: &str| {
        let arguments = command
            .split(" #")
            .next()
            .unwrap()
            .trim()
            .strip_prefix("cargo run -- ")
            .unwrap();
        let arguments = arguments.split(' ').chain(["--providers", "providers"]);
        place.run(&arguments.collect::<Vec<_>>()).ok()
    };
    commands.lines().for_each(|command| drop(run(command)));
    let checked = run("cargo run -- providers check acme").stdout;
    assert!(
        checked.contains("1 adapters read, 0 registered providers looked at, 0 errors, 0 notes"),
        "{checked}"
    );
    let page = fs::read_to_string(place.path().join("docs/providers.md")).unwrap();
    assert!(
        page.contains("| `acme` | [Acme](https://docs.acme.example/webhooks) |"),
        "{page}"
    );
    let path = place.path().join("providers/acme/vectors.jsonl");
    let vectors = fs::read_to_string(&path).unwrap();
    let cases = |text: &str| -> Vec<String> {
        let case = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["case"].to_string();
        text.lines().map(case).collect()
    };
    assert_eq!(cases(&vectors).len(), 8, "{vectors}");

    // Again it is the same; a line from elsewhere stays, and takes the place of one that is made.
    run("cargo run -- providers vectors acme --write");
    assert_eq!(fs::read_to_string(&path).unwrap(), vectors);
    let theirs = vectors.lines().next().unwrap().replace(",\"basis\":\"sample\"", "");
    fs::write(&path, format!("{vectors}{theirs}\n")).unwrap();
    run("cargo run -- providers vectors acme --write");
    let merged = fs::read_to_string(&path).unwrap();
    assert_eq!(cases(&merged).len(), 8);
    assert_eq!(merged.lines().last(), Some(theirs.as_str()));
}

#[test]
fn vectors_are_not_written_where_the_folder_is_not_and_need_the_right_key() {
    let place = Place::new();
    place
        .run(&["providers", "vectors", "stripe", "--write"])
        .fails(1, "providers/stripe is not here");
    place
        .run(&["providers", "vectors", "wise"])
        .fails(1, "the sender signs with a private key");
    place
        .run(&["providers", "vectors", "wise", "--secret", "env:NOT_SET_HERE"])
        .fails(1, "--secret: the environment variable NOT_SET_HERE is not set");
    let key = concat!("file:", env!("CARGO_MANIFEST_DIR"), "/tests/vectors/keys/rsa-1.pem");
    let made = place.run(&["providers", "vectors", "wise", "--secret", key]).ok();
    assert!(
        made.objects().iter().any(|line| line["case"] == "missing signature"),
        "{}",
        made.stdout
    );
}

#[test]
fn a_vector_file_names_the_line_that_is_none() {
    let place = Place::new();
    fs::write(place.path().join("v.jsonl"), "\n\n{}\n").unwrap();
    place
        .run(&["verify", "--vectors", "v.jsonl"])
        .fails(1, "v.jsonl:3: missing field `provider`, at column 2");
}

#[test]
fn vectors_of_a_whole_folder_are_run() {
    let place = Place::new();
    let vectors = |name: &str| {
        let path = format!("{}/providers/{name}/vectors.jsonl", env!("CARGO_MANIFEST_DIR"));
        fs::read_to_string(path).unwrap()
    };
    fs::create_dir_all(place.path().join("v/inner")).unwrap();
    fs::write(place.path().join("v/stripe.jsonl"), vectors("stripe")).unwrap();
    fs::write(place.path().join("v/inner/svix.jsonl"), vectors("svix")).unwrap();
    fs::write(place.path().join("v/notes.txt"), "no vectors").unwrap();
    let ran = place.run(&["verify", "--vectors", "v"]).ok().stdout;
    let lines = vectors("stripe").lines().count() + vectors("svix").lines().count();
    assert_eq!(ran.lines().count(), lines);
    assert!(ran.contains(r#""file":"v/inner/svix.jsonl""#), "{ran}");
    let unmet = vectors("stripe").replacen(r#""verified":true"#, r#""verified":false"#, 1);
    fs::write(place.path().join("v/stripe.jsonl"), unmet).unwrap();
    place.run(&["verify", "--vectors", "v"]).fails(1, "1 of ");
    fs::write(place.path().join("v/inner/svix.jsonl"), "{}\n").unwrap();
    place
        .run(&["verify", "--vectors", "v"])
        .fails(1, "svix.jsonl:1: missing field");
    fs::create_dir(place.path().join("empty")).unwrap();
    place
        .run(&["verify", "--vectors", "empty"])
        .fails(1, "there is no *.jsonl in empty");
}

#[test]
fn folders_have_names_that_urls_take() {
    let place = Place::new();
    for name in ["Mine", "my adapter", "mine.old", &"m".repeat(65)] {
        let _ = fs::remove_dir_all(place.path().join("adapters"));
        folder(&place, name, &[("adapter.toml", MINE)]);
        let arguments = ["providers", "check", "--providers", "adapters"];
        place
            .run(&arguments)
            .fails(1, "the folder's name must be 1 to 64 of a-z, 0-9, `-` and `_`");
        place
            .run(&["providers", "list", "--providers", "adapters"])
            .fails(1, "the folder's name");
    }
}

#[test]
fn show_prints_what_is_needed_and_what_is_not_proved() {
    let place = Place::new();
    let show = |name: &str| place.run(&["providers", "show", name]).ok().stdout;
    for (name, needed) in [
        ("amazon_sns", "options = { topic = \"…\" }"),
        ("google_pubsub", "options = { audience = \"…\", email = \"…\" }"),
        ("paypal", "options = { webhook_id = \"…\" }"),
        ("stone", "decryption_keys = [\"file:stone-private.pem\"]"),
        ("travis", "options = { owner = \"…\" }"),
        ("truelayer", "options = { domain = \"…\" }"),
        ("asana", "seal_key = \"env:CERCA_SEAL_KEY\""),
        ("notion", "seal_key = \"env:CERCA_SEAL_KEY\""),
        ("atlassian_connect", "options = { base_url = \"…\" }"),
    ] {
        let shown = show(name);
        assert!(shown.contains(needed) && !shown.contains("secrets = ["), "{shown}");
    }
    assert!(show("stripe").contains("secrets = [\"env:STRIPE_SECRET\"]\n"));
    assert!(show("chargebee").contains("# user:password"));
    assert!(show("square").contains("public_url = \"https://YOUR-HOST\""));
    assert!(show("stripe").contains("Proved: the body, the id and a time that is judged."));
    let shown = show("mercadopago");
    for sentence in [
        "the body is not signed",
        "the signed time is not judged",
        "What must agree with it: lower(body:/data/id)",
    ] {
        assert!(shown.contains(sentence), "{sentence}: {shown}");
    }
    assert!(show("asaas").contains("nothing of a request is signed"));
    assert!(show("github").contains("the event id (`header:X-GitHub-Delivery`) is not signed"));
    let json = place
        .run(&["providers", "show", "flutterwave", "--json"])
        .ok()
        .objects();
    assert_eq!(json[0]["not_covered"][1]["not_covered"][0], "everything");
    assert_eq!(json[0]["needs"]["secret"], "shared");
    let json = place.run(&["providers", "show", "bling", "--json"]).ok().objects();
    let sender = &json[0]["sender"];
    assert_eq!(
        (&sender["retries_for_ms"], &sender["disables_after_ms"]),
        (&259_200_000.into(), &259_200_000.into())
    );
    assert!(show("paddle").contains("Signing:    not told"), "{}", show("paddle"));
    assert!(!show("bling").contains("Signing:"), "{}", show("bling"));
    let flutterwave = show("flutterwave");
    assert!(
        flutterwave.contains("Not proved by `v3`:") && flutterwave.contains("# accept = [\"v4\"]"),
        "{flutterwave}"
    );
    assert!(!show("mercadopago").contains("accept = "));
}

#[test]
fn a_url_that_is_none_is_told() {
    let place = Place::with(crate::support::STRIPE);
    for (url, expected) in [
        (
            "junk",
            "--url: expected the server as `http://HOST:PORT` or `https://HOST`, found `junk`",
        ),
        ("127.0.0.1:1", "did you mean `http://127.0.0.1:1`?"),
        (
            "http://127.0.0.1:1/webhooks/stripe",
            "did you mean `http://127.0.0.1:1`?",
        ),
        (
            "http://127.0.0.1:1/in/webhooks/",
            "did you mean `http://127.0.0.1:1/in`?",
        ),
    ] {
        place.run(&["trigger", "stripe", "--url", url]).fails(1, expected);
    }
}

#[test]
fn a_pinned_key_is_all_that_counts_unless_both_are_accepted() {
    let key = |name: &str| format!("file:{}/tests/vectors/keys/{name}.pem", env!("CARGO_MANIFEST_DIR"));
    let place = Place::with(&format!(
        "[[provider]]\nname = \"stone\"\nsecrets = [\"{}\"]\ndecryption_keys = [\"{}\"]\n",
        key("rsa-1"),
        key("rsa-pkcs1")
    ));
    let server = place.serve();
    place.run(&["trigger", "stone"]).ok();
    for bad in ["tampered", "wrong-key", "malformed", "missing"] {
        let ran = place.run(&["trigger", "stone", "--bad", bad]).ok();
        assert!(ran.stdout.contains("Refused, as it should be."), "{}", ran.stdout);
    }
    server.stop();
    // With both, what the registered key proves needs none that is fetched.
    let config = fs::read_to_string(place.path().join("cerca.toml")).unwrap();
    let both = "[[provider]]\naccept = [\"pinned\", \"fetched\"]\noptions = { environment = \"none.invalid/\" }";
    place.write(&config.replace("[[provider]]", both));
    let _server = place.serve();
    place.run(&["trigger", "stone"]).ok();
}

#[test]
fn forms_in_the_place_of_json_are_told_once_they_came() {
    let place = Place::with("[[provider]]\nname = \"github\"\nsecrets = [\"file:secret\"]\n");
    fs::write(place.path().join("secret"), "not-a-real-secret").unwrap();
    let told = || place.run(&["providers", "check", "github"]).ok().stdout;
    assert!(!told().contains("came as forms"));
    let folder = place.path().join("adapters");
    fs::create_dir_all(folder.join("github/samples")).unwrap();
    let manifest = place.run(&["providers", "show", "github", "--toml"]).ok().stdout;
    fs::write(folder.join("github/adapter.toml"), manifest).unwrap();
    let form = "POST /webhooks/github HTTP/1.1\nContent-Type: application/x-www-form-urlencoded\nX-GitHub-Event: push\n\
        X-GitHub-Delivery: {{uuid}}\n\npayload=%7B%22ref%22%3A%22a%22%7D\n";
    fs::write(folder.join("github/samples/push.http"), form).unwrap();
    let _server = place.serve();
    place.run(&["trigger", "github", "issues"]).ok();
    assert!(!told().contains("came as forms"));
    place
        .run(&["trigger", "github", "push", "--providers", "adapters"])
        .ok();
    let ran = told();
    assert!(
        ran.contains("provider[0]: 1 of the newest requests came as forms") && ran.contains("choose JSON"),
        "{ran}"
    );
    let ran = place.run(&["check"]).ok().stdout;
    assert!(ran.contains("1 of the newest requests came as forms"), "{ran}");
}

#[test]
fn the_example_for_contributors_works_as_it_is_written() {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/CONTRIBUTING.md")).unwrap();
    let block = |mark: &str| text.split_once(mark).unwrap().1.split_once("```").unwrap().0;
    let manifest = block("```toml\n");
    let sample = block("`providers/acme/samples/order.paid.http`:\n\n```\n");
    let place = Place::with("[[provider]]\nname = \"acme\"\nsecrets = [\"file:secret\"]\n");
    fs::write(place.path().join("secret"), "not-a-real-secret").unwrap();
    folder(
        &place,
        "acme",
        &[("adapter.toml", manifest), ("samples/order.paid.http", sample)],
    );
    let with = |arguments: &[&str]| {
        place
            .command(arguments)
            .args(["--providers", "adapters"])
            .output()
            .unwrap()
    };
    let checked = crate::support::Ran::of(&with(&["providers", "check", "acme"]))
        .ok()
        .stdout;
    assert!(
        checked.contains("0 errors") && !checked.contains("order.paid"),
        "{checked}"
    );
    let _server = place.serve_with(&["--providers", "adapters"]);
    for bad in ["duplicate", "tampered", "wrong-key"] {
        crate::support::Ran::of(&with(&["trigger", "acme", "order.paid", "--bad", bad])).ok();
    }
    let events = place.run(&["events", "list", "--json"]).ok().objects();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["event_type"], "order.paid");
}
