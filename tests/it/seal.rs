//! Senders that hand their secret over in their first handshake.

use futures_util::future::join_all;

use crate::support::{Engine, Server, Setup, TestStore, hmac_hex, on_both_stores, run, wait_until};

on_both_stores!(
    a_secret_that_is_handed_over_is_kept_sealed_and_used,
    a_second_secret_is_refused_until_the_first_is_removed,
    of_many_first_handshakes_one_is_answered,
    without_a_seal_key_the_handshake_is_503_and_nothing_is_kept,
    with_another_seal_key_nothing_verifies_and_nothing_is_lost,
    configured_secrets_leave_no_room_for_another,
);

const KEY: &str = "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0";
const SECRET: &str = "handed-over-0123456789abcdef";

fn asana(store: &TestStore) -> Setup {
    Setup::new(store)
        .without_providers()
        .with("[[provider]]\nname = \"asana\"")
}

fn sealed(store: &TestStore) -> Setup {
    asana(store).seal_key(KEY)
}

/// The handshake; gives status and the header that Asana waits for.
async fn shake(server: &Server, secret: &str) -> (u16, String) {
    let headers = vec![("X-Hook-Secret".to_owned(), secret.to_owned())];
    let reply = server.send("asana", headers, "").await;
    (reply.status, reply.header("X-Hook-Secret").to_owned())
}

/// An event that is signed with the secret.
async fn event(server: &Server, secret: &str, id: &str) -> u16 {
    let body = serde_json::json!({"events": [{
        "user": {"gid": "1"}, "resource": {"gid": id, "resource_type": "task"},
        "action": "changed", "created_at": "2026-11-30T12:00:00.000Z",
    }]});
    let body = body.to_string();
    let headers = vec![("X-Hook-Signature".to_owned(), hmac_hex(secret, body.as_bytes()))];
    server.send("asana", headers, body).await.status
}

async fn rows(store: &TestStore) -> i64 {
    store.number("select count(*) from provider_secrets").await
}

/// Neither the log, nor the metrics, nor the database hold the text.
async fn assert_hidden(server: &Server, store: &TestStore, secret: &str) {
    assert!(!server.log().contains(secret), "in the log");
    assert!(!server.get("/metrics").await.text().contains(secret), "in the metrics");
    assert!(
        !server.get("/api/v1/providers").await.text().contains(secret),
        "in the API"
    );
    if store.engine == Engine::Sqlite {
        for file in std::fs::read_dir(store.folder()).unwrap() {
            let path = file.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
            assert!(!found, "in {}", path.display());
        }
    } else {
        let found = format!(
            "select (select count(*) from provider_secrets where position('{secret}'::bytea in sealed) > 0)
                  + (select count(*) from webhook_events e where e::text like '%{secret}%'
                     or position('{secret}'::bytea in payload) > 0)"
        );
        assert_eq!(store.number(&found).await, 0, "in the database");
    }
}

async fn a_secret_that_is_handed_over_is_kept_sealed_and_used(store: TestStore) {
    let setup = sealed(&store);
    let server = setup.start().await;
    // Replicas share PostgreSQL only.
    let replica = match store.engine {
        Engine::Postgres => Some(setup.start().await),
        Engine::Sqlite => None,
    };
    for _ in 0..2 {
        // Some senders ask first whether the URL lives.
        let url = format!("http://{}/webhooks/asana", server.public());
        assert_eq!(server.client.head(url).send().await.unwrap().status(), 200);
        assert!([401, 503].contains(&event(&server, SECRET, "before").await));
    }
    assert_eq!(shake(&server, SECRET).await, (200, SECRET.to_owned()));
    assert_eq!(rows(&store).await, 1);
    assert_eq!(event(&server, SECRET, "one").await, 200);
    assert_eq!(event(&server, "another", "two").await, 401);
    if let Some(replica) = &replica {
        assert_eq!(event(replica, SECRET, "three").await, 200);
        assert_eq!(event(replica, "another", "four").await, 401);
        assert_eq!(shake(replica, "planted").await.0, 401);
        assert_hidden(replica, &store, SECRET).await;
    }
    assert_hidden(&server, &store, SECRET).await;
    server.stop().await;
    let server = setup.start().await;
    assert_eq!(event(&server, SECRET, "five").await, 200);
    // The command line signs and verifies with what is stored.
    let url = format!("http://{}", server.public());
    let sent = server.cli(&["trigger", "asana", "--url", &url]);
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    // Asana did not read the first answer, and asks again.
    assert_eq!(shake(&server, SECRET).await, (200, SECRET.to_owned()));
    assert_eq!(rows(&store).await, 1);
    assert_hidden(&server, &store, SECRET).await;
}

async fn a_second_secret_is_refused_until_the_first_is_removed(store: TestStore) {
    let server = sealed(&store).start().await;
    assert_eq!(shake(&server, "wrong-one").await.0, 200);
    assert_eq!(shake(&server, SECRET).await, (401, String::new()));
    assert_eq!(event(&server, SECRET, "one").await, 401);
    assert_eq!(event(&server, "wrong-one", "two").await, 200);

    let listed = server.cli(&["providers", "secrets", "asana", "list", "--json"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(
        listed.contains("fingerprint") && !listed.contains("wrong-one"),
        "{listed}"
    );
    let revealed = server.cli(&["providers", "secrets", "asana", "reveal"]);
    assert_eq!(String::from_utf8(revealed.stdout).unwrap(), "wrong-one\n");
    assert!(
        server
            .cli(&["providers", "secrets", "asana", "remove"])
            .status
            .success()
    );
    assert!(
        !server
            .cli(&["providers", "secrets", "asana", "remove"])
            .status
            .success()
    );

    wait_until("another secret is taken", async || {
        shake(&server, SECRET).await.0 == 200
    })
    .await;
    assert_eq!(event(&server, SECRET, "three").await, 200);
    assert_eq!(event(&server, "wrong-one", "four").await, 401);
}

async fn of_many_first_handshakes_one_is_answered(store: TestStore) {
    let setup = sealed(&store);
    let mut servers = vec![setup.start().await];
    if store.engine == Engine::Postgres {
        servers.push(setup.start().await);
    }
    let secrets: Vec<String> = (0..12).map(|n| format!("secret-number-{n}")).collect();
    let shakes = secrets
        .iter()
        .enumerate()
        .map(|(n, secret)| shake(&servers[n % servers.len()], secret));
    let statuses: Vec<u16> = join_all(shakes).await.into_iter().map(|(status, _)| status).collect();
    let won: Vec<usize> = (0..statuses.len()).filter(|n| statuses[*n] == 200).collect();
    assert_eq!(won.len(), 1, "{statuses:?}");
    assert_eq!(rows(&store).await, 1);
    for server in &servers {
        assert_eq!(event(server, &secrets[won[0]], "one").await, 200);
    }
}

async fn without_a_seal_key_the_handshake_is_503_and_nothing_is_kept(store: TestStore) {
    let server = asana(&store).start().await;
    let headers = vec![("X-Hook-Secret".to_owned(), SECRET.to_owned())];
    let reply = server.send("asana", headers, "").await;
    assert_eq!(reply.status, 503);
    assert!(!reply.header("Retry-After").is_empty());
    assert_eq!(reply.header("X-Hook-Secret"), "");
    assert_eq!(rows(&store).await, 0);
    let log = server.log();
    let line = log.lines().find(|line| line.contains("no_seal_key")).expect("a line");
    assert!(
        line.contains("ERROR") && line.contains("seal_key") && line.contains("openssl"),
        "{line}"
    );
    assert_ne!(event(&server, SECRET, "one").await, 200);
    assert_hidden(&server, &store, SECRET).await;
    let check = server.cli(&["check"]);
    let text = String::from_utf8(check.stdout).unwrap();
    assert!(
        check.status.success() && text.contains("openssl rand -hex 32"),
        "{text}"
    );
}

/// The sender reads 503 and not its secret, so it comes again; what it brings then may be another secret.
#[test]
fn a_handshake_while_the_database_is_away_is_503_and_takes_nothing() {
    run(Engine::Postgres, async |store: TestStore| {
        let server = sealed(&store).start().await;
        store.take_away().await;
        for _ in 0..2 {
            assert_eq!(shake(&server, "lost").await, (503, String::new()));
        }
        assert_eq!(event(&server, SECRET, "one").await, 503);
        store.restore().await;
        wait_until("a secret is taken", async || shake(&server, SECRET).await.0 == 200).await;
        assert_eq!(event(&server, SECRET, "one").await, 200);
        assert_eq!(rows(&store).await, 1);
    });
}

/// A sender whose secret we have and cannot open is asked to come again, not turned away for good.
async fn with_another_seal_key_nothing_verifies_and_nothing_is_lost(store: TestStore) {
    let server = sealed(&store).start().await;
    assert_eq!(shake(&server, SECRET).await.0, 200);
    server.stop().await;
    let wrong = asana(&store).seal_key(&KEY.replace('0', "1")).start().await;
    assert_eq!(event(&wrong, SECRET, "one").await, 503);
    assert_eq!(shake(&wrong, SECRET).await.0, 503);
    assert_eq!(shake(&wrong, "planted").await.0, 503);
    assert!(wrong.log().contains("does not open with this `seal_key`"));
    assert_hidden(&wrong, &store, SECRET).await;
    wrong.stop().await;
    let server = sealed(&store).start().await;
    assert_eq!(event(&server, SECRET, "one").await, 200);
    assert_eq!(rows(&store).await, 1);
}

async fn configured_secrets_leave_no_room_for_another(store: TestStore) {
    let server = Setup::new(&store)
        .without_providers()
        .seal_key(KEY)
        .with("[[provider]]\nname = \"asana\"\nsecrets = [\"configured\"]")
        .start()
        .await;
    assert_eq!(shake(&server, SECRET).await, (401, String::new()));
    assert_eq!(shake(&server, "configured").await.0, 200);
    assert_eq!(event(&server, "configured", "one").await, 200);
    assert_eq!(event(&server, SECRET, "two").await, 401);
    assert_eq!(rows(&store).await, 0);
}
