//! Advances the lanes of ordered deliveries (`store::ordering`), after the commit of what changed them. One task for each
//! process gathers the lanes that wait; two processes do not advance one lane at a time.
//!
//! Why this cannot go wrong under READ COMMITTED: what joins a lane, or goes back into its line after an attempt, does so as
//! blocked, so only an advance makes a delivery active (ready or claimed) that was not. Advances of a lane exclude each other
//! by an advisory lock that is held until their commit, and every statement after the lock sees what was committed before
//! it. An active delivery stays active, whatever a claim does to it meanwhile, until its attempt has ended; and whoever
//! writes that down advances the lane after the commit.

use std::{collections::BTreeSet, sync::Arc};

use sqlx::{Connection as _, Executor as _, PgConnection, postgres::PgBindIterExt as _};
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    time::timeout,
};

use super::{
    super::{
        StoreError,
        batch::HandoffSlot,
        ordering::{Lane, holds},
    },
    actor::{Actor, Closing},
    connect::{Failed, Fault, Link},
    notify::Notifier,
};
use crate::domain::OrderedHandler;

/// Lanes in one transaction, at most.
const BATCH: usize = 500;

/// Advisory locks are taken by lane modulo this number, so that a transaction never holds many. Lanes that share a lock
/// only wait for each other.
const LOCKS: i64 = 256;

/// The first key of our advisory locks, so that they meet no others of the same database.
const LOCK_CLASS: i32 = 0x6365_7263;

enum Message {
    Advance(Vec<Lane>),
    Flush(oneshot::Sender<()>),
}

/// The way to the task.
#[derive(Clone)]
pub(super) struct Lanes(mpsc::UnboundedSender<Message>);

impl Lanes {
    pub(super) fn start(link: Link, handoff: HandoffSlot, notifier: Notifier, closing: &Closing) -> Self {
        let (sender, queue) = mpsc::unbounded_channel();
        let task = Task {
            queue,
            link,
            handoff,
            notifier,
            closing: closing.clone(),
        };
        closing.tasks.spawn(task.run());
        Self(sender)
    }

    /// Has lanes advanced soon. A store that closes leaves them to the sweep of another process.
    pub(super) fn advance(&self, lanes: Vec<Lane>) {
        if !lanes.is_empty() {
            let _ = self.0.send(Message::Advance(lanes));
        }
    }

    /// Waits until every lane that was sent before is advanced.
    pub(super) async fn flush(&self) {
        let (reply, answer) = oneshot::channel();
        if self.0.send(Message::Flush(reply)).is_ok() {
            let _ = answer.await;
        }
    }
}

struct Task {
    queue: mpsc::UnboundedReceiver<Message>,
    link: Link,
    handoff: HandoffSlot,
    notifier: Notifier,
    closing: Closing,
}

impl Task {
    async fn run(mut self) {
        let mut lanes = BTreeSet::new();
        while let Some(first) = self.closing.next(&mut self.queue).await {
            let mut flushes = Vec::new();
            let mut next = Some(first);
            while let Some(message) = next {
                match message {
                    Message::Advance(some) => lanes.extend(some),
                    Message::Flush(reply) => flushes.push(reply),
                }
                next = if lanes.len() < BATCH {
                    self.queue.try_recv().ok()
                } else {
                    None
                };
            }
            while !lanes.is_empty() {
                let batch: Vec<Lane> = std::iter::from_fn(|| lanes.pop_first()).take(BATCH).collect();
                self.batch(batch).await;
            }
            for reply in flushes {
                let _ = reply.send(());
            }
        }
    }

    /// Advances some lanes, however often that takes.
    async fn batch(&mut self, lanes: Vec<Lane>) {
        loop {
            let failed = match self.attempt(&lanes).await {
                Ok(0) => return,
                Ok(_) => {
                    if let Some(handoff) = self.handoff.get() {
                        handoff.wake();
                    }
                    self.notifier.notify();
                    return;
                }
                Err(failed) => failed,
            };
            if failed.fault == Fault::Again {
                continue;
            }
            tracing::warn!(error = %failed.error, lanes = lanes.len(), "ordered deliveries wait for the database");
            // What the database will not do, or not in time, is left to the sweep, which finds what waits for nobody.
            if failed.fault == Fault::Data || self.closing.token.is_cancelled() {
                return;
            }
            self.link.back_off().await;
        }
    }

    async fn attempt(&mut self, lanes: &[Lane]) -> Result<u64, Failed> {
        let limit = self.link.limit();
        let result = timeout(limit, advance(self.link.get().await?, lanes)).await;
        self.link.end(result)
    }
}

/// Advances lanes in one transaction; gives how many deliveries became ready.
async fn advance(db: &mut PgConnection, lanes: &[Lane]) -> sqlx::Result<u64> {
    let locks: BTreeSet<i32> = lanes
        .iter()
        .filter_map(|(_, lane)| i32::try_from(lane.rem_euclid(LOCKS)).ok())
        .collect();
    let mut tx = db.begin().await?;
    // In one order for all, so that no two wait for each other.
    sqlx::query("SELECT pg_advisory_xact_lock($1, lock) FROM unnest($2::int4[]) AS lock")
        .bind(LOCK_CLASS)
        .bind(locks.into_iter().collect::<Vec<i32>>())
        .execute(&mut *tx)
        .await?;
    // Two statements: the second one sees whether a claim was quicker than the first.
    sqlx::query(include_str!("lanes_block.sql"))
        .bind(lanes.iter().map(|(handler, _)| handler.as_str()).bind_iter())
        .bind(lanes.iter().map(|(_, lane)| *lane).bind_iter())
        .execute(&mut *tx)
        .await?;
    let woken = sqlx::query(include_str!("lanes_wake.sql"))
        .bind(lanes.iter().map(|(handler, _)| handler.as_str()).bind_iter())
        .bind(lanes.iter().map(|(_, lane)| *lane).bind_iter())
        .execute(&mut *tx)
        .await?
        .rows_affected();
    tx.commit().await?;
    Ok(woken)
}

/// Where the repair of lanes is.
#[derive(Default)]
pub(super) struct Repair(Mutex<Progress>);

#[derive(Default)]
struct Progress {
    is_adopted: bool,
    after: Option<Lane>,
}

impl Repair {
    /// Finds some lanes with blocked deliveries and none that is active, to be advanced. Lanes that a dead delivery holds
    /// are among them.
    pub(super) async fn next(&self, ordered: &Arc<[OrderedHandler]>, leases: &Actor) -> Result<Vec<Lane>, StoreError> {
        let mut progress = self.0.lock().await;
        if !progress.is_adopted {
            let ordered = Arc::clone(ordered);
            leases
                .ask(move |db| Box::pin(async move { adopt(db, &ordered).await }))
                .await?;
            progress.is_adopted = true;
        }
        let after = progress.after.take();
        let found = leases
            .ask(move |db| Box::pin(async move { idle(db, after).await }))
            .await?;
        progress.after = found.next;
        Ok(found.idle)
    }
}

struct Found {
    idle: Vec<Lane>,
    /// The last lane looked at; `None` at the end of all.
    next: Option<Lane>,
}

async fn idle(db: &mut PgConnection, after: Option<Lane>) -> sqlx::Result<Found> {
    let (handler, lane) = after.unwrap_or((String::new(), i64::MIN));
    let rows: Vec<(String, i64, bool)> = sqlx::query_as(
        "WITH RECURSIVE lanes AS (
             (SELECT handler, lane, 1 AS nth FROM deliveries
              WHERE state = 'blocked' AND (handler, lane) > ($1, $2) ORDER BY handler, lane LIMIT 1)
             UNION ALL
             SELECT n.handler, n.lane, p.nth + 1
             FROM lanes p
             CROSS JOIN LATERAL (
                 SELECT handler, lane FROM deliveries
                 WHERE state = 'blocked' AND (handler, lane) > (p.handler, p.lane) ORDER BY handler, lane LIMIT 1
             ) n
             WHERE p.nth < $3
         )
         SELECT handler, lane,
                NOT EXISTS (SELECT 1 FROM deliveries d
                            WHERE d.handler = l.handler AND d.lane = l.lane AND d.lane IS NOT NULL
                              AND d.state IN ('ready', 'claimed'))
         FROM lanes l",
    )
    .bind(handler)
    .bind(lane)
    .bind(i32::try_from(BATCH).unwrap_or(i32::MAX))
    .fetch_all(db)
    .await?;
    let last = rows.last().map(|(handler, lane, _)| (handler.clone(), *lane));
    Ok(Found {
        next: last.filter(|_| rows.len() >= BATCH),
        idle: rows
            .into_iter()
            .filter_map(|(handler, lane, is_idle)| is_idle.then_some((handler, lane)))
            .collect(),
    })
}

/// Makes what is stored hold its lane or not, as the handlers are configured now.
async fn adopt(db: &mut PgConnection, ordered: &Arc<[OrderedHandler]>) -> sqlx::Result<()> {
    for handler in &**ordered {
        let query = sqlx::query(
            "UPDATE deliveries SET dead_holds = $2
             WHERE handler = $1 AND lane IS NOT NULL AND state <> 'discarded' AND dead_holds <> $2",
        );
        let holds = holds(ordered, &handler.name);
        db.execute(query.bind(handler.name.to_string()).bind(holds)).await?;
    }
    Ok(())
}
