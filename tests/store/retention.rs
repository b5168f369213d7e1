//! What goes with age, and what stays.

use std::time::Duration;

use cerca::{
    domain::{EventStatus, Outcome},
    store::{Accepted, PurgePolicy, Purged},
};

use crate::support::{Db, event};

on_both!(payloads_go_before_ids, the_walk_covers_everything);

const HOUR: Duration = Duration::from_secs(3600);

fn policy() -> PurgePolicy {
    PurgePolicy {
        done: HOUR * 10,
        failed: HOUR * 20,
        dedupe: HOUR * 40,
    }
}

/// Purges until there is no more.
async fn purge(db: &Db, dry_run: bool) -> (u64, u64) {
    let mut total = (0, 0);
    loop {
        let Purged { payloads, events, more } = db.store.purge(policy(), dry_run).await.unwrap();
        total.0 += payloads;
        total.1 += events;
        if !more {
            return total;
        }
    }
}

async fn payloads_go_before_ids(db: Db) {
    let ids = ["done", "failed", "pending", "unrouted"];
    let routes = |id: &str| if id == "unrouted" { "" } else { "a" };
    db.store
        .accept(ids.iter().map(|id| event(id, routes(id))).collect())
        .await
        .unwrap();
    for claim in db.claim("a", 10).await {
        match &*claim.event.provider_event_id {
            "done" => db.settle(&claim, Outcome::Done).await,
            "failed" => db.settle(&claim, Outcome::Dead { error: "x".to_owned() }).await,
            _ => db.settle(&claim, Outcome::Released).await,
        }
    }
    assert_eq!(purge(&db, false).await, (0, 0));
    db.age(11).await;
    assert_eq!(purge(&db, true).await, (2, 0));
    assert_eq!(
        db.number("SELECT count(*) FROM webhook_events WHERE payload IS NULL")
            .await,
        0
    );
    assert_eq!(purge(&db, false).await, (2, 0));
    assert_eq!(purge(&db, false).await, (0, 0));
    assert_eq!(db.row("done").await.status, EventStatus::Done);
    assert_eq!(db.store.payload("p", "done").await.unwrap().unwrap().bytes, None);
    assert!(db.store.payload("p", "failed").await.unwrap().unwrap().bytes.is_some());
    assert_eq!(
        db.store.accept(vec![event("done", "a")]).await.unwrap(),
        [Accepted::Duplicate]
    );
    db.age(10).await;
    assert_eq!(purge(&db, false).await, (1, 0));
    // Nobody can deliver it any more, and it never was.
    let failed = db.row("failed").await;
    assert_eq!(failed.status, EventStatus::Discarded);
    let error = failed.deliveries.iter().find_map(|d| d.last_error.as_deref());
    assert!(
        error.is_some_and(|e| e.starts_with("retention removed the payload; ")),
        "{error:?}"
    );
    db.age(20).await;
    assert_eq!(purge(&db, false).await, (0, 3));
    assert_eq!(
        db.texts("SELECT provider_event_id FROM webhook_events").await,
        ["pending"]
    );
    assert_eq!(db.claim("a", 10).await.len(), 1, "what is not done never goes");
    assert_eq!(
        db.store.accept(vec![event("done", "a")]).await.unwrap(),
        [Accepted::Stored]
    );
}

async fn the_walk_covers_everything(db: Db) {
    db.store
        .accept((0..1700).map(|n| event(&format!("e{n}"), "")).collect())
        .await
        .unwrap();
    db.age(15).await;
    db.store
        .accept((0..700).map(|n| event(&format!("young{n}"), "")).collect())
        .await
        .unwrap();
    assert_eq!(purge(&db, true).await, (1700, 0));
    assert_eq!(purge(&db, false).await, (1700, 0));
    assert_eq!(
        db.number("SELECT count(*) FROM webhook_events WHERE payload IS NULL AND headers IS NULL")
            .await,
        1700
    );
}
