//! How fast the store is by itself: `cargo bench --bench store`. On PostgreSQL too where `CERCA_TEST_POSTGRES` names a
//! server.

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

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use cerca::{
    domain::{Claim, NewEvent, Outcome},
    store::Handoff,
};
use tokio::sync::mpsc;

use support::{Db, settle, with_body};

const EVENTS: usize = 300_000;
const BODY: usize = 2048;

/// Takes everything, and passes it on to be settled.
struct Settler(mpsc::UnboundedSender<Vec<Claim>>);

impl Handoff for Settler {
    fn reserve(&self, _: &str, _: usize, _: usize) -> bool {
        true
    }

    fn give_back(&self, _: &str, _: usize, _: usize) {}

    fn hand_over(&self, claims: Vec<Claim>) {
        let _ = self.0.send(claims);
    }

    fn wake(&self) {}

    fn lease(&self) -> Duration {
        Duration::from_secs(60)
    }
}

fn new(n: usize, routes: &Arc<str>, body: &[u8]) -> NewEvent {
    let mut event = with_body("", "", Vec::new());
    event.provider_event_id = format!("evt_{:016x}", (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    event.payload = bytes::Bytes::copy_from_slice(body);
    event.routes = Arc::clone(routes);
    event
}

/// A body that compresses as JSON does.
fn body() -> Vec<u8> {
    let mut text = String::from("{");
    let mut n = 1_u64;
    while text.len() < BODY {
        n = n
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        text.push_str(&format!("\"field_{}\":\"value {:x}\",", n % 50, n >> 40));
    }
    text.truncate(BODY);
    text.into_bytes()
}

async fn accept(db: &Db, routes: &str, waiters: usize, events: usize) -> f64 {
    let (next, routes, body) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::<str>::from(routes),
        Arc::new(body()),
    );
    let start = Instant::now();
    let tasks: Vec<_> = (0..waiters)
        .map(|_| {
            let (store, next) = (Arc::clone(&db.store), Arc::clone(&next));
            let (routes, body) = (Arc::clone(&routes), Arc::clone(&body));
            tokio::spawn(async move {
                loop {
                    let n = next.fetch_add(1, Relaxed);
                    if n >= events {
                        return;
                    }
                    store.accept(vec![new(n, &routes, &body)]).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    events as f64 / start.elapsed().as_secs_f64()
}

async fn measure(name: &str, db: Db, settles: bool, waiters: usize) {
    let events = env::var("CERCA_SPEED_EVENTS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(EVENTS);
    let (sender, mut claims) = mpsc::unbounded_channel::<Vec<Claim>>();
    let mut settler = None;
    if settles {
        db.store.set_handoff(Arc::new(Settler(sender)));
        let store = Arc::clone(&db.store);
        settler = Some(tokio::spawn(async move {
            let mut left = events;
            while left > 0 {
                for claim in claims.recv().await.unwrap() {
                    store.settle(settle(&claim, Outcome::Done)).await;
                    left -= 1;
                }
            }
            store.flush().await.unwrap();
        }));
    }
    let start = Instant::now();
    let rate = accept(&db, if settles { "a" } else { "" }, waiters, events).await;
    if let Some(settler) = settler {
        settler.await.unwrap();
    }
    let whole = events as f64 / start.elapsed().as_secs_f64();
    let left = db.number("SELECT count(*) FROM deliveries").await;
    println!(
        "{name:<10} settles {settles:<5} waiters {waiters:<4} {rate:>9.0} accepted/s {whole:>9.0} finished/s, {left} left"
    );
    db.store.close().await;
}

#[tokio::main]
async fn main() {
    speed().await;
    speed_of_a_backlog().await;
}

async fn speed() {
    for settles in [false, true] {
        for waiters in waiters() {
            measure("sqlite", Db::sqlite().await, settles, waiters).await;
            if let Some(db) = Db::postgres().await {
                measure("postgres", db, settles, waiters).await;
            }
        }
    }
}

/// A backlog of ready deliveries: claimed with their bodies, and settled.
async fn speed_of_a_backlog() {
    for db in [Some(Db::sqlite().await), Db::postgres().await].into_iter().flatten() {
        let events = EVENTS / 3;
        accept(&db, "a", 256, events).await;
        let start = Instant::now();
        let mut done = 0;
        while done < events {
            let claims = db.claim("a", 500).await;
            done += claims.len();
            for claim in &claims {
                db.store.settle(settle(claim, Outcome::Done)).await;
            }
        }
        db.store.flush().await.unwrap();
        let name = if db.is_postgres() { "postgres" } else { "sqlite" };
        println!(
            "{name:<10} backlog {:>9.0} claimed and settled/s",
            events as f64 / start.elapsed().as_secs_f64()
        );
        db.store.close().await;
    }
}

/// `CERCA_SPEED_WAITERS=256` measures one number of waiters only.
fn waiters() -> Vec<usize> {
    match env::var("CERCA_SPEED_WAITERS").ok().and_then(|n| n.parse().ok()) {
        Some(one) => vec![one],
        None => vec![16, 64, 256],
    }
}
