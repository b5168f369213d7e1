use super::*;
use crate::domain::{Outcome, Rate};

fn paced(name: &str, rate: &str, action: Action) -> Route {
    Route {
        rate_limit: Some(Rate::parse(rate).unwrap()),
        ..route(name, 100, action)
    }
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_is_kept_and_used() {
    let routes = vec![
        paced("slow", "10/s", call(async |_| Ok(()))),
        route("free", 4, call(async |_| Ok(()))),
    ];
    let running = Running::start(routes, Settings::default());
    running.store.add("slow", 0..300);
    running.store.add("free", 0..300);
    let begun = tokio::time::Instant::now();
    let done = |store: &Fake, name: &str| store.settled().iter().filter(|s| *s.handler == *name).count();
    until("the other handler is done", || done(&running.store, "free") == 300).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    until("all are done", || running.store.left().is_empty()).await;
    // A burst of ten, then ten a second.
    let took = begun.elapsed().as_secs();
    assert!((28..=33).contains(&took), "{took}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_its_rate_keeps_its_lease_and_is_released_at_the_end() {
    let running = Running::start(vec![paced("h", "1/m", call(async |_| Ok(())))], Settings::default());
    running.store.add("h", 0..5);
    until("the first is done", || running.store.settled().len() == 1).await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(running.store.settled().len(), 2);
    assert!(
        running.store.left().iter().all(|row| row.attempts == 1),
        "nothing was lost meanwhile"
    );
    let store = running.stop().await;
    let released = store.outcomes().iter().filter(|o| **o == Outcome::Released).count();
    assert_eq!((released, store.left().len()), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn a_step_keeps_to_the_rate_too() {
    let (store, worker) = stepped(vec![paced("h", "1/s", call(async |_| Ok(())))]);
    store.add("h", 0..5);
    let begun = tokio::time::Instant::now();
    assert_eq!(worker.step().await.unwrap(), 5);
    assert_eq!(begun.elapsed().as_secs(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_backlog_is_claimed_fairly_and_a_trickle_is_not() {
    let running = Running::start(vec![route("h", 4, call(async |_| Ok(())))], Settings::default());
    running.store.add("h", 0..10);
    until("the trickle is done", || running.store.left().is_empty()).await;
    assert_eq!(running.store.fair.load(SeqCst), 0);
    running.store.add("h", 0..5_000);
    until("the backlog is done", || running.store.left().is_empty()).await;
    assert!(running.store.fair.load(SeqCst) > 0);
    let fair = running.store.fair.load(SeqCst);
    until("some polls", || running.store.claims.load(SeqCst) > fair + 100).await;
    assert!(
        running.store.fair.load(SeqCst) <= fair + 1,
        "it is over when it is worked off"
    );
    running.stop().await;
}
