//! PostgreSQL: tasks that each own a connection for what must be quick or must not be dropped, and a small pool for what
//! people ask.

mod actor;
mod admin;
mod api_keys;
mod claim;
mod code;
mod connect;
mod effect;
mod effects;
mod ingest;
mod key_found;
mod key_rows;
mod key_sent;
mod keys;
mod lanes;
mod notify;
mod outbox;
mod people;
mod purge;
mod quarantine;
mod read;
mod secrets;
mod settle;
mod steps;
mod time;
mod upkeep;
mod values;

pub(super) use connect::schema;
pub(crate) use effect::run_elsewhere;

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use sqlx::{PgConnection, PgPool, postgres::PgConnectOptions};
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot};

use self::{
    actor::{Actor, Closing},
    connect::{Link, PINNED, PINNED_ASYNC, PINNED_IMPATIENT},
    lanes::Lanes,
    notify::Notifier,
    people::Changed,
};
use super::{
    Accepted, Applied, AttemptLimit, Backlog, ClaimRequest, Effect, Handoff, InTransaction, Inbox, KeyStats, Lease,
    Native, NewStep, Options, Outbox, Queue, Relayed, Settled, Stats, Step, Store, StoreError, StoreFuture, Swept,
    TopicRoutes, Who, answers,
    batch::{HandoffSlot, Pending},
    budget::Budget,
    cache::Cached,
    outbox::Order,
    retention::Cursors,
    task::Task,
    validate::validate,
};
use crate::domain::{Claim, NewEvent, OrderedHandler, Settle};

/// Deliveries, events or rows in one transaction of a long job.
const CHUNK: u32 = 500;

/// Look-ups by key, whatever the statistics say.
const STEPS: &str = "SET jit = off; SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;";
/// Transactions of API handlers at once, each on a connection of its own, made when it is first needed.
const TRANSACTIONS: usize = 4;

pub(super) struct PostgresStore {
    accepts: mpsc::UnboundedSender<Pending>,
    outcomes: mpsc::UnboundedSender<settle::Message>,
    effects: effects::Effects,
    claims: Actor,
    leases: Actor,
    people: Actor,
    steps: steps::Steps,
    pull: Actor,
    outbox: Actor,
    order: Arc<Order>,
    read: PgPool,
    handoff: HandoffSlot,
    budget: Arc<Budget>,
    settles: Arc<Semaphore>,
    stats: Cached<Stats>,
    keys: keys::KeyDesk,
    transactions: Actor,
    key_stats: Cached<KeyStats>,
    purge: Cursors,
    lanes: Lanes,
    repair: lanes::Repair,
    ordered: Arc<[OrderedHandler]>,
    notifier: Notifier,
    server: PgConnectOptions,
    /// Names this process among those that notify each other.
    own: u64,
    closing: Closing,
}

impl PostgresStore {
    /// Brings the schema up to date and starts the tasks.
    pub(super) async fn open(url: &str, options: Options) -> Result<Arc<Self>, StoreError> {
        let server = connect::options(url)?;
        connect::migrate(&server, options.migrate).await?;

        let closing = Closing::default();
        let limit = options.statement_timeout;
        let link = |name: &str, setup: &str| Link::new(&server, name, setup, limit);
        let handoff = HandoffSlot::default();
        let own: u64 = rand::random();
        let notifier = Notifier::start(link("notify", "SET synchronous_commit = off;"), own, &closing);
        // An advance that is lost in a crash of the server is found by the sweep.
        let lanes = link("lanes", PINNED_ASYNC);
        let lanes = Lanes::start(lanes, Arc::clone(&handoff), notifier.clone(), &closing);

        let budget = Budget::new(&options, options.flushes);
        let (accepts, queue) = mpsc::unbounded_channel();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..options.flushes.max(1) {
            let flusher = ingest::Flusher {
                queue: Arc::clone(&queue),
                budget: Arc::clone(&budget),
                link: link("ingest", PINNED),
                handoff: Arc::clone(&handoff),
                options: options.clone(),
                lanes: lanes.clone(),
                notifier: notifier.clone(),
                closing: closing.clone(),
            };
            closing.tasks.spawn(flusher.run());
        }
        let (outcomes, queue) = mpsc::unbounded_channel();
        let settler = settle::run(queue, link("settle", PINNED_IMPATIENT), lanes.clone(), closing.clone());
        closing.tasks.spawn(settler);
        Ok(Arc::new(Self {
            accepts,
            outcomes,
            effects: effects::Effects::new(&server, limit, lanes.clone(), &closing),
            claims: Actor::start(link("claim", PINNED_ASYNC), &closing),
            leases: Actor::start(link("leases", PINNED_ASYNC), &closing),
            people: Actor::start(link("people", "SET jit = off;"), &closing),
            steps: steps::Steps::start(link("steps", STEPS), &closing),
            pull: Actor::start(link("pull", PINNED), &closing),
            outbox: Actor::start(link("outbox", PINNED), &closing),
            order: Arc::default(),
            read: connect::readers(&server),
            handoff,
            budget,
            settles: Arc::new(Semaphore::new(options.queue_settles)),
            stats: Cached::default(),
            keys: keys::KeyDesk::start(link("keys", PINNED), &closing),
            transactions: Actor::pool((0..TRANSACTIONS).map(|_| link("transaction", effects::SETUP)), &closing),
            key_stats: Cached::default(),
            purge: Cursors::default(),
            lanes,
            repair: lanes::Repair::default(),
            ordered: options.ordered,
            notifier,
            server,
            own,
            closing,
        }))
    }

    /// Changes deliveries, and has the lanes of the changed ones advanced.
    fn change<T: Send + 'static>(
        &self,
        work: impl for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, sqlx::Result<Changed<T>>> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        let changed = self.people.ask(work);
        Box::pin(async move {
            let (value, lanes) = changed.await?;
            self.lanes.advance(lanes);
            Ok(value)
        })
    }

    /// Tells every worker that deliveries became ready.
    fn wake(&self, count: u64) {
        if count == 0 {
            return;
        }
        if let Some(handoff) = self.handoff.get() {
            handoff.wake();
        }
        self.notifier.notify();
    }
}

impl Store for PostgresStore {}

impl Native for PostgresStore {
    fn steps(&self, claim: Lease) -> StoreFuture<'_, Option<Vec<Step>>> {
        self.steps.list(claim)
    }

    fn record(&self, step: NewStep) -> StoreFuture<'_, bool> {
        self.steps.record(step)
    }

    fn transact(&self, work: InTransaction, limit: Duration) -> StoreFuture<'static, ()> {
        let done = self
            .transactions
            .ask_while_waiting(move |db| Box::pin(async move { key_rows::transact(db, (&work, None), limit).await }));
        Box::pin(async move {
            match done.await? {
                Applied::Failed(why) => Err(StoreError::Refused(why)),
                Applied::Done | Applied::Stale => Ok(()),
            }
        })
    }
}

impl Inbox for PostgresStore {
    fn accept(&self, events: Vec<NewEvent>) -> StoreFuture<'static, Vec<Accepted>> {
        if events.is_empty() {
            return Box::pin(async { Ok(Vec::new()) });
        }
        let queued = validate(&events)
            .and_then(|()| self.budget.take(events.len(), events.iter().map(NewEvent::size).sum()))
            .and_then(|permit| {
                let (waiter, answer) = answers::channel();
                let pending = Pending {
                    events,
                    waiter,
                    permit: Some(permit),
                };
                self.accepts.send(pending).map_err(|_| StoreError::Closed)?;
                Ok(answer)
            });
        Box::pin(async move { queued?.await.unwrap_or(Err(StoreError::Closed)) })
    }

    fn revive<'a>(&'a self, provider: &'a str, provider_event_id: &'a str, who: Who) -> StoreFuture<'a, u64> {
        Box::pin(async move {
            let task = Task::revive(provider, provider_event_id, &who, &self.ordered);
            let Some(id) = read::id(&self.read, provider, provider_event_id).await? else {
                return Ok(0);
            };
            let work = self.change(move |db| Box::pin(async move { people::revive(db, id, &task).await }));
            let revived = work.await?;
            self.wake(revived);
            Ok(revived)
        })
    }

    fn set_handoff(&self, handoff: Arc<dyn Handoff>) {
        if self.handoff.set(Arc::clone(&handoff)).is_ok() {
            notify::listen(&self.server, self.own, handoff, &self.closing);
        }
    }
}

impl Queue for PostgresStore {
    fn claim(&self, request: ClaimRequest) -> StoreFuture<'_, Vec<Claim>> {
        self.claims
            .ask_while_waiting(move |db| Box::pin(async move { claim::claim(db, &request).await }))
    }

    fn claim_suspect(&self, handlers: Vec<Arc<str>>, lease: Duration) -> StoreFuture<'_, Option<Claim>> {
        self.claims
            .ask(move |db| Box::pin(async move { claim::claim_suspect(db, &handlers, lease).await }))
    }

    fn settle(&self, settle: Settle) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // The semaphore is never closed; without a permit the settle would only be unbounded, not lost.
            let permit = Arc::clone(&self.settles).acquire_owned().await.ok();
            let _ = self.outcomes.send(settle::Message::Settle(settle, permit));
        })
    }

    fn settle_each(&self, settles: Vec<Settle>) -> StoreFuture<'_, Vec<Settled>> {
        let settled = self
            .pull
            .ask(move |db| Box::pin(async move { settle::each(db, &settles).await }));
        Box::pin(async move {
            let (answers, lanes) = settled.await?;
            self.lanes.advance(lanes);
            Ok(answers)
        })
    }

    fn flush(&self) -> StoreFuture<'_, ()> {
        let (reply, answer) = oneshot::channel();
        let sent = self.outcomes.send(settle::Message::Flush(reply));
        Box::pin(async move {
            sent.map_err(|_| StoreError::Closed)?;
            answer.await.map_err(|_| StoreError::Closed)?;
            self.lanes.flush().await;
            Ok(())
        })
    }

    fn apply(&self, effect: Effect) -> StoreFuture<'_, Applied> {
        self.effects.apply(effect)
    }

    fn renew(&self, leases: Vec<Lease>, lease: Duration) -> StoreFuture<'_, Vec<bool>> {
        self.leases
            .ask(move |db| Box::pin(async move { claim::renew(db, &leases, lease).await }))
    }

    fn sweep(&self, limits: Vec<AttemptLimit>) -> StoreFuture<'_, Swept> {
        Box::pin(async move {
            let limits = Arc::new(limits);
            let mut swept = Swept::default();
            loop {
                let limits = Arc::clone(&limits);
                let (some, lanes) = self
                    .leases
                    .ask(move |db| Box::pin(async move { claim::sweep(db, &limits, CHUNK).await }))
                    .await?;
                self.lanes.advance(lanes);
                swept.ready += some.ready;
                swept.dead += some.dead;
                if some.ready + some.dead < u64::from(CHUNK) {
                    break;
                }
            }
            if swept.ready > 0 {
                self.notifier.notify();
            }
            self.lanes.advance(self.repair.next(&self.ordered, &self.leases).await?);
            Ok(swept)
        })
    }
}

impl Outbox for PostgresStore {
    fn relay(&self, routes: Arc<TopicRoutes>) -> StoreFuture<'_, Relayed> {
        let way = outbox::Way {
            order: Arc::clone(&self.order),
            handoff: Arc::clone(&self.handoff),
            ordered: Arc::clone(&self.ordered),
            lanes: self.lanes.clone(),
            notifier: self.notifier.clone(),
        };
        Box::pin(outbox::run(&self.outbox, routes, way))
    }

    fn backlog(&self) -> StoreFuture<'_, Backlog> {
        Box::pin(outbox::backlog(&self.read))
    }
}

/// A duration for `$n * interval '1 microsecond'`.
fn micros(duration: Duration) -> i64 {
    // A hundred years, so that no sum leaves the calendar.
    const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);
    i64::try_from(duration.min(LONGEST).as_micros()).unwrap_or(i64::MAX)
}
