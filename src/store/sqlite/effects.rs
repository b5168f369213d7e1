//! Runs the effects of sql and native handlers in the transaction that settles their deliveries, and the code of an API's
//! handlers in the one that completes their keys: exactly once.

use std::{
    collections::HashSet,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use rusqlite::fallible_iterator::FallibleIterator as _;
use rusqlite::{Connection, ErrorCode, types::ToSqlOutput, types::ValueRef};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{
    super::{
        Applied, Effect, InTransaction, LONGEST, Prepared, SqlValue, StoreError, Work,
        keys::Completes,
        statement::{refuse_control, took_longer, wrong_count},
        thread::Runner,
    },
    code::{self, CodeFailed, Patience},
    connect::Deadline,
    job::in_savepoint,
    keys,
    lanes::Lanes,
    settle::{finish, remember},
};
use crate::domain::{AttemptOutcome, exact_double};

/// What is to be done.
pub(super) enum Asked {
    /// The effect of a delivery, which is settled with it.
    Effect(Effect),
    /// Code of a program, or of an API's handler, whose key is completed with it.
    Code {
        work: InTransaction,
        key: Option<Completes>,
        limit: Duration,
    },
}

/// Something that somebody waits for.
pub(super) struct Waiting {
    pub(super) asked: Asked,
    pub(super) reply: oneshot::Sender<Result<Applied, StoreError>>,
    /// Nobody waits any more.
    pub(super) gone: CancellationToken,
}

/// No further effect begins in a transaction after this long.
pub(super) const GROUP: Duration = Duration::from_millis(50);

/// Statements that are known to be harmless, at most: code may make up new ones for ever.
const MOST_HARMLESS: usize = 1_000;

/// What is known of statements.
#[derive(Default)]
pub(super) struct Checked {
    /// Found to be single and harmless to the transaction.
    harmless: HashSet<Arc<str>>,
    /// Handlers whose mistake was logged, and that have not worked since.
    reported: HashSet<Arc<str>>,
    /// Where the code of native handlers runs.
    runner: Runner,
}

/// Begins the transaction and runs effects in it until they have taken their time; gives what became of the first ones,
/// at least of one. A statement that ends the whole transaction (one that ran out of time does, and `OR ROLLBACK`) has
/// failed; those before it are then run again without it.
pub(super) fn begin(
    db: &Connection,
    deadline: &Deadline,
    (checked, lanes): (&mut Checked, &Lanes),
    waiting: &[Waiting],
) -> rusqlite::Result<Vec<Applied>> {
    let start = Instant::now();
    let (mut count, mut is_cut) = (waiting.len(), false);
    let mut fatal: Vec<Option<Applied>> = waiting.iter().map(|_| None).collect();
    'whole: loop {
        db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let mut results = Vec::with_capacity(count);
        for (i, wait) in waiting[..count].iter().enumerate() {
            let applied = match &fatal[i] {
                Some(failed) => failed.clone(),
                None => match &wait.asked {
                    Asked::Effect(effect) => apply(db, deadline, (checked, lanes), (effect, &wait.gone))?,
                    Asked::Code { work, key, limit } => {
                        let patience = Patience {
                            limit: (*limit).min(LONGEST),
                            gone: &wait.gone,
                        };
                        run_asked(db, deadline, checked, (work, key.as_ref()), &patience)?
                    }
                },
            };
            let is_late = start.elapsed() > GROUP;
            if db.is_autocommit() {
                fatal[i] = Some(applied);
                if is_late && !is_cut {
                    (count, is_cut) = (i + 1, true);
                }
                continue 'whole;
            }
            results.push(applied);
            // What ran before the end of a transaction is run again to that end, or the one that ended it would be too.
            if is_late && !is_cut {
                break;
            }
        }
        return Ok(results);
    }
}

pub(super) fn answer(waiting: Vec<Waiting>, results: Vec<Applied>) {
    for (wait, applied) in waiting.into_iter().zip(results) {
        let _ = wait.reply.send(Ok(applied));
    }
}

fn apply(
    db: &Connection,
    deadline: &Deadline,
    (checked, lanes): (&mut Checked, &Lanes),
    (effect, gone): (&Effect, &CancellationToken),
) -> rusqlite::Result<Applied> {
    let limit = effect.limit.min(LONGEST);
    let claim = &effect.claim;
    let mut stale = false;
    let done = in_savepoint(db, |db| {
        let key = (claim.event.id, &*claim.handler);
        if !lanes.around(db, key, || finish(db, key.0, key.1, claim.token))? {
            stale = true;
            return Ok(());
        }
        let started = Timestamp::now();
        deadline.begin(limit, gone);
        let ran = run(db, checked, &effect.work, &Patience { limit, gone });
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
        Ok(()) => {
            checked.reported.remove(&claim.handler);
            Ok(Applied::Done)
        }
        // A full or broken disk is not the statement's fault.
        Err(error) if is_database(&error) => Err(error),
        Err(error) => {
            let why = message(&error, limit);
            if is_mistake(&error) && checked.reported.insert(Arc::clone(&claim.handler)) {
                tracing::warn!(
                    handler.name = &*claim.handler,
                    error = why,
                    "the handler's statement cannot work"
                );
            }
            Ok(Applied::Failed(why))
        }
    }
}

/// Runs code, and completes the key with the answer that it left.
fn run_asked(
    db: &Connection,
    deadline: &Deadline,
    checked: &mut Checked,
    (work, key): (&InTransaction, Option<&Completes>),
    patience: &Patience<'_>,
) -> rusqlite::Result<Applied> {
    let mut stale = false;
    let done = in_savepoint(db, |db| {
        if let Some(key) = key
            && !keys::is_held(db, key.held)?
        {
            stale = true;
            return Ok(());
        }
        deadline.begin(patience.limit, patience.gone);
        let ran = run_code(db, checked, work, patience);
        deadline.end();
        ran?;
        if let Some(key) = key
            && let Some(kept) = key.answer.take()
        {
            keys::complete(db, key.held, &kept)?;
            key.answer.put(Some(kept));
        }
        Ok(())
    });
    match done {
        Ok(()) if stale => Ok(Applied::Stale),
        Ok(()) => Ok(Applied::Done),
        Err(error) if is_database(&error) => Err(error),
        Err(error) => Ok(Applied::Failed(message(&error, patience.limit))),
    }
}

/// Runs the statement of an effect in a transaction that is undone.
pub(super) fn rehearse(db: &Connection, deadline: &Deadline, effect: &Effect) -> rusqlite::Result<Result<(), String>> {
    let limit = effect.limit.min(LONGEST);
    let gone = CancellationToken::new();
    db.execute_batch("BEGIN IMMEDIATE")?;
    deadline.begin(limit, &gone);
    let ran = run(
        db,
        &mut Checked::default(),
        &effect.work,
        &Patience { limit, gone: &gone },
    );
    deadline.end();
    if !db.is_autocommit() {
        db.execute_batch("ROLLBACK")?;
    }
    match ran {
        Err(error) if is_database(&error) => Err(error),
        ran => Ok(ran.map_err(|error| message(&error, limit))),
    }
}

/// What SQLite says of a statement before it runs.
pub(super) fn prepare(db: &Connection, statement: &str, params: usize) -> Prepared {
    if let Err(error) = check(db, statement) {
        let why = message(&error, LONGEST);
        // Tables, columns and functions may come; all else is the statement as it is written.
        let is_absent = why.starts_with("no such ") || why.contains(" has no column ");
        let is_wrong = (is_mistake(&error) || is_syntax(&why)) && !is_absent;
        return if is_wrong {
            Prepared::Wrong(why)
        } else {
            Prepared::Doubtful(why)
        };
    }
    match db.prepare(statement) {
        Ok(prepared) => {
            order(&prepared, params).map_or_else(|error| Prepared::Wrong(message(&error, LONGEST)), |_| Prepared::Fine)
        }
        Err(error) => Prepared::Doubtful(message(&error, LONGEST)),
    }
}

/// Refuses what is not one statement, and what is not harmless to the transaction.
fn check(db: &Connection, statement: &str) -> rusqlite::Result<()> {
    refuse_control(statement).map_err(refusal)?;
    let mut batch = rusqlite::Batch::new(db, statement);
    if batch.next()?.is_some() && batch.next()?.is_some() {
        return Err(refusal("the handler's statement must be a single one"));
    }
    Ok(())
}

/// The same, where it is not known already.
pub(super) fn check_once(db: &Connection, checked: &mut Checked, statement: &str) -> rusqlite::Result<()> {
    if !checked.harmless.contains(statement) {
        check(db, statement)?;
        if checked.harmless.len() >= MOST_HARMLESS {
            checked.harmless.clear();
        }
        checked.harmless.insert(Arc::from(statement));
    }
    Ok(())
}

fn run(db: &Connection, checked: &mut Checked, work: &Work, patience: &Patience<'_>) -> rusqlite::Result<()> {
    let (sql, params) = match work {
        Work::Statement { sql, params } => (sql, params),
        Work::Code(work) => return run_code(db, checked, work, patience),
    };
    check_once(db, checked, sql)?;
    let mut statement = db.prepare_cached(sql)?;
    let order = order(&statement, params.len())?;
    let mut rows = statement.query(rusqlite::params_from_iter(order.iter().map(|at| Bound(&params[*at]))))?;
    while rows.next()?.is_some() {}
    Ok(())
}

pub(super) fn run_code(
    db: &Connection,
    checked: &mut Checked,
    work: &InTransaction,
    patience: &Patience<'_>,
) -> rusqlite::Result<()> {
    let mut runner = mem::take(&mut checked.runner);
    let ran = code::run(db, checked, &mut runner, work, patience);
    checked.runner = runner;
    ran
}

/// Which value each parameter of a statement takes. SQLite counts `$2` as the first one where it stands first; here the
/// number in its name counts, as on PostgreSQL.
pub(super) fn order(statement: &rusqlite::Statement<'_>, given: usize) -> rusqlite::Result<Vec<usize>> {
    let number = |at: usize| {
        let name = statement.parameter_name(at + 1)?;
        name.strip_prefix(['$', '?'])?.parse::<usize>().ok()?.checked_sub(1)
    };
    let order: Vec<usize> = (0..statement.parameter_count())
        .map(|at| number(at).unwrap_or(at))
        .collect();
    let wants = order.iter().max().map_or(0, |most| most.saturating_add(1));
    match wrong_count(wants, given) {
        Some(why) => Err(refusal(&why)),
        None => Ok(order),
    }
}

pub(super) fn is_database(error: &rusqlite::Error) -> bool {
    use ErrorCode as Code;
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

/// Whether the statement as it is written is at fault, and fails each time.
fn is_mistake(error: &rusqlite::Error) -> bool {
    matches!(error, rusqlite::Error::ToSqlConversionFailure(why) if !why.is::<CodeFailed>())
        || error.sqlite_error_code() == Some(ErrorCode::Unknown)
}

/// Whether the parser itself gave up, which no table that comes later can mend. SQLite has one code for all mistakes.
fn is_syntax(why: &str) -> bool {
    why.ends_with(": syntax error") || why == "incomplete input" || why.starts_with("unrecognized token: ")
}

pub(super) fn message(error: &rusqlite::Error, limit: Duration) -> String {
    match error {
        error if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => took_longer(limit),
        rusqlite::Error::ToSqlConversionFailure(why) => why.to_string(),
        // Without the whole statement, which this kind of error repeats.
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        error => error.to_string(),
    }
}

fn refusal(why: &str) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(why.into())
}

pub(super) struct Bound<'a>(pub(super) &'a SqlValue);

impl rusqlite::ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self.0 {
            SqlValue::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            SqlValue::Bool(value) => ToSqlOutput::from(*value),
            SqlValue::Int(value) => ToSqlOutput::from(*value),
            // Where a double would lose digits they stay as they were sent, as a text.
            SqlValue::Number(text) => match exact_double(text) {
                Some(value) => ToSqlOutput::from(value),
                None => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            },
            SqlValue::Text(value) => ToSqlOutput::Borrowed(ValueRef::Text(value.as_bytes())),
            SqlValue::Bytes(value) => ToSqlOutput::Borrowed(ValueRef::Blob(value)),
        })
    }
}
