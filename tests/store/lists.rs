//! What people see: lists, pages, filters, the views.

use std::{sync::Arc, time::Duration};

use cerca::{domain::EventStatus, store::EventFilter};
use jiff::Timestamp;

use crate::{
    people::{one_of_each, status},
    support::{Db, event},
};

on_both!(
    every_status_is_found_by_list_view_and_count,
    pages_follow_each_other,
    filters_narrow_the_list,
    a_period_is_found_by_halving,
    the_view_is_for_hands,
);

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
