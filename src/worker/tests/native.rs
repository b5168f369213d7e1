use std::sync::Mutex;

use super::*;
use crate::{
    domain::Outcome,
    handlers::{Call as NativeCall, Done, Native, NativeHandler},
    store::Applied,
};

fn native(handler: impl NativeHandler) -> Action {
    let mut specs = Vec::new();
    let native = Native::new("h", handler).events(["*"]);
    Native::attach(&[native], &mut specs).unwrap();
    Action::Native(specs[0].native.clone().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_retry_goes_on_after_the_last_recorded_step() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = calls.clone();
    let handler = move |call: NativeCall| {
        let seen = seen.clone();
        async move {
            let did = |what: &str| seen.lock().unwrap().push(format!("{what}{}", call.attempt()));
            let one: u32 = call
                .step("one", async || {
                    did("one");
                    Ok(41)
                })
                .await?;
            let two: u32 = call
                .step("two", async || {
                    did("two");
                    if call.attempt() == 1 {
                        return Err(Failure::Retry("not yet".into()));
                    }
                    Ok(one + 1)
                })
                .await?;
            assert_eq!(two, 42);
            assert_eq!(call.idempotency_key(), "stripe:evt_0:h");
            Ok(())
        }
    };
    let running = Running::start(vec![route("h", 4, native(handler))], Settings::default());
    running.store.add("h", 0..1);
    until("it is done", || running.store.left().is_empty()).await;
    assert_eq!(*calls.lock().unwrap(), ["one1", "two1", "two2"]);
    let steps = running.store.steps.lock().unwrap().clone();
    let named: Vec<_> = steps.iter().map(|s| (&*s.name, s.attempt, &*s.result)).collect();
    assert_eq!(named, [("one", 1, "41"), ("two", 2, "42")]);
    assert!(
        matches!(&running.store.outcomes()[..], [Outcome::Retry { error, .. }, Outcome::Done] if error == "not yet")
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_step_waits_for_a_store_that_is_away_and_is_not_done_twice() {
    let done = Arc::new(AtomicUsize::new(0));
    let (running, counted) = {
        let counted = done.clone();
        let handler = move |call: NativeCall| {
            let counted = counted.clone();
            async move {
                call.step("once", async || {
                    counted.fetch_add(1, SeqCst);
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    Ok(())
                })
                .await
            }
        };
        (
            Running::start(vec![route("h", 4, native(handler))], Settings::default()),
            done,
        )
    };
    running.store.add("h", 0..1);
    until("the work is begun", || counted.load(SeqCst) == 1).await;
    running.store.away.store(true, SeqCst);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(running.store.steps.lock().unwrap().is_empty());
    running.store.away.store(false, SeqCst);
    until("it is done", || running.store.left().is_empty()).await;
    assert_eq!(counted.load(SeqCst), 1);
    assert_eq!(running.store.steps.lock().unwrap().len(), 1);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn misused_steps_panics_and_late_handlers_are_failed_attempts() {
    for (handler, expected) in [
        (
            native(async |call: NativeCall| {
                call.step("a", async || Ok(1)).await?;
                call.step("a", async || Ok(2)).await.map(drop)
            }),
            "taken twice",
        ),
        (
            native(async |call: NativeCall| call.step("", async || Ok(1)).await.map(drop)),
            "1 to 200 bytes",
        ),
        (
            native(async |call: NativeCall| call.step("a", async || Ok("x".repeat(300 << 10))).await.map(drop)),
            "longer than",
        ),
        (
            native(async |call: NativeCall| call.json::<Vec<u8>>().map(drop)),
            "the payload is not what the handler reads",
        ),
        (
            native(async |_: NativeCall| -> Result<(), Failure> { panic!("no luck") }),
            "panicked: no luck",
        ),
        (
            native(async |_: NativeCall| -> Result<(), Failure> { std::future::pending().await }),
            "no answer within 1h",
        ),
    ] {
        let (store, worker) = stepped(vec![route("h", 1, handler)]);
        store.add("h", 0..1);
        assert_eq!(worker.step().await.unwrap(), 1);
        match &store.outcomes()[..] {
            [Outcome::Retry { error, .. } | Outcome::Dead { error }] => assert!(error.contains(expected), "{error}"),
            other => panic!("{expected}: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_left_for_the_transaction_is_settled_there() {
    let (store, worker) = stepped(vec![route(
        "h",
        1,
        native(async |_: NativeCall| Ok(Done::within(|_| Ok(())))),
    )]);
    store.add("h", 0..1);
    assert_eq!(worker.step().await.unwrap(), 1);
    assert!(store.left().is_empty() && store.settled().is_empty());

    *store.applied.lock().unwrap() = Some(Ok(Applied::Failed("refused".into())));
    store.add("h", 1..2);
    assert_eq!(worker.step().await.unwrap(), 1);
    assert!(matches!(&store.outcomes()[..], [Outcome::Retry { error, .. }] if error == "refused"));

    *store.applied.lock().unwrap() = Some(Ok(Applied::Stale));
    store.add("h", 2..3);
    worker.step().await.unwrap();
    assert_eq!(store.settled().len(), 1);
}
