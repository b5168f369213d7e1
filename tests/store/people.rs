//! What people see and do: lists, status, reprocess, discard, audit.

use std::{sync::Arc, time::Duration};

use cerca::{
    domain::{EventStatus, Outcome},
    store::{EventFilter, Reprocess, ReprocessScope, Reprocessed, Who},
};
use jiff::Timestamp;

use crate::support::{Db, event};

on_both!(
    every_status_is_found_by_list_view_and_count,
    pages_follow_each_other,
    filters_narrow_the_list,
    a_period_is_found_by_halving,
    a_dead_delivery_gets_a_new_life,
    named_handlers_are_sent_to_anew,
    reprocessing_by_filter_goes_through_all,
    discarding_gives_up_what_is_not_done,
    an_unrouted_event_can_be_given_up_and_replayed,
    the_view_is_for_hands,
);

fn who() -> Who {
    Who {
        actor: "cli".to_owned(),
        reason: Some("because".to_owned()),
    }
}

fn one(id: &str, handlers: Option<&[&str]>) -> Reprocess {
    Reprocess {
        filter: ReprocessScope::Event {
            provider: "p".to_owned(),
            provider_event_id: id.to_owned(),
        },
        handlers: handlers.map(|names| names.iter().map(|name| Arc::from(*name)).collect()),
        dry_run: false,
    }
}

fn by(filter: EventFilter, dry_run: bool) -> Reprocess {
    Reprocess {
        filter: ReprocessScope::Filter(filter),
        handlers: None,
        dry_run,
    }
}

fn status(status: EventStatus) -> EventFilter {
    EventFilter {
        status: Some(status),
        ..EventFilter::default()
    }
}

fn dead() -> Outcome {
    Outcome::Dead { error: "x".to_owned() }
}

/// One event of each status, named after it; all but the unrouted one have two deliveries.
async fn one_of_each(db: &Db) {
    let routes = |id: &str| if id == "unrouted" { "" } else { "a,b" };
    let all = EventStatus::ALL.map(|s| event(s.as_str(), routes(s.as_str())));
    db.store.accept(all.to_vec()).await.unwrap();
    for handler in ["a", "b"] {
        for claim in db.claim(handler, 10).await {
            match (&*claim.event.provider_event_id, handler) {
                ("failed", "a") => db.settle(&claim, dead()).await,
                ("pending", "b") => db.settle(&claim, Outcome::Released).await,
                ("discarded", "b") => {}
                _ => db.settle(&claim, Outcome::Done).await,
            }
        }
    }
    db.store.discard("p", "discarded", who()).await.unwrap().unwrap();
}

async fn list(db: &Db, filter: EventFilter) -> Vec<String> {
    let count = db.store.count(filter.clone()).await.unwrap();
    let page = db.store.events(filter, None, 100).await.unwrap();
    assert_eq!(page.events.len() as u64, count);
    assert_eq!(page.next, None);
    page.events.into_iter().map(|e| e.provider_event_id).collect()
}

async fn every_status_is_found_by_list_view_and_count(db: Db) {
    one_of_each(&db).await;
    for wanted in EventStatus::ALL {
        let name = wanted.as_str();
        assert_eq!(list(&db, status(wanted)).await, [name]);
        assert_eq!(db.row(name).await.status, wanted);
        let sql = format!("SELECT provider_event_id FROM inbox WHERE status = '{name}'");
        assert_eq!(db.texts(&sql).await, [name]);
    }
    assert_eq!(db.number("SELECT count(*) FROM inbox").await, 5);
    let stats = db.store.stats().await.unwrap();
    assert_eq!(
        (
            stats.events,
            stats.pending,
            stats.failed,
            stats.unrouted,
            stats.discarded
        ),
        (5, 1, 1, 1, 1)
    );
    assert_eq!(stats.providers, [("p".to_owned(), 5)]);
    let b = stats.handlers.iter().find(|h| h.handler == "b").unwrap();
    assert_eq!((b.ready, b.claimed, b.dead), (1, 0, 0));
    assert!(b.oldest_due.unwrap() < Duration::from_secs(60));
    assert!(
        stats
            .handlers
            .iter()
            .find(|h| h.handler == "a")
            .unwrap()
            .oldest_due
            .is_none()
    );
}

async fn pages_follow_each_other(db: Db) {
    db.store
        .accept((0..25).map(|n| event(&format!("e{n:02}"), "a")).collect())
        .await
        .unwrap();
    for filter in [EventFilter::default(), status(EventStatus::Pending)] {
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let page = db.store.events(filter.clone(), cursor, 10).await.unwrap();
            seen.extend(page.events.into_iter().map(|e| e.id));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen.len(), 25);
        assert!(seen.is_sorted_by(|a, b| a > b), "newest first");
    }
    assert!(
        db.store
            .events(EventFilter::default(), None, 25)
            .await
            .unwrap()
            .next
            .is_none()
    );
}

async fn filters_narrow_the_list(db: Db) {
    let mut other = event("q&1", "b");
    other.provider = Arc::from("q");
    other.event_type = Some("thing.failed".to_owned());
    other.ordering_key = Some("cus_9".to_owned());
    db.store
        .accept(vec![event("e1", "a"), event("e2", "a,b"), other, event("x%", "")])
        .await
        .unwrap();
    let filter = EventFilter::default;
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        list(
            &db,
            EventFilter {
                provider: some("q"),
                ..filter()
            }
        )
        .await,
        ["q&1"]
    );
    assert_eq!(
        list(
            &db,
            EventFilter {
                event_type: some("thing.failed"),
                ..filter()
            }
        )
        .await,
        ["q&1"]
    );
    assert_eq!(
        list(
            &db,
            EventFilter {
                handler: some("a"),
                ..filter()
            }
        )
        .await
        .len(),
        2
    );
    assert_eq!(
        list(
            &db,
            EventFilter {
                handler: some("b"),
                provider: some("p"),
                ..filter()
            }
        )
        .await,
        ["e2"]
    );
    assert_eq!(
        list(
            &db,
            EventFilter {
                q: some("e"),
                ..filter()
            }
        )
        .await
        .len(),
        2
    );
    assert_eq!(
        list(
            &db,
            EventFilter {
                q: some("cus_"),
                ..filter()
            }
        )
        .await,
        ["q&1"]
    );
    assert_eq!(
        list(
            &db,
            EventFilter {
                q: some("x%"),
                ..filter()
            }
        )
        .await,
        ["x%"]
    );
    assert_eq!(
        list(
            &db,
            EventFilter {
                q: some("%"),
                ..filter()
            }
        )
        .await,
        [] as [String; 0]
    );
    let now = Timestamp::now();
    let hour = jiff::SignedDuration::from_hours(1);
    assert_eq!(
        list(
            &db,
            EventFilter {
                since: Some(now + hour),
                ..filter()
            }
        )
        .await
        .len(),
        0
    );
    assert_eq!(
        list(
            &db,
            EventFilter {
                since: Some(now - hour),
                until: Some(now + hour),
                ..filter()
            }
        )
        .await
        .len(),
        4
    );
    assert_eq!(
        list(
            &db,
            EventFilter {
                until: Some(now - hour),
                ..filter()
            }
        )
        .await
        .len(),
        0
    );
}

async fn a_period_is_found_by_halving(db: Db) {
    for n in 0..6 {
        db.store
            .accept((0..20).map(|i| event(&format!("e{n}-{i}"), "")).collect())
            .await
            .unwrap();
        db.age(24).await;
    }
    // The batches are now 6, 5, 4, 3, 2 and 1 days old.
    let days = |n: i64| Some(Timestamp::now() - jiff::SignedDuration::from_hours(24 * n + 12));
    let filter = EventFilter {
        since: days(4),
        until: days(1),
        ..EventFilter::default()
    };
    let found = list(&db, filter).await;
    assert_eq!(found.len(), 60);
    assert!(
        found.iter().all(|id| ["e2", "e3", "e4"].contains(&&id[..2])),
        "{found:?}"
    );
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
    let given_up = db.store.discard("p", "e1", who()).await.unwrap().unwrap();
    assert_eq!(given_up.deliveries, 2);
    db.settle(&a, Outcome::Done).await;
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

async fn the_view_is_for_hands(db: Db) {
    one_of_each(&db).await;
    let sql = "SELECT CAST(processed_at AS text) FROM inbox WHERE status = 'done'";
    let processed = db.texts(sql).await;
    assert!(processed[0].starts_with("20"), "{processed:?}");
    assert_eq!(
        db.number("SELECT count(*) FROM inbox WHERE provider = 'p' AND processed_at IS NULL")
            .await,
        4
    );
    assert_eq!(
        db.number("SELECT count(*) FROM inbox_json WHERE payload IS NOT NULL")
            .await,
        5
    );
}
