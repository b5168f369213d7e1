//! Writes the outcomes of attempts, many in one statement, and again until the database takes them.

use std::time::Duration;

use sqlx::{PgConnection, postgres::PgBindIterExt as _};
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc, oneshot},
    time::{Instant, timeout, timeout_at},
};

use super::{
    actor::Closing,
    connect::{Failed, Fault, Link},
    micros, time,
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

pub(super) enum Message {
    Settle(Settle, Option<OwnedSemaphorePermit>),
    Flush(oneshot::Sender<()>),
}

pub(super) async fn run(mut queue: mpsc::UnboundedReceiver<Message>, mut link: Link, closing: Closing) {
    while let Some(first) = closing.next(&mut queue).await {
        let (mut settles, mut permits, mut flushes) = (Vec::new(), Vec::new(), Vec::new());
        let mut take = |message| match message {
            Message::Settle(settle, permit) => {
                settles.push(settle);
                permits.push(permit);
                true
            }
            Message::Flush(reply) => {
                flushes.push(reply);
                false
            }
        };
        let (mut taken, mut is_awaited) = (0, false);
        let mut next = Some(first);
        let end = Instant::now() + PAUSE;
        while let Some(message) = next {
            is_awaited |= !take(message);
            taken += 1;
            if taken >= BATCH {
                break;
            }
            next = match queue.try_recv() {
                Ok(message) => Some(message),
                Err(_) if is_awaited || taken >= CROWD || closing.token.is_cancelled() => None,
                Err(_) => timeout_at(end, queue.recv()).await.ok().flatten(),
            };
        }
        if write(&mut link, settles, &closing).await {
            for reply in flushes {
                let _ = reply.send(());
            }
        }
    }
}

/// Writes a batch, however often that takes; `false` when the store closed before it could.
async fn write(link: &mut Link, settles: Vec<Settle>, closing: &Closing) -> bool {
    let mut last_try = None;
    let mut waiting = vec![settles];
    while let Some(mut settles) = waiting.pop() {
        if settles.is_empty() {
            continue;
        }
        let failed = match attempt(link, &settles).await {
            Ok(stale) => {
                metrics::counter!("cerca_stale_settles_total").increment(stale);
                continue;
            }
            Err(failed) => failed,
        };
        if failed.fault == Fault::Data {
            if settles.len() > 1 {
                waiting.push(settles.split_off(settles.len() / 2));
                waiting.push(settles);
            } else {
                // Its lease will end, and the sweep says so in the history.
                tracing::error!(error = %failed.error, "the outcome of an attempt was refused by the database");
            }
            continue;
        }
        tracing::warn!(error = %failed.error, settles = settles.len(), "outcomes wait for the database");
        waiting.push(settles);
        if closing.token.is_cancelled() {
            let until = *last_try.get_or_insert_with(|| Instant::now() + CLOSE_LIMIT);
            if Instant::now() > until {
                tracing::error!("closed with outcomes that could not be written");
                return false;
            }
        }
        link.back_off().await;
    }
    true
}

async fn attempt(link: &mut Link, settles: &[Settle]) -> Result<u64, Failed> {
    let limit = link.limit();
    let result = timeout(limit, settle(link.get().await?, settles)).await;
    link.end(result)
}

/// Gives the number of stale settles. What found no row is tried once more: a row that was changed between the look and
/// the write, by a renewal of its lease, is not found by its place.
async fn settle(db: &mut PgConnection, settles: &[Settle]) -> sqlx::Result<u64> {
    let all: Vec<&Settle> = settles.iter().collect();
    let rest = write_once(db, &all).await?;
    if rest.is_empty() {
        return Ok(0);
    }
    Ok(write_once(db, &rest).await?.len() as u64)
}

/// Writes settles and gives those that found no row.
async fn write_once<'a>(db: &mut PgConnection, settles: &[&'a Settle]) -> sqlx::Result<Vec<&'a Settle>> {
    let each = || settles.iter();
    let written: Vec<i64> = sqlx::query_scalar(include_str!("settle.sql"))
        .bind(each().map(|s| s.event_id).bind_iter())
        .bind(each().map(|s| &*s.handler).bind_iter())
        .bind(each().map(|s| s.token).bind_iter())
        .bind(each().map(|s| i32::try_from(s.attempt).unwrap_or(i32::MAX)).bind_iter())
        .bind(each().map(|s| time::Instant(s.started_at)).bind_iter())
        .bind(
            each()
                .map(|s| i64::try_from(s.duration.as_millis()).unwrap_or(i64::MAX))
                .bind_iter(),
        )
        .bind(each().map(|s| outcome(&s.outcome)).bind_iter())
        .bind(each().map(|s| after(&s.outcome)).bind_iter())
        .bind(each().map(|s| detail(&s.outcome)).bind_iter())
        .fetch_all(db)
        .await?;
    let mut is_written = vec![false; settles.len()];
    for nth in written {
        if let Some(is_written) = usize::try_from(nth - 1).ok().and_then(|nth| is_written.get_mut(nth)) {
            *is_written = true;
        }
    }
    Ok(each()
        .zip(is_written)
        .filter(|(_, is)| !is)
        .map(|(settle, _)| *settle)
        .collect())
}

fn outcome(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "done",
        Outcome::Retry { .. } => "retry",
        Outcome::Dead { .. } => "dead",
        Outcome::Released => "released",
    }
}

fn after(outcome: &Outcome) -> Option<i64> {
    match outcome {
        Outcome::Retry { after, .. } => Some(micros(*after)),
        _ => None,
    }
}

/// The error text; PostgreSQL's text cannot hold NUL.
fn detail(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Retry { error, .. } | Outcome::Dead { error } => Some(error.replace('\0', "\u{fffd}")),
        _ => None,
    }
}
