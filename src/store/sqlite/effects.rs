//! Runs the statements of sql handlers in the transaction that settles their deliveries: exactly once.

use std::{collections::HashSet, sync::Arc};

use jiff::Timestamp;
use rusqlite::fallible_iterator::FallibleIterator as _;
use rusqlite::{Connection, types::ToSqlOutput, types::ValueRef};
use tokio::sync::oneshot;

use super::{
    super::{Applied, Effect, SqlValue, StoreError, statement::refuse_control},
    connect::Deadline,
    settle::{finish, remember},
    writer::in_savepoint,
};
use crate::domain::AttemptOutcome;

/// An effect whose worker waits.
pub(super) struct Waiting {
    pub(super) effect: Effect,
    pub(super) reply: oneshot::Sender<Result<Applied, StoreError>>,
}

/// Statements that were found to be single and harmless to the transaction.
#[derive(Default)]
pub(super) struct Checked(HashSet<Arc<str>>);

/// Begins the transaction and runs the effects in it. A statement that ends the whole transaction (one that ran out of
/// time does, and `OR ROLLBACK`) has failed; the others are then run again without it.
pub(super) fn begin(
    db: &Connection,
    deadline: &Deadline,
    checked: &mut Checked,
    waiting: &[Waiting],
) -> rusqlite::Result<Vec<Applied>> {
    let mut results: Vec<Option<Applied>> = waiting.iter().map(|_| None).collect();
    let mut fatal = vec![false; waiting.len()];
    loop {
        db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let mut is_whole = true;
        for (i, wait) in waiting.iter().enumerate() {
            if fatal[i] {
                continue;
            }
            let applied = apply(db, deadline, checked, &wait.effect)?;
            let is_over = db.is_autocommit();
            results[i] = Some(applied);
            if is_over {
                fatal[i] = true;
                is_whole = false;
                break;
            }
        }
        if is_whole {
            return Ok(results.into_iter().map(|r| r.unwrap_or(Applied::Stale)).collect());
        }
    }
}

pub(super) fn answer(waiting: Vec<Waiting>, results: Vec<Applied>) {
    for (wait, applied) in waiting.into_iter().zip(results) {
        let _ = wait.reply.send(Ok(applied));
    }
}

fn apply(db: &Connection, deadline: &Deadline, checked: &mut Checked, effect: &Effect) -> rusqlite::Result<Applied> {
    let claim = &effect.claim;
    let mut stale = false;
    let done = in_savepoint(db, |db| {
        if !finish(db, claim.event.id, &claim.handler, claim.token)? {
            stale = true;
            return Ok(());
        }
        let started = Timestamp::now();
        deadline.begin();
        let ran = run(db, checked, effect);
        deadline.end();
        ran?;
        let elapsed =
            Timestamp::now().as_millisecond() - started.as_millisecond().min(effect.started_at.as_millisecond());
        let key = (claim.event.id, &*claim.handler, claim.attempt);
        remember(
            db,
            key,
            effect.started_at.as_microsecond(),
            elapsed.max(0),
            AttemptOutcome::Done,
            None,
        )
    });
    match done {
        Ok(()) if stale => Ok(Applied::Stale),
        Ok(()) => Ok(Applied::Done),
        // A full or broken disk is not the statement's fault.
        Err(error) if is_database(&error) => Err(error),
        Err(error) => Ok(Applied::Failed(message(&error))),
    }
}

fn run(db: &Connection, checked: &mut Checked, effect: &Effect) -> rusqlite::Result<()> {
    if !checked.0.contains(&effect.statement) {
        refuse_control(&effect.statement).map_err(refusal)?;
        let mut batch = rusqlite::Batch::new(db, &effect.statement);
        if batch.next()?.is_some() && batch.next()?.is_some() {
            return Err(refusal("the handler's statement must be a single one"));
        }
        checked.0.insert(Arc::clone(&effect.statement));
    }
    let mut statement = db.prepare_cached(&effect.statement)?;
    let mut rows = statement.query(rusqlite::params_from_iter(effect.params.iter().map(Bound)))?;
    while rows.next()?.is_some() {}
    Ok(())
}

fn is_database(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode as Code;
    matches!(
        error.sqlite_error_code(),
        Some(
            Code::DiskFull
                | Code::SystemIoFailure
                | Code::DatabaseCorrupt
                | Code::ReadOnly
                | Code::OutOfMemory
                | Code::CannotOpen
                | Code::DatabaseBusy
                | Code::NotADatabase
        )
    )
}

fn message(error: &rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::OperationInterrupted) => "the statement ran out of time".to_owned(),
        _ => error.to_string(),
    }
}

fn refusal(why: &str) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(why.into())
}

struct Bound<'a>(&'a SqlValue);

impl rusqlite::ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self.0 {
            SqlValue::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            SqlValue::Bool(value) => ToSqlOutput::from(*value),
            SqlValue::Int(value) => ToSqlOutput::from(*value),
            SqlValue::Float(value) => ToSqlOutput::from(*value),
            SqlValue::Text(value) => ToSqlOutput::Borrowed(ValueRef::Text(value.as_bytes())),
            SqlValue::Bytes(value) => ToSqlOutput::Borrowed(ValueRef::Blob(value)),
        })
    }
}
