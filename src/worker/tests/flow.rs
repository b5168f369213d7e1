use super::*;

fn settings() -> Settings {
    Settings {
        concurrency: 8,
        ..Settings::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_never_runs_more_than_its_limit() {
    let gate = Gate::closed();
    let running = Running::start(vec![route("h", 3, gate.action())], settings());
    running.store.add("h", 0..100);
    until("three wait", || gate.inside() == 3).await;
    gate.open.add_permits(100);
    until("all are done", || running.store.left().is_empty()).await;
    assert_eq!(gate.most.load(SeqCst), 3);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn all_handlers_together_never_run_more_than_the_total() {
    let gate = Gate::closed();
    let routes = ["a", "b", "c"].map(|name| route(name, 100, gate.action()));
    let running = Running::start(routes.into(), settings());
    for name in ["a", "b", "c"] {
        running.store.add(name, 0..50);
    }
    until("eight wait", || gate.inside() == 8).await;
    gate.open.add_permits(1_000);
    until("all are done", || running.store.left().is_empty()).await;
    assert_eq!(gate.most.load(SeqCst), 8);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stuck_handler_does_not_keep_the_others_waiting() {
    let gate = Gate::closed();
    let routes = vec![
        route("stuck", 100, gate.action()),
        route("quick", 4, call(async |_| Ok(()))),
    ];
    let running = Running::start(routes, settings());
    running.store.add("stuck", 0..5_000);
    until("it took all it can get", || gate.inside() == 6).await;
    running.store.add("quick", 0..2_000);
    until("the other is done", || running.store.settled().len() == 2_000).await;
    assert_eq!(gate.inside(), 6);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn handed_over_work_runs_without_a_claim() {
    let running = Running::start(vec![route("h", 4, call(async |_| Ok(())))], settings());
    until("the first claim", || running.store.claims.load(SeqCst) > 0).await;
    let before = running.store.claims.load(SeqCst);
    let handoff = running.worker.handoff();
    assert!(handoff.reserve("h", 3, 1_000));
    handoff.give_back("h", 1, 300);
    handoff.hand_over(running.store.add_claimed("h", 0..2, handoff.lease()));
    until("both are done", || running.store.settled().len() == 2).await;
    assert_eq!(running.store.claims.load(SeqCst), before);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn room_is_bounded_by_count_and_by_bytes() {
    let gate = Gate::closed();
    let small = Settings {
        queue: 10,
        queue_bytes: 20_000,
        ..settings()
    };
    let worker = Worker::new(
        Arc::new(Fake::default()),
        vec![route("a", 1, gate.action()), route("b", 1, gate.action())],
        small,
    );
    let handoff = worker.handoff();
    assert!(!handoff.reserve("nobody", 1, 1));
    assert!(!handoff.reserve("a", 11, 1), "too many");
    assert!(!handoff.reserve("a", 1, 10_001), "more than its half of the bytes");
    assert!(handoff.reserve("b", 1, 10_000));
    handoff.give_back("b", 1, 10_000);
    assert!(handoff.reserve("b", 1, 10_000), "given back");
}

#[tokio::test(start_paused = true)]
async fn fresh_work_leaves_room_for_older_work() {
    let gate = Gate::closed();
    let small = Settings {
        queue: 10,
        ..settings()
    };
    let worker = Worker::new(Arc::new(Fake::default()), vec![route("a", 1, gate.action())], small);
    let handoff = worker.handoff();
    assert!(handoff.reserve("a", 10, 0));
    assert!(!handoff.reserve("a", 1, 0), "full, so this one goes to the table");
    handoff.give_back("a", 10, 0);
    assert!(
        handoff.reserve("a", 5, 0) && !handoff.reserve("a", 1, 0),
        "half is kept for it"
    );
}

#[tokio::test(start_paused = true)]
async fn a_wake_claims_at_once() {
    let running = Running::start(
        vec![route("h", 4, call(async |_| Ok(())))],
        Settings {
            poll: Duration::from_secs(1_000),
            ..settings()
        },
    );
    until("the first claim", || running.store.claims.load(SeqCst) > 0).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    running.store.add("h", [1]);
    let begun = tokio::time::Instant::now();
    running.worker.handoff().wake();
    until("it is done", || running.store.left().is_empty()).await;
    assert!(begun.elapsed() < Duration::from_millis(50), "{:?}", begun.elapsed());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_wake_delays_by_one_poll() {
    let running = Running::start(vec![route("h", 4, call(async |_| Ok(())))], settings());
    until("the first claim", || running.store.claims.load(SeqCst) > 0).await;
    running.store.add("h", [1]);
    let begun = tokio::time::Instant::now();
    until("it is done", || running.store.left().is_empty()).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_backlog_is_worked_off_without_waiting_for_polls() {
    let running = Running::start(vec![route("h", 4, call(async |_| Ok(())))], settings());
    running.store.add("h", 0..20_000);
    let begun = tokio::time::Instant::now();
    until("all are done", || running.store.left().is_empty()).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_store_is_survived() {
    let running = Running::start(vec![route("h", 4, call(async |_| Ok(())))], settings());
    running.store.away.store(true, SeqCst);
    running.store.add("h", 0..10);
    let before = running.store.claims.load(SeqCst);
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    let tries = running.store.claims.load(SeqCst) - before;
    assert!((600..2_500).contains(&tries), "about every four seconds: {tries}");
    running.store.away.store(false, SeqCst);
    let begun = tokio::time::Instant::now();
    until("all are done", || running.store.left().is_empty()).await;
    assert!(begun.elapsed() <= Duration::from_secs(6), "{:?}", begun.elapsed());
    running.stop().await;
}
