//! The worker: claims what is due, runs the handlers, settles what came of it.
//!
//! Work comes in on two ways and then goes one: fresh deliveries are handed over by the store with their bytes still in
//! memory ([`Handoff`]), everything else is claimed from the table (backlog, retries, crashes).
//! Both go through the local queue of their handler (`lane`), each of which has one `runner`. Nothing of one handler can
//! fill the queue, the byte budget or all the slots of another.
//!
//! What is *not* here: the rules of retrying (`domain::retry`), the handlers (`handlers`), and every instant that two
//! replicas compare, which the database's clock makes.

mod attempt;
mod dispatcher;
mod doubt;
mod handoff;
mod isolation;
mod lane;
mod metrics;
mod native;
mod outage;
mod renewals;
mod runner;
mod shutdown;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc, sync::atomic::AtomicBool, time::Duration};

use tokio::{
    sync::{Notify, Semaphore},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use self::{isolation::Company, lane::Lane};
use crate::{
    handlers::{Action, Route},
    store::{AttemptLimit, Handoff, Store},
};

/// How a worker works. Times are those of one process; the store turns them into instants.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Attempts in flight at once over all handlers. Half of it is divided equally among the handlers, the other half
    /// goes to whoever needs it; every handler has one slot at least, so more handlers than this may exceed it.
    pub concurrency: usize,
    /// How long a claim is leased. Renewed every third of it, so it bounds how long a crash delays a delivery, not how
    /// long a handler may run.
    pub lease: Duration,
    /// How long to sleep when nothing is due and nothing wakes us, about.
    pub poll: Duration,
    /// Deliveries that wait in memory for one handler. Shrinks by itself for a handler that cannot clear it.
    pub queue: usize,
    /// Bytes of events held in memory, in equal parts for all handlers. Claims may exceed a part by one claim.
    pub queue_bytes: usize,
    /// How long a shutdown waits for attempts that run.
    pub drain: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrency: 64,
            lease: Duration::from_secs(30),
            poll: Duration::from_secs(1),
            queue: 512,
            queue_bytes: 32 << 20,
            drain: Duration::from_secs(20),
        }
    }
}

/// Runs the deliveries of the configured handlers.
pub struct Worker {
    shared: Arc<Shared>,
}

/// What the tasks of one worker share.
struct Shared {
    store: Arc<dyn Store>,
    settings: Settings,
    lanes: Vec<Arc<Lane>>,
    /// Handlers whose deliveries consumers pull: nothing of them is claimed here, but the leases that consumers let run
    /// out are ended with those of workers.
    pulled: Vec<AttemptLimit>,
    by_name: HashMap<Arc<str>, Arc<Lane>>,
    /// Slots that belong to no handler in particular.
    slots: Arc<Semaphore>,
    /// Attempts that run; a suspect runs without company.
    company: Arc<Company>,
    /// The dispatcher should look at the table now.
    wake: Notify,
    /// No hand-overs any more: the worker stops, or does not run.
    closed: AtomicBool,
}

impl Worker {
    /// Metric handles are taken here, so install the recorder first.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, routes: Vec<Route>, settings: Settings) -> Self {
        let (pulled, routes): (Vec<Route>, Vec<Route>) = routes
            .into_iter()
            .partition(|route| matches!(route.action, Action::Pull));
        let count = routes.len().max(1);
        let share = (settings.concurrency / (2 * count)).max(1);
        let lanes: Vec<Arc<Lane>> = routes
            .into_iter()
            .map(|route| Arc::new(Lane::new(route, share, settings.queue, settings.queue_bytes / count)))
            .collect();
        let owned: usize = lanes.iter().map(|lane| lane.own_slots()).sum();
        Self {
            shared: Arc::new(Shared {
                store,
                settings,
                by_name: lanes.iter().map(|lane| (lane.name.clone(), lane.clone())).collect(),
                lanes,
                pulled: pulled
                    .into_iter()
                    .map(|route| AttemptLimit {
                        handler: route.name,
                        attempts: route.retry.attempts,
                        isolate: false,
                    })
                    .collect(),
                slots: Arc::new(Semaphore::new(settings.concurrency.saturating_sub(owned))),
                company: Arc::default(),
                wake: Notify::new(),
                closed: AtomicBool::new(false),
            }),
        }
    }

    /// The receiver of fresh deliveries, for `Inbox::set_handoff`. It takes them from now on, so set it when the
    /// worker is about to run.
    #[must_use]
    pub fn handoff(&self) -> Arc<dyn Handoff> {
        self.shared.clone()
    }

    /// Works until `shutdown`, then stops claiming, lets running attempts end within `Settings::drain`, gives back what
    /// has not started, and flushes. Survives every error of the store.
    pub async fn run(&self, shutdown: CancellationToken) {
        let shared = &self.shared;
        // Renewals go on while attempts are drained.
        let drained = CancellationToken::new();
        let upkeep = tokio::spawn(renewals::run(shared.clone(), drained.clone()));
        let mut runners = JoinSet::new();
        for lane in &shared.lanes {
            runners.spawn(runner::run(shared.clone(), lane.clone(), shutdown.clone()));
        }
        runners.spawn(isolation::run(shared.clone(), shutdown.clone()));
        dispatcher::run(shared, &shutdown).await;
        shutdown::drain(shared, runners).await;
        drained.cancel();
        if let Err(error) = upkeep.await {
            tracing::error!(%error, "the renewals of leases ended badly");
        }
    }

    /// Turns the queue once, without [`Worker::run`]: claims what is due, runs it and what was handed over to the end,
    /// settles it and waits until that is written. Answers how many attempts were made; zero when nothing is due.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn step(&self) -> Result<usize, crate::store::StoreError> {
        let shared = &self.shared;
        let _ = dispatcher::claim(shared).await?;
        let mut attempts = 0;
        for lane in &shared.lanes {
            attempts += runner::empty(shared, lane).await;
        }
        shared.store.flush().await?;
        attempts += isolation::empty(shared).await?;
        Ok(attempts)
    }
}
