//! A target that is away: it is left alone, and what waits for it loses no attempt.

use crate::support::{Asleep, Setup, Sink, TestStore, on_both_stores, wait_until};

on_both_stores!(a_dead_target_eats_no_attempts_and_is_seen_by_its_breaker);

async fn a_dead_target_eats_no_attempts_and_is_seen_by_its_breaker(store: TestStore) {
    const EVENTS: usize = 20;
    let (asleep, other) = (Asleep::new(), Sink::start().await);
    let handler = |name: &str, url: &str| {
        format!(
            "[[handler]]\nname = \"{name}\"\nevents = [\"*\"]\nkind = \"http\"\nurl = \"{url}\"\nconcurrency = 1\n\
             breaker = {{ failures = 2, pause = \"400ms\" }}\n\
             retry = {{ attempts = 10, base = \"1s\", cap = \"1s\" }}\n"
        )
    };
    let server = Setup::new(&store)
        .with(&handler("away", &asleep.url()))
        .with(&handler("there", &other.url()))
        .start()
        .await;
    for n in 0..EVENTS {
        server.stripe(&format!("evt_{n}")).await;
    }
    let destination = asleep.url().split('/').nth(2).unwrap().to_owned();
    let states = async || {
        let metrics = server.get("/metrics").await.text();
        let of_breaker = format!("cerca_breaker_state{{destination=\"{destination}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&of_breaker));
        line.map(str::to_owned)
    };
    wait_until("the breaker is open", async || states().await.as_deref() == Some("2")).await;
    wait_until("the other target has everything", async || other.count() == EVENTS).await;
    wait_until("a delivery says why it waits", async || {
        let events = server.all_events("stripe").await;
        let errors = events.iter().flat_map(|event| event["deliveries"].as_array().unwrap());
        errors
            .filter_map(|delivery| delivery["last_error"].as_str())
            .any(|error| error.contains("is left alone"))
    })
    .await;

    let sink = asleep.wake();
    for n in 0..EVENTS {
        server.wait_for("stripe", &format!("evt_{n}"), "done").await;
    }
    assert_eq!(sink.count(), EVENTS);
    wait_until("the breaker is closed", async || states().await.as_deref() == Some("0")).await;
}
