//! Values from the environment and from files.

use super::*;

#[test]
fn variables_override_the_file() {
    let config = parse_with(
        "[server]\nlisten = \"127.0.0.1:1\"\n",
        &[
            ("CERCA_SERVER__LISTEN", "127.0.0.1:2"),
            ("CERCA_SERVER__TRUSTED_PROXIES", "10.0.0.0/8, ::1"),
            ("CERCA_WORKER__CONCURRENCY", "7"),
            ("CERCA_LOG", "debug"),
            ("CERCA_ADMIN_TOKEN", "not a setting"),
        ],
    )
    .unwrap();
    assert_eq!(config.server.listen.port(), 2);
    assert_eq!(config.server.trusted_proxies.len(), 2);
    assert_eq!(config.worker.concurrency, 7);
    assert_eq!(config.log.level, "debug");
    assert_eq!(config.problem("log.level", "x").place, "CERCA_LOG");
    assert!(config.effective().contains("# CERCA_SERVER__LISTEN\n"));
}

#[test]
fn wrong_variables_are_named() {
    assert_eq!(
        error_with("", &[("CERCA_SERVER__LISTEN", "x")]),
        "CERCA_SERVER__LISTEN: server.listen: `x` is not an address such as 127.0.0.1:8080, 0.0.0.0:8080 or [::1]:8080"
    );
    assert_eq!(
        error_with("[worker]\nlease = \"1s\"\n", &[("CERCA_WORKER__CONCURRENCY", "many")]),
        "CERCA_WORKER__CONCURRENCY: worker.concurrency: `many` is not a whole number"
    );
    assert_eq!(
        error_with("", &[("CERCA_SERVER__LISTN", "x")]),
        "CERCA_SERVER__LISTN: no such setting; did you mean CERCA_SERVER__LISTEN?"
    );
    assert!(error_with("", &[("CERCA_PROVIDER__NAME", "x")]).contains("only plain tables have variables"));
    assert_eq!(
        error_with("", &[("CERCA_SERVER__MAX_BODY", "64MiB")]),
        "CERCA_SERVER__MAX_BODY: server.max_body: 64MiB is not between 1B and 32MiB"
    );
}

#[test]
fn secrets_are_fetched_from_where_they_are() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret"), "from a file\r\n").unwrap();
    let text = "[[provider]]\nname = \"a\"\nsecrets = [\"env:ONE\", \"file:secret\", \"literal\"]\n";
    let environment = [("ONE", "from env")].into_iter().collect();
    let config = Config::parse(Some(&folder.path().join("c.toml")), text.to_owned(), &environment).unwrap();
    let values: Vec<&str> = config.providers[0]
        .spec
        .secrets
        .iter()
        .map(|s| s.expose_secret())
        .collect();
    assert_eq!(values, ["from env", "from a file", "literal"]);
    assert_eq!(config.warnings.len(), 1);
    assert_eq!(config.warnings[0].key, "provider[0].secrets[2]");
    let shown = format!("{:?}", config.providers[0]);
    assert!(!shown.contains("literal") && !shown.contains("from"), "{shown}");
}

#[test]
fn missing_secrets_are_named_and_never_shown() {
    assert_eq!(
        error(STRIPE),
        "cerca.toml:3:12: provider[0].secrets[0]: the environment variable S is not set"
    );
    assert_eq!(
        error_with(STRIPE, &[("S", "")]),
        "cerca.toml:3:12: provider[0].secrets[0]: the environment variable S is empty"
    );
    assert!(error("[[provider]]\nname = \"a\"\nsecrets = [\"\"]\n").contains("an empty secret"));
    assert!(error("[[provider]]\nname = \"a\"\nsecrets = [\"env:\"]\n").contains("env: without a name"));
    assert!(error("[[provider]]\nname = \"a\"\nsecrets = [\"file:absent\"]\n").contains("absent: No such file"));
    assert!(!error("[[provider]]\nname = \"a\"\nsecrets = [424242]\n").contains("424242"));
    assert_eq!(
        error("[admin]\ntoken = 424242\n"),
        "cerca.toml:2:9: admin.token: expected a string such as env:NAME, found an integer"
    );
}

#[test]
fn secrets_are_left_where_they_are_not_needed() {
    let text = format!("[admin]\nlisten = \"0.0.0.0:1\"\ntoken = \"env:T\"\n[store]\nurl = \"env:U\"\n{STRIPE}");
    let load = |url: &str| {
        let environment = [("U", url)].into_iter().collect();
        Config::parse_for(
            Some(Path::new("cerca.toml")),
            text.clone(),
            &environment,
            Secrets::Leave,
        )
    };
    let config = load("sqlite:x.db").map_err(|error| error.to_string()).unwrap();
    assert_eq!(
        (config.store.url.expose_secret(), config.providers.len()),
        ("sqlite:x.db", 1)
    );
    assert!(load("").is_err());
}

#[test]
fn passwords_in_urls_are_hidden() {
    assert_eq!(
        redact_url("postgres://u:p@ss@host/db?x=1"),
        "postgres://u:***@host/db?x=1"
    );
    assert_eq!(
        redact_url("postgres://host/db?password=x"),
        "postgres://host/db?password=***"
    );
    assert_eq!(redact_url("sqlite:cerca.db"), "sqlite:cerca.db");
}
