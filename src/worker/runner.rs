//! One task for each handler: takes claims from its queue and runs them, as many at once as its limit and the free slots
//! allow. An attempt that is ready at its first poll (log, a native function without awaits) costs no task; any other
//! gets one, so that it runs on every core and can be aborted.

use std::{pin::Pin, sync::Arc, task::Poll, time::Duration};

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio::{
    sync::OwnedSemaphorePermit,
    task::{JoinSet, coop::consume_budget},
    time::{Instant, Sleep, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    Shared,
    attempt::attempt,
    lane::{Key, Lane, Running, key},
};

/// Runs until `stop`; answers what still runs.
pub(super) async fn run(shared: Arc<Shared>, lane: Arc<Lane>, stop: CancellationToken) -> JoinSet<()> {
    let mut running = JoinSet::new();
    // Kept from one turn to the next, so as not to lose the place in the line for the shared slots.
    let mut in_line: Option<BoxFuture<'static, Option<OwnedSemaphorePermit>>> = None;
    let mut paced: Option<Pin<Box<Sleep>>> = None;
    loop {
        if lane.wants_more() {
            shared.wake.notify_one();
        }
        match fill(&shared, &lane, &mut running, &stop).await {
            Filled::NoSlot => {
                let slots = shared.slots.clone();
                in_line.get_or_insert_with(|| Box::pin(async move { slots.acquire_owned().await.ok() }));
            }
            Filled::Empty | Filled::AtLimit => in_line = None,
            Filled::Paced(wait) => {
                in_line = None;
                paced = Some(Box::pin(sleep(wait)));
            }
        }
        let below_limit = running.len() < lane.route.concurrency;
        tokio::select! {
            biased;
            () = stop.cancelled() => return running,
            _ = running.join_next(), if !running.is_empty() => {}
            slot = turn(&mut in_line), if in_line.is_some() => {
                in_line = None;
                if let Some(slot) = slot {
                    let _ = start(&shared, &lane, slot, &mut running).await;
                }
            }
            () = end(&mut paced), if paced.is_some() => paced = None,
            () = lane.arrived.notified(), if below_limit => {}
        }
    }
}

/// Runs everything that is queued to its end; answers how many attempts were made.
pub(super) async fn empty(shared: &Arc<Shared>, lane: &Arc<Lane>) -> usize {
    let (mut running, mut attempts) = (JoinSet::new(), 0);
    while !lane.is_empty() || !running.is_empty() {
        while running.len() < lane.route.concurrency && !lane.is_empty() {
            let Ok(slot) = lane.own.clone().acquire_owned().await else {
                return attempts;
            };
            match start(shared, lane, slot, &mut running).await {
                Started::Yes => attempts += 1,
                Started::Empty | Started::Paused => {}
                Started::Paced(wait) => sleep(wait).await,
            }
        }
        let _ = running.join_next().await;
    }
    attempts
}

/// What came of a start.
enum Started {
    Yes,
    /// Nothing was queued after all.
    Empty,
    /// A suspect wants to be alone; the lane is called when that is over.
    Paused,
    /// The rate limit allows the next one after this long.
    Paced(Duration),
}

enum Filled {
    /// Nothing is queued, or nothing may begin until the lane is called.
    Empty,
    AtLimit,
    NoSlot,
    Paced(Duration),
}

async fn fill(shared: &Arc<Shared>, lane: &Arc<Lane>, running: &mut JoinSet<()>, stop: &CancellationToken) -> Filled {
    loop {
        while running.try_join_next().is_some() {}
        if running.len() >= lane.route.concurrency {
            return Filled::AtLimit;
        }
        if stop.is_cancelled() || lane.is_empty() {
            return Filled::Empty;
        }
        let own = lane.own.clone().try_acquire_owned();
        let Ok(slot) = own.or_else(|_| shared.slots.clone().try_acquire_owned()) else {
            return Filled::NoSlot;
        };
        match start(shared, lane, slot, running).await {
            Started::Yes | Started::Empty => consume_budget().await,
            Started::Paused => return Filled::Empty,
            Started::Paced(wait) => return Filled::Paced(wait),
        }
    }
}

async fn turn(in_line: &mut Option<BoxFuture<'static, Option<OwnedSemaphorePermit>>>) -> Option<OwnedSemaphorePermit> {
    match in_line {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

async fn end(paced: &mut Option<Pin<Box<Sleep>>>) {
    match paced {
        Some(sleep) => sleep.as_mut().await,
        None => std::future::pending().await,
    }
}

/// Starts one attempt, if one may.
async fn start(
    shared: &Arc<Shared>,
    lane: &Arc<Lane>,
    slot: OwnedSemaphorePermit,
    running: &mut JoinSet<()>,
) -> Started {
    let Some(member) = shared.company.join() else {
        return Started::Paused;
    };
    if lane.is_empty() {
        return Started::Empty;
    }
    if let Err(wait) = lane.pace() {
        return Started::Paced(wait);
    }
    let Some((held, weight)) = lane.pop() else {
        return Started::Empty;
    };
    if lane.wants_more() {
        shared.wake.notify_one();
    }
    let (claim, since) = (held.claim.clone(), held.since);
    let (started_at, begun) = (Timestamp::now(), Instant::now());
    let mut work = Box::pin(attempt(
        shared.clone(),
        lane.clone(),
        held,
        started_at,
        begun,
        (weight, slot, member),
    ));
    if poll_once(work.as_mut()).await {
        return Started::Yes;
    }
    let key = key(&claim);
    lane.register(key, || {
        let registered = Registered::new(lane.clone(), key);
        let abort = running.spawn(async move {
            let _registered = registered;
            work.await;
        });
        Running {
            claim,
            since,
            started_at,
            begun,
            abort,
        }
    });
    Started::Yes
}

/// Whether the future was ready at once. If not, whoever polls it next takes its wakes over.
async fn poll_once(mut future: Pin<&mut impl Future<Output = ()>>) -> bool {
    std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await
}

/// Forgets an attempt when its task has ended, however it did.
pub(super) struct Registered(Arc<Lane>, Key);

impl Registered {
    pub(super) fn new(lane: Arc<Lane>, key: Key) -> Self {
        Self(lane, key)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let _ = self.0.unregister(self.1);
    }
}
