//! SQLite: one writer thread with a rusqlite connection of its own, read-only sqlx connections for everything that
//! people ask.

mod admin;
mod alone;
mod api_keys;
mod checkpoint;
mod claim;
mod code;
mod connect;
mod effects;
mod ingest;
mod job;
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
mod upkeep;
mod writer;

pub(super) use connect::schema;

use std::{
    path::PathBuf,
    sync::{Arc, mpsc},
    time::Duration,
};

use futures_util::future::BoxFuture;
use sqlx::SqlitePool;
use tokio::sync::{Mutex, Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use self::{job::Job, writer::Message};
use super::{
    Accepted, Applied, AttemptLimit, Backlog, ClaimRequest, Effect, Handoff, InTransaction, Inbox, KeyStats, Lease,
    Native, NewStep, Options, Outbox, Queue, Relayed, Settled, Stats, Step, Store, StoreError, StoreFuture, Swept,
    TopicRoutes, Who, answers,
    batch::{HandoffSlot, Pending},
    budget::Budget,
    cache::Cached,
    ordering::Lane,
    outbox::Order,
    retention::Cursors,
    task::Task,
    validate::validate,
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
        let budget = Budget::new(&options, 1);
        let state = writer::Writer::new(
            writer,
            file.clone(),
            &options,
            (Arc::clone(&handoff), Arc::clone(&budget)),
        );
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
            budget,
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
        self.ask(job::job(work))
    }

    /// Asks for an effect or for code; if the future is dropped, what has not begun does not begin.
    fn apply_asked(&self, asked: effects::Asked) -> StoreFuture<'static, Applied> {
        let (reply, answer) = oneshot::channel();
        let gone = CancellationToken::new();
        let waits = gone.clone().drop_guard();
        let sent = self
            .writer
            .send(Message::Apply(effects::Waiting { asked, reply, gone }));
        Box::pin(async move {
            let _waits = waits;
            sent.map_err(|_| StoreError::Closed)?;
            answer.await.unwrap_or(Err(StoreError::Closed))
        })
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

    fn transact(&self, work: InTransaction, limit: Duration) -> StoreFuture<'static, ()> {
        let done = self.apply_asked(effects::Asked::Code { work, key: None, limit });
        Box::pin(async move {
            match done.await? {
                Applied::Failed(why) => Err(StoreError::Refused(why)),
                Applied::Done | Applied::Stale => Ok(()),
            }
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
                let (waiter, answer) = answers::channel();
                let pending = Pending {
                    events,
                    waiter,
                    permit: Some(permit),
                };
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
        self.ask(job::claim_job(move |db| claim::claim(db, &request)))
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
        self.apply_asked(effects::Asked::Effect(effect))
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
