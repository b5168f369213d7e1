//! A failed event that its sender sends again.

use std::sync::atomic::Ordering::Relaxed;

use cerca::{domain::Outcome, store::Who};

use crate::{
    people::{dead, who},
    support::{Db, Taker, event},
};

on_both!(
    dead_deliveries_get_a_new_life_and_nothing_else_does,
    what_is_not_dead_is_left_alone
);

fn sender() -> Who {
    Who {
        actor: "provider:p".to_owned(),
        reason: None,
    }
}

async fn dead_deliveries_get_a_new_life_and_nothing_else_does(db: Db) {
    db.store.accept(vec![event("e1", "a,b,c,d")]).await.unwrap();
    for (handler, outcome) in [("a", dead()), ("b", Outcome::Done), ("d", dead())] {
        let claim = db.claim(handler, 1).await.remove(0);
        db.settle(&claim, outcome).await;
    }
    let taker = Taker::new(0);
    db.store.set_handoff(taker.clone());
    assert_eq!(db.store.revive("p", "e1", sender()).await.unwrap(), 2);
    assert!(taker.wakes.load(Relaxed) > 0);
    let detail = db.store.event("p", "e1").await.unwrap().unwrap();
    let states: Vec<_> = detail
        .event
        .deliveries
        .iter()
        .map(|d| format!("{} {} {}", d.handler, d.state.as_str(), d.attempts))
        .collect();
    assert_eq!(states, ["a ready 0", "b done 1", "c ready 0", "d ready 0"]);
    assert_eq!(detail.attempts.len(), 3, "the history stays");
    assert_eq!(
        db.texts("SELECT actor || ' ' || action || ' ' || target FROM audit")
            .await,
        ["provider:p reprocess p:e1"]
    );
    assert_eq!(db.number("SELECT deliveries FROM audit").await, 2);
    assert_eq!(db.store.revive("p", "e1", sender()).await.unwrap(), 0, "once is enough");
    assert_eq!(db.number("SELECT count(*) FROM audit").await, 1);
}

async fn what_is_not_dead_is_left_alone(db: Db) {
    db.store
        .accept(vec![event("done", "a"), event("given-up", "a"), event("unrouted", "")])
        .await
        .unwrap();
    db.store.discard("p", "given-up", who()).await.unwrap();
    let claim = db.claim("a", 1).await.remove(0);
    assert_eq!(claim.event.provider_event_id, "done");
    db.settle(&claim, Outcome::Done).await;
    for id in ["done", "given-up", "unrouted", "nobody"] {
        assert_eq!(db.store.revive("p", id, sender()).await.unwrap(), 0, "{id}");
    }
    assert!(db.claim("a", 10).await.is_empty());
}
