//! Writes the outcomes of attempts.

use std::cell::Cell;

use rusqlite::{Connection, params};

use super::{
    super::Settled,
    connect::{micros, now},
    lanes::Lanes,
};
use crate::domain::{AttemptOutcome, Outcome, Settle};

/// Writes each settle whose token is that of the present claim; gives the number of the others.
pub(super) fn settle<'a>(
    db: &Connection,
    lanes: &Lanes,
    settles: impl Iterator<Item = &'a Settle>,
) -> rusqlite::Result<u64> {
    let mut stale = 0;
    for settle in settles {
        if !lanes.around(db, (settle.event_id, &settle.handler), || write(db, settle))? {
            stale += 1;
        }
    }
    Ok(stale)
}

/// Writes settles and says of each what became of it.
pub(super) fn each(db: &Connection, settles: &[Settle]) -> rusqlite::Result<(Vec<Settled>, bool)> {
    let lanes = Lanes {
        are_used: true,
        woken: Cell::new(false),
    };
    let mut answers = Vec::with_capacity(settles.len());
    for settle in settles {
        let is_written_now = lanes.around(db, (settle.event_id, &settle.handler), || write(db, settle))?;
        let answer = if is_written_now {
            Settled::Written
        } else if is_written(db, settle)? {
            Settled::Repeated
        } else {
            Settled::Stale
        };
        answers.push(answer);
    }
    Ok((answers, lanes.woken.get()))
}

/// Whether the history has this very attempt with this outcome. Its start tells it from one of the same number in
/// another life of the delivery.
fn is_written(db: &Connection, settle: &Settle) -> rusqlite::Result<bool> {
    let Some(outcome) = settle.outcome.recorded() else {
        return Ok(false);
    };
    db.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM attempts WHERE event_id = ?1 AND handler = ?2 AND attempt = ?3
                        AND started_at = ?4 AND outcome = ?5)",
    )?
    .query_row(
        params![
            settle.event_id,
            &*settle.handler,
            settle.attempt,
            settle.started_at.as_microsecond(),
            outcome.as_str()
        ],
        |row| row.get(0),
    )
}

/// Takes the delivery off the work list, if the claim still holds.
pub(super) fn finish(db: &Connection, event_id: i64, handler: &str, token: i64) -> rusqlite::Result<bool> {
    let gone = db
        .prepare_cached(
            "DELETE FROM deliveries WHERE event_id = ?1 AND handler = ?2 AND lease_token = ?3 AND state = 'claimed'",
        )?
        .execute(params![event_id, handler, token])?;
    Ok(gone == 1)
}

/// Adds an attempt to the history.
pub(super) fn remember(
    db: &Connection,
    (event_id, handler, attempt): (i64, &str, u32),
    started_at: i64,
    duration_ms: i64,
    outcome: AttemptOutcome,
    detail: Option<&str>,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO attempts (event_id, handler, attempt, started_at, duration_ms, outcome, detail)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        event_id,
        handler,
        attempt,
        started_at,
        duration_ms,
        outcome.as_str(),
        detail
    ])?;
    Ok(())
}

fn write(db: &Connection, settle: &Settle) -> rusqlite::Result<bool> {
    let (id, handler, token) = (settle.event_id, &*settle.handler, settle.token);
    let (changed, outcome, detail) = match &settle.outcome {
        Outcome::Done => (finish(db, id, handler, token)?, AttemptOutcome::Done, None),
        Outcome::DoneEarlier { detail } => {
            let changed = finish(db, id, handler, token)?;
            (changed, AttemptOutcome::Done, Some(detail.as_str()))
        }
        Outcome::Filtered { detail } => {
            let changed = finish(db, id, handler, token)?;
            (changed, AttemptOutcome::Filtered, Some(detail.as_str()))
        }
        Outcome::Retry { after, error }
        | Outcome::Unknown {
            after: Some(after),
            error,
        } => {
            let run_at = now().saturating_add(micros(*after));
            let changed = db
                .prepare_cached(
                    "UPDATE deliveries SET state = CASE WHEN discard THEN 'discarded' ELSE 'ready' END,
                            run_at = ?4, last_error = ?5, lost = 0, share = share | 1, discard = 0,
                            lease_token = NULL, lease_until = NULL
                     WHERE event_id = ?1 AND handler = ?2 AND lease_token = ?3 AND state = 'claimed'",
                )?
                .execute(params![id, handler, token, run_at, error])?;
            (changed == 1, kept(&settle.outcome), Some(error.as_str()))
        }
        Outcome::Dead { error } | Outcome::Unknown { after: None, error } => {
            let changed = db
                .prepare_cached(
                    "UPDATE deliveries SET state = CASE WHEN discard THEN 'discarded' ELSE 'dead' END,
                            last_error = ?4, discard = 0, lease_token = NULL, lease_until = NULL
                     WHERE event_id = ?1 AND handler = ?2 AND lease_token = ?3 AND state = 'claimed'",
                )?
                .execute(params![id, handler, token, error])?;
            (changed == 1, kept(&settle.outcome), Some(error.as_str()))
        }
        Outcome::Postponed { after, error } => {
            let changed = db
                .prepare_cached(
                    "UPDATE deliveries SET state = CASE WHEN discard THEN 'discarded' ELSE 'ready' END,
                            attempts = max(attempts - 1, 0), run_at = ?4, last_error = ?5, discard = 0,
                            lease_token = NULL, lease_until = NULL
                     WHERE event_id = ?1 AND handler = ?2 AND lease_token = ?3 AND state = 'claimed'",
                )?
                .execute(params![id, handler, token, now().saturating_add(micros(*after)), error])?;
            return Ok(changed == 1);
        }
        Outcome::Released => {
            let changed = db
                .prepare_cached(
                    "UPDATE deliveries SET state = CASE WHEN discard THEN 'discarded' ELSE 'ready' END,
                            attempts = max(attempts - 1, 0), discard = 0, lease_token = NULL, lease_until = NULL
                     WHERE event_id = ?1 AND handler = ?2 AND lease_token = ?3 AND state = 'claimed'",
                )?
                .execute(params![id, handler, token])?;
            return Ok(changed == 1);
        }
    };
    if changed {
        let millis = i64::try_from(settle.duration.as_millis()).unwrap_or(i64::MAX);
        let started = settle.started_at.as_microsecond();
        remember(db, (id, handler, settle.attempt), started, millis, outcome, detail)?;
    }
    Ok(changed)
}

/// The word of the history for a delivery that stays on the work list.
fn kept(outcome: &Outcome) -> AttemptOutcome {
    match outcome {
        Outcome::Unknown { .. } => AttemptOutcome::Unknown,
        Outcome::Dead { .. } => AttemptOutcome::Dead,
        _ => AttemptOutcome::Retry,
    }
}
