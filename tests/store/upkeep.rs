//! Long jobs and the quarantine.

use std::{collections::HashSet, sync::Arc, time::Duration};

use bytes::Bytes;
use cerca::{
    domain::{BACKFILLED, EventStatus},
    store::{
        Accepted, Effect, EventFilter, JobState, NewJob, Refused, RefusedFilter, Room, Runner, SqlValue, Work, run_job,
    },
};
use jiff::{SignedDuration, Timestamp};
use tokio_util::sync::CancellationToken;

use crate::{
    people::{dead, status, who},
    support::{Db, event, with_body},
};

on_both!(
    a_job_goes_through_all_once_however_many_run_it,
    a_stopped_job_goes_on_where_it_was,
    events_that_come_later_are_not_part_of_a_job,
    a_backfill_has_one_turn_at_a_time,
    what_was_fetched_says_the_same_in_other_bytes,
    a_rehearsal_leaves_nothing,
    an_export_keeps_to_its_bytes,
    pages_of_every_filter_are_everything_once,
    the_quarantine_keeps_to_its_room,
);

fn job(filter: EventFilter) -> NewJob {
    NewJob {
        filter,
        handlers: None,
        forget_steps: false,
        rate: None,
        runner: Runner::Cli,
    }
}

/// So many events with a dead delivery to `a`.
async fn all_dead(db: &Db, count: usize) {
    let events = (0..count).map(|n| event(&format!("evt_{n}"), "a"));
    db.store.accept(events.collect()).await.unwrap();
    loop {
        let claims = db.claim("a", 500).await;
        if claims.is_empty() {
            return;
        }
        for claim in &claims {
            db.store.settle(crate::support::settle(claim, dead())).await;
        }
        db.store.flush().await.unwrap();
    }
}

async fn a_job_goes_through_all_once_however_many_run_it(db: Db) {
    all_dead(&db, 700).await;
    let begun = db
        .store
        .begin_job(job(status(EventStatus::Failed)), who())
        .await
        .unwrap();
    assert_eq!((begun.total, begun.events, begun.state), (700, 0, JobState::Running));
    let stop = CancellationToken::new();
    let run = || {
        let (store, stop) = (Arc::clone(&db.store), stop.clone());
        tokio::spawn(async move { run_job(&*store, begun.id, &stop, &mut |_| {}).await.unwrap() })
    };
    for one in [run(), run(), run()] {
        assert_eq!(one.await.unwrap().state, JobState::Done);
    }
    let done = db.store.job(begun.id).await.unwrap().unwrap();
    assert_eq!((done.events, done.deliveries), (700, 700));
    assert_eq!(
        db.number("SELECT count(*) FROM deliveries WHERE state = 'ready'").await,
        700
    );
    assert_eq!(db.texts("SELECT reason FROM audit").await, ["because"]);
    assert_eq!(db.number("SELECT deliveries FROM audit").await, 700);
    assert_eq!(db.store.jobs(10).await.unwrap().len(), 1);
}

async fn a_stopped_job_goes_on_where_it_was(db: Db) {
    all_dead(&db, 9).await;
    let id = db
        .store
        .begin_job(job(status(EventStatus::Failed)), who())
        .await
        .unwrap()
        .id;
    let four = db.store.step_job(id, 4).await.unwrap().unwrap();
    assert_eq!((four.events, four.state), (4, JobState::Running));
    db.store.set_job_running(id, false, Runner::Cli).await.unwrap();
    let still = db.store.step_job(id, 4).await.unwrap().unwrap();
    assert_eq!((still.events, still.state), (4, JobState::Stopped));
    let runs = db
        .store
        .set_job_running(id, true, Runner::Server)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((runs.state, runs.runner), (JobState::Running, Runner::Server));
    let done = run_job(&*db.store, id, &CancellationToken::new(), &mut |_| {})
        .await
        .unwrap();
    assert_eq!((done.events, done.deliveries, done.state), (9, 9, JobState::Done));
    let again = db.store.set_job_running(id, true, Runner::Cli).await.unwrap().unwrap();
    assert_eq!(again.state, JobState::Done);
    assert!(db.store.step_job(404, 4).await.unwrap().is_none());
}

async fn events_that_come_later_are_not_part_of_a_job(db: Db) {
    all_dead(&db, 2).await;
    let all = NewJob {
        handlers: Some(vec![Arc::from("a")]),
        ..job(EventFilter::default())
    };
    let id = db.store.begin_job(all, who()).await.unwrap().id;
    db.store.accept(vec![event("late", "")]).await.unwrap();
    let done = run_job(&*db.store, id, &CancellationToken::new(), &mut |_| {})
        .await
        .unwrap();
    assert_eq!((done.events, done.deliveries), (2, 2));
}

async fn a_backfill_has_one_turn_at_a_time(db: Db) {
    let hour = Duration::from_secs(3600);
    let first = db.store.begin_backfill("p", hour).await.unwrap().unwrap();
    assert_eq!(first.covered_until, None);
    assert_eq!(
        db.store.begin_backfill("p", hour).await.unwrap(),
        None,
        "somebody has the turn"
    );
    assert!(db.store.begin_backfill("q", hour).await.unwrap().is_some());
    let until = Timestamp::from_second(1_700_000_000).unwrap();
    db.store.end_backfill("p", until).await.unwrap();
    db.store
        .end_backfill("p", until - SignedDuration::from_hours(1))
        .await
        .unwrap();
    let again = db.store.begin_backfill("p", Duration::ZERO).await.unwrap().unwrap();
    assert_eq!(again.covered_until, Some(until), "it never goes back");
}

async fn what_was_fetched_says_the_same_in_other_bytes(db: Db) {
    let fetched = |id: &str, body: &[u8]| {
        let mut event = with_body(id, "", body.to_vec());
        event.headers = format!("{{\"{BACKFILLED}\":\"now\"}}");
        event
    };
    let accept = async |event| db.store.accept(vec![event]).await.unwrap()[0];
    assert_eq!(accept(with_body("a", "", b"{}".to_vec())).await, Accepted::Stored);
    assert_eq!(
        accept(fetched("a", b"{ }")).await,
        Accepted::Duplicate,
        "fetched after its webhook"
    );
    assert_eq!(accept(fetched("b", b"{}")).await, Accepted::Stored);
    assert_eq!(
        accept(with_body("b", "", b"{ }".to_vec())).await,
        Accepted::Duplicate,
        "its webhook comes late"
    );
    let both = vec![fetched("c", b"{}"), with_body("c", "", b"{ }".to_vec())];
    assert_eq!(
        db.store.accept(both).await.unwrap(),
        [Accepted::Stored, Accepted::Duplicate]
    );
    assert_eq!(
        accept(with_body("a", "", b"{ }".to_vec())).await,
        Accepted::Conflict,
        "two webhooks are compared"
    );
    assert_eq!(db.number("SELECT count(*) FROM conflicts").await, 1);
    let known = db
        .store
        .known("p", vec!["x".into(), "a".into(), "".into(), "c".into()])
        .await
        .unwrap();
    assert_eq!(known, [false, true, false, true]);
    assert_eq!(db.store.known("other", vec!["a".into()]).await.unwrap(), [false]);
}

async fn a_rehearsal_leaves_nothing(db: Db) {
    db.sql("CREATE TABLE effects (id text NOT NULL UNIQUE)").await;
    db.store.accept(vec![event("a", "h")]).await.unwrap();
    let claim = db.claim("h", 1).await.remove(0);
    let effect = |statement: &str, params: Vec<SqlValue>| Effect {
        claim: claim.clone(),
        work: Work::Statement {
            sql: Arc::from(statement),
            params,
        },
        started_at: Timestamp::now(),
        limit: Duration::from_secs(5),
    };
    let insert = "insert into effects (id) values ($1)";
    let text = || vec![SqlValue::Text("x".into())];
    assert_eq!(db.store.rehearse(effect(insert, text())).await.unwrap(), Ok(()));
    assert_eq!(db.number("SELECT count(*) FROM effects").await, 0);
    db.sql("INSERT INTO effects VALUES ('x')").await;
    let twice = db.store.rehearse(effect(insert, text())).await.unwrap().unwrap_err();
    assert!(twice.to_ascii_lowercase().contains("unique"), "{twice}");
    for wrong in ["insert into nowhere values (1)", "commit", "select 1; select 2"] {
        assert!(
            db.store.rehearse(effect(wrong, Vec::new())).await.unwrap().is_err(),
            "{wrong}"
        );
    }
    assert_eq!(
        db.store
            .rehearse(effect("delete from effects", Vec::new()))
            .await
            .unwrap(),
        Ok(())
    );
    assert_eq!(db.number("SELECT count(*) FROM effects").await, 1);
    assert_eq!(
        db.number("SELECT count(*) FROM deliveries WHERE state = 'claimed'")
            .await,
        1
    );
}

async fn an_export_keeps_to_its_bytes(db: Db) {
    for n in 0..6 {
        let body = vec![b'x'; 1000];
        db.store
            .accept(vec![with_body(&format!("evt_{n}"), "", body)])
            .await
            .unwrap();
    }
    let (mut cursor, mut seen, mut chunks) = (None, Vec::new(), 0);
    loop {
        let chunk = db
            .store
            .export(EventFilter::default(), cursor, 100, 2500)
            .await
            .unwrap();
        assert!((1..=2).contains(&chunk.events.len()), "{}", chunk.events.len());
        for (detail, received) in &chunk.events {
            assert_eq!(received.bytes.as_ref().unwrap().len(), 1000);
            seen.push(detail.event.provider_event_id.clone());
        }
        chunks += 1;
        cursor = chunk.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, ["evt_5", "evt_4", "evt_3", "evt_2", "evt_1", "evt_0"]);
    assert_eq!(chunks, 3);
    let tiny = db.store.export(EventFilter::default(), None, 100, 1).await.unwrap();
    assert_eq!(tiny.events.len(), 1, "one at least");
}

/// Ids far apart, so that a page must look through many windows.
async fn pages_of_every_filter_are_everything_once(db: Db) {
    let mut events = Vec::new();
    for n in 0..60 {
        let mut one = event(&format!("evt_{n}"), if n % 3 == 0 { "a" } else { "" });
        one.event_type = Some(format!("type.{}", n % 2));
        events.push(one);
    }
    db.store.accept(events).await.unwrap();
    let spread = if db.is_postgres() { "GENERATED ALWAYS" } else { "" };
    if spread.is_empty() {
        db.sql("UPDATE webhook_events SET id = id * 100000 WHERE id > 0; UPDATE deliveries SET event_id = event_id * 100000").await;
    } else {
        db.sql(
            "ALTER TABLE webhook_events ALTER id DROP IDENTITY; UPDATE webhook_events SET id = -id;
             UPDATE webhook_events SET id = -id * 100000; UPDATE deliveries SET event_id = event_id * 100000",
        )
        .await;
    }
    let filters = [
        (EventFilter::default(), 60),
        (
            EventFilter {
                event_type: Some("type.1".into()),
                ..EventFilter::default()
            },
            30,
        ),
        (
            EventFilter {
                handler: Some("a".into()),
                ..EventFilter::default()
            },
            20,
        ),
        (
            EventFilter {
                q: Some("evt_1".into()),
                ..EventFilter::default()
            },
            11,
        ),
        (
            EventFilter {
                provider: Some("nobody".into()),
                ..EventFilter::default()
            },
            0,
        ),
        (status(EventStatus::Pending), 20),
        (status(EventStatus::Unrouted), 40),
        (status(EventStatus::Done), 0),
    ];
    for (filter, expected) in filters {
        let (mut cursor, mut ids) = (None, Vec::new());
        loop {
            let page = db.store.events(filter.clone(), cursor, 7).await.unwrap();
            assert!(page.events.len() <= 7);
            ids.extend(page.events.iter().map(|event| event.id));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(ids.len(), expected, "{filter:?}");
        assert!(ids.is_sorted_by(|a, b| a > b), "newest first: {filter:?}");
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), expected);
    }
}

fn refused(provider: &str, authentic: bool, bytes: usize) -> Refused {
    Refused {
        at: Timestamp::now(),
        provider: provider.to_owned(),
        reason: if authentic { "missing_id" } else { "wrong_signature" }.to_owned(),
        detail: None,
        authentic,
        method: "POST".to_owned(),
        target: "/webhooks/p?a=b".to_owned(),
        client: Some("127.0.0.1".to_owned()),
        headers: "[[\"x-a\",\"b\"]]".to_owned(),
        left_out: None,
        body_sha256: [7; 32],
        body: Bytes::from(vec![0; bytes]),
    }
}

async fn the_quarantine_keeps_to_its_room(db: Db) {
    let room = Room {
        rows: 10,
        bytes: 1 << 20,
    };
    db.store.quarantine(vec![refused("p", true, 10)], room).await.unwrap();
    db.store
        .quarantine((0..30).map(|_| refused("q", false, 10)).collect(), room)
        .await
        .unwrap();
    let page = db.store.quarantined(RefusedFilter::default(), None, 100).await.unwrap();
    assert_eq!((page.requests.len(), page.next), (10, None));
    let proved = page.requests.iter().filter(|one| one.authentic).count();
    assert_eq!(proved, 1, "what was proved goes last");
    db.store
        .quarantine(vec![refused("q", false, 900_000), refused("q", false, 900_000)], room)
        .await
        .unwrap();
    let sum = db.number("SELECT cast(sum(size) AS bigint) FROM quarantine").await;
    assert!(sum <= 1 << 20, "{sum}");

    let filter = RefusedFilter {
        provider: Some("p".into()),
        reason: Some("missing_id".into()),
    };
    let page = db.store.quarantined(filter, None, 1).await.unwrap();
    let one = &page.requests[0];
    let (row, body) = db.store.quarantined_one(one.id).await.unwrap().unwrap();
    assert_eq!((&row, body.len()), (one, 10));
    assert!(db.store.readmitted(one.id, who()).await.unwrap());
    assert!(!db.store.readmitted(one.id + 100_000, who()).await.unwrap());
    assert_eq!(db.texts("SELECT action FROM audit").await, ["readmit"]);
    assert!(
        db.store
            .quarantined_one(one.id)
            .await
            .unwrap()
            .unwrap()
            .0
            .readmitted_at
            .is_some()
    );
    assert_eq!(db.store.purge_quarantine(Duration::from_secs(3600)).await.unwrap(), 0);
    let left = db.number("SELECT count(*) FROM quarantine").await.unsigned_abs();
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(db.store.purge_quarantine(Duration::ZERO).await.unwrap(), left);
    assert!(db.store.quarantined_one(one.id).await.unwrap().is_none());
}
