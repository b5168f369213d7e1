//! Serves the statements of code that runs in a transaction of the writer. The code has a thread of its own; this one
//! waits for it until its time is up, and no longer.

use std::{
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use bytes::Bytes;
use rusqlite::{Connection, types::ValueRef};
use tokio_util::sync::CancellationToken;

use super::{
    super::{
        InTransaction, Row, SqlError, SqlValue,
        statement::took_longer,
        thread::Runner,
        transaction::{Ask, Reply, Said},
    },
    effects::{Bound, Checked, check_once, is_database, message, order},
};

/// How often to look whether somebody still waits for the end.
const LOOK: Duration = Duration::from_millis(20);

/// For how long code may hold the transaction, and who waits for it.
pub(super) struct Patience<'a> {
    pub(super) limit: Duration,
    pub(super) gone: &'a CancellationToken,
}

/// Runs code in the transaction that is open. The error undoes what it did.
pub(super) fn run(
    db: &Connection,
    checked: &mut Checked,
    runner: &mut Runner,
    work: &InTransaction,
    patience: &Patience<'_>,
) -> rusqlite::Result<()> {
    let until = Instant::now() + patience.limit;
    let (sender, said) = mpsc::channel();
    runner.start(work, move |said| drop(sender.send(said)));
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let why = match said.recv_timeout(left.min(LOOK)) {
            Ok(Said::Ended(done)) => return done.map_err(failure),
            Ok(Said::Ask(ask)) => {
                match answer(db, checked, &ask) {
                    Ok(answer) => drop(ask.reply.send(Ok(answer))),
                    // A full or broken disk is not the code's fault.
                    Err(error) if is_database(&error) => {
                        runner.abandon();
                        return Err(error);
                    }
                    Err(error) => drop(ask.reply.send(Err(SqlError(message(&error, patience.limit))))),
                }
                continue;
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => "the handler's thread could not be started".to_owned(),
            Err(mpsc::RecvTimeoutError::Timeout) if patience.gone.is_cancelled() => "nobody waits for it".to_owned(),
            Err(mpsc::RecvTimeoutError::Timeout) if left.is_zero() => took_longer(patience.limit),
            Err(mpsc::RecvTimeoutError::Timeout) => continue,
        };
        runner.abandon();
        return Err(failure(why));
    }
}

/// What the code itself says of its failure.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct CodeFailed(String);

/// The code's own failure, for those who speak of errors of the database.
fn failure(why: String) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(Box::new(CodeFailed(why)))
}

fn answer(db: &Connection, checked: &mut Checked, ask: &Ask) -> rusqlite::Result<Reply> {
    check_once(db, checked, &ask.sql)?;
    if db.is_autocommit() {
        return Err(failure("the transaction has ended".to_owned()));
    }
    let mut statement = db.prepare_cached(&ask.sql)?;
    let order = order(&statement, ask.params.len())?;
    let is_change = !statement.readonly();
    let columns: Arc<[String]> = statement.column_names().into_iter().map(str::to_owned).collect();
    let mut reply = Reply::default();
    let params = order.iter().map(|at| Bound(&ask.params[*at]));
    let mut rows = statement.query(rusqlite::params_from_iter(params))?;
    while let Some(row) = rows.next()? {
        let values = (0..columns.len()).map(|at| row.get_ref(at).map(value));
        let row = Row {
            columns: Arc::clone(&columns),
            values: values.collect::<rusqlite::Result<_>>()?,
        };
        reply.push(row).map_err(|error| failure(error.0))?;
    }
    drop(rows);
    if is_change {
        reply.changed = db.changes();
    }
    Ok(reply)
}

fn value(value: ValueRef<'_>) -> SqlValue {
    match value {
        ValueRef::Null => SqlValue::Null,
        ValueRef::Integer(int) => SqlValue::Int(int),
        ValueRef::Real(real) => real.into(),
        ValueRef::Text(text) => SqlValue::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => SqlValue::Bytes(Bytes::copy_from_slice(bytes)),
    }
}
