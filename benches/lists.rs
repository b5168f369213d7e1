//! How long a page of events takes in a large ledger, by filter: `cargo bench --bench lists [EVENTS]`. On PostgreSQL too
//! where `CERCA_TEST_POSTGRES` names a server. Rows are made inside of the database: a tenth of a minute a million.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement prints, and fails by panicking"
)]
#![allow(
    dead_code,
    unused_macros,
    reason = "what it shares with the store's tests is more than it needs"
)]

#[path = "../tests/store/support.rs"]
#[macro_use]
mod support;

use std::{env, time::Instant};

use cerca::{domain::EventStatus, store::EventFilter};
use jiff::Timestamp;

use support::Db;

/// Every 1000th event is of a rare provider, every 10,000th is pending, and others failed or were unrouted.
const SQLITE: &str = "
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {EVENTS})
    INSERT INTO webhook_events (id, provider, provider_event_id, event_type, content_type, size, body_sha256, ordering_key,
                                occurred_at, routes, created_at, headers, payload)
    SELECT i, CASE WHEN i % 1000 = 0 THEN 'rare' ELSE 'p' || (i % 5) END, 'evt_' || i, 'type.' || (i % 20), 'application/json',
           300, zeroblob(32), 'cus_' || (i % 50000), i * 1000000, CASE WHEN i % 50000 = 7 THEN '' ELSE 'a' END,
           1700000000000000 + i * 1000000, '{}', zeroblob(300) FROM n;
    INSERT INTO deliveries (event_id, handler, state, run_at)
    SELECT id, 'a', CASE WHEN id % 20000 = 0 THEN 'dead' ELSE 'ready' END, 1 FROM webhook_events WHERE id % 10000 = 0;";
const POSTGRES: &str = "
    INSERT INTO webhook_events (provider, provider_event_id, event_type, content_type, size, body_sha256, ordering_key,
                                occurred_at, routes, created_at, headers, payload)
    SELECT CASE WHEN i % 1000 = 0 THEN 'rare' ELSE 'p' || (i % 5) END, 'evt_' || i, 'type.' || (i % 20), 'application/json',
           300, decode(repeat('00', 32), 'hex'), 'cus_' || (i % 50000), now(), CASE WHEN i % 50000 = 7 THEN '' ELSE 'a' END,
           to_timestamp(1700000000 + i), '{}', decode(repeat('00', 300), 'hex') FROM generate_series(1, {EVENTS}) i;
    INSERT INTO deliveries (event_id, handler, state)
    SELECT id, 'a', CASE WHEN id % 20000 = 0 THEN 'dead' ELSE 'ready' END FROM webhook_events WHERE id % 10000 = 0;
    ANALYZE;";

#[tokio::main]
async fn main() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let asked = env::args().skip(1).find_map(|argument| argument.parse().ok());
    let events: u64 = asked.unwrap_or(1_000_000);
    measure(Db::sqlite().await, "SQLite", SQLITE, events).await;
    if let Some(db) = Db::postgres().await {
        measure(db, "PostgreSQL", POSTGRES, events).await;
    }
}

async fn measure(db: Db, name: &str, fill: &str, events: u64) {
    let started = Instant::now();
    db.sql(&fill.replace("{EVENTS}", &events.to_string())).await;
    println!(
        "{name}: {events} events made in {:.1} s",
        started.elapsed().as_secs_f64()
    );
    let text = |text: &str| Some(text.to_owned());
    let at = |tenths: u64| Timestamp::from_second(1_700_000_000 + i64::try_from(events * tenths / 10).unwrap()).ok();
    let none = EventFilter::default;
    let filters = [
        ("none", none()),
        (
            "provider, common",
            EventFilter {
                provider: text("p1"),
                ..none()
            },
        ),
        (
            "provider, 1 in 1000",
            EventFilter {
                provider: text("rare"),
                ..none()
            },
        ),
        (
            "provider, unknown",
            EventFilter {
                provider: text("nobody"),
                ..none()
            },
        ),
        (
            "type",
            EventFilter {
                event_type: text("type.7"),
                ..none()
            },
        ),
        (
            "type, unknown",
            EventFilter {
                event_type: text("nothing"),
                ..none()
            },
        ),
        (
            "status done",
            EventFilter {
                status: Some(EventStatus::Done),
                ..none()
            },
        ),
        (
            "status pending",
            EventFilter {
                status: Some(EventStatus::Pending),
                ..none()
            },
        ),
        (
            "status failed",
            EventFilter {
                status: Some(EventStatus::Failed),
                ..none()
            },
        ),
        (
            "status unrouted",
            EventFilter {
                status: Some(EventStatus::Unrouted),
                ..none()
            },
        ),
        (
            "status discarded",
            EventFilter {
                status: Some(EventStatus::Discarded),
                ..none()
            },
        ),
        (
            "handler",
            EventFilter {
                handler: text("a"),
                ..none()
            },
        ),
        ("since, last tenth", EventFilter { since: at(9), ..none() }),
        ("until, first tenth", EventFilter { until: at(1), ..none() }),
        (
            "q, common",
            EventFilter {
                q: text("evt_1"),
                ..none()
            },
        ),
        (
            "q, the oldest",
            EventFilter {
                q: text("evt_1000000000"),
                ..none()
            },
        ),
    ];
    for (what, filter) in filters {
        // The first page of each is cold for its filter; then all pages, to the end or a thousand.
        let started = Instant::now();
        let first = db.store.events(filter.clone(), None, 50).await.unwrap();
        let first_ms = started.elapsed().as_secs_f64() * 1000.0;
        let (mut cursor, mut pages, mut found, mut worst) = (first.next, 1_u32, first.events.len(), first_ms);
        let started = Instant::now();
        while let Some(at) = cursor.filter(|_| pages < 1000) {
            let one = Instant::now();
            let page = db.store.events(filter.clone(), Some(at), 50).await.unwrap();
            worst = worst.max(one.elapsed().as_secs_f64() * 1000.0);
            found += page.events.len();
            pages += 1;
            cursor = page.next;
        }
        let mean = (first_ms + started.elapsed().as_secs_f64() * 1000.0) / f64::from(pages);
        println!(
            "  {what:<22} first {first_ms:6.1} ms with {:3} events; {pages:4} pages: mean {mean:5.1} ms, worst {worst:6.1} ms, \
             {found} events",
            first.events.len()
        );
    }
    db.store.close().await;
}
