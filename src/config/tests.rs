mod values;

use super::*;

fn parse(text: &str) -> Result<Config, ConfigError> {
    parse_with(text, &[])
}

fn parse_with(text: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let environment = variables.iter().copied().collect();
    Config::parse(Some(Path::new("cerca.toml")), text.to_owned(), &environment)
}

#[track_caller]
fn error(text: &str) -> String {
    error_with(text, &[])
}

#[track_caller]
fn error_with(text: &str, variables: &[(&str, &str)]) -> String {
    match parse_with(text, variables) {
        Ok(_) => panic!("accepted: {text}"),
        Err(error) => error.to_string(),
    }
}

const STRIPE: &str = "[[provider]]\nname = \"stripe\"\nsecrets = [\"env:S\"]\n";

#[test]
fn example_says_the_defaults() {
    let example = parse(EXAMPLE).unwrap();
    let defaults = parse("").unwrap();
    assert_eq!(example.settings(), defaults.settings());
    assert!(example.warnings.is_empty());
    // With the comment signs removed it is still valid, so that nobody uncomments a mistake.
    let uncommented: Vec<&str> = EXAMPLE
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if rest.contains(" = ") || rest.starts_with("[[") => rest,
            _ => line,
        })
        .collect();
    let config = parse_with(
        &uncommented.join("\n"),
        &[
            ("CERCA_ADMIN_TOKEN", "t"),
            ("STRIPE_SECRET", "s"),
            ("STRIPE_API_KEY", "k"),
            ("STONE_KEY", "k"),
            ("CERCA_SEAL_KEY", &"0f".repeat(32)),
        ],
    )
    .map_err(|error| error.to_string())
    .unwrap();
    assert_eq!((config.providers.len(), config.handlers.len()), (1, 2));
}

#[test]
fn every_plain_setting_has_its_variable() {
    let config = parse("").unwrap();
    let of_file: Vec<(String, String)> = config
        .settings()
        .into_iter()
        .flat_map(|(table, keys)| keys.into_iter().map(move |(key, _)| (table.to_owned(), key.to_owned())))
        .collect();
    assert_eq!(of_file, env::settings());
}

#[test]
fn a_seal_key_is_checked_and_never_shown() {
    let key = "0f".repeat(32);
    let config = parse(&format!("[store]\nseal_key = \"{key}\"")).unwrap();
    assert!(config.store.seal_key.is_some());
    assert!(!config.effective().contains(&key) && config.effective().contains("seal_key = \"(hidden)\""));
    assert!(!format!("{:?}", config.store).contains(&key));
    assert_eq!(config.warnings.len(), 1, "it stands in the file");
    let short = &key[..62];
    let error = error(&format!("[store]\nseal_key = \"{short}\""));
    assert!(
        error.contains("store.seal_key") && error.contains("openssl rand -hex 32"),
        "{error}"
    );
    assert!(!error.contains(short), "{error}");
}

#[test]
fn mistakes_name_their_place() {
    let text = "[server]\nlisten = \"127.0.0.1:8080\"\nlistn = 5\n";
    assert_eq!(
        error(text),
        "cerca.toml:3:1: unknown key \"listn\" in [server]; did you mean \"listen\"?; expected one of listen, public_url, \
         max_body, body_timeout, trusted_proxies, workers, max_connections, max_wait, shutdown_timeout"
    );
    assert_eq!(
        error("[servr]\n"),
        "cerca.toml:1:2: unknown key \"servr\"; did you mean \"server\"?; expected one of server, admin, store, worker, \
         retention, outbox, quarantine, log, provider, handler, gateway"
    );
    assert_eq!(
        error("[server]\nbody_timeout = \"5 weeks\"\n"),
        "cerca.toml:2:16: server.body_timeout: `5 weeks` is not a duration such as 250ms, 30s, 5m, 2h or 30d"
    );
    assert_eq!(
        error("[server]\nmax_body = 5\n"),
        "cerca.toml:2:12: server.max_body: expected a text in quotes, found the number 5"
    );
    assert_eq!(
        error("[server]\nlisten = \"8080\"\n"),
        "cerca.toml:2:10: server.listen: `8080` is not an address such as 127.0.0.1:8080, 0.0.0.0:8080 or [::1]:8080"
    );
    assert_eq!(
        error("\n[[provider]]\nadapter = \"stripe\"\n"),
        "cerca.toml:2:1: provider[0]: the key \"name\" is missing"
    );
    assert_eq!(error("[server\n"), "cerca.toml:1:8: unclosed table, expected `]`");
    assert_eq!(
        error("[server]\ntrusted_proxies = [\"10.0.0.0/8\", \"ten\"]\n"),
        "cerca.toml:2:19: server.trusted_proxies: `ten` is not a network such as 10.0.0.0/8 or an address"
    );
}

#[test]
fn mistakes_in_lists_of_tables_name_the_entry() {
    let text = format!("{STRIPE}[[provider]]\nname = \"other\"\ntolerance = \"5 weeks\"\n");
    assert_eq!(
        error_with(&text, &[("S", "x")]),
        "cerca.toml:6:13: provider[1].tolerance: `5 weeks` is not a duration such as 250ms, 30s, 5m, 2h or 30d, or none"
    );
    let text = format!("{STRIPE}tolerence = \"5m\"\n");
    assert!(
        error_with(&text, &[("S", "x")])
            .starts_with("cerca.toml:4:1: unknown key \"tolerence\" in [provider[0]]; did you mean \"tolerance\"?; ")
    );
    let text = "[[handler]]\nname = \"a\"\nkind = \"smtp\"\nevents = [\"*\"]\n";
    assert!(error(text).starts_with("cerca.toml:3:8: handler[0].kind: unknown variant `smtp`, expected one of `http`"));
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let text = format!("{STRIPE}on_conflict = 500\n{STRIPE}max_body = \"64MiB\"\n[admin]\nlisten = \"0.0.0.0:8081\"\n");
    assert_eq!(
        error_with(&text, &[("S", "x")]),
        "cerca.toml:9:1: admin.token: required, because 0.0.0.0:8081 can be reached from outside; set it to \
         env:CERCA_ADMIN_TOKEN, or listen on 127.0.0.1\n\
         cerca.toml:4:15: provider[0].on_conflict: 500 is neither 200 nor 409\n\
         cerca.toml:6:8: provider[1].name: \"stripe\" is the name of provider[0] already\n\
         cerca.toml:8:12: provider[1].max_body: 64MiB is not between 1B and 32MiB"
    );
}

#[test]
fn what_is_named_is_what_was_written() {
    for (text, expected) in [
        (
            "[retention]\ndedupe = \"1d\"\n",
            "cerca.toml:2:10: retention.dedupe: 1d is shorter than failed (90d by default): the payload would outlive its \
             row; expected at least 90d, or a shorter failed",
        ),
        (
            "[retention]\ndedupe = \"1d\"\ndone = \"2d\"\nfailed = \"1d\"\n",
            "cerca.toml:3:8: retention.done: 2d is longer than dedupe (1d): the payload would outlive its row",
        ),
    ] {
        assert_eq!(error(text), expected);
    }
    let one = format!("[server]\nmax_body = \"64MiB\"\n{STRIPE}");
    assert_eq!(
        error_with(&one, &[("S", "x")]),
        "cerca.toml:2:12: server.max_body: 64MiB is not between 1B and 32MiB"
    );
}

#[test]
fn values_have_limits() {
    let two = |public: &str, admin: &str| format!("[server]\nlisten = \"{public}\"\n[admin]\nlisten = \"{admin}\"\n");
    let handler = |rest: &str| format!("[[handler]]\nname = \"h\"\nkind = \"log\"\nevents = [\"*\"]\n{rest}\n");
    let store = |url: &str| format!("[store]\nurl = \"{url}\"\n");
    for (text, expected) in [
        (
            "[server]\nworkers = 600\n".to_owned(),
            "cerca.toml:2:11: server.workers: 600 is not between 0 and 512; 0 is one thread a core",
        ),
        (
            "[server]\nmax_connections = 0\n".to_owned(),
            "cerca.toml:2:19: server.max_connections: 0 is not between 1 and 65536",
        ),
        (
            "[server]\nmax_wait = \"0s\"\n".to_owned(),
            "cerca.toml:2:12: server.max_wait: must be more than zero",
        ),
        (
            "[worker]\nlease = \"900ms\"\n".to_owned(),
            "cerca.toml:2:9: worker.lease: 900ms is too short; expected at least 1s",
        ),
        (
            "[worker]\nconcurrency = 10001\n".to_owned(),
            "cerca.toml:2:15: worker.concurrency: 10001 is not between 1 and 10000",
        ),
        (
            handler("concurrency = 10001"),
            "cerca.toml:5:15: handler[0].concurrency: 10001 is not between 1 and 10000",
        ),
        (
            handler("retry = { base = \"2h\" }"),
            "cerca.toml:5:18: handler[0].retry.base: 2h is longer than the cap (1h); expected base to be at most cap",
        ),
        (
            two("127.0.0.1:8080", "127.0.0.1:8080"),
            "cerca.toml:4:10: admin.listen: 127.0.0.1:8080 is taken by [server] listen (127.0.0.1:8080); expected another \
             port, such as 127.0.0.1:8081",
        ),
        (
            store("postgres://u:sesame@host:54a2/db"),
            "cerca.toml:2:7: store.url: this is not a URL (invalid port number); expected sqlite:PATH or \
             postgres://user:password@host/database",
        ),
        (
            store("sqlite::memory:"),
            "cerca.toml:2:7: store.url: a store in memory would keep no promise; expected a file, such as sqlite:cerca.db",
        ),
    ] {
        assert_eq!(error(&text), expected);
    }
    assert!(error(&store("postgres://h/db?sslmode=odd")).contains("does not know what this URL asks for"));
    assert!(error(&store("sqlite:a.db?mode=odd")).contains("store.url: this is not a URL of SQLite"));
    for fine in [
        two("127.0.0.1:0", "127.0.0.1:0"),
        two("127.0.0.1:1", "[::1]:1"),
        store("postgres:///db?host=/run/postgresql"),
        store("sqlite:a.db?mode=rwc"),
        "[server]\nworkers = 512\n".to_owned(),
    ] {
        assert!(parse(&fine).is_ok(), "{fine}");
    }
    assert!(error(&two("0.0.0.0:1", "127.0.0.1:1")).contains("admin.listen: "));
}

#[test]
fn a_key_that_is_there_twice_is_named() {
    assert_eq!(
        error("[server]\nworkers = 1\n[worker]\nlease = \"2s\"\n[log]\n# x\nlevel = \"info\"\nlevel = \"warn\"\n"),
        "cerca.toml:8:1: the key \"level\" is there twice; it is in line 7 already"
    );
    let text = format!("{STRIPE}name = \"again\"\n");
    assert_eq!(
        error(&text),
        "cerca.toml:4:1: the key \"name\" is there twice; it is in line 2 already"
    );
    assert_eq!(
        error("[log]\n[server]\n[log]\n"),
        "cerca.toml:3:2: the key \"log\" is there twice"
    );
}

#[test]
fn types_are_said_in_words() {
    assert_eq!(
        error("[server]\nworkers = \"four\"\n"),
        "cerca.toml:2:11: server.workers: expected a whole number, found the text \"four\""
    );
    assert_eq!(
        error("[[handler]]\nname = \"h\"\nkind = \"log\"\nevents = \"*\"\n"),
        "cerca.toml:4:10: handler[0].events: expected a list, found the text \"*\""
    );
}

#[test]
fn passwords_of_brokers_in_the_file_are_warned_of() {
    let warnings = |lines: &str| {
        let text = format!("[[handler]]\nname = \"h\"\nevents = [\"*\"]\n{lines}\n");
        let config = parse(&text).unwrap();
        config.warnings.iter().map(ToString::to_string).collect::<String>()
    };
    let shown = warnings("kind = \"nats\"\nurl = \"nats://u:hunter2@a\"");
    assert!(
        shown.contains("the password stands in the file") && !shown.contains("hunter2"),
        "{shown}"
    );
    let shown = warnings("kind = \"kafka\"\noptions = { \"sasl.password\" = \"hunter2\" }");
    assert!(
        shown.contains("\"sasl.password\" stands in the file") && !shown.contains("hunter2"),
        "{shown}"
    );
    assert_eq!(warnings("kind = \"nats\"\nurl = \"env:NATS_URL\""), "");
    assert_eq!(warnings("kind = \"nats\"\nurl = \"nats://a\""), "");
}

#[test]
fn secrets_of_the_admin_and_the_gateway_in_the_file_are_warned_of() {
    let warnings = |text: &str, variables: &[(&str, &str)]| {
        let config = parse_with(text, variables).unwrap();
        config.warnings.iter().map(ToString::to_string).collect::<String>()
    };
    let shown = warnings("[admin]\ntoken = \"hunter2\"\n", &[]);
    assert_eq!(
        shown,
        "cerca.toml:2:9: admin.token: the token stands in the file; use env:NAME or file:PATH"
    );
    assert_eq!(warnings("[admin]\ntoken = \"env:T\"\n", &[("T", "x")]), "");
    assert_eq!(
        warnings("", &[("CERCA_ADMIN__TOKEN", "hunter2")]),
        "",
        "it is not in the file"
    );

    let route = |lines: &str| {
        let text = format!("[[gateway]]\npath = \"/a\"\nupstream = \"http://h\"\n{lines}\n");
        warnings(&text, &[])
    };
    let shown = route("principal = \"jwt:sub\"\njwt_key = \"hunter2hunter2hunter2\"");
    assert!(
        shown.starts_with("cerca.toml:5:11: gateway[0].jwt_key: the key stands in the file")
            && !shown.contains("hunter2"),
        "{shown}"
    );
    let shown = route("probe = \"http://h/{key}\"\nprobe_authorization = \"Bearer hunter2\"");
    assert!(
        shown.contains("gateway[0].probe_authorization: the credential stands in the file")
            && !shown.contains("hunter2"),
        "{shown}"
    );
    let public = "jwt_key = \"\"\"-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----\"\"\"";
    assert_eq!(route(&format!("principal = \"jwt:sub\"\n{public}")), "");
    assert_eq!(route("principal = \"jwt:sub\"\njwt_key = \"env:K\""), "");
}

#[test]
fn a_client_certificate_that_nobody_is_believed_to_have_is_warned_of() {
    let warnings = |server: &str| {
        let text = format!(
            "{server}[[gateway]]\npath = \"/a\"\nupstream = \"http://h\"\nprincipal = \"client-cert:X-Cert\"\n"
        );
        let config = parse(&text).unwrap();
        config.warnings.iter().map(ToString::to_string).collect::<String>()
    };
    let shown = warnings("");
    assert!(
        shown.contains("gateway[0].principal: ") && shown.contains("trusted_proxies"),
        "{shown}"
    );
    assert_eq!(warnings("[server]\ntrusted_proxies = [\"10.0.0.0/8\"]\n"), "");
}

#[test]
fn programs_that_cannot_be_started_are_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("plain.sh"), "").unwrap();
    let environment = [("PATH", "/usr/bin:/bin")].into_iter().collect();
    let warnings = |program: &str| {
        let text = format!("[[handler]]\nname = \"h\"\nkind = \"exec\"\nevents = [\"*\"]\ncommand = [\"{program}\"]\n");
        let config = Config::parse(Some(&folder.path().join("c.toml")), text, &environment).unwrap();
        config.warnings.iter().map(ToString::to_string).collect::<String>()
    };
    assert_eq!(warnings("sh"), "");
    assert_eq!(warnings("/bin/sh"), "");
    assert!(warnings("./nope.sh").contains("/nope.sh cannot be read: No such file"));
    assert!(warnings("./plain.sh").contains("/plain.sh is not executable"));
    assert!(warnings("nope.sh").contains("c.toml:5:12: handler[0].command[0]: there is no program `nope.sh` in PATH"));
}

#[test]
fn public_urls_are_scheme_and_host() {
    let url = |url: &str| parse(&format!("[server]\npublic_url = \"{url}\"\n"));
    assert_eq!(
        url("https://hooks.example.com/").unwrap().server.public_url.as_deref(),
        Some("https://hooks.example.com")
    );
    for wrong in [
        "hooks.example.com",
        "ftp://a",
        "https://a/hooks",
        "https://u:p@a",
        "https://a?x",
        "",
    ] {
        assert!(url(wrong).is_err(), "{wrong}");
    }
    assert_eq!(url("http://hooks.example.com").unwrap().warnings.len(), 1);
}

#[test]
fn patterns_that_match_no_provider_are_warned_of() {
    let text =
        format!("{STRIPE}[[handler]]\nname = \"h\"\nkind = \"log\"\nevents = [\"strpe:*\", \"stripe:*\", \"*\"]\n");
    let config = parse_with(&text, &[("S", "x")]).unwrap();
    let warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        ["cerca.toml:7:11: handler[0].events[0]: `strpe:*` matches no provider; did you mean \"stripe\"?"]
    );
}

use secrecy::ExposeSecret as _;
