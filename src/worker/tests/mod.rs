//! The worker against a work list in memory. Time is paused: it jumps to the next timer when nothing else can run, so
//! waiting costs nothing and no test depends on how fast it runs.

mod attempts;
mod fake;
mod fake_rest;
mod flow;
mod leases;
mod limits;
mod native;
mod stopping;
mod suspects;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::{sync::Semaphore, task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

use self::fake::Fake;
use super::{Settings, Worker};
use crate::{
    domain::{Claim, RetryPolicy},
    handlers::{Action, Failure, Handler, OnUnknown, Outgoing, Route},
};

/// A handler that a closure is.
struct Call<F>(F);

impl<F> Handler for Call<F>
where
    F: Fn(Claim) -> BoxFuture<'static, Result<(), Failure>> + Send + Sync,
{
    fn handle<'a>(&'a self, outgoing: &'a Outgoing<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        (self.0)(outgoing.claim.clone())
    }
}

fn call<F, R>(f: F) -> Action
where
    F: Fn(Claim) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), Failure>> + Send + 'static,
{
    Action::Outside(Arc::new(Call(move |claim| {
        Box::pin(f(claim)) as BoxFuture<'static, Result<(), Failure>>
    })))
}

/// Attempts wait at a gate until the test opens it; it counts who waits there, now and at most.
#[derive(Clone)]
struct Gate {
    open: Arc<Semaphore>,
    inside: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Gate {
    fn closed() -> Self {
        Self {
            open: Arc::new(Semaphore::new(0)),
            inside: Arc::default(),
            most: Arc::default(),
        }
    }

    fn action(&self) -> Action {
        let gate = self.clone();
        call(move |_| {
            let gate = gate.clone();
            async move {
                struct Leave(Arc<AtomicUsize>);
                impl Drop for Leave {
                    fn drop(&mut self) {
                        self.0.fetch_sub(1, SeqCst);
                    }
                }
                gate.most.fetch_max(gate.inside.fetch_add(1, SeqCst) + 1, SeqCst);
                let _leave = Leave(gate.inside.clone());
                gate.open.acquire().await.unwrap().forget();
                Ok(())
            }
        })
    }

    fn inside(&self) -> usize {
        self.inside.load(SeqCst)
    }
}

fn route(name: &str, concurrency: usize, action: Action) -> Route {
    Route {
        name: name.into(),
        action,
        retry: RetryPolicy {
            attempts: 3,
            base: Duration::from_secs(2),
            cap: Duration::from_secs(60),
        },
        concurrency,
        rate_limit: None,
        timeout: Duration::from_secs(3_600),
        shape: None,
        on_unknown: OnUnknown::Retry,
    }
}

/// A worker that runs.
struct Running {
    store: Arc<Fake>,
    worker: Arc<Worker>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    fn start(routes: Vec<Route>, settings: Settings) -> Self {
        let store = Arc::new(Fake::default());
        let worker = Arc::new(Worker::new(store.clone(), routes, settings));
        let stop = CancellationToken::new();
        let (w, s) = (worker.clone(), stop.clone());
        let task = tokio::spawn(async move { w.run(s).await });
        Self {
            store,
            worker,
            stop,
            task,
        }
    }

    async fn stop(self) -> Arc<Fake> {
        self.stop.cancel();
        self.task.await.unwrap();
        self.store
    }
}

/// Waits until it holds; a day of paused time is for ever.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(
        timeout(Duration::from_secs(24 * 3600), wait).await.is_ok(),
        "never: {what}"
    );
}

fn stepped(routes: Vec<Route>) -> (Arc<Fake>, Worker) {
    let store = Arc::new(Fake::default());
    let worker = Worker::new(store.clone(), routes, Settings::default());
    (store, worker)
}
