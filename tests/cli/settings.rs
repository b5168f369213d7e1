//! Configuration: what is refused, what is warned of, and what needs no secrets.

use std::{fs, os::unix::fs::PermissionsExt as _};

use crate::support::{Place, Ran, STRIPE};

#[test]
fn mistakes_have_places_and_exit_codes() {
    let place = Place::new();
    place.write("[[provider]]\nname = \"strype\"\nsecrets = [\"env:STRIPE_SECRET\"]\n");
    place.run(&["check"]).fails(
        1,
        "cerca.toml:2:8: provider[0].name: there is no adapter `strype` (did you mean `stripe`? `cerca providers list` \
             names them all); for a name of your own set `adapter` beside it",
    );
    place.run(&["serve"]).fails(1, "there is no adapter `strype`");
    place.write("[[provider]]\nname = \"shop\"\nadapter = \"stirpe\"\n");
    place.run(&["check"]).fails(
        1,
        "cerca.toml:3:11: provider[0].adapter: there is no adapter `stirpe` (did you mean `stripe`?",
    );
    place.write("[[provider]]\nname = \"stripe\"\n");
    place
        .run(&["check"])
        .fails(1, "cerca.toml:1:1: provider[0].secrets: it has no secret");
    place.write("[[handler]]\nname = \"h\"\nevents = [\"*\"]\nkind = \"http\"\n");
    place
        .run(&["check"])
        .fails(1, "cerca.toml:1:1: handler[0].url: `url` is required");
    place.write("[log]\nlevel = \"loud=very\"\n");
    place.run(&["check"]).fails(1, "cerca.toml:2:9: log.level: ");
    place.write("[log]\nlevel = \"loud\"\n");
    for command in ["check", "serve"] {
        place
            .run(&[command])
            .fails(1, "cerca.toml:2:9: log.level: `loud` is not a level (off, error,");
    }
    place.write(&format!("{STRIPE}event = {{ id = \"body:id\" }}\n"));
    place
        .run(&["check"])
        .fails(1, "cerca.toml:5:16: provider[0].event.id: ");
    place.write(&format!(
        "{STRIPE}signature = {{ encoding = \"hex\", sorce = \"header:X\" }}\n"
    ));
    place
        .run(&["check"])
        .fails(1, "cerca.toml:5:41: provider[0].signature.sorce: ");
    place
        .run(&["check", "-c", "absent.toml"])
        .fails(1, "absent.toml: cannot be read");
    place.run(&["chek"]).fails(2, "check");
    place
        .run(&["events", "list", "--status", "odd"])
        .fails(2, "is not a status");
}

#[test]
fn check_warns_once_of_what_deserves_a_look() {
    let place = Place::new();
    place.write(&format!("{STRIPE}options = {{ acount = \"1\" }}\nverify = \"none\"\n"));
    let text = place.run(&["check"]).ok().stdout;
    assert!(
        text.contains("cerca.toml:5:22: provider[0].options.acount: the adapter stripe does not use this option"),
        "{text}"
    );
    assert_eq!(text.matches("anyone").count(), 1, "{text}");
    assert!(text.contains("Valid, with 2 warnings."), "{text}");
}

#[test]
fn order_that_no_sender_gives_is_warned_of() {
    let place = Place::new();
    let handlers = "[[handler]]\nname = \"a\"\nkind = \"log\"\nevents = [\"*\"]\nordering = \"key\"\n\
                    [[handler]]\nname = \"b\"\nkind = \"log\"\nevents = [\"stripe:*\"]\nordering = \"key\"\n";
    let token = "[[provider]]\nname = \"mine\"\nadapter = \"generic_token\"\nsecrets = [\"env:STRIPE_SECRET\"]\n";
    place.write(&format!("{STRIPE}{token}{handlers}"));
    let text = place.run(&["check"]).ok().stdout;
    assert!(
        text.contains("handler[0].ordering: events of mine name no ordering key"),
        "{text}"
    );
    assert!(!text.contains("handler[1]"), "{text}");
    place.write(&format!(
        "{STRIPE}{token}event = {{ ordering = \"body:/customer\" }}\n{handlers}"
    ));
    let text = place.run(&["check"]).ok().stdout;
    assert!(!text.contains("ordering"), "{text}");
}

#[test]
fn a_store_is_looked_at_without_the_secrets_of_senders() {
    let place = Place::with(
        "[[provider]]\nname = \"stripe\"\nsecrets = [\"env:ABSENT\"]\n[[handler]]\nname = \"h\"\nkind = \"http\"\n\
         url = \"http://127.0.0.1:1/\"\nsecret = \"env:ABSENT\"\nevents = [\"*\"]\n",
    );
    assert!(place.run(&["migrate"]).ok().stdout.contains("was created"));
    assert!(place.run(&["migrate"]).ok().stdout.contains("is up to date"));
    let mode = fs::metadata(place.path().join("cerca.db"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    place.run(&["stats"]).ok();
    place.run(&["purge"]).ok();
    place.run(&["providers", "show", "stripe"]).ok();
    let checked = place.run(&["providers", "check", "stripe"]).ok().stdout;
    assert!(checked.contains("0 errors"), "{checked}");
    place
        .run(&["events", "reprocess", "--all", "--yes", "--handler", "h"])
        .ok();
    let listed = place.run(&["events", "list", "--provider", "strip"]).ok();
    assert!(
        listed
            .stderr
            .contains("no provider is called strip in the configuration; did you mean stripe?"),
        "{}",
        listed.stderr
    );
    place.run(&["events", "list", "-n", "0"]).fails(2, "0 is not in 1..");
    place
        .run(&["trigger", "stripe", "--count", "0"])
        .fails(2, "0 is not in 1..");
    for command in [&["check"][..], &["serve"], &["trigger", "stripe"]] {
        place
            .run(command)
            .fails(1, "the environment variable ABSENT is not set");
    }
}

#[test]
fn an_address_that_is_taken_is_named_with_its_listener() {
    let place = Place::with(STRIPE);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = Ran::of(
        &place
            .command(&["serve"])
            .env("CERCA_ADMIN__LISTEN", &address)
            .output()
            .unwrap(),
    );
    let expected = format!("error: cannot listen on {address} ([admin] listen): ");
    assert!(ran.stderr.contains(&expected), "{}", ran.stderr);
}

#[test]
fn check_says_what_it_found_of_the_store() {
    let place = Place::with(STRIPE);
    let check = |url: &str| {
        let mut command = place.command(&["check"]);
        Ran::of(&command.env("CERCA_STORE__URL", url).output().unwrap())
    };
    let has = |ran: Ran, texts: &[&str]| {
        let text = ran.ok().stdout;
        for expected in texts {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    };
    let order = "Everything is in order.";
    has(
        check("sqlite:cerca.db"),
        &["The store sqlite:cerca.db is not there yet", order],
    );
    assert!(!place.path().join("cerca.db").exists());
    place.run(&["migrate"]).ok();
    has(
        check("sqlite:cerca.db"),
        &["was opened; its schema is up to date.", order],
    );
    let unseen = "Valid, with 1 warning; the store was not looked at.";
    has(
        check("sqlite:/nonexistent/dir/x.db"),
        &[
            "CERCA_STORE__URL: store.url: the store cannot be opened: there is no folder /nonexistent/dir",
            unseen,
        ],
    );
    has(
        check("postgres://u:sesame@127.0.0.1:1/none"),
        &["cannot be opened: ", unseen],
    );
    fs::write(
        place.path().join("notes.txt"),
        "no database, and long enough to tell\n".repeat(40),
    )
    .unwrap();
    check("sqlite:notes.txt").fails(1, "CERCA_STORE__URL: store.url: the file is not a database");
    let found = place.run(&["check", "--json"]).ok().objects();
    let store = found.iter().find(|object| object["kind"] == "store").unwrap();
    assert_eq!(store["state"], "current");
}

#[test]
fn a_statement_that_cannot_be_read_starts_nothing() {
    let place = Place::with(&format!(
        "{STRIPE}[[handler]]\nname = \"x\"\nkind = \"sql\"\nevents = [\"*\"]\n\
         statement = \"insrt into x values ($1)\"\nparams = [\"event:id\"]\n"
    ));
    place.run(&["migrate"]).ok();
    for command in ["check", "serve"] {
        place.run(&[command]).fails(1, "near \"insrt\": syntax error");
    }
}
