//! Events that kill the process which tries them.

use std::time::Duration;

use crate::support::{Setup, TestStore, on_both_stores, stripe, stripe_body, wait_until};

on_both_stores!(an_event_that_kills_the_worker_takes_the_others_with_it_once_at_most);

/// G6, W1: from its second try on it runs alone, and in the end it is dead.
async fn an_event_that_kills_the_worker_takes_the_others_with_it_once_at_most(store: TestStore) {
    // The others wait for a file, so that they run when the first crash comes. Later they take a moment, so that a killer
    // beside them would meet them.
    let script = "event=$(cat); case \"$event\" in *evt_killer*) kill -9 $PPID; exit 1;; esac; \
                  echo begin >>begun; while [ ! -e release ]; do sleep 0.05; done; sleep 0.5";
    let retry = "retry = { attempts = 4, base = \"50ms\", cap = \"50ms\" }";
    let setup = Setup::new(&store).exec("work", script, retry);
    let mut server = setup.start().await;
    for n in 0..4 {
        server.stripe(&format!("evt_{n}")).await;
    }
    let begun = || {
        std::fs::read_to_string(store.folder().join("begun"))
            .unwrap_or_default()
            .lines()
            .count()
    };
    wait_until("the others run", async || begun() == 4).await;
    let body = stripe_body("evt_killer");
    // The process may be dead before the answer is read.
    let _ = server.try_send("stripe", stripe(&body), body).await;
    server.wait_for_exit().await;
    std::fs::write(store.folder().join("release"), "").unwrap();

    // A supervisor starts it again and again, until everything is decided.
    let is_over = async || {
        store.number("select count(*) from deliveries").await == 1
            && store
                .number("select count(*) from deliveries where state = 'dead'")
                .await
                == 1
    };
    let mut server = setup.spawn();
    tokio::time::timeout(Duration::from_secs(120), async {
        while !is_over().await {
            if !server.is_running() {
                server = setup.spawn();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await
    .expect("everything is decided");
    drop(server);

    let server = setup.start().await;
    let outcomes = async |id: &str| {
        let event = server.event("stripe", id).await;
        let attempts = event["attempts"].as_array().unwrap().iter();
        let attempts: Vec<String> = attempts.map(|a| a["outcome"].as_str().unwrap().to_owned()).collect();
        (event["status"].as_str().unwrap().to_owned(), attempts.join(" "))
    };
    assert_eq!(
        outcomes("evt_killer").await,
        ("failed".into(), "lost lost lost lost".into())
    );
    for n in 0..4 {
        let (status, attempts) = outcomes(&format!("evt_{n}")).await;
        assert_eq!((&*status, &*attempts), ("done", "lost done"), "evt_{n}");
    }
}
