//! One handler inside the worker: its local queue, what of it runs, and how much room it has left. Locks are held for a
//! few instructions and never across an await, because ingest reserves room here.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use jiff::Timestamp;
use tokio::{
    sync::{Notify, Semaphore},
    task::AbortHandle,
    time::Instant,
};

use super::metrics::Metrics;
use crate::{
    domain::{Bucket, Claim},
    handlers::{Action, Route},
    store::Lease,
};

/// No lane's queue shrinks below this: enough to keep a slow handler busy from one claim to the next.
const SMALLEST_QUEUE: usize = 16;
/// Every queue begins with this size and grows as it is used: if an event kills the process time and again, the others
/// that were in memory with it lose an attempt each time, so let them be few.
const FIRST_QUEUE: usize = 64;

pub(super) struct Lane {
    pub(super) name: Arc<str>,
    pub(super) route: Route,
    /// Slots that no other handler can take.
    pub(super) own: Arc<Semaphore>,
    own_slots: usize,
    /// Something was queued.
    pub(super) arrived: Notify,
    pub(super) metrics: Metrics,
    queue: Mutex<VecDeque<Held>>,
    running: Mutex<HashMap<Key, Running>>,
    /// Deliveries reserved or queued, not those that run.
    waiting: AtomicUsize,
    /// Bytes reserved, queued or running.
    bytes: AtomicUsize,
    cap: AtomicUsize,
    max_cap: usize,
    max_bytes: usize,
    backlog: AtomicU8,
    /// Attempts started since the queue was last sized.
    started: AtomicUsize,
    /// The handler's rate limit, and when its time began.
    bucket: Option<(Bucket, Instant)>,
}

/// Names a claim within its lane. Claims of one batch may share a token; an event's new claim has another one.
pub(super) type Key = (i64, i64);

pub(super) fn key(claim: &Claim) -> Key {
    (claim.event.id, claim.token)
}

/// A claim in the local queue.
pub(super) struct Held {
    pub(super) claim: Claim,
    /// The lease was good for its whole length at this instant, by our clock.
    pub(super) since: Instant,
    bytes: usize,
}

/// A claim whose handler was not ready at once.
pub(super) struct Running {
    pub(super) claim: Claim,
    pub(super) since: Instant,
    pub(super) started_at: Timestamp,
    pub(super) begun: Instant,
    pub(super) abort: AbortHandle,
}

/// The states of `Lane::backlog`.
const NONE: u8 = 0;
/// The table holds more than the last claim could take.
const KNOWN: u8 = 1;
/// The same, and the dispatcher was told that there is room again.
const CALLED: u8 = 2;

impl Lane {
    pub(super) fn new(mut route: Route, share: usize, max_cap: usize, max_bytes: usize) -> Self {
        route.concurrency = route.concurrency.max(1);
        let own_slots = share.min(route.concurrency);
        Self {
            name: route.name.clone(),
            own: Arc::new(Semaphore::new(own_slots)),
            own_slots,
            arrived: Notify::new(),
            metrics: Metrics::new(&route.name),
            queue: Mutex::default(),
            running: Mutex::default(),
            waiting: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            cap: AtomicUsize::new(FIRST_QUEUE.min(max_cap)),
            max_cap,
            max_bytes,
            backlog: AtomicU8::new(NONE),
            started: AtomicUsize::new(0),
            bucket: route.rate_limit.map(|rate| (Bucket::new(rate), Instant::now())),
            route,
        }
    }

    pub(super) fn own_slots(&self) -> usize {
        self.own_slots
    }

    /// All or nothing. What is refused goes to the table; while the table holds a backlog, fresh work gets half of the
    /// queue, so that it cannot keep older work out for ever.
    pub(super) fn reserve(&self, count: usize, bytes: usize) -> bool {
        if self.handler_room() < count {
            self.set_backlog(true);
            return false;
        }
        let cap = self.cap.load(Relaxed);
        let cap = if self.backlog.load(Relaxed) == NONE {
            cap
        } else {
            cap / 2
        };
        if !add_within(&self.waiting, count, cap) {
            self.set_backlog(true);
            return false;
        }
        if !add_within(&self.bytes, bytes, self.max_bytes) {
            subtract(&self.waiting, count);
            self.set_backlog(true);
            return false;
        }
        true
    }

    pub(super) fn give_back(&self, count: usize, bytes: usize) {
        subtract(&self.waiting, count);
        subtract(&self.bytes, bytes);
    }

    /// Queues claims whose room was reserved.
    pub(super) fn push_reserved(&self, claims: impl Iterator<Item = Claim>, since: Instant) {
        lock(&self.queue).extend(claims.map(|claim| Held::new(claim, since)));
        self.arrived.notify_one();
    }

    /// Queues claims from the table. They had room when they were asked for; hand-overs may have taken it meanwhile, and
    /// then the queue is over its size for a while.
    pub(super) fn push_claimed(&self, claims: Vec<Claim>, since: Instant) {
        let held: Vec<Held> = claims.into_iter().map(|claim| Held::new(claim, since)).collect();
        self.waiting.fetch_add(held.len(), Relaxed);
        self.bytes.fetch_add(held.iter().map(|h| h.bytes).sum(), Relaxed);
        lock(&self.queue).extend(held);
        self.arrived.notify_one();
    }

    /// Takes the oldest claim. The guard keeps its bytes counted until the attempt has ended.
    pub(super) fn pop(self: &Arc<Self>) -> Option<(Held, Weight)> {
        let held = lock(&self.queue).pop_front()?;
        subtract(&self.waiting, 1);
        let (started, cap) = (self.started.fetch_add(1, Relaxed), self.cap.load(Relaxed));
        if started > cap && cap < self.max_cap {
            self.cap.store((2 * cap).min(self.max_cap), Relaxed);
        }
        Some(self.counted(held))
    }

    /// Counts the bytes of a claim that was never queued, and that begins now.
    pub(super) fn weigh(self: &Arc<Self>, held: Held) -> (Held, Weight) {
        self.bytes.fetch_add(held.bytes, Relaxed);
        self.counted(held)
    }

    fn counted(self: &Arc<Self>, held: Held) -> (Held, Weight) {
        self.metrics.in_flight.increment(1.0);
        let weight = Weight {
            lane: self.clone(),
            bytes: held.bytes,
        };
        (held, weight)
    }

    /// Takes leave to begin one attempt, by the handler's rate limit.
    ///
    /// # Errors
    /// How long to wait.
    pub(super) fn pace(&self) -> Result<(), Duration> {
        match &self.bucket {
            Some((bucket, begin)) => bucket.take(begin.elapsed()),
            None => Ok(()),
        }
    }

    /// Since when a running claim's lease is good; `None` when the claim was lost.
    pub(super) fn since(&self, key: Key) -> Option<Instant> {
        lock(&self.running).get(&key).map(|running| running.since)
    }

    /// Whether the table is known to hold more than there was room for.
    pub(super) fn has_backlog(&self) -> bool {
        self.backlog.load(Relaxed) != NONE
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.queue).is_empty()
    }

    /// How many deliveries to claim from the table: none while the queue is more than half full, because small claims
    /// cost as much as large ones.
    pub(super) fn room(&self) -> usize {
        let (cap, waiting) = (self.cap.load(Relaxed), self.waiting.load(Relaxed));
        if waiting > cap / 2 || self.free_bytes() == 0 {
            return 0;
        }
        (cap - waiting).min(self.handler_room())
    }

    /// None while its target is known to be away: what waits in the table costs nothing.
    fn handler_room(&self) -> usize {
        match &self.route.action {
            Action::Outside(handler) => handler.room(),
            Action::InStore(_) | Action::Native(_) | Action::Pull => usize::MAX,
        }
    }

    pub(super) fn free_bytes(&self) -> usize {
        self.max_bytes.saturating_sub(self.bytes.load(Relaxed))
    }

    /// What is reserved or queued.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    pub(super) fn set_backlog(&self, known: bool) {
        self.backlog.store(if known { KNOWN } else { NONE }, Relaxed);
    }

    /// Whether to call the dispatcher because a backlog waits and there is room for it; true once for each claim.
    pub(super) fn wants_more(&self) -> bool {
        self.backlog.load(Relaxed) == KNOWN
            && self.room() > 0
            && self.backlog.compare_exchange(KNOWN, CALLED, Relaxed, Relaxed).is_ok()
    }

    /// Shrinks the queue to what the handler starts between two calls, where it could not clear it. What waits in memory
    /// counts as attempted when the process is killed, and other replicas cannot take it.
    pub(super) fn resize(&self) {
        let started = self.started.swap(0, Relaxed);
        let floor = SMALLEST_QUEUE.max(2 * self.route.concurrency).min(self.max_cap);
        if started < self.waiting.load(Relaxed) {
            self.cap.store(started.clamp(floor, self.max_cap), Relaxed);
        }
    }

    /// Runs `spawn` and registers what it starts, in one step: the task may end at once.
    pub(super) fn register(&self, key: Key, spawn: impl FnOnce() -> Running) {
        let mut running = lock(&self.running);
        let entry = spawn();
        running.insert(key, entry);
    }

    pub(super) fn unregister(&self, key: Key) -> Option<Running> {
        lock(&self.running).remove(&key)
    }

    /// Everything that runs, which is forgotten.
    pub(super) fn take_running(&self) -> Vec<Running> {
        lock(&self.running).drain().map(|(_, running)| running).collect()
    }

    /// Everything that is queued, which is forgotten.
    pub(super) fn take_queued(self: &Arc<Self>) -> Vec<Claim> {
        let held = std::mem::take(&mut *lock(&self.queue));
        for h in &held {
            self.give_back(1, h.bytes);
        }
        held.into_iter().map(|h| h.claim).collect()
    }

    /// Claims, queued and running, whose lease is older than `age`.
    pub(super) fn older_than(&self, age: Duration, now: Instant) -> Vec<Lease> {
        let old = |since: Instant| now.saturating_duration_since(since) >= age;
        let mut leases: Vec<Lease> = lock(&self.queue)
            .iter()
            .filter(|held| old(held.since))
            .map(|held| lease(&held.claim))
            .collect();
        leases.extend(
            lock(&self.running)
                .values()
                .filter(|running| old(running.since))
                .map(|running| lease(&running.claim)),
        );
        leases
    }

    /// Applies what the store said of leases: the held ones are good from `now`, the lost ones are dropped from the queue
    /// and aborted where they run. Nothing of a lost claim is settled.
    pub(super) fn renewed(&self, answers: &HashMap<Key, bool>, now: Instant) {
        let mut dropped = Vec::new();
        lock(&self.queue).retain_mut(|held| match answers.get(&key(&held.claim)) {
            Some(true) => {
                held.since = now;
                true
            }
            Some(false) => {
                dropped.push(held.bytes);
                false
            }
            None => true,
        });
        for bytes in &dropped {
            self.give_back(1, *bytes);
        }
        let mut lost = Vec::new();
        lock(&self.running).retain(|key, running| match answers.get(key) {
            Some(true) => {
                running.since = now;
                true
            }
            Some(false) => {
                lost.push(running.abort.clone());
                false
            }
            None => true,
        });
        self.metrics.stale.increment((dropped.len() + lost.len()) as u64);
        for abort in lost {
            abort.abort();
        }
    }
}

impl Held {
    pub(super) fn new(claim: Claim, since: Instant) -> Self {
        Self {
            bytes: claim.event.size(),
            claim,
            since,
        }
    }
}

/// Gives the bytes of an attempt back when it has ended, however it did.
pub(super) struct Weight {
    lane: Arc<Lane>,
    bytes: usize,
}

impl Drop for Weight {
    fn drop(&mut self) {
        subtract(&self.lane.bytes, self.bytes);
        self.lane.metrics.in_flight.decrement(1.0);
    }
}

fn lease(claim: &Claim) -> Lease {
    Lease {
        event_id: claim.event.id,
        handler: claim.handler.clone(),
        token: claim.token,
    }
}

/// A panic while one of these locks is held leaves no half-done change behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add_within(counter: &AtomicUsize, add: usize, limit: usize) -> bool {
    counter
        .fetch_update(Relaxed, Relaxed, |now| now.checked_add(add).filter(|sum| *sum <= limit))
        .is_ok()
}

fn subtract(counter: &AtomicUsize, count: usize) {
    let _ = counter.fetch_update(Relaxed, Relaxed, |now| Some(now.saturating_sub(count)));
}
