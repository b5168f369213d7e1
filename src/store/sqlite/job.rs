//! Work for the writer that shares its transaction with others.

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::{super::StoreError, connect};

/// Runs in a savepoint; gives what tells the caller, once the outcome of the commit is known.
pub(super) type Job = Box<dyn FnOnce(Option<&Connection>) -> Answer + Send>;
pub(super) type Answer = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Makes a job of a closure. An error of the closure undoes what it did, and nothing else.
pub(super) fn job<T: Send + 'static>(
    work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
) -> (Job, oneshot::Receiver<Result<T, StoreError>>) {
    let (reply, answer) = oneshot::channel();
    (reply_to(reply, work), answer)
}

/// The same for work that changes something in its last statement only. A statement that fails undoes itself, so there is
/// no savepoint, which would copy every page that the statement changes.
pub(super) fn single_job<T: Send + 'static>(
    work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
) -> (Job, oneshot::Receiver<Result<T, StoreError>>) {
    let (reply, answer) = oneshot::channel();
    let job: Job = Box::new(move |db| {
        let done = db.map(|db| in_transaction(db).and_then(|()| work(db)));
        answer_with(reply, done)
    });
    (job, answer)
}

/// A job whose result is of use only to who asked for it: when nobody waits for it any more, nothing is done.
pub(super) fn claim_job<T: Send + 'static>(
    work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
) -> (Job, oneshot::Receiver<Result<T, StoreError>>) {
    let (reply, answer) = oneshot::channel();
    let job: Job = Box::new(move |db| {
        if reply.is_closed() {
            return Box::new(|_| ());
        }
        reply_to(reply, work)(db)
    });
    (job, answer)
}

fn reply_to<T: Send + 'static>(
    reply: oneshot::Sender<Result<T, StoreError>>,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
) -> Job {
    Box::new(move |db| {
        let done = db.map(|db| in_savepoint(db, work));
        answer_with(reply, done)
    })
}

fn answer_with<T: Send + 'static>(
    reply: oneshot::Sender<Result<T, StoreError>>,
    done: Option<rusqlite::Result<T>>,
) -> Answer {
    Box::new(move |committed| {
        let _ = reply.send(committed.and_then(|()| match done {
            Some(done) => done.map_err(|error| connect::error(&error)),
            None => Err(StoreError::Closed),
        }));
    })
}

/// Nothing may be written outside of a transaction, which an earlier error may have ended.
fn in_transaction(db: &Connection) -> rusqlite::Result<()> {
    if db.is_autocommit() {
        let ended = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ABORT_ROLLBACK);
        return Err(rusqlite::Error::SqliteFailure(ended, None));
    }
    Ok(())
}

/// Undoes what `work` did if it fails, and leaves the rest of the transaction.
pub(super) fn in_savepoint<T>(
    db: &Connection,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    in_transaction(db)?;
    db.prepare_cached("SAVEPOINT work")?.execute([])?;
    let done = work(db);
    if done.is_err() && !db.is_autocommit() {
        db.prepare_cached("ROLLBACK TO work")?.execute([])?;
    }
    if !db.is_autocommit() {
        db.prepare_cached("RELEASE work")?.execute([])?;
    }
    done
}
