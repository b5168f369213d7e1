//! The work list: claims, tokens, leases, outcomes.

use std::{collections::HashSet, sync::Arc, time::Duration};

use cerca::{
    domain::{EventStatus, Outcome},
    store::{AttemptLimit, ClaimRequest, Lease, Swept},
};
use futures_util::future::join_all;

use crate::support::{Db, event, request, settle, with_body};

on_both!(
    a_claim_counts_the_attempt_and_hides_the_delivery,
    parallel_claims_never_share_a_delivery,
    a_claim_is_bounded_by_bytes_but_never_empty,
    each_outcome_does_what_it_says,
    a_stale_token_changes_nothing,
    an_expired_lease_is_taken_over,
    the_last_lost_attempt_is_the_end,
    renewal_says_which_claims_hold,
    a_handler_does_not_touch_the_other,
    settles_are_written_in_bulk,
);

fn retry(after: u64) -> Outcome {
    Outcome::Retry {
        after: Duration::from_secs(after),
        error: "no \u{1F98A}".to_owned(),
    }
}

async fn a_claim_counts_the_attempt_and_hides_the_delivery(db: Db) {
    db.store.accept(vec![event("e1", "a")]).await.unwrap();
    let first = db.claim("a", 10).await;
    assert_eq!((first.len(), first[0].attempt), (1, 1));
    assert!(db.claim("a", 10).await.is_empty());
    assert!(db.claim("b", 10).await.is_empty());
    db.settle(&first[0], retry(0)).await;
    let second = db.claim("a", 10).await;
    assert_eq!(second[0].attempt, 2);
    assert_ne!(first[0].token, second[0].token);
}

async fn parallel_claims_never_share_a_delivery(db: Db) {
    let many = (0..200).map(|n| event(&format!("e{n}"), "a,b")).collect();
    db.store.accept(many).await.unwrap();
    let rounds = join_all((0..40).map(|_| db.store.claim(request(&[("a", 7), ("b", 7)])))).await;
    let claims: Vec<_> = rounds.into_iter().flat_map(Result::unwrap).collect();
    let distinct: HashSet<_> = claims.iter().map(|c| (c.event.id, c.handler.to_string())).collect();
    assert_eq!(claims.len(), distinct.len());
    assert_eq!(claims.len(), 400);
}

async fn a_claim_is_bounded_by_bytes_but_never_empty(db: Db) {
    for n in 0..5 {
        db.store
            .accept(vec![with_body(&format!("e{n}"), "a", vec![b'x'; 1000])])
            .await
            .unwrap();
    }
    let claim = |max_bytes| {
        db.store.claim(ClaimRequest {
            max_bytes,
            ..request(&[("a", 10)])
        })
    };
    assert_eq!(claim(2500).await.unwrap().len(), 2);
    assert_eq!(claim(10).await.unwrap().len(), 1);
    assert_eq!(claim(100_000).await.unwrap().len(), 2);
}

async fn each_outcome_does_what_it_says(db: Db) {
    let ids = ["done", "retry", "dead", "released"];
    db.store
        .accept(ids.iter().map(|id| event(id, "a")).collect())
        .await
        .unwrap();
    for claim in db.claim("a", 10).await {
        let outcome = match &*claim.event.provider_event_id {
            "done" => Outcome::Done,
            "retry" => retry(3600),
            "dead" => Outcome::Dead {
                error: "never".to_owned(),
            },
            _ => Outcome::Released,
        };
        db.settle(&claim, outcome).await;
    }
    let show = async |id: &str| {
        let detail = db.store.event("p", id).await.unwrap().unwrap();
        let delivery = &detail.event.deliveries[0];
        let attempts: Vec<_> = detail.attempts.iter().map(|a| a.outcome.as_str()).collect();
        format!(
            "{} {} {} {:?} {attempts:?}",
            detail.event.status,
            delivery.state.as_str(),
            delivery.attempts,
            delivery.last_error
        )
    };
    assert_eq!(show("done").await, r#"done done 1 None ["done"]"#);
    assert_eq!(show("retry").await, r#"pending ready 1 Some("no 🦊") ["retry"]"#);
    assert_eq!(show("dead").await, r#"failed dead 1 Some("never") ["dead"]"#);
    assert_eq!(show("released").await, "pending ready 0 None []");
    assert!(db.row("done").await.processed_at.is_some());
    let again = db.claim("a", 10).await;
    assert_eq!(again.len(), 1, "only the released one is due");
    assert_eq!(again[0].attempt, 1);
}

async fn a_stale_token_changes_nothing(db: Db) {
    db.store.accept(vec![event("e1", "a")]).await.unwrap();
    let claim = db.claim("a", 1).await.remove(0);
    for outcome in [
        Outcome::Done,
        retry(0),
        Outcome::Dead { error: String::new() },
        Outcome::Released,
    ] {
        let mut late = settle(&claim, outcome);
        late.token ^= 1;
        db.store.settle(late).await;
    }
    db.store.flush().await.unwrap();
    assert_eq!(db.number("SELECT count(*) FROM attempts").await, 0);
    assert_eq!(
        db.number("SELECT count(*) FROM deliveries WHERE state = 'claimed' AND attempts = 1")
            .await,
        1
    );
    db.settle(&claim, Outcome::Done).await;
    db.settle(&claim, Outcome::Done).await;
    assert_eq!(db.number("SELECT count(*) FROM attempts").await, 1);
}

async fn an_expired_lease_is_taken_over(db: Db) {
    db.store.accept(vec![event("e1", "a")]).await.unwrap();
    let slow = db.claim("a", 1).await.remove(0);
    assert_eq!(db.store.sweep(Vec::new()).await.unwrap(), Swept::default());
    db.expire().await;
    assert_eq!(db.store.sweep(Vec::new()).await.unwrap(), Swept { ready: 1, dead: 0 });
    let fast = db.claim("a", 1).await.remove(0);
    assert_eq!(fast.attempt, 2);
    db.settle(&slow, Outcome::Done).await;
    assert_eq!(db.row("e1").await.status, EventStatus::Pending);
    db.settle(&fast, Outcome::Done).await;
    let detail = db.store.event("p", "e1").await.unwrap().unwrap();
    let outcomes: Vec<_> = detail
        .attempts
        .iter()
        .map(|a| (a.attempt, a.outcome.as_str()))
        .collect();
    assert_eq!(outcomes, [(1, "lost"), (2, "done")]);
}

async fn the_last_lost_attempt_is_the_end(db: Db) {
    db.store.accept(vec![event("e1", "a"), event("e2", "b")]).await.unwrap();
    let limits = || {
        vec![AttemptLimit {
            handler: Arc::from("a"),
            attempts: 2,
        }]
    };
    for expected in [Swept { ready: 2, dead: 0 }, Swept { ready: 1, dead: 1 }] {
        db.store.claim(request(&[("a", 1), ("b", 1)])).await.unwrap();
        db.expire().await;
        assert_eq!(db.store.sweep(limits()).await.unwrap(), expected);
    }
    assert_eq!(db.row("e1").await.status, EventStatus::Failed);
    assert_eq!(db.row("e2").await.status, EventStatus::Pending);
    assert_eq!(
        db.number("SELECT count(*) FROM attempts WHERE outcome = 'lost'").await,
        4
    );
}

async fn renewal_says_which_claims_hold(db: Db) {
    db.store
        .accept(vec![event("e1", "a"), event("e2", "a"), event("e3", "a")])
        .await
        .unwrap();
    let claims = db.claim("a", 3).await;
    db.settle(&claims[1], Outcome::Done).await;
    db.expire().await;
    let leases = claims
        .iter()
        .map(|c| Lease {
            event_id: c.event.id,
            handler: Arc::clone(&c.handler),
            token: if c.event.id == claims[2].event.id { 1 } else { c.token },
        })
        .collect();
    let held = db.store.renew(leases, Duration::from_secs(60)).await.unwrap();
    assert_eq!(held, [true, false, false]);
    assert_eq!(
        db.store.sweep(Vec::new()).await.unwrap().ready,
        1,
        "only the one that was not renewed"
    );
    assert_eq!(
        db.store.renew(Vec::new(), Duration::ZERO).await.unwrap(),
        Vec::<bool>::new()
    );
}

async fn a_handler_does_not_touch_the_other(db: Db) {
    db.store.accept(vec![event("e1", "a,b")]).await.unwrap();
    let claims = db.store.claim(request(&[("a", 1), ("b", 1)])).await.unwrap();
    let of = |name: &str| claims.iter().find(|c| &*c.handler == name).unwrap();
    db.settle(of("a"), Outcome::Dead { error: "x".to_owned() }).await;
    assert_eq!(db.row("e1").await.status, EventStatus::Pending);
    db.settle(of("b"), Outcome::Done).await;
    let row = db.row("e1").await;
    assert_eq!(row.status, EventStatus::Failed);
    let states: Vec<_> = row.deliveries.iter().map(|d| (&*d.handler, d.state.as_str())).collect();
    assert_eq!(states, [("a", "dead"), ("b", "done")]);
}

async fn settles_are_written_in_bulk(db: Db) {
    let many = (0..1200).map(|n| event(&format!("e{n}"), "a")).collect();
    db.store.accept(many).await.unwrap();
    let claims = db.claim("a", 2000).await;
    assert_eq!(claims.len(), 1200);
    join_all(claims.iter().map(|c| db.store.settle(settle(c, Outcome::Done)))).await;
    db.store.flush().await.unwrap();
    assert_eq!(db.number("SELECT count(*) FROM deliveries").await, 0);
    assert_eq!(db.number("SELECT count(*) FROM attempts").await, 1200);
}
