use super::*;
use crate::domain::Outcome;

#[tokio::test(start_paused = true)]
async fn long_attempts_and_long_waits_keep_their_leases() {
    let gate = Gate::closed();
    let running = Running::start(vec![route("h", 2, gate.action())], Settings::default());
    running.store.add("h", 0..10);
    until("two wait", || gate.inside() == 2).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(running.store.claimed(), 10, "queued ones too");
    assert!(running.store.left().iter().all(|row| row.attempts == 1));
    gate.open.add_permits(10);
    until("all are done", || running.store.left().is_empty()).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_claim_is_cancelled_and_not_settled() {
    let (gate, other) = (Gate::closed(), Gate::closed());
    let routes = vec![route("h", 2, gate.action()), route("other", 2, other.action())];
    let running = Running::start(routes, Settings::default());
    running.store.add("h", 0..10);
    running.store.add("other", 0..10);
    until("two wait", || gate.inside() == 2 && other.inside() == 2).await;
    running.store.steal_all("h");
    until("they are cancelled", || gate.inside() == 0).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(gate.inside(), 0, "those that were queued are dropped too");
    assert_eq!(
        (other.inside(), running.store.claimed()),
        (2, 10),
        "the same events elsewhere go on"
    );
    assert_eq!(running.store.outcomes(), []);
    // The slots and the room are free again.
    gate.open.add_permits(1_000);
    running.store.add("h", 100..200);
    until("new work is done", || running.store.settled().len() == 100).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ran_out_unseen_is_not_begun() {
    let gate = Gate::closed();
    let running = Running::start(vec![route("h", 1, gate.action())], Settings::default());
    running.store.add("h", 0..2);
    until("one waits", || gate.inside() == 1).await;
    running.store.away.store(true, SeqCst);
    tokio::time::sleep(Duration::from_secs(120)).await;
    gate.open.add_permits(1);
    until("both are settled", || running.store.settled().len() == 2).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(gate.inside(), 0, "another worker may have the second");
    running.store.away.store(false, SeqCst);
    gate.open.add_permits(1);
    until("it is claimed again and done", || running.store.left().is_empty()).await;
    assert_eq!(
        running.store.outcomes(),
        [Outcome::Done, Outcome::Released, Outcome::Done]
    );
    assert_eq!(
        running.store.settled()[2].attempt,
        1,
        "what was not begun is no attempt"
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_a_handler_cannot_clear_shrinks() {
    let gate = Gate::closed();
    let running = Running::start(vec![route("h", 1, gate.action())], Settings::default());
    let handoff = running.worker.handoff();
    running.store.add("h", 0..60);
    until("one waits", || gate.inside() == 1).await;
    assert!(handoff.reserve("h", 1, 0));
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert!(
        !handoff.reserve("h", 1, 0),
        "what waits is more than it does between two renewals"
    );
    running.stop().await;
}
