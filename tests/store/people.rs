//! What people do: reprocess, discard, audit.

use std::sync::Arc;

use cerca::{
    domain::{EventStatus, Outcome},
    store::{EventFilter, Reprocess, ReprocessScope, Reprocessed, Who},
};

use crate::support::{Db, event};

on_both!(
    a_dead_delivery_gets_a_new_life,
    named_handlers_are_sent_to_anew,
    reprocessing_by_filter_goes_through_all,
    discarding_gives_up_what_is_not_done,
    an_unrouted_event_can_be_given_up_and_replayed,
);

pub(crate) fn who() -> Who {
    Who {
        actor: "cli".to_owned(),
        reason: Some("because".to_owned()),
    }
}

pub(crate) fn one(id: &str, handlers: Option<&[&str]>) -> Reprocess {
    Reprocess {
        filter: ReprocessScope::Event {
            provider: "p".to_owned(),
            provider_event_id: id.to_owned(),
        },
        handlers: handlers.map(|names| names.iter().map(|name| Arc::from(*name)).collect()),
        dry_run: false,
        forget_steps: false,
    }
}

fn by(filter: EventFilter, dry_run: bool) -> Reprocess {
    Reprocess {
        filter: ReprocessScope::Filter(filter),
        handlers: None,
        dry_run,
        forget_steps: false,
    }
}

pub(crate) fn status(status: EventStatus) -> EventFilter {
    EventFilter {
        status: Some(status),
        ..EventFilter::default()
    }
}

pub(crate) fn dead() -> Outcome {
    Outcome::Dead { error: "x".to_owned() }
}

/// One event of each status, named after it; all but the unrouted one have two deliveries.
pub(crate) async fn one_of_each(db: &Db) {
    let routes = |id: &str| if id == "unrouted" { "" } else { "a,b" };
    let all = EventStatus::ALL.map(|s| event(s.as_str(), routes(s.as_str())));
    db.store.accept(all.to_vec()).await.unwrap();
    for handler in ["a", "b"] {
        for claim in db.claim(handler, 10).await {
            match (&*claim.event.provider_event_id, handler) {
                ("failed", "a") => db.settle(&claim, dead()).await,
                ("pending", "b") => db.settle(&claim, Outcome::Released).await,
                ("discarded", "b") => db.settle(&claim, Outcome::Released).await,
                _ => db.settle(&claim, Outcome::Done).await,
            }
        }
    }
    db.store.discard("p", "discarded", who()).await.unwrap().unwrap();
}

async fn a_dead_delivery_gets_a_new_life(db: Db) {
    one_of_each(&db).await;
    let done = db.store.reprocess(one("failed", None), who()).await.unwrap();
    assert_eq!(
        done,
        Reprocessed {
            events: 1,
            deliveries: 1
        }
    );
    let again = db.store.reprocess(one("failed", None), who()).await.unwrap();
    assert_eq!(
        again.deliveries, 1,
        "none is dead now, so its routes at ingest: `b` was done, `a` is left alone"
    );
    assert_eq!(db.row("failed").await.status, EventStatus::Pending);
    let claims = db.claim("a", 10).await;
    assert_eq!((claims.len(), claims[0].attempt), (1, 1), "attempts begin anew");
    let nobody = db.store.reprocess(one("nobody", None), who()).await.unwrap();
    assert_eq!(nobody, Reprocessed::default());
    assert_eq!(
        db.texts("SELECT target FROM audit WHERE action = 'reprocess' AND reason = 'because'")
            .await,
        ["p:failed", "p:failed"]
    );
}

async fn named_handlers_are_sent_to_anew(db: Db) {
    one_of_each(&db).await;
    let done = db
        .store
        .reprocess(one("done", Some(&["a", "new"])), who())
        .await
        .unwrap();
    assert_eq!(done.deliveries, 2);
    let waiting = db.store.reprocess(one("done", Some(&["a"])), who()).await.unwrap();
    assert_eq!(
        (waiting.events, waiting.deliveries),
        (1, 0),
        "a waiting one is left alone"
    );
    let states: Vec<_> = db
        .row("done")
        .await
        .deliveries
        .into_iter()
        .map(|d| format!("{} {}", d.handler, d.state.as_str()))
        .collect();
    assert_eq!(states, ["a ready", "b done", "new ready"]);
}

async fn reprocessing_by_filter_goes_through_all(db: Db) {
    db.store
        .accept((0..1100).map(|n| event(&format!("e{n}"), "a")).collect())
        .await
        .unwrap();
    for claim in db.claim("a", 2000).await {
        db.store.settle(crate::support::settle(&claim, dead())).await;
    }
    db.store.flush().await.unwrap();
    let all = Reprocessed {
        events: 1100,
        deliveries: 1100,
    };
    let filter = status(EventStatus::Failed);
    assert_eq!(db.store.reprocess(by(filter.clone(), true), who()).await.unwrap(), all);
    assert_eq!(db.store.count(filter.clone()).await.unwrap(), 1100);
    assert_eq!(db.store.reprocess(by(filter.clone(), false), who()).await.unwrap(), all);
    assert_eq!(db.store.count(filter).await.unwrap(), 0);
    assert_eq!(db.number("SELECT count(*) FROM audit").await, 1);
    assert_eq!(db.number("SELECT deliveries FROM audit").await, 1100);
    assert_eq!(db.texts("SELECT target FROM audit").await, ["status=failed"]);
}

async fn discarding_gives_up_what_is_not_done(db: Db) {
    db.store.accept(vec![event("e1", "a,b,c")]).await.unwrap();
    let a = db.claim("a", 1).await.remove(0);
    let b = db.claim("b", 1).await.remove(0);
    db.settle(&b, Outcome::Done).await;
    db.settle(&a, dead()).await;
    let given_up = db.store.discard("p", "e1", who()).await.unwrap().unwrap();
    assert_eq!((given_up.deliveries, given_up.in_flight), (2, 0));
    let row = db.row("e1").await;
    assert_eq!(row.status, EventStatus::Discarded);
    let states: Vec<_> = row.deliveries.iter().map(|d| d.state.as_str()).collect();
    assert_eq!(states, ["discarded", "done", "discarded"]);
    assert!(db.store.discard("p", "nobody", who()).await.unwrap().is_none());
    assert_eq!(db.texts("SELECT action FROM audit").await, ["discard"]);
    assert_eq!(db.store.reprocess(one("e1", None), who()).await.unwrap().deliveries, 2);
}

async fn an_unrouted_event_can_be_given_up_and_replayed(db: Db) {
    db.store.accept(vec![event("e1", "")]).await.unwrap();
    assert_eq!(db.row("e1").await.status, EventStatus::Unrouted);
    assert_eq!(db.store.discard("p", "e1", who()).await.unwrap().unwrap().deliveries, 0);
    assert_eq!(db.row("e1").await.status, EventStatus::Discarded);
    assert_eq!(
        db.store
            .reprocess(one("e1", Some(&["a"])), who())
            .await
            .unwrap()
            .deliveries,
        1
    );
    let claim = db.claim("a", 1).await.remove(0);
    db.settle(&claim, Outcome::Done).await;
    assert_eq!(db.row("e1").await.status, EventStatus::Done);
}
