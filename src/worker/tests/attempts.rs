use super::*;
use crate::{
    domain::Outcome,
    handlers::SqlAction,
    store::{Applied, StoreError},
};

fn retry_error(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Retry { error, .. } => error,
        other => panic!("a retry was expected, not {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_runs_what_is_due_and_writes_it() {
    let (store, worker) = stepped(vec![route("h", 4, call(async |_| Ok(())))]);
    store.add("h", 0..10);
    assert_eq!(worker.step().await.unwrap(), 10);
    assert!(store.left().is_empty());
    assert_eq!(worker.step().await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_tried_again_until_it_is_dead() {
    let (store, worker) = stepped(vec![route("h", 4, call(async |_| Err(Failure::Retry("no".into()))))]);
    store.add("h", [1]);
    for attempt in 1..=3 {
        assert_eq!(worker.step().await.unwrap(), 1, "attempt {attempt}");
        assert_eq!(worker.step().await.unwrap(), 0, "not due yet");
        tokio::time::advance(Duration::from_secs(60)).await;
    }
    assert_eq!(worker.step().await.unwrap(), 0);
    let settled = store.settled();
    assert_eq!(settled.iter().map(|s| s.attempt).collect::<Vec<_>>(), [1, 2, 3]);
    let Outcome::Retry { after, .. } = settled[1].outcome else {
        panic!("the second is a retry")
    };
    assert!(
        (Duration::from_secs(2)..=Duration::from_secs(4)).contains(&after),
        "{after:?}"
    );
    assert_eq!(settled[2].outcome, Outcome::Dead { error: "no".into() });
}

#[tokio::test(start_paused = true)]
async fn a_target_may_say_when_and_may_refuse_for_good() {
    let busy = call(async |_| {
        Err(Failure::RetryAfter {
            after: Duration::from_secs(77),
            error: "busy".into(),
        })
    });
    let gone = call(async |_| Err(Failure::GiveUp("gone".into())));
    let (store, worker) = stepped(vec![route("busy", 4, busy), route("gone", 4, gone)]);
    store.add("busy", [1]);
    store.add("gone", [2]);
    worker.step().await.unwrap();
    let [Outcome::Retry { after, .. }, Outcome::Dead { error }] = &store.outcomes()[..] else {
        panic!("{:?}", store.outcomes())
    };
    assert!((77..=85).contains(&after.as_secs()), "{after:?}");
    assert_eq!(error, "gone");
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_and_others_go_on() {
    let early = call(|claim: Claim| {
        assert!(claim.event.id != 1, "before the first await");
        async { Ok(()) }
    });
    let late = call(async |claim: Claim| {
        tokio::task::yield_now().await;
        assert!(claim.event.id != 1, "after the first await");
        Ok(())
    });
    let (store, worker) = stepped(vec![route("early", 4, early), route("late", 4, late)]);
    store.add("early", 0..3);
    store.add("late", 0..3);
    assert_eq!(worker.step().await.unwrap(), 6);
    let failed: Vec<_> = store.outcomes().into_iter().filter(|o| *o != Outcome::Done).collect();
    assert_eq!(failed.len(), 2);
    assert_eq!(retry_error(&failed[0]), "the handler panicked: before the first await");
    assert_eq!(retry_error(&failed[1]), "the handler panicked: after the first await");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_takes_too_long_is_dropped() {
    let gate = Gate::closed();
    let mut slow = route("h", 4, gate.action());
    slow.timeout = Duration::from_secs(30);
    let (store, worker) = stepped(vec![slow]);
    store.add("h", [1]);
    worker.step().await.unwrap();
    assert_eq!(retry_error(&store.outcomes()[0]), "no answer within 30s");
    assert_eq!(gate.inside(), 0);
    assert_eq!(store.settled()[0].duration, Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn an_effect_in_the_store_settles_itself() {
    let action = || {
        Action::InStore(SqlAction {
            count: 0,
            statement: "select 1".into(),
            params: Box::new(|outgoing| match outgoing.claim.event.id {
                9 => Err(Failure::Retry("unreadable".into())),
                _ => Ok(Vec::new()),
            }),
        })
    };
    let outcome = async |answer: Option<Result<Applied, StoreError>>, id| {
        let (store, worker) = stepped(vec![route("h", 4, action())]);
        *store.applied.lock().unwrap() = answer;
        store.add("h", [id]);
        assert_eq!(worker.step().await.unwrap(), 1);
        (store.outcomes(), store.left().len(), store.claimed())
    };
    let nothing = Vec::<Outcome>::new();
    assert_eq!(outcome(None, 1).await, (nothing.clone(), 0, 0), "done");
    assert_eq!(outcome(Some(Ok(Applied::Stale)), 1).await, (nothing, 1, 1), "stale");
    let away = Some(Err(StoreError::Unavailable("commit lost".into())));
    let (outcomes, left, claimed) = outcome(away, 1).await;
    assert!(retry_error(&outcomes[0]).contains("commit lost"), "{outcomes:?}");
    assert_eq!((left, claimed), (1, 0));
    let failed = outcome(Some(Ok(Applied::Failed("no such table".into()))), 1).await;
    assert_eq!(retry_error(&failed.0[0]), "no such table");
    let unreadable = outcome(None, 9).await;
    assert_eq!(retry_error(&unreadable.0[0]), "unreadable");
}
