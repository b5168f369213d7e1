//! The work list: claims, tokens, leases, outcomes.

use std::{collections::HashSet, sync::Arc, time::Duration};

use cerca::{
    domain::{Claim, EventStatus, NewEvent, Outcome},
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
    what_lost_its_lease_is_found_by_itself_only,
    a_suspect_ends_in_failed,
    a_backlog_of_one_provider_leaves_room_for_the_others,
    failures_leave_room_for_fresh_deliveries,
    a_fair_claim_is_bounded_and_takes_everything_in_the_end,
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
            isolate: false,
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

fn isolated(attempts: u32) -> Vec<AttemptLimit> {
    vec![AttemptLimit {
        handler: Arc::from("a"),
        attempts,
        isolate: true,
    }]
}

async fn suspect(db: &Db) -> Option<Claim> {
    let handlers = vec![Arc::from("b"), Arc::from("a")];
    let lease = Duration::from_secs(30);
    db.store.claim_suspect(handlers, lease).await.unwrap()
}

async fn what_lost_its_lease_is_found_by_itself_only(db: Db) {
    db.store.accept(vec![event("e1", "a"), event("e2", "a")]).await.unwrap();
    assert!(suspect(&db).await.is_none());
    assert_eq!(db.claim("a", 10).await.len(), 2);
    db.expire().await;
    assert_eq!(db.store.sweep(isolated(5)).await.unwrap(), Swept { ready: 2, dead: 0 });
    db.store.accept(vec![event("e3", "a")]).await.unwrap();
    for fair in [false, true] {
        let request = ClaimRequest {
            fair,
            ..request(&[("a", 10)])
        };
        for claim in db.store.claim(request).await.unwrap() {
            assert_eq!(claim.event.provider_event_id, "e3", "not one that may kill");
            db.settle(&claim, Outcome::Released).await;
        }
    }
    let other = db
        .store
        .claim_suspect(vec![Arc::from("b")], Duration::from_secs(30))
        .await
        .unwrap();
    assert!(other.is_none(), "another handler's");
    let first = suspect(&db).await.unwrap();
    assert_eq!((&*first.event.provider_event_id, first.attempt), ("e1", 2));
    // Given back untouched, it is as suspect as before; once an attempt has ended, it is not any more.
    db.settle(&first, Outcome::Released).await;
    let first = suspect(&db).await.unwrap();
    assert_eq!((&*first.event.provider_event_id, first.attempt), ("e1", 2));
    db.settle(&first, retry(0)).await;
    let second = suspect(&db).await.unwrap();
    assert_eq!(second.event.provider_event_id, "e2");
    assert!(suspect(&db).await.is_none());
    let ids: HashSet<_> = db
        .claim("a", 10)
        .await
        .into_iter()
        .map(|c| c.event.provider_event_id.clone())
        .collect();
    assert_eq!(ids, HashSet::from(["e1".to_owned(), "e3".to_owned()]));
}

/// What kills each worker that tries it is dead after its attempts, and stands in the lists.
async fn a_suspect_ends_in_failed(db: Db) {
    db.store.accept(vec![event("e1", "a")]).await.unwrap();
    assert_eq!(db.claim("a", 1).await.len(), 1);
    for expected in [Swept { ready: 1, dead: 0 }, Swept { ready: 0, dead: 1 }] {
        db.expire().await;
        assert_eq!(db.store.sweep(isolated(2)).await.unwrap(), expected);
        assert_eq!(suspect(&db).await.is_some(), expected.ready == 1);
    }
    let detail = db.store.event("p", "e1").await.unwrap().unwrap();
    assert_eq!(detail.event.status, EventStatus::Failed);
    let outcomes: Vec<_> = detail.attempts.iter().map(|a| a.outcome.as_str()).collect();
    assert_eq!(outcomes, ["lost", "lost"]);
}

fn of(provider: &str, id: &str) -> NewEvent {
    NewEvent {
        provider: Arc::from(provider),
        ..event(id, "a")
    }
}

async fn fair(db: &Db, room: u32) -> Vec<Claim> {
    let request = ClaimRequest {
        fair: true,
        ..request(&[("a", room)])
    };
    db.store.claim(request).await.unwrap()
}

async fn a_backlog_of_one_provider_leaves_room_for_the_others(db: Db) {
    db.store
        .accept((0..600).map(|n| of("flood", &format!("f{n}"))).collect())
        .await
        .unwrap();
    db.store
        .accept((0..3).map(|n| of("quiet", &format!("q{n}"))).collect())
        .await
        .unwrap();
    let count = |claims: &[Claim], provider: &str| claims.iter().filter(|c| *c.event.provider == *provider).count();
    let oldest = db.claim("a", 10).await;
    assert_eq!(
        count(&oldest, "quiet"),
        0,
        "in the order of arrival the flood comes first"
    );
    let claims = fair(&db, 10).await;
    assert_eq!((count(&claims, "quiet"), count(&claims, "flood")), (3, 5));
    // Bytes are shared out like places.
    db.store
        .accept((3..6).map(|n| of("quiet", &format!("q{n}"))).collect())
        .await
        .unwrap();
    let request = ClaimRequest {
        fair: true,
        max_bytes: 40,
        ..request(&[("a", 10)])
    };
    let claims = db.store.claim(request).await.unwrap();
    assert!(
        count(&claims, "quiet") >= 1 && count(&claims, "flood") >= 1,
        "{}",
        claims.len()
    );
}

async fn failures_leave_room_for_fresh_deliveries(db: Db) {
    db.store
        .accept((0..200).map(|n| of("p", &format!("bad{n}"))).collect())
        .await
        .unwrap();
    for claim in db.claim("a", 200).await {
        db.store.settle(settle(&claim, retry(0))).await;
    }
    db.store.flush().await.unwrap();
    db.store
        .accept((0..200).map(|n| of("p", &format!("new{n}"))).collect())
        .await
        .unwrap();
    let claims = fair(&db, 20).await;
    let fresh = claims.iter().filter(|c| c.attempt == 1).count();
    assert_eq!((claims.len(), fresh), (20, 10));
}

async fn a_fair_claim_is_bounded_and_takes_everything_in_the_end(db: Db) {
    let providers = ["a", "b", "c", "d", "e", "f", "g"];
    let all = (0..210).map(|n| of(providers[n % 7], &format!("e{n}")));
    db.store.accept(all.collect()).await.unwrap();
    let mut seen = HashSet::new();
    loop {
        let rounds = join_all([fair(&db, 20), fair(&db, 20)]).await;
        let claims: Vec<_> = rounds.into_iter().flatten().collect();
        if claims.is_empty() {
            break;
        }
        assert!(claims.len() <= 2 * 21, "{}", claims.len());
        for claim in claims {
            assert!(seen.insert(claim.event.id), "claimed twice");
        }
    }
    assert_eq!(seen.len(), 210);
    assert!(fair(&db, 0).await.is_empty());
}
