//! PostgreSQL: tasks that each own a connection for what must be quick or must not be dropped, and a small pool for what
//! people ask.

mod actor;
mod claim;
mod code;
mod connect;
mod effect;
mod effects;
mod ingest;
mod key_found;
mod key_rows;
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

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use sqlx::{Connection as _, PgConnection, PgPool, postgres::PgConnectOptions};
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot};

use self::{
    actor::{Actor, Closing},
    connect::{Link, PINNED, PINNED_ASYNC, PINNED_IMPATIENT},
    lanes::Lanes,
    notify::Notifier,
    people::Changed,
};
use super::{
    Accepted, Admin, Applied, AttemptLimit, Backlog, ClaimRequest, Discarded, Effect, EventDetail, EventFilter,
    Handoff, HeldKey, InTransaction, Inbox, KeptAnswer, KeyFilter, KeyRow, KeyStats, KeyStep, KeyWork, Keys, Lease,
    Native, NewKey, NewStep, Options, Outbox, Page, Prepared, PurgePolicy, Purged, Queue, Received, Relayed, Reprocess,
    ReprocessScope, Reprocessed, Reserved, SealedSecret, Settled, Stats, Step, Store, StoreError, StoreFuture, Swept,
    TopicRoutes, Who, WorkError,
    batch::{HandoffSlot, Pending, validate},
    budget::Budget,
    cache::Cached,
    outbox::Order,
    retention::Cursors,
    task::Task,
};
use crate::domain::{Claim, NewEvent, OrderedHandler, Settle};

/// Deliveries, events or rows in one transaction of a long job.
const CHUNK: u32 = 500;

/// Look-ups by key, whatever the statistics say.
const STEPS: &str = "SET jit = off; SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;";
/// Transactions of API handlers at once.
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
    /// Each has a connection, made when it is first used.
    transactions: Vec<Actor>,
    next_transaction: AtomicUsize,
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

        let (accepts, queue) = mpsc::unbounded_channel();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..options.flushes.max(1) {
            let flusher = ingest::Flusher {
                queue: Arc::clone(&queue),
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
            budget: Budget::new(options.queue_events, options.queue_bytes),
            settles: Arc::new(Semaphore::new(options.queue_settles)),
            stats: Cached::default(),
            keys: keys::KeyDesk::start(link("keys", PINNED), &closing),
            transactions: (0..TRANSACTIONS)
                .map(|_| Actor::start(link("transaction", "SET jit = off;"), &closing))
                .collect(),
            next_transaction: AtomicUsize::new(0),
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

    fn transact(&self, work: InTransaction, limit: Duration) -> StoreFuture<'_, ()> {
        let (refuse, refused) = oneshot::channel();
        let done = self.people.ask(move |db| {
            Box::pin(async move {
                let mut tx = db.begin().await?;
                match code::run(&mut tx, &work, limit).await? {
                    Ok(()) => tx.commit().await,
                    Err(why) => {
                        let _ = refuse.send(why);
                        tx.rollback().await
                    }
                }
            })
        });
        Box::pin(async move {
            done.await?;
            match refused.await {
                Ok(why) => Err(StoreError::Refused(why)),
                Err(_) => Ok(()),
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
                let (reply, answer) = oneshot::channel();
                let pending = Pending { events, reply, permit };
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

impl Admin for PostgresStore {
    fn events(&self, filter: EventFilter, cursor: Option<i64>, limit: u32) -> StoreFuture<'_, Page> {
        Box::pin(async move { read::events(&self.read, &filter, cursor, limit).await })
    }

    fn count(&self, filter: EventFilter) -> StoreFuture<'_, u64> {
        Box::pin(async move { read::count(&self.read, &filter).await })
    }

    fn event<'a>(&'a self, provider: &'a str, provider_event_id: &'a str) -> StoreFuture<'a, Option<EventDetail>> {
        Box::pin(async move { read::event(&self.read, provider, provider_event_id).await })
    }

    fn payload<'a>(&'a self, provider: &'a str, provider_event_id: &'a str) -> StoreFuture<'a, Option<Received>> {
        Box::pin(async move { read::payload(&self.read, provider, provider_event_id).await })
    }

    fn reprocess(&self, what: Reprocess, who: Who) -> StoreFuture<'_, Reprocessed> {
        Box::pin(async move {
            let task = Task::new(&what, &who, &self.ordered);
            let chunk = |ids: Vec<i64>, audit| {
                let task = Arc::clone(&task);
                self.change(move |db| Box::pin(async move { people::reprocess(db, &task, &ids, audit).await }))
            };
            let filter = match what.filter {
                ReprocessScope::Event {
                    provider,
                    provider_event_id,
                } => {
                    return match read::id(&self.read, &provider, &provider_event_id).await? {
                        Some(id) => Ok(chunk(vec![id], None).await?.0),
                        None => Ok(Reprocessed::default()),
                    };
                }
                ReprocessScope::Filter(filter) => filter,
            };
            let (mut total, mut cursor, mut audit) = (Reprocessed::default(), None, None);
            loop {
                let ids = read::ids(&self.read, &filter, cursor, CHUNK).await?;
                cursor = ids.last().copied();
                if cursor.is_none() {
                    return Ok(total);
                }
                let (some, row) = chunk(ids, audit).await?;
                audit = row;
                total.events += some.events;
                total.deliveries += some.deliveries;
            }
        })
    }

    fn discard<'a>(
        &'a self,
        provider: &'a str,
        provider_event_id: &'a str,
        who: Who,
    ) -> StoreFuture<'a, Option<Discarded>> {
        Box::pin(async move {
            let Some(id) = read::id(&self.read, provider, provider_event_id).await? else {
                return Ok(None);
            };
            let target = format!("{provider}:{provider_event_id}");
            self.change(move |db| Box::pin(async move { people::discard(db, id, &target, &who).await }))
                .await
        })
    }

    fn stats(&self) -> StoreFuture<'_, Stats> {
        Box::pin(self.stats.get(read::stats(&self.read)))
    }

    fn prepare<'a>(&'a self, statement: &'a str, params: usize) -> StoreFuture<'a, Prepared> {
        let statement = statement.to_owned();
        self.people
            .ask(move |db| Box::pin(async move { effect::prepare(db, &statement, params).await }))
    }

    fn purge(&self, policy: PurgePolicy, dry_run: bool) -> StoreFuture<'_, Purged> {
        Box::pin(async move {
            let from = self.purge.start(dry_run);
            let walked = self
                .change(move |db| Box::pin(purge::purge(db, policy, dry_run, from, CHUNK)))
                .await?;
            self.purge.advance(dry_run, walked.next);
            Ok(walked.purged)
        })
    }

    fn secrets(&self) -> StoreFuture<'_, Vec<SealedSecret>> {
        Box::pin(secrets::list(&self.read))
    }

    fn set_secret<'a>(&'a self, provider: &'a str, sealed: Option<Vec<u8>>, source: &'a str) -> StoreFuture<'a, bool> {
        let (provider, source) = (provider.to_owned(), source.to_owned());
        Box::pin(async move {
            self.people
                .ask(move |db| Box::pin(async move { secrets::set(db, &provider, sealed.as_deref(), &source).await }))
                .await
        })
    }

    fn ping(&self) -> StoreFuture<'_, ()> {
        // A standby answers reads; only the primary takes a temporary change of the catalogue's own sequence of ids.
        self.people.ask(|db| {
            Box::pin(async move {
                sqlx::query("SELECT pg_current_xact_id()").execute(db).await?;
                Ok(())
            })
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.closing.token.cancel();
            self.closing.tasks.close();
            self.closing.tasks.wait().await;
            self.read.close().await;
        })
    }
}

impl Keys for PostgresStore {
    fn reserve(&self, new: NewKey) -> StoreFuture<'static, Reserved> {
        self.keys.reserve(new)
    }

    fn take_over(&self, id: i64, lease: Duration) -> StoreFuture<'static, Option<HeldKey>> {
        self.people
            .ask(move |db| Box::pin(async move { key_found::take_over(db, id, lease).await }))
    }

    fn step(&self, held: HeldKey, step: KeyStep) -> StoreFuture<'static, bool> {
        self.keys.step(held, step)
    }

    fn answer(&self, held: Option<HeldKey>, work: KeyWork) -> BoxFuture<'static, Result<Arc<KeptAnswer>, WorkError>> {
        let turn = self.next_transaction.fetch_add(1, Ordering::Relaxed) % self.transactions.len();
        let done = self.transactions[turn].ask(move |db| Box::pin(key_rows::transact(db, held, work)));
        Box::pin(async move { done.await?.map(Arc::new) })
    }

    fn abandoned(&self, limit: u32) -> StoreFuture<'_, Vec<KeyRow>> {
        Box::pin(key_rows::abandoned(&self.read, limit))
    }

    fn keys(&self, filter: KeyFilter) -> StoreFuture<'_, Vec<KeyRow>> {
        Box::pin(async move { key_rows::list(&self.read, &filter).await })
    }

    fn key(&self, id: i64) -> StoreFuture<'_, Option<(KeyRow, Option<KeptAnswer>)>> {
        Box::pin(key_rows::one(&self.read, id))
    }

    fn key_stats(&self) -> StoreFuture<'_, KeyStats> {
        Box::pin(self.key_stats.get(key_rows::stats(&self.read)))
    }

    fn reap(&self, age: Duration, limit: u32) -> StoreFuture<'_, u64> {
        self.people
            .ask(move |db| Box::pin(async move { key_rows::reap(db, age, limit).await }))
    }
}

/// A duration for `$n * interval '1 microsecond'`.
fn micros(duration: Duration) -> i64 {
    // A hundred years, so that no sum leaves the calendar.
    const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);
    i64::try_from(duration.min(LONGEST).as_micros()).unwrap_or(i64::MAX)
}
