//! How fast the worker empties a work list on this machine, with handlers that cost nothing.
//!
//! `cargo run --release --example worker_throughput [EVENTS [URL]]`

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
    let url = arguments.next();
    for (title, kind, handed_over) in [
        ("no-op, handed over at ingest", Kind::Ready, true),
        ("no-op, from a backlog", Kind::Ready, false),
        ("yields once, handed over", Kind::Yields, true),
        ("yields once, from a backlog", Kind::Yields, false),
        ("sql in the store, handed over", Kind::Sql, true),
    ] {
        run(title, kind, handed_over, events, url.as_deref()).await?;
    }
    Ok(())
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

fn event(n: usize) -> NewEvent {
    NewEvent {
        provider: "stripe".into(),
        provider_event_id: format!("evt_{n:024}"),
        event_type: Some("invoice.paid".into()),
        payload: vec![b'x'; BODY].into(),
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
