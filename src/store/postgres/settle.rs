//! Writes the outcomes of attempts, many in one statement, and again until the database takes them.

use std::{mem, sync::LazyLock, time::Duration};

use sqlx::{Connection as _, PgConnection, postgres::PgBindIterExt as _};
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc, oneshot},
    time::{Instant, sleep_until, timeout, timeout_at},
};

use super::{
    super::Settled,
    super::ordering::Lane,
    actor::Closing,
    connect::{Failed, Fault, Link},
    lanes::Lanes,
    micros,
    people::Changed,
    time,
};
use crate::domain::{Outcome, Settle};

/// Settles in one statement, at most.
const BATCH: usize = 500;

/// Nobody waits for a settle, and each commit costs a sync and a round trip that ingest could have had: a few are held
/// back this long for company.
const PAUSE: Duration = Duration::from_millis(2);
const CROWD: usize = 250;

/// How long a closing store goes on trying.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// How soon to come back to settles whose rows an effect's transaction holds.
const LATE: Duration = Duration::from_millis(200);

pub(super) enum Message {
    Settle(Settle, Option<OwnedSemaphorePermit>),
    Flush(oneshot::Sender<()>),
}

type Kept = (Settle, Option<OwnedSemaphorePermit>);

pub(super) async fn run(queue: mpsc::UnboundedReceiver<Message>, link: Link, lanes: Lanes, closing: Closing) {
    let settler = Settler {
        queue,
        link,
        lanes,
        closing,
        late: Vec::new(),
        flushes: Vec::new(),
        last_try: None,
    };
    settler.run().await;
}

struct Settler {
    queue: mpsc::UnboundedReceiver<Message>,
    link: Link,
    lanes: Lanes,
    closing: Closing,
    /// Their rows were held by an effect's transaction.
    late: Vec<Kept>,
    /// Wait until nothing is late.
    flushes: Vec<oneshot::Sender<()>>,
    /// When a closed store stops trying; set at its first failure.
    last_try: Option<Instant>,
}

/// The store closed before everything was written.
struct OutOfTime;

impl Settler {
    async fn run(mut self) {
        if self.settle_all().await.is_err() {
            tracing::error!("closed with outcomes that could not be written");
        }
    }

    async fn settle_all(&mut self) -> Result<(), OutOfTime> {
        let mut again_at = Instant::now();
        loop {
            let first = if self.late.is_empty() {
                match self.closing.next(&mut self.queue).await {
                    Some(message) => Some(message),
                    None => return Ok(()),
                }
            } else {
                match timeout_at(again_at, self.closing.next(&mut self.queue)).await {
                    Ok(Some(message)) => Some(message),
                    Ok(None) => {
                        self.check_time()?;
                        sleep_until(again_at).await;
                        None
                    }
                    Err(_) => None,
                }
            };
            let settles = match first {
                Some(first) => self.gather(first).await,
                None => Vec::new(),
            };
            self.write(settles, false).await?;
            if Instant::now() >= again_at {
                // Apart from the others, which would have to wait for the locks first.
                let late = mem::take(&mut self.late);
                self.write(late, true).await?;
                again_at = Instant::now() + LATE;
            }
            if self.late.is_empty() {
                for reply in self.flushes.drain(..) {
                    let _ = reply.send(());
                }
            }
        }
    }

    async fn gather(&mut self, first: Message) -> Vec<Kept> {
        let mut settles = Vec::new();
        let (mut taken, mut is_awaited) = (0, false);
        let mut next = Some(first);
        let end = Instant::now() + PAUSE;
        while let Some(message) = next {
            match message {
                Message::Settle(settle, permit) => settles.push((settle, permit)),
                Message::Flush(reply) => {
                    self.flushes.push(reply);
                    is_awaited = true;
                }
            }
            taken += 1;
            if taken >= BATCH {
                break;
            }
            next = match self.queue.try_recv() {
                Ok(message) => Some(message),
                Err(_) if is_awaited || taken >= CROWD || self.closing.token.is_cancelled() => None,
                Err(_) => timeout_at(end, self.queue.recv()).await.ok().flatten(),
            };
        }
        settles
    }

    /// Writes a batch, however often that takes. What is locked is put by.
    async fn write(&mut self, settles: Vec<Kept>, mut skip_locked: bool) -> Result<(), OutOfTime> {
        // Apart, because done ones have a cheaper statement.
        let (done, others): (Vec<Kept>, Vec<Kept>) = settles.into_iter().partition(|(settle, _)| is_done(settle));
        let mut waiting = vec![others, done];
        while let Some(mut settles) = waiting.pop() {
            if settles.is_empty() {
                continue;
            }
            let failed = match self.attempt(&settles, skip_locked).await {
                Ok(rest) => {
                    self.lanes.advance(rest.lanes);
                    metrics::counter!("cerca_stale_settles_total").increment(rest.stale);
                    let mut is_locked = rest.is_locked.into_iter();
                    settles.retain(|_| is_locked.next().unwrap_or(false));
                    self.late.append(&mut settles);
                    continue;
                }
                Err(failed) => failed,
            };
            match failed.fault {
                Fault::Locked if !skip_locked => {
                    skip_locked = true;
                    waiting.push(settles);
                    continue;
                }
                Fault::Data if settles.len() > 1 => {
                    waiting.push(settles.split_off(settles.len() / 2));
                    waiting.push(settles);
                    continue;
                }
                Fault::Data => {
                    // Its lease will end, and the sweep says so in the history.
                    tracing::error!(error = %failed.error, "the outcome of an attempt was refused by the database");
                    continue;
                }
                _ => {}
            }
            tracing::warn!(error = %failed.error, settles = settles.len(), "outcomes wait for the database");
            waiting.push(settles);
            self.check_time()?;
            self.link.back_off().await;
        }
        Ok(())
    }

    fn check_time(&mut self) -> Result<(), OutOfTime> {
        if self.closing.token.is_cancelled() {
            let until = *self.last_try.get_or_insert_with(|| Instant::now() + CLOSE_LIMIT);
            if Instant::now() > until {
                return Err(OutOfTime);
            }
        }
        Ok(())
    }

    async fn attempt(&mut self, settles: &[Kept], skip_locked: bool) -> Result<Rest, Failed> {
        let limit = self.link.limit();
        let result = timeout(limit, settle(self.link.get().await?, settles, skip_locked)).await;
        self.link.end(result)
    }
}

/// What was not written.
struct Rest {
    stale: u64,
    /// Lanes of what was written.
    lanes: Vec<Lane>,
    /// For each settle: whether its claim holds, but its row is locked.
    is_locked: Vec<bool>,
}

/// What found no row is tried once more: a row that was changed between the look and the write, by a renewal of its
/// lease, is not found by its place. Of what is left then, a claim that still holds was locked.
async fn settle(db: &mut PgConnection, settles: &[Kept], skip_locked: bool) -> sqlx::Result<Rest> {
    let all: Vec<&Settle> = settles.iter().map(|(settle, _)| settle).collect();
    let mut lanes = Vec::new();
    let mut rest = write_once(db, &all, skip_locked, &mut lanes).await?;
    if !rest.is_empty() {
        rest = write_once(db, &rest, skip_locked, &mut lanes).await?;
    }
    let mut is_locked = vec![false; settles.len()];
    if skip_locked && !rest.is_empty() {
        let held = holding(db, &rest).await?;
        for ((settle, _), is_locked) in settles.iter().zip(&mut is_locked) {
            *is_locked = held.iter().any(|(event, handler, token)| {
                (*event, &**handler, *token) == (settle.event_id, &*settle.handler, settle.token)
            });
        }
        return Ok(Rest {
            stale: rest.len().saturating_sub(held.len()) as u64,
            lanes,
            is_locked,
        });
    }
    Ok(Rest {
        stale: rest.len() as u64,
        lanes,
        is_locked,
    })
}

/// Writes settles, waiting for rows that are locked, and says of each what became of it.
pub(super) async fn each(db: &mut PgConnection, settles: &[Settle]) -> sqlx::Result<Changed<Vec<Settled>>> {
    let mut tx = db.begin().await?;
    let mut lanes = Vec::new();
    let all: Vec<&Settle> = settles.iter().collect();
    let mut rest = write_once(&mut tx, &all, false, &mut lanes).await?;
    if !rest.is_empty() {
        rest = write_once(&mut tx, &rest, false, &mut lanes).await?;
    }
    let mut answers = Vec::with_capacity(settles.len());
    for settle in settles {
        let answer = if !rest.iter().any(|left| std::ptr::eq(*left, settle)) {
            Settled::Written
        } else if is_written(&mut tx, settle).await? {
            Settled::Repeated
        } else {
            Settled::Stale
        };
        answers.push(answer);
    }
    tx.commit().await?;
    Ok((answers, lanes))
}

/// Whether the history has this very attempt with this outcome. Its start tells it from one of the same number in
/// another life of the delivery.
async fn is_written(db: &mut PgConnection, settle: &Settle) -> sqlx::Result<bool> {
    let Some(outcome) = settle.outcome.recorded() else {
        return Ok(false);
    };
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM attempts WHERE event_id = $1 AND handler = $2 AND attempt = $3
                        AND started_at = $4 AND outcome = $5)",
    )
    .bind(settle.event_id)
    .bind(&*settle.handler)
    .bind(i32::try_from(settle.attempt).unwrap_or(i32::MAX))
    .bind(time::Instant(settle.started_at))
    .bind(outcome.as_str())
    .fetch_one(db)
    .await
}

/// Which claims still hold.
async fn holding(db: &mut PgConnection, settles: &[&Settle]) -> sqlx::Result<Vec<(i64, String, i64)>> {
    sqlx::query_as(
        "SELECT s.event_id, s.handler, s.token
         FROM unnest($1::bigint[], $2::text[], $3::bigint[]) AS s (event_id, handler, token)
         CROSS JOIN LATERAL (
             SELECT 1 FROM deliveries
             WHERE event_id = s.event_id AND handler = s.handler AND lease_token = s.token LIMIT 1
         ) d",
    )
    .bind(settles.iter().map(|s| s.event_id).bind_iter())
    .bind(settles.iter().map(|s| &*s.handler).bind_iter())
    .bind(settles.iter().map(|s| s.token).bind_iter())
    .fetch_all(db)
    .await
}

const WRITE: &str = include_str!("settle.sql");

/// The same, which passes locked rows by. It locks each row first, which costs something, so it is the exception.
static WRITE_FREE: LazyLock<String> = LazyLock::new(|| WRITE.replace("LIMIT 1", "LIMIT 1 FOR UPDATE SKIP LOCKED"));

/// The same for attempts that are done.
const WRITE_DONE: &str = include_str!("settle_done.sql");

/// Writes settles and gives those that found no row; adds the lanes of the others.
async fn write_once<'a>(
    db: &mut PgConnection,
    settles: &[&'a Settle],
    skip_locked: bool,
    lanes: &mut Vec<Lane>,
) -> sqlx::Result<Vec<&'a Settle>> {
    let each = || settles.iter();
    let sql: &'static str = match skip_locked {
        true => &WRITE_FREE,
        false if each().all(|s| is_done(s)) => WRITE_DONE,
        false => WRITE,
    };
    let mut query = sqlx::query_as::<_, (i64, Option<i64>)>(sql)
        .bind(each().map(|s| s.event_id).bind_iter())
        .bind(each().map(|s| &*s.handler).bind_iter())
        .bind(each().map(|s| s.token).bind_iter())
        .bind(each().map(|s| i32::try_from(s.attempt).unwrap_or(i32::MAX)).bind_iter())
        .bind(each().map(|s| time::Instant(s.started_at)).bind_iter())
        .bind(
            each()
                .map(|s| i64::try_from(s.duration.as_millis()).unwrap_or(i64::MAX))
                .bind_iter(),
        );
    if sql != WRITE_DONE {
        query = query
            .bind(each().map(|s| outcome(&s.outcome)).bind_iter())
            .bind(each().map(|s| after(&s.outcome)).bind_iter())
            .bind(each().map(|s| detail(&s.outcome)).bind_iter());
    }
    let mut is_written = vec![false; settles.len()];
    for (nth, lane) in query.fetch_all(db).await? {
        let Some(at) = usize::try_from(nth - 1).ok().filter(|at| *at < settles.len()) else {
            continue;
        };
        is_written[at] = true;
        lanes.extend(lane.map(|lane| (settles[at].handler.to_string(), lane)));
    }
    Ok(each()
        .zip(is_written)
        .filter(|(_, is)| !is)
        .map(|(settle, _)| *settle)
        .collect())
}

fn is_done(settle: &Settle) -> bool {
    matches!(settle.outcome, Outcome::Done)
}

fn outcome(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done | Outcome::DoneEarlier { .. } => "done",
        Outcome::Retry { .. } => "retry",
        Outcome::Dead { .. } => "dead",
        Outcome::Filtered { .. } => "filtered",
        Outcome::Unknown { .. } => "unknown",
        Outcome::Postponed { .. } => "postponed",
        Outcome::Released => "released",
    }
}

fn after(outcome: &Outcome) -> Option<i64> {
    match outcome {
        Outcome::Retry { after, .. } | Outcome::Postponed { after, .. } => Some(micros(*after)),
        Outcome::Unknown { after, .. } => after.map(micros),
        _ => None,
    }
}

/// The error text; PostgreSQL's text cannot hold NUL.
fn detail(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Retry { error, .. }
        | Outcome::Dead { error }
        | Outcome::Unknown { error, .. }
        | Outcome::Postponed { error, .. }
        | Outcome::DoneEarlier { detail: error }
        | Outcome::Filtered { detail: error } => Some(error.replace('\0', "\u{fffd}")),
        _ => None,
    }
}
