//! The writer thread. It takes what is waiting, writes it in one transaction, and answers after the commit. No timers for
//! anything that somebody waits for: the next batch is what came while the last one was written.

use std::{
    cell::Cell,
    collections::VecDeque,
    mem,
    path::PathBuf,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{
    super::{
        Options, StoreError,
        batch::{HandoffSlot, Pending, take_capped},
        budget::Budget,
    },
    alone::{self, Deferred},
    checkpoint::Checkpoints,
    connect::{self, Deadline},
    effects::{self, Waiting},
    ingest,
    job::{Answer, Job},
    lanes::{self, Lanes},
    settle,
};
use crate::domain::Settle;

/// Settles in one transaction, at most.
const SETTLES: usize = 4096;

/// Nobody waits for a settle. Alone, a few are held back this long for company, because each commit costs a sync and
/// breaks up the batch of events that is about to form.
const SETTLE_PAUSE: Duration = Duration::from_millis(2);
const SETTLE_CROWD: usize = 256;

/// How long to wait with settles that could not be written, and how often to try when the store is closed.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
const CLOSE_TRIES: u32 = 25;

/// Beyond this the log is cut as soon as readers let go, though that pauses the writer.
const WAL_LIMIT: u64 = 256 << 20;
/// Commits between two looks at the size of the log.
const WAL_CHECK: u32 = 1024;

pub(super) enum Message {
    Accept(Pending),
    Settle(Settle, Option<OwnedSemaphorePermit>),
    Flush(oneshot::Sender<()>),
    Apply(Waiting),
    Job(Job),
    Close,
}

/// What is waiting.
#[derive(Default)]
struct Waits {
    accepts: VecDeque<Pending>,
    settles: Vec<(Settle, Option<OwnedSemaphorePermit>)>,
    flushes: Vec<oneshot::Sender<()>>,
    applies: VecDeque<Waiting>,
    jobs: Vec<Job>,
    close: bool,
}

impl Waits {
    fn push(&mut self, message: Message) {
        match message {
            Message::Accept(pending) => self.accepts.push_back(pending),
            Message::Settle(settle, permit) => self.settles.push((settle, permit)),
            Message::Flush(reply) => self.flushes.push(reply),
            Message::Apply(waiting) => self.applies.push_back(waiting),
            Message::Job(job) => self.jobs.push(job),
            Message::Close => self.close = true,
        }
    }

    fn is_empty(&self) -> bool {
        self.settles.is_empty() && self.nobody_waits()
    }

    /// Whether there is nothing but settles.
    fn nobody_waits(&self) -> bool {
        self.accepts.is_empty() && self.flushes.is_empty() && self.applies.is_empty() && self.jobs.is_empty()
    }
}

pub(super) struct Writer {
    db: Option<(Connection, Deadline)>,
    file: PathBuf,
    handoff: HandoffSlot,
    budget: Arc<Budget>,
    options: Options,
    checked: effects::Checked,
    deferred: Deferred,
    lanes: Lanes,
    /// The effects of the last transaction were slow.
    is_slow: bool,
    commits: u32,
    /// `None`: the connection makes its own.
    checkpoints: Option<Checkpoints>,
}

impl Writer {
    pub(super) fn new(
        db: (Connection, Deadline),
        file: PathBuf,
        options: &Options,
        (handoff, budget): (HandoffSlot, Arc<Budget>),
    ) -> Self {
        let lanes = Lanes {
            are_used: !options.ordered.is_empty() || lanes::exist(&db.0).unwrap_or(true),
            woken: Cell::new(false),
        };
        Self {
            db: Some(db),
            file,
            handoff,
            budget,
            options: options.clone(),
            checked: effects::Checked::default(),
            deferred: Deferred::default(),
            lanes,
            is_slow: false,
            commits: 0,
            checkpoints: None,
        }
    }

    pub(super) fn run(mut self, receiver: mpsc::Receiver<Message>) {
        self.checkpoints = Checkpoints::start(&self.file, connect::CHECKPOINT_PAGES).ok();
        if let (Some((db, _)), Some(_)) = (&self.db, &self.checkpoints) {
            Checkpoints::take_over(db);
        }
        let mut waits = Waits::default();
        let mut tries = 0;
        loop {
            if waits.is_empty() {
                if waits.close {
                    break;
                }
                match receiver.recv() {
                    Ok(message) => waits.push(message),
                    Err(_) => break,
                }
            }
            while let Ok(message) = receiver.try_recv() {
                waits.push(message);
            }
            gather_settles(&receiver, &mut waits);
            if self.write(&mut waits) {
                tries = 0;
                continue;
            }
            tries += 1;
            if waits.close && tries >= CLOSE_TRIES {
                tracing::error!(
                    settles = waits.settles.len(),
                    "closed with outcomes that could not be written"
                );
                break;
            }
            std::thread::sleep(RETRY_PAUSE);
        }
        self.checkpoints = None;
        if let Some((db, _)) = self.db.take() {
            let _ = db.execute_batch("PRAGMA optimize");
            let _ = db.close();
        }
    }

    /// One transaction. `false`: it failed; everyone was told, and the settles are kept for the next one.
    fn write(&mut self, waits: &mut Waits) -> bool {
        let start = Instant::now();
        let accepts = take_capped(&mut waits.accepts, self.options.batch_events, self.options.batch_bytes);
        let settles = waits.settles.len().min(SETTLES);
        // After slow effects, what else waits gets a transaction without any.
        let only_effects = accepts.is_empty() && settles == 0 && waits.jobs.is_empty();
        let is_turn = !mem::take(&mut self.is_slow) || only_effects;
        waits.applies.retain(|waiting| !waiting.gone.is_cancelled());
        let mut applies = if is_turn {
            Vec::from(mem::take(&mut waits.applies))
        } else {
            Vec::new()
        };
        let jobs = mem::take(&mut waits.jobs);

        let (db, deadline) = match self.open() {
            Ok(db) => db,
            Err(error) => {
                fail(&connect::error(&error), accepts, applies, jobs);
                return false;
            }
        };
        if let Err(error) = self.commit_alone(&db, &deadline, (&mut applies, &mut waits.applies)) {
            self.give_up(db, deadline);
            fail(&connect::error(&error), accepts, applies, jobs);
            return false;
        }
        // Effects come first: a statement of a user can end the whole transaction, and then only effects are repeated.
        let effects = match effects::begin(&db, &deadline, (&mut self.checked, &self.lanes), &applies) {
            Ok(effects) => effects,
            Err(error) => {
                self.give_up(db, deadline);
                fail(&connect::error(&error), accepts, applies, jobs);
                return false;
            }
        };
        // Those that had no time left go first in the next turn.
        waits.applies.extend(applies.drain(effects.len()..));
        self.is_slow = start.elapsed() > effects::GROUP;
        let settled = settle::settle(
            &db,
            &self.lanes,
            waits.settles[..settles].iter().map(|(settle, _)| settle),
        );
        let answers: Vec<Answer> = jobs.into_iter().map(|job| job(Some(&db))).collect();
        let events: usize = accepts.iter().map(|request| request.events.len()).sum();
        let flushed = ingest::insert(&db, accepts, (&self.handoff, &self.options.ordered));
        let committed = settled.and_then(|stale| {
            db.prepare_cached("COMMIT")?.execute([])?;
            Ok(stale)
        });

        match committed {
            Ok(stale) => {
                let took = start.elapsed();
                if events > 0 {
                    self.budget.flushed(took);
                }
                for flushed in flushed {
                    flushed.finish();
                }
                self.wake();
                metrics::counter!("cerca_stale_settles_total").increment(stale);
                effects::answer(applies, effects);
                for answer in answers {
                    answer(Ok(()));
                }
                waits.settles.drain(..settles);
                if waits.settles.is_empty() {
                    for reply in waits.flushes.drain(..) {
                        let _ = reply.send(());
                    }
                }
                if events > 0 {
                    #[allow(clippy::cast_precision_loss, reason = "a batch is small")]
                    metrics::histogram!("cerca_flush_events").record(events as f64);
                    metrics::histogram!("cerca_flush_seconds").record(took.as_secs_f64());
                }
                if let Some(checkpoints) = &mut self.checkpoints {
                    checkpoints.after_commit(&db);
                }
                self.db = Some((db, deadline));
                self.bound_wal();
                true
            }
            Err(error) => {
                self.deferred.learn(&error);
                self.give_up(db, deadline);
                let error = StoreError::Unavailable(error.to_string());
                tracing::warn!(%error, "a transaction failed");
                for flushed in flushed {
                    flushed.fail(&error);
                }
                fail(&error, Vec::new(), applies, Vec::new());
                for answer in answers {
                    answer(Err(error.clone()));
                }
                false
            }
        }
    }

    /// Commits effects before everything else, where one of them could undo all of it; then none is left. Those that had no
    /// time go to the next turn.
    fn commit_alone(
        &mut self,
        db: &Connection,
        deadline: &Deadline,
        (applies, later): (&mut Vec<Waiting>, &mut VecDeque<Waiting>),
    ) -> rusqlite::Result<()> {
        if applies.is_empty() || !self.deferred.is_possible(db)? {
            return Ok(());
        }
        let results = alone::commit(db, deadline, (&mut self.checked, &self.lanes), applies)?;
        later.extend(applies.drain(results.len()..));
        self.wake();
        effects::answer(mem::take(applies), results);
        Ok(())
    }

    /// Tells the worker of what became ready.
    fn wake(&self) {
        if self.lanes.woken.take()
            && let Some(handoff) = self.handoff.get()
        {
            handoff.wake();
        }
    }

    fn open(&mut self) -> rusqlite::Result<(Connection, Deadline)> {
        match self.db.take() {
            Some(db) => Ok(db),
            None => {
                let opened = connect::writer(&self.file)?;
                if self.checkpoints.is_some() {
                    Checkpoints::take_over(&opened.0);
                }
                Ok(opened)
            }
        }
    }

    /// After a failure the connection is kept only if it can be brought back to rest.
    fn give_up(&mut self, db: Connection, deadline: Deadline) {
        if db.is_autocommit() || db.execute_batch("ROLLBACK").is_ok() {
            self.db = Some((db, deadline));
        }
    }

    /// A checkpoint cannot pass a reader. Where readers overlap for long, the log is cut here.
    fn bound_wal(&mut self) {
        self.commits += 1;
        if self.commits < WAL_CHECK {
            return;
        }
        self.commits = 0;
        let mut log = self.file.clone().into_os_string();
        log.push("-wal");
        let size = std::fs::metadata(log).map_or(0, |meta| meta.len());
        metrics::gauge!("cerca_sqlite_wal_bytes").set(size as f64);
        if let Some((db, _)) = &self.db
            && size > WAL_LIMIT
        {
            let _ = db.busy_timeout(Duration::from_millis(500));
            let _ = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
            let _ = db.busy_timeout(connect::BUSY_TIMEOUT);
        }
    }
}

/// Holds a few settles back until there are many, somebody waits, or the pause is over.
fn gather_settles(receiver: &mpsc::Receiver<Message>, waits: &mut Waits) {
    let end = Instant::now() + SETTLE_PAUSE;
    while waits.nobody_waits() && waits.settles.len() < SETTLE_CROWD && !waits.close {
        match receiver.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(message) => waits.push(message),
            Err(_) => return,
        }
    }
    while let Ok(message) = receiver.try_recv() {
        waits.push(message);
    }
}

fn fail(error: &StoreError, accepts: Vec<Pending>, applies: Vec<Waiting>, jobs: Vec<Job>) {
    for request in accepts {
        request.fail(error.clone());
    }
    for waiting in applies {
        let _ = waiting.reply.send(Err(error.clone()));
    }
    for job in jobs {
        job(None)(Err(error.clone()));
    }
}
