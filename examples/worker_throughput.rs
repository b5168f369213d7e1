//! How fast the worker empties a work list on this machine, with handlers that cost nothing.
//!
//! `cargo run --release --example worker_throughput [EVENTS [URL [backlog]]]`; with `backlog` only that is measured.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use cerca::{
    domain::{NewEvent, RetryPolicy},
    handlers::{Action, Failure, Handler, OnUnknown, Outgoing, Route, SqlAction},
    store::{self, Store},
    worker::{Settings, Worker},
};
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

/// Requests that wait for their commit at once, as so many connections would.
const CONNECTIONS: usize = 256;
const BODY: usize = 2_048;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let events = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let url = arguments.next().filter(|url| !url.is_empty());
    let is_backlog = arguments.next().is_some_and(|word| word == "backlog");
    let url = url.as_deref();
    if is_backlog {
        return run("no-op, from a backlog", Kind::Ready, false, events, url).await;
    }
    for (title, kind, handed_over) in [
        ("no-op, handed over at ingest", Kind::Ready, true),
        ("no-op, from a backlog", Kind::Ready, false),
        ("yields once, handed over", Kind::Yields, true),
        ("yields once, from a backlog", Kind::Yields, false),
        ("sql in the store, handed over", Kind::Sql, true),
    ] {
        run(title, kind, handed_over, events, url).await?;
    }
    delay(url).await
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Ready,
    Yields,
    Sql,
}

async fn run(title: &str, kind: Kind, handed_over: bool, events: usize, url: Option<&str>) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = format!("sqlite:{}", folder.path().join("bench.db").display());
    let store = store::open(url.unwrap_or(&file), store::Options::default()).await?;
    let calls = Arc::new(AtomicUsize::new(0));
    RUN.fetch_add(1, Relaxed);
    let worker = Worker::new(store.clone(), vec![route(kind, calls.clone())], Settings::default());
    let shutdown = CancellationToken::new();

    let begun = Instant::now();
    let work = async {
        if handed_over {
            store.set_handoff(worker.handoff());
            let work = worker.run(shutdown.clone());
            let ingest = async {
                ingest(&store, events).await?;
                let stored = begun.elapsed();
                wait(&calls, events).await;
                shutdown.cancel();
                Ok(stored)
            };
            let (stored, ()) = tokio::join!(ingest, work);
            stored
        } else {
            ingest(&store, events).await?;
            let stored = begun.elapsed();
            let stop = async {
                wait(&calls, events).await;
                shutdown.cancel();
            };
            tokio::join!(worker.run(shutdown.clone()), stop);
            anyhow::Ok(stored)
        }
    };
    let stored = work.await?;
    let all = begun.elapsed();
    let spent = if handed_over { all } else { all - stored };
    let rate = events as f64 / spent.as_secs_f64();
    let left = store.stats().await?.pending;
    println!("{title:32} {rate:>9.0} deliveries/s   stored in {stored:.2?}, all in {all:.2?}, left {left}");
    store.close().await;
    Ok(())
}

/// How long after the answer of the store a handler starts, when nothing else happens.
async fn delay(url: Option<&str>) -> anyhow::Result<()> {
    const EVENTS: usize = 2_000;
    RUN.fetch_add(1, Relaxed);
    let folder = tempfile::tempdir()?;
    let file = format!("sqlite:{}", folder.path().join("bench.db").display());
    let store = store::open(url.unwrap_or(&file), store::Options::default()).await?;
    let (began, mut starts) = tokio::sync::mpsc::unbounded_channel();
    let worker = Worker::new(
        store.clone(),
        vec![of(Action::Outside(Arc::new(Clock(began))))],
        Settings::default(),
    );
    let shutdown = CancellationToken::new();
    store.set_handoff(worker.handoff());
    let ingest = async {
        let mut delays = Vec::with_capacity(EVENTS);
        for n in 0..EVENTS {
            store.accept(vec![event(n)]).await?;
            let stored = Instant::now();
            let Some(start) = starts.recv().await else { break };
            delays.push(start.saturating_duration_since(stored));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        shutdown.cancel();
        delays.sort_unstable();
        anyhow::Ok(delays)
    };
    let (delays, ()) = tokio::join!(ingest, worker.run(shutdown.clone()));
    let delays = delays?;
    let at = |share: usize| delays.get(delays.len() * share / 1000).copied().unwrap_or_default();
    println!(
        "start of a handler after the commit, idle: p50 {:.2?}, p99 {:.2?}, p99.9 {:.2?}",
        at(500),
        at(990),
        at(999)
    );
    store.close().await;
    Ok(())
}

/// Says when it starts.
struct Clock(tokio::sync::mpsc::UnboundedSender<Instant>);

impl Handler for Clock {
    fn handle<'a>(&'a self, _: &'a Outgoing<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        let _ = self.0.send(Instant::now());
        Box::pin(async { Ok(()) })
    }
}

async fn ingest(store: &Arc<dyn Store>, events: usize) -> anyhow::Result<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for connection in 0..CONNECTIONS {
        let store = store.clone();
        tasks.spawn(async move {
            for n in (connection..events).step_by(CONNECTIONS) {
                store.accept(vec![event(n)]).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(result) = tasks.join_next().await {
        result??;
    }
    Ok(())
}

/// Which measurement this is. All of them share a database of PostgreSQL, and an id is stored once.
static RUN: AtomicUsize = AtomicUsize::new(0);

/// As senders send them: the id says nothing of the order, the body compresses as JSON does.
fn event(n: usize) -> NewEvent {
    let mut random = (n as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (run, process) = (RUN.load(Relaxed), std::process::id());
    let id = format!("evt_{random:016x}{run:02x}{process:08x}");
    let mut body = String::from("{\"note\":\"");
    while body.len() < BODY {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        body.push_str(["alpha ", "payment ", "order ", "customer "][(random >> 62) as usize]);
        body.push_str(&((random >> 40) % 97).to_string());
    }
    NewEvent {
        provider: "stripe".into(),
        provider_event_id: id,
        event_type: Some("invoice.paid".into()),
        payload: body.into_bytes().into(),
        content_type: Some("application/json".into()),
        headers: "{}".into(),
        body_sha256: [7; 32],
        ordering_key: None,
        occurred_at: None,
        routes: "h".into(),
    }
}

fn route(kind: Kind, calls: Arc<AtomicUsize>) -> Route {
    let action = if kind == Kind::Sql {
        Action::InStore(SqlAction {
            count: 0,
            statement: "select 1".into(),
            params: Box::new(move |_| {
                calls.fetch_add(1, Relaxed);
                Ok(Vec::new())
            }),
        })
    } else {
        Action::Outside(Arc::new(Cheap { calls, kind }))
    };
    of(action)
}

fn of(action: Action) -> Route {
    Route {
        name: "h".into(),
        action,
        retry: RetryPolicy::default(),
        concurrency: 64,
        rate_limit: None,
        timeout: Duration::from_secs(30),
        shape: None,
        on_unknown: OnUnknown::Retry,
    }
}

struct Cheap {
    calls: Arc<AtomicUsize>,
    kind: Kind,
}

impl Handler for Cheap {
    fn handle<'a>(&'a self, _: &'a Outgoing<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            if self.kind == Kind::Yields {
                tokio::task::yield_now().await;
            }
            self.calls.fetch_add(1, Relaxed);
            Ok(())
        })
    }
}

async fn wait(calls: &AtomicUsize, events: usize) {
    while calls.load(Relaxed) < events {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
