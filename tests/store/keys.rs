//! Idempotency keys: one holder at a time, what a crash leaves, and a handler's own transaction.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use cerca::store::{
    HeldKey, KeptAnswer, KeyFilter, KeyName, KeyState, KeyStep, NewKey, RecoveryPoint, Reserved, Store,
};
use futures_util::future::join_all;

use crate::support::{Db, Raw};

const DAY: Duration = Duration::from_secs(86_400);

fn new(key: &str, body: u8, lease: Duration) -> NewKey {
    NewKey {
        name: KeyName {
            scope: "ana".into(),
            method: "POST".into(),
            route: "/orders".into(),
            key: key.into(),
        },
        request_hash: [body; 32],
        lease,
        expiry: DAY,
    }
}

pub(crate) fn minute(key: &str, body: u8) -> NewKey {
    new(key, body, Duration::from_secs(60))
}

pub(crate) fn answer(status: u16) -> KeptAnswer {
    KeptAnswer {
        status,
        headers: vec![
            ("location".into(), b"/orders/7".to_vec()),
            ("x-odd".into(), vec![0xff, b'a']),
        ],
        body: Some(Bytes::from_static(b"\x00{\"id\":7}\xff")),
        resource_id: Some("7".into()),
    }
}

pub(crate) async fn held(store: &dyn Store, new: NewKey) -> HeldKey {
    match store.reserve(new).await.unwrap() {
        Reserved::Yours(held) => held,
        taken => panic!("the key is taken: {taken:?}"),
    }
}

pub(crate) async fn state(store: &dyn Store, new: NewKey) -> KeyState {
    match store.reserve(new).await.unwrap() {
        Reserved::Taken { state, .. } => state,
        Reserved::Yours(_) => panic!("the key is free"),
    }
}

on_both!(
    an_answer_comes_back_as_it_went_in,
    of_many_at_once_one_gets_the_key,
    what_was_not_sent_is_run_again_by_the_same_request_only,
    what_was_sent_is_taken_over_once_and_never_run_again,
    of_all_that_was_sent_what_nobody_runs_is_found,
    a_released_key_is_new_and_a_returned_one_stays_bound,
    an_expired_key_is_as_good_as_new_and_goes_in_the_end,
    keys_of_two_principals_never_meet,
    people_see_keys_newest_first,
);

async fn an_answer_comes_back_as_it_went_in(db: Db) {
    for (key, status) in [("ok", 201), ("broken", 500)] {
        let ours = held(&*db.store, minute(key, 1)).await;
        assert!(matches!(state(&*db.store, minute(key, 1)).await, KeyState::Processing { left } if !left.is_zero()));
        assert!(db.store.step(ours, KeyStep::Sent).await.unwrap());
        assert!(
            db.store
                .step(ours, KeyStep::Complete(Arc::new(answer(status))))
                .await
                .unwrap()
        );
        // A second one has no effect.
        assert!(
            !db.store
                .step(ours, KeyStep::Complete(Arc::new(answer(200))))
                .await
                .unwrap()
        );
        match state(&*db.store, minute(key, 2)).await {
            KeyState::Answered {
                answer: kept,
                expires_in,
            } => {
                assert_eq!(*kept, answer(status));
                assert!(expires_in <= DAY && expires_in > DAY / 2);
            }
            other => panic!("{other:?}"),
        }
    }
    let stats = db.store.key_stats().await.unwrap();
    assert_eq!((stats.completed, stats.failed, stats.processing), (1, 1, 0));
}

async fn of_many_at_once_one_gets_the_key(db: Db) {
    let asked = join_all((0..100).map(|_| db.store.reserve(minute("k", 1)))).await;
    let ours = asked
        .into_iter()
        .filter(|reserved| matches!(reserved.as_ref().unwrap(), Reserved::Yours(_)));
    assert_eq!(ours.count(), 1);
    assert_eq!(db.number("SELECT count(*) FROM api_idempotency_keys").await, 1);
}

async fn what_was_not_sent_is_run_again_by_the_same_request_only(db: Db) {
    let first = held(&*db.store, new("k", 1, Duration::ZERO)).await;
    let other = state(&*db.store, minute("k", 2)).await;
    assert!(matches!(
        other,
        KeyState::Abandoned {
            point: RecoveryPoint::Reserved
        }
    ));
    let second = held(&*db.store, minute("k", 1)).await;
    assert_eq!(second.id, first.id);
    // The one that lost its lease can do nothing any more.
    assert!(!db.store.step(first, KeyStep::Sent).await.unwrap());
    assert!(!db.store.step(first, KeyStep::Release).await.unwrap());
    assert!(db.store.step(second, KeyStep::Sent).await.unwrap());
}

async fn what_was_sent_is_taken_over_once_and_never_run_again(db: Db) {
    let first = held(&*db.store, new("k", 1, Duration::from_millis(1))).await;
    db.store.step(first, KeyStep::Sent).await.unwrap();
    db.store.step(first, KeyStep::Abandon).await.unwrap();
    let left = state(&*db.store, minute("k", 1)).await;
    assert!(matches!(
        left,
        KeyState::Abandoned {
            point: RecoveryPoint::Sent
        }
    ));
    let abandoned = db.store.abandoned(10).await.unwrap();
    assert_eq!(abandoned.iter().map(|row| row.id).collect::<Vec<_>>(), [first.id]);

    let lease = Duration::from_secs(60);
    let second = db
        .store
        .take_over(first.id, lease)
        .await
        .unwrap()
        .expect("nobody holds it");
    assert_eq!(db.store.take_over(first.id, lease).await.unwrap(), None);
    assert!(db.store.abandoned(10).await.unwrap().is_empty());
    assert!(
        !db.store
            .step(first, KeyStep::Complete(Arc::new(answer(200))))
            .await
            .unwrap()
    );
    assert!(db.store.step(second, KeyStep::GiveUp).await.unwrap());
    assert!(matches!(state(&*db.store, minute("k", 1)).await, KeyState::Unknown));
    assert_eq!(db.store.key_stats().await.unwrap().unknown, 1);

    // Somebody may still find out.
    let third = db
        .store
        .take_over(first.id, lease)
        .await
        .unwrap()
        .expect("nobody holds it");
    assert!(
        db.store
            .step(third, KeyStep::Complete(Arc::new(answer(200))))
            .await
            .unwrap()
    );
    assert!(matches!(
        state(&*db.store, minute("k", 1)).await,
        KeyState::Answered { .. }
    ));
    assert_eq!(db.store.take_over(first.id, lease).await.unwrap(), None);
}

async fn of_all_that_was_sent_what_nobody_runs_is_found(db: Db) {
    if matches!(db.raw, Raw::Postgres(_)) {
        // A long list, of keys that are gone.
        db.sql(
            "INSERT INTO api_idempotency_sent (key_ids) SELECT ARRAY[n, -n] FROM generate_series(1000000, 1001200) n",
        )
        .await;
    }
    let sent = join_all((0..40).map(async |n| {
        let ours = held(&*db.store, minute(&format!("{n:02}"), 1)).await;
        assert!(db.store.step(ours, KeyStep::Sent).await.unwrap());
        ours
    }))
    .await;
    // Reserved, and nothing was sent.
    held(&*db.store, new("untouched", 1, Duration::ZERO)).await;
    for (n, ours) in sent.iter().enumerate() {
        let step = match n % 4 {
            0 => KeyStep::Complete(Arc::new(answer(200))),
            1 => KeyStep::Return,
            2 => KeyStep::GiveUp,
            _ => continue,
        };
        assert!(db.store.step(*ours, step).await.unwrap());
    }
    assert!(db.store.abandoned(100).await.unwrap().is_empty(), "every lease holds");
    for ours in sent.iter().skip(3).step_by(4) {
        assert!(db.store.step(*ours, KeyStep::Abandon).await.unwrap());
    }
    // Sent a second time.
    let again = held(&*db.store, minute("01", 1)).await;
    assert!(db.store.step(again, KeyStep::Sent).await.unwrap());
    assert!(db.store.step(again, KeyStep::Abandon).await.unwrap());
    // Somebody tries to find out about one that was given up, after the list forgot it, and is killed.
    db.store.abandoned(100).await.unwrap();
    let retaken = db.store.take_over(sent[2].id, Duration::ZERO).await.unwrap().unwrap();

    let found = async |limit| -> Vec<i64> {
        let rows = db.store.abandoned(limit).await.unwrap();
        rows.iter().map(|row| row.id).collect()
    };
    let mut expected: Vec<i64> = sent.iter().skip(3).step_by(4).map(|ours| ours.id).collect();
    expected.extend([again.id, retaken.id]);
    let mut all = found(100).await;
    assert_eq!(all.last(), Some(&retaken.id), "the oldest first");
    assert_eq!(found(3).await, all[..3]);
    all.sort_unstable();
    expected.sort_unstable();
    assert_eq!(all, expected);

    for id in all {
        let ours = db.store.take_over(id, Duration::from_secs(60)).await.unwrap().unwrap();
        assert!(db.store.abandoned(100).await.unwrap().iter().all(|row| row.id != id));
        assert!(db.store.step(ours, KeyStep::GiveUp).await.unwrap());
    }
    assert!(found(100).await.is_empty());
    if matches!(db.raw, Raw::Postgres(_)) {
        assert_eq!(
            db.number("SELECT count(*) FROM api_idempotency_sent").await,
            0,
            "the list is short"
        );
    }
}

async fn a_released_key_is_new_and_a_returned_one_stays_bound(db: Db) {
    let ours = held(&*db.store, minute("k", 1)).await;
    db.store.step(ours, KeyStep::Sent).await.unwrap();
    assert!(db.store.step(ours, KeyStep::Release).await.unwrap());
    let ours = held(&*db.store, minute("k", 2)).await;
    db.store.step(ours, KeyStep::Sent).await.unwrap();
    assert!(db.store.step(ours, KeyStep::Return).await.unwrap());
    assert!(matches!(
        state(&*db.store, minute("k", 3)).await,
        KeyState::Abandoned { .. }
    ));
    assert!(
        db.store.abandoned(10).await.unwrap().is_empty(),
        "nobody has to find out about it"
    );
    held(&*db.store, minute("k", 2)).await;
}

async fn an_expired_key_is_as_good_as_new_and_goes_in_the_end(db: Db) {
    for key in ["a", "b", "c"] {
        let ours = held(&*db.store, minute(key, 1)).await;
        db.store
            .step(ours, KeyStep::Complete(Arc::new(answer(200))))
            .await
            .unwrap();
    }
    assert_eq!(db.store.reap(Duration::ZERO, 100).await.unwrap(), 0, "not expired");
    db.sql("UPDATE api_idempotency_keys SET expires_at = created_at").await;
    held(&*db.store, minute("a", 2)).await;
    assert_eq!(db.store.reapable(DAY).await.unwrap(), 0);
    assert_eq!(db.store.reapable(Duration::ZERO).await.unwrap(), 2);
    assert_eq!(db.store.reap(DAY, 100).await.unwrap(), 0, "too young");
    assert_eq!(db.store.reap(Duration::ZERO, 1).await.unwrap(), 1, "a batch is bounded");
    assert_eq!(db.store.reap(Duration::ZERO, 100).await.unwrap(), 1);
    assert_eq!(
        db.number("SELECT count(*) FROM api_idempotency_keys WHERE key = 'a'")
            .await,
        1
    );
}

async fn keys_of_two_principals_never_meet(db: Db) {
    held(&*db.store, minute("k", 1)).await;
    let mut others = [minute("k", 2), minute("k", 2), minute("k", 2)];
    others[0].name.scope = "bob".into();
    others[1].name.method = "PATCH".into();
    others[2].name.route = "/payments".into();
    for other in others {
        held(&*db.store, other).await;
    }
}

async fn people_see_keys_newest_first(db: Db) {
    for key in ["a", "b", "c"] {
        let ours = held(&*db.store, minute(key, 1)).await;
        if key != "c" {
            db.store
                .step(ours, KeyStep::Complete(Arc::new(answer(201))))
                .await
                .unwrap();
        }
    }
    let names = |filter: KeyFilter| async {
        let rows = db.store.keys(filter).await.unwrap();
        rows.iter().map(|row| row.name.key.to_string()).collect::<Vec<_>>()
    };
    let all = KeyFilter {
        limit: 10,
        ..KeyFilter::default()
    };
    assert_eq!(names(all.clone()).await, ["c", "b", "a"]);
    assert_eq!(
        names(KeyFilter {
            status: Some("completed".into()),
            ..all.clone()
        })
        .await,
        ["b", "a"]
    );
    assert_eq!(
        names(KeyFilter {
            key: Some("a".into()),
            ..all.clone()
        })
        .await,
        ["a"]
    );
    let first = db
        .store
        .keys(KeyFilter {
            limit: 1,
            ..all.clone()
        })
        .await
        .unwrap();
    assert_eq!(
        names(KeyFilter {
            before: Some(first[0].id),
            limit: 1,
            ..all
        })
        .await,
        ["b"]
    );

    let (row, kept) = db.store.key(first[0].id).await.unwrap().unwrap();
    assert_eq!(
        (row.status.as_str(), row.recovery_point, kept),
        ("processing", RecoveryPoint::Reserved, None)
    );
    let done = db
        .store
        .keys(KeyFilter {
            key: Some("b".into()),
            limit: 1,
            ..KeyFilter::default()
        })
        .await
        .unwrap();
    let (row, kept) = db.store.key(done[0].id).await.unwrap().unwrap();
    assert_eq!(
        row.response_size,
        kept.as_ref()
            .and_then(|kept| kept.body.as_ref())
            .map(|body| body.len() as u64)
    );
    assert_eq!(kept, Some(answer(201)));
    assert!(db.store.key(i64::MAX).await.unwrap().is_none());
}
