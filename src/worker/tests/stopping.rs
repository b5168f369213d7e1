use super::*;
use crate::domain::Outcome;

fn counts(store: &Fake) -> (usize, usize, usize) {
    let outcomes = store.outcomes();
    let count = |f: fn(&Outcome) -> bool| outcomes.iter().filter(|o| f(o)).count();
    (
        count(|o| *o == Outcome::Done),
        count(|o| *o == Outcome::Released),
        count(|o| matches!(o, Outcome::Unknown { after: Some(_), .. })),
    )
}

#[tokio::test(start_paused = true)]
async fn what_runs_may_end_and_what_waits_is_released() {
    let gate = Gate::closed();
    let running = Running::start(vec![route("h", 2, gate.action())], Settings::default());
    running.store.add("h", 0..10);
    until("two wait", || gate.inside() == 2).await;
    running.stop.cancel();
    let store = running.store.clone();
    until("the others are released", || counts(&store).1 == 8).await;
    assert!(!running.task.is_finished());
    gate.open.add_permits(2);
    let store = running.stop().await;
    assert_eq!(counts(&store), (2, 8, 0));
    assert_eq!(store.claimed(), 0);
    assert!(
        store.left().iter().all(|row| row.attempts == 0),
        "a release does not count"
    );
    assert!(store.flushes.load(SeqCst) > 0);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_end_in_time_is_cut_off_and_due_again() {
    let gate = Gate::closed();
    let mut stubborn = route("h", 2, gate.action());
    stubborn.retry.attempts = 1;
    let running = Running::start(vec![stubborn], Settings::default());
    running.store.add("h", 0..10);
    until("two wait", || gate.inside() == 2).await;
    let begun = tokio::time::Instant::now();
    let store = running.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(26), "{:?}", begun.elapsed());
    assert_eq!(counts(&store), (0, 8, 2));
    assert_eq!(gate.inside(), 0);
    assert!(
        store.left().iter().all(|row| !row.dead),
        "a deployment gives nothing up"
    );
}

#[tokio::test(start_paused = true)]
async fn hand_overs_under_way_are_released_and_new_ones_refused() {
    let running = Running::start(vec![route("h", 2, call(async |_| Ok(())))], Settings::default());
    let handoff = running.worker.handoff();
    until("it runs", || running.store.claims.load(SeqCst) > 0).await;
    assert!(handoff.reserve("h", 3, 0));
    running.stop.cancel();
    until("it is closed", || {
        !handoff.reserve("h", 1, 0) && !handoff.reserve("h", 1, 0)
    })
    .await;
    assert!(!running.task.is_finished(), "it waits for what was reserved");
    handoff.give_back("h", 1, 0);
    handoff.hand_over(running.store.add_claimed("h", 0..2, handoff.lease()));
    let store = running.stop().await;
    assert_eq!(counts(&store), (0, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_does_not_keep_the_process() {
    let running = Running::start(vec![route("h", 2, call(async |_| Ok(())))], Settings::default());
    running.store.away.store(true, SeqCst);
    let begun = tokio::time::Instant::now();
    running.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(26), "{:?}", begun.elapsed());
}
