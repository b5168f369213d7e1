//! Runs the effects of sql and native handlers in the transaction that settles their deliveries: exactly once. Each handler has
//! a queue and a connection of its own, so that a slow one holds up nobody else.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use sqlx::postgres::PgConnectOptions;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::{
    super::{Applied, Effect, StoreError, StoreFuture},
    actor::Closing,
    connect::{Failed, Fault, Link, fault},
    effect::{self, Ran, describe, is_mistake},
    lanes::Lanes,
};

/// Effects in one transaction, at most: a slow statement holds up those beside it.
const BATCH: usize = 64;

/// Tries of an effect that met a deadlock.
const TRIES: u32 = 3;

/// Plans as for people, but look-ups by key. A server that cannot watch its client's socket goes on to the limit when
/// the client is gone; the others stop at once and let go of their rows.
pub(super) const SETUP: &str = "SET jit = off; SET enable_seqscan = off;
    DO $$ BEGIN
        PERFORM set_config('client_connection_check_interval', '200ms', false);
    EXCEPTION WHEN OTHERS THEN NULL;
    END $$;";

type Reply = oneshot::Sender<Result<Applied, StoreError>>;
type Queue = mpsc::UnboundedSender<(Effect, Reply)>;

/// The queues, made when a handler has its first effect.
pub(super) struct Effects {
    queues: Mutex<HashMap<Arc<str>, Queue>>,
    server: PgConnectOptions,
    limit: Duration,
    lanes: Lanes,
    closing: Closing,
}

impl Effects {
    pub(super) fn new(server: &PgConnectOptions, limit: Duration, lanes: Lanes, closing: &Closing) -> Self {
        Self {
            queues: Mutex::default(),
            server: server.clone(),
            limit,
            lanes,
            closing: closing.clone(),
        }
    }

    pub(super) fn apply(&self, effect: Effect) -> StoreFuture<'static, Applied> {
        let (reply, answer) = oneshot::channel();
        let sent = self.queue(&effect.claim.handler).send((effect, reply));
        Box::pin(async move {
            sent.map_err(|_| StoreError::Closed)?;
            answer.await.unwrap_or(Err(StoreError::Closed))
        })
    }

    fn queue(&self, handler: &Arc<str>) -> Queue {
        // A panic while this lock is held leaves no half-done change behind.
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.get(handler) {
            return queue.clone();
        }
        let (queue, receiver) = mpsc::unbounded_channel();
        if !self.closing.token.is_cancelled() {
            let lane = Lane {
                handler: Arc::clone(handler),
                receiver,
                waiting: VecDeque::new(),
                link: Link::new(&self.server, "effects", SETUP, self.limit),
                lanes: self.lanes.clone(),
                closing: self.closing.clone(),
                is_slow: true,
                are_trusted: false,
                is_reported: false,
            };
            self.closing.tasks.spawn(lane.run());
            queues.insert(Arc::clone(handler), queue.clone());
        }
        queue
    }
}

/// The effects of one handler.
struct Lane {
    handler: Arc<str>,
    receiver: mpsc::UnboundedReceiver<(Effect, Reply)>,
    /// Taken off the queue; a transaction that became slow left them.
    waiting: VecDeque<(Effect, Reply)>,
    link: Link,
    lanes: Lanes,
    closing: Closing,
    /// The last effect was slow, or there was none yet: one at a time.
    is_slow: bool,
    /// The last effects went well, and together.
    are_trusted: bool,
    /// A mistake in the statement was logged, and it has not worked since.
    is_reported: bool,
}

impl Lane {
    async fn run(mut self) {
        while let Some(taken) = self.gather().await {
            let (effects, mut replies): (Vec<Effect>, Vec<Reply>) = taken.into_iter().unzip();
            let results = {
                let gone = join_all(replies.iter_mut().map(oneshot::Sender::closed));
                tokio::select! {
                    results = answers(&mut self.link, &self.lanes, &effects, self.are_trusted) => Some(results),
                    // Nobody waits: the worker stops, or has lost the claims. The server undoes what was begun.
                    _ = gone => None,
                }
            };
            let Some(results) = results else {
                self.link.cut();
                continue;
            };
            self.report(&results, effects.len());
            let mut taken = effects.into_iter().zip(replies);
            for (result, (_, reply)) in results.into_iter().zip(taken.by_ref()) {
                let _ = reply.send(result.map(|ran| ran.applied));
            }
            // `zip` asks its left side first, so none of the rest is lost.
            self.waiting = taken.chain(self.waiting.drain(..)).collect();
        }
    }

    async fn gather(&mut self) -> Option<Vec<(Effect, Reply)>> {
        loop {
            while let Ok(next) = self.receiver.try_recv() {
                self.waiting.push_back(next);
            }
            self.waiting.retain(|(_, reply)| !reply.is_closed());
            if !self.waiting.is_empty() {
                let count = if self.is_slow { 1 } else { BATCH.min(self.waiting.len()) };
                return Some(self.waiting.drain(..count).collect());
            }
            let next = self.closing.next(&mut self.receiver).await?;
            self.waiting.push_back(next);
        }
    }

    /// A mistake in the statement fails each attempt in the same way; one line is enough.
    fn report(&mut self, results: &[Result<Ran, StoreError>], taken: usize) {
        let is_well = |ran: &Ran| !matches!(ran.applied, Applied::Failed(_));
        let are_well = results.iter().all(|result| result.as_ref().is_ok_and(is_well));
        self.are_trusted = are_well && results.len() == taken;
        for ran in results.iter().flatten() {
            self.is_slow = ran.is_slow;
            match &ran.applied {
                Applied::Done => self.is_reported = false,
                Applied::Failed(error) if ran.is_mistake && !self.is_reported => {
                    self.is_reported = true;
                    tracing::warn!(
                        handler.name = &*self.handler,
                        error,
                        "the handler's statement cannot work"
                    );
                }
                _ => {}
            }
        }
    }
}

/// Applies the first effects, at least one; those that are left are due in the next transaction.
async fn answers(
    link: &mut Link,
    lanes: &Lanes,
    effects: &[Effect],
    are_trusted: bool,
) -> Vec<Result<Ran, StoreError>> {
    match apply(link, lanes, effects, are_trusted).await {
        Ok(results) => results.into_iter().map(Ok).collect(),
        Err(Lost {
            fault: Fault::Connection,
            error,
            ..
        }) => effects.iter().map(|_| Err(error.clone())).collect(),
        // One ended the transaction of all (a deadlock, a deferred constraint): each by itself.
        Err(_) => vec![alone(link, lanes, &effects[0]).await],
    }
}

async fn alone(link: &mut Link, lanes: &Lanes, effect: &Effect) -> Result<Ran, StoreError> {
    for _ in 0..TRIES {
        match apply(link, lanes, std::slice::from_ref(effect), false).await {
            Ok(mut results) => return Ok(results.pop().unwrap_or_else(Ran::stale)),
            Err(Lost {
                fault: Fault::Again, ..
            }) => {}
            Err(Lost {
                fault: Fault::Connection,
                error,
                ..
            }) => return Err(error),
            Err(lost) => {
                return Ok(Ran {
                    applied: Applied::Failed(lost.why),
                    is_mistake: lost.is_mistake,
                    is_slow: true,
                });
            }
        }
    }
    Ok(Ran {
        applied: Applied::Failed("a deadlock, again and again".to_owned()),
        is_mistake: false,
        is_slow: true,
    })
}

/// Why a whole transaction failed.
struct Lost {
    fault: Fault,
    error: StoreError,
    why: String,
    is_mistake: bool,
}

impl Lost {
    fn connection(failed: Failed) -> Self {
        Self {
            fault: Fault::Connection,
            error: failed.error,
            why: String::new(),
            is_mistake: false,
        }
    }
}

/// One transaction, and another where the first was undone for want of savepoints. An error leaves nothing behind, or its
/// outcome is unknown; in both cases the fence keeps the effect from happening twice.
async fn apply(link: &mut Link, lanes: &Lanes, effects: &[Effect], are_trusted: bool) -> Result<Vec<Ran>, Lost> {
    let longest = effects.iter().map(|effect| effect.limit).max().unwrap_or_default();
    // The server ends each statement; this is for a server that does not answer. A transaction has one slow effect at
    // most, which may be run twice, and a few statements of ours.
    let limit = longest.saturating_mul(3).saturating_add(link.limit());
    // Nothing has begun: a server that is away for a while costs no attempt.
    let start = Instant::now();
    while let Err(failed) = link.get().await {
        if start.elapsed() > longest {
            return Err(Lost::connection(failed));
        }
        link.back_off().await;
    }
    let db = link.get().await.map_err(Lost::connection)?;
    let start = Instant::now();
    let result = timeout(limit, effect::transaction(db, effects, are_trusted)).await;
    let (why, is_mistake) = match &result {
        Ok(Err(error)) => (describe(error, start.elapsed(), longest), is_mistake(error)),
        _ => (String::new(), false),
    };
    let judged = match &result {
        Ok(Err(error)) => fault(error),
        _ => Fault::Connection,
    };
    let (results, done) = link.end(result).map_err(|failed| {
        // The rest of a broken transaction is ended with its connection; this is the rare path.
        link.cut();
        Lost {
            fault: judged,
            error: failed.error,
            why,
            is_mistake,
        }
    })?;
    lanes.advance(done);
    Ok(results)
}
