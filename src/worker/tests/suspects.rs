use super::*;
use crate::domain::Outcome;

/// Two handlers of which the first one's deliveries wait at a gate.
fn two(gate: &Gate, other: &Gate) -> Vec<Route> {
    vec![route("h", 4, gate.action()), route("other", 4, other.action())]
}

#[tokio::test(start_paused = true)]
async fn what_lost_its_lease_is_tried_with_nobody_beside_it() {
    let (gate, other) = (Gate::closed(), Gate::closed());
    let running = Running::start(two(&gate, &other), Settings::default());
    running.store.add("other", 0..3);
    until("the others run", || other.inside() == 3).await;
    running.store.add_suspects("h", [10, 11]);
    until("a suspect is claimed", || running.store.claimed() == 4).await;
    running.store.add("h", [20]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(
        gate.inside(),
        0,
        "it waits for those that run, and nothing begins meanwhile"
    );
    other.open.add_permits(3);
    until("it runs", || gate.inside() == 1).await;
    running.store.add("other", 3..6);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((gate.inside(), other.inside()), (1, 0), "alone");
    gate.open.add_permits(1);
    until("the others go on", || other.inside() == 3 && gate.inside() == 1).await;
    assert_eq!(
        running.store.suspects(),
        1,
        "what is not suspect goes on; the second suspect waits for its turn"
    );
    other.open.add_permits(100);
    gate.open.add_permits(100);
    until("all are done", || running.store.left().is_empty()).await;
    assert!(running.store.outcomes().iter().all(|o| *o == Outcome::Done));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn suspects_leave_half_of_the_time_to_the_others() {
    let slow = call(async |_| {
        tokio::time::sleep(Duration::from_secs(10)).await;
        Ok(())
    });
    let routes = vec![route("h", 1, slow), route("other", 1, call(async |_| Ok(())))];
    let running = Running::start(routes, Settings::default());
    running.store.add_suspects("h", 0..20);
    let begun = tokio::time::Instant::now();
    for n in 0..100 {
        running.store.add("other", [1_000 + n]);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    until("the others are done", || {
        running.store.left().iter().all(|row| *row.handler == *"h")
    })
    .await;
    assert!(begun.elapsed() < Duration::from_secs(130), "{:?}", begun.elapsed());
    until("all are done", || running.store.left().is_empty()).await;
    assert!(begun.elapsed() > Duration::from_secs(380), "{:?}", begun.elapsed());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_suspect_that_fails_is_an_ordinary_retry() {
    let (store, worker) = stepped(vec![route("h", 4, call(async |_| Err(Failure::Retry("no".into()))))]);
    store.add_suspects("h", [1]);
    assert_eq!(worker.step().await.unwrap(), 1);
    assert_eq!(store.suspects(), 0);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(worker.step().await.unwrap(), 1);
    assert_eq!(store.outcomes().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_suspect_keeps_its_lease_while_it_waits_for_its_turn() {
    let (gate, other) = (Gate::closed(), Gate::closed());
    let running = Running::start(two(&gate, &other), Settings::default());
    running.store.add("other", [0]);
    until("the other runs", || other.inside() == 1).await;
    running.store.add_suspects("h", [10]);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(
        running.store.left().iter().all(|row| row.attempts == 1),
        "neither was lost"
    );
    other.open.add_permits(1);
    gate.open.add_permits(1);
    until("both are done", || running.store.left().is_empty()).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_suspect_that_runs_at_a_shutdown_is_cut_off_and_due_again() {
    let (gate, other) = (Gate::closed(), Gate::closed());
    let running = Running::start(two(&gate, &other), Settings::default());
    running.store.add_suspects("h", [10]);
    until("it runs", || gate.inside() == 1).await;
    let store = running.stop().await;
    assert!(
        matches!(
            store.outcomes()[..],
            [Outcome::Unknown {
                after: Some(Duration::ZERO),
                ..
            }]
        ),
        "{:?}",
        store.outcomes()
    );
    assert_eq!((store.claimed(), gate.inside()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn leases_that_ran_out_while_the_store_was_away_are_renewed_and_not_lost() {
    let gate = Gate::closed();
    let running = Running::start(vec![route("h", 4, gate.action())], Settings::default());
    running.store.add("h", 0..4);
    until("all run", || gate.inside() == 4).await;
    running.store.away.store(true, SeqCst);
    tokio::time::sleep(Duration::from_secs(600)).await;
    running.store.away.store(false, SeqCst);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!((running.store.suspects(), gate.inside()), (0, 4), "nobody died");
    gate.open.add_permits(4);
    until("all are done", || running.store.left().is_empty()).await;
    assert!(running.store.outcomes().iter().all(|o| *o == Outcome::Done));
    running.stop().await;
}
