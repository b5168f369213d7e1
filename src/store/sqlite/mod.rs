//! SQLite: one writer thread with a rusqlite connection of its own, read-only sqlx connections for everything that
//! people ask.

mod claim;
mod code;
mod connect;
mod effects;
mod ingest;
mod keys;
mod lanes;
mod outbox;
mod people;
mod purge;
mod quarantine;
mod read;
mod secrets;
mod settle;
mod steps;
mod transact;
mod upkeep;
mod writer;

use std::{
    path::PathBuf,
    sync::{Arc, mpsc},
    time::Duration,
};

use futures_util::future::BoxFuture;
use sqlx::SqlitePool;
use tokio::sync::{Mutex, Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use self::writer::{Job, Message};
use super::{
    Accepted, Admin, Applied, AttemptLimit, Backlog, ClaimRequest, Discarded, Effect, EventDetail, EventFilter,
    Handoff, HeldKey, InTransaction, Inbox, KeptAnswer, KeyFilter, KeyRow, KeyStats, KeyStep, KeyWork, Keys, Lease,
    Native, NewKey, NewStep, Options, Outbox, Page, Prepared, PurgePolicy, Purged, Queue, Received, Relayed, Reprocess,
    ReprocessScope, Reprocessed, Reserved, SealedSecret, Settled, Stats, Step, Store, StoreError, StoreFuture, Swept,
    TopicRoutes, Who, WorkError,
    batch::{HandoffSlot, Pending, validate},
    budget::Budget,
    cache::Cached,
    ordering::Lane,
    outbox::Order,
    retention::Cursors,
    task::Task,
};
use crate::domain::{Claim, NewEvent, OrderedHandler, Settle};

/// Deliveries, events or rows in one transaction of a long job, so that ingest never waits long behind it.
const CHUNK: u32 = 500;

pub(super) struct SqliteStore {
    writer: mpsc::Sender<Message>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
    read: SqlitePool,
    file: PathBuf,
    handoff: HandoffSlot,
    budget: Arc<Budget>,
    settles: Arc<Semaphore>,
    order: Arc<Order>,
    stats: Cached<Stats>,
    key_stats: Cached<KeyStats>,
    purge: Cursors,
    ordered: Arc<[OrderedHandler]>,
    repair: Mutex<Repair>,
}

/// Where the repair of lanes is.
#[derive(Default)]
struct Repair {
    is_adopted: bool,
    after: Option<Lane>,
}

impl SqliteStore {
    /// Opens or makes the file, brings the schema up to date, and starts the writer.
    pub(super) async fn open(url: &str, options: Options) -> Result<Arc<Self>, StoreError> {
        let file: PathBuf = connect::file(url)?;
        let path = file.clone();
        let writer = tokio::task::spawn_blocking(move || connect::writer(&path))
            .await
            .map_err(|error| StoreError::Unavailable(error.to_string()))?
            .map_err(|error| connect::error(&error))?;
        connect::migrate(&file, options.migrate).await?;
        let read = connect::readers(&file);

        let handoff = HandoffSlot::default();
        let (sender, receiver) = mpsc::channel();
        let state = writer::Writer::new(writer, file.clone(), &options, Arc::clone(&handoff));
        let thread = std::thread::Builder::new()
            .name("cerca-store".to_owned())
            .spawn(move || state.run(receiver))
            .map_err(|error| StoreError::Unavailable(error.to_string()))?;
        Ok(Arc::new(Self {
            writer: sender,
            thread: Mutex::new(Some(thread)),
            read,
            file,
            handoff,
            budget: Budget::new(options.queue_events, options.queue_bytes),
            settles: Arc::new(Semaphore::new(options.queue_settles)),
            order: Arc::default(),
            stats: Cached::default(),
            key_stats: Cached::default(),
            purge: Cursors::default(),
            ordered: options.ordered,
            repair: Mutex::default(),
        }))
    }

    /// Tells the local worker that deliveries became ready.
    fn wake(&self, count: u64) {
        if count > 0
            && let Some(handoff) = self.handoff.get()
        {
            handoff.wake();
        }
    }

    /// Wakes ordered deliveries that nobody is in front of.
    async fn repair_lanes(&self) -> Result<(), StoreError> {
        let mut repair = self.repair.lock().await;
        if !repair.is_adopted {
            let ordered = Arc::clone(&self.ordered);
            self.on_writer(move |db| lanes::adopt(db, &ordered)).await?;
            repair.is_adopted = true;
        }
        let after = repair.after.take();
        let (woken, after) = self
            .on_writer(move |db| lanes::repair(db, after.as_ref(), CHUNK as usize))
            .await?;
        repair.after = after;
        self.wake(woken);
        Ok(())
    }

    /// Runs work on the writer, in a savepoint of the transaction that is next; the answer comes after its commit.
    fn on_writer<T: Send + 'static>(
        &self,
        work: impl FnOnce(&rusqlite::Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        self.ask(writer::job(work))
    }

    fn ask<T: Send + 'static>(
        &self,
        (job, answer): (Job, oneshot::Receiver<Result<T, StoreError>>),
    ) -> StoreFuture<'static, T> {
        let sent = self.writer.send(Message::Job(job));
        Box::pin(async move {
            sent.map_err(|_| StoreError::Closed)?;
            answer.await.unwrap_or(Err(StoreError::Closed))
        })
    }
}

impl Store for SqliteStore {}

impl Native for SqliteStore {
    fn steps(&self, claim: Lease) -> StoreFuture<'_, Option<Vec<Step>>> {
        self.on_writer(move |db| steps::list(db, &claim))
    }

    fn record(&self, step: NewStep) -> StoreFuture<'_, bool> {
        self.on_writer(move |db| steps::record(db, &step))
    }

    fn transact(&self, work: InTransaction, limit: Duration) -> StoreFuture<'_, ()> {
        let limit = limit.min(effects::LONGEST);
        self.on_writer(move |db| {
            let gone = CancellationToken::new();
            let patience = code::Patience { limit, gone: &gone };
            effects::run_code(db, &mut effects::Checked::default(), &work, &patience)
        })
    }
}

impl Inbox for SqliteStore {
    fn accept(&self, events: Vec<NewEvent>) -> StoreFuture<'static, Vec<Accepted>> {
        if events.is_empty() {
            return Box::pin(async { Ok(Vec::new()) });
        }
        let queued = validate(&events)
            .and_then(|()| self.budget.take(events.len(), events.iter().map(NewEvent::size).sum()))
            .and_then(|permit| {
                let (reply, answer) = oneshot::channel();
                let pending = Pending { events, reply, permit };
                self.writer
                    .send(Message::Accept(pending))
                    .map_err(|_| StoreError::Closed)?;
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
            let revived = self.on_writer(move |db| people::revive(db, id, &task)).await?;
            self.wake(revived);
            Ok(revived)
        })
    }

    fn set_handoff(&self, handoff: Arc<dyn Handoff>) {
        let _ = self.handoff.set(handoff);
    }
}

impl Queue for SqliteStore {
    fn claim(&self, request: ClaimRequest) -> StoreFuture<'_, Vec<Claim>> {
        self.ask(writer::claim_job(move |db| claim::claim(db, &request)))
    }

    fn claim_suspect(&self, handlers: Vec<Arc<str>>, lease: Duration) -> StoreFuture<'_, Option<Claim>> {
        self.on_writer(move |db| claim::claim_suspect(db, &handlers, lease))
    }

    fn settle(&self, settle: Settle) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // The semaphore is never closed; without a permit the settle would only be unbounded, not lost.
            let permit = Arc::clone(&self.settles).acquire_owned().await.ok();
            let _ = self.writer.send(Message::Settle(settle, permit));
        })
    }

    fn settle_each(&self, settles: Vec<Settle>) -> StoreFuture<'_, Vec<Settled>> {
        Box::pin(async move {
            let (answers, woken) = self.on_writer(move |db| settle::each(db, &settles)).await?;
            self.wake(u64::from(woken));
            Ok(answers)
        })
    }

    fn flush(&self) -> StoreFuture<'_, ()> {
        let (reply, answer) = oneshot::channel();
        let sent = self.writer.send(Message::Flush(reply));
        Box::pin(async move {
            sent.map_err(|_| StoreError::Closed)?;
            answer.await.map_err(|_| StoreError::Closed)
        })
    }

    fn apply(&self, effect: Effect) -> StoreFuture<'_, Applied> {
        let (reply, answer) = oneshot::channel();
        let gone = CancellationToken::new();
        let waits = gone.clone().drop_guard();
        let sent = self
            .writer
            .send(Message::Apply(effects::Waiting { effect, reply, gone }));
        Box::pin(async move {
            let _waits = waits;
            sent.map_err(|_| StoreError::Closed)?;
            answer.await.unwrap_or(Err(StoreError::Closed))
        })
    }

    fn renew(&self, leases: Vec<Lease>, lease: Duration) -> StoreFuture<'_, Vec<bool>> {
        self.on_writer(move |db| claim::renew(db, &leases, lease))
    }

    fn sweep(&self, limits: Vec<AttemptLimit>) -> StoreFuture<'_, Swept> {
        Box::pin(async move {
            let limits = Arc::new(limits);
            let mut swept = Swept::default();
            loop {
                let limits = Arc::clone(&limits);
                let some = self.on_writer(move |db| claim::sweep(db, &limits, CHUNK)).await?;
                swept.ready += some.ready;
                swept.dead += some.dead;
                if some.ready + some.dead < u64::from(CHUNK) {
                    break;
                }
            }
            self.repair_lanes().await?;
            Ok(swept)
        })
    }
}

impl Outbox for SqliteStore {
    fn relay(&self, routes: Arc<TopicRoutes>) -> StoreFuture<'_, Relayed> {
        Box::pin(async move {
            if !outbox::is_waiting(&self.read).await? {
                return Ok(Relayed::default());
            }
            let worker = (Arc::clone(&self.handoff), Arc::clone(&self.ordered));
            let (job, answer) = outbox::relay(routes, Arc::clone(&self.order), worker);
            self.writer.send(Message::Job(job)).map_err(|_| StoreError::Closed)?;
            answer.await.unwrap_or(Err(StoreError::Closed))
        })
    }

    fn backlog(&self) -> StoreFuture<'_, Backlog> {
        Box::pin(outbox::backlog(&self.read))
    }
}

impl Admin for SqliteStore {
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
            let filter = match what.filter {
                ReprocessScope::Event {
                    provider,
                    provider_event_id,
                } => {
                    let id = read::id(&self.read, &provider, &provider_event_id).await?;
                    return match id {
                        Some(id) => Ok(self
                            .on_writer(move |db| people::reprocess(db, &task, &[id], None))
                            .await?
                            .0),
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
                let task = Arc::clone(&task);
                let (some, row) = self
                    .on_writer(move |db| people::reprocess(db, &task, &ids, audit))
                    .await?;
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
            self.on_writer(move |db| people::discard(db, id, &target, &who)).await
        })
    }

    fn stats(&self) -> StoreFuture<'_, Stats> {
        Box::pin(self.stats.get(read::stats(&self.read)))
    }

    fn prepare<'a>(&'a self, statement: &'a str, params: usize) -> StoreFuture<'a, Prepared> {
        let statement = statement.to_owned();
        self.on_writer(move |db| Ok(effects::prepare(db, &statement, params)))
    }

    fn purge(&self, policy: PurgePolicy, dry_run: bool) -> StoreFuture<'_, Purged> {
        Box::pin(async move {
            let from = self.purge.start(dry_run);
            let walked = self
                .on_writer(move |db| purge::purge(db, policy, dry_run, from, CHUNK))
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
            self.on_writer(move |db| secrets::set(db, &provider, sealed.as_deref(), &source))
                .await
        })
    }

    fn ping(&self) -> StoreFuture<'_, ()> {
        // BEGIN IMMEDIATE takes the write lock; a full disk shows itself at the first real write.
        self.on_writer(|_| Ok(()))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let _ = self.writer.send(Message::Close);
            if let Some(thread) = self.thread.lock().await.take() {
                let _ = tokio::task::spawn_blocking(move || thread.join()).await;
            }
            self.read.close().await;
        })
    }
}

impl Keys for SqliteStore {
    fn reserve(&self, new: NewKey) -> StoreFuture<'static, Reserved> {
        self.on_writer(move |db| keys::reserve(db, &new))
    }

    fn take_over(&self, id: i64, lease: Duration) -> StoreFuture<'static, Option<HeldKey>> {
        self.on_writer(move |db| keys::take_over(db, id, lease))
    }

    fn step(&self, held: HeldKey, step: KeyStep) -> StoreFuture<'static, bool> {
        self.on_writer(move |db| keys::step(db, held, &step))
    }

    fn answer(&self, held: Option<HeldKey>, work: KeyWork) -> BoxFuture<'static, Result<Arc<KeptAnswer>, WorkError>> {
        let done = transact::transact(self.writer.clone(), held, work);
        Box::pin(async move { done.await.map(Arc::new) })
    }

    fn abandoned(&self, limit: u32) -> StoreFuture<'_, Vec<KeyRow>> {
        Box::pin(keys::abandoned(&self.read, limit))
    }

    fn keys(&self, filter: KeyFilter) -> StoreFuture<'_, Vec<KeyRow>> {
        Box::pin(async move { keys::list(&self.read, &filter).await })
    }

    fn key(&self, id: i64) -> StoreFuture<'_, Option<(KeyRow, Option<KeptAnswer>)>> {
        Box::pin(keys::one(&self.read, id))
    }

    fn key_stats(&self) -> StoreFuture<'_, KeyStats> {
        Box::pin(self.key_stats.get(keys::stats(&self.read)))
    }

    fn reap(&self, age: Duration, limit: u32) -> StoreFuture<'_, u64> {
        self.on_writer(move |db| keys::reap(db, age, limit))
    }
}
