//! The transaction of a handler of an API, on the only writer: the handler runs where it is, and sends its statements
//! over. The writer waits for them from the first to the last, and not longer than [`LONGEST`].

use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use rusqlite::{Batch, Connection, fallible_iterator::FallibleIterator as _, params, types::ValueRef};
use tokio::sync::oneshot;

use super::{
    super::{
        AnswerTransaction, HeldKey, KeptAnswer, KeyWork, SqlValue, StoreError, WorkError, statement::refuse_control,
    },
    connect,
    effects::Bound,
    keys::complete,
    writer::{self, Message},
};

/// How long one transaction may hold the writer.
const LONGEST: Duration = Duration::from_secs(5);

type Rows = Vec<Vec<SqlValue>>;
type Ran = Result<(u64, Rows), WorkError>;

enum Order {
    Run {
        sql: String,
        params: Vec<SqlValue>,
        reply: oneshot::Sender<Ran>,
    },
    /// Complete the key with this, and commit.
    Finish(KeptAnswer),
}

/// Why the savepoint was undone, where it is not the database's own error.
type Why = oneshot::Sender<WorkError>;

pub(super) async fn transact(
    writer: mpsc::Sender<Message>,
    held: Option<HeldKey>,
    work: KeyWork,
) -> Result<KeptAnswer, WorkError> {
    let (orders, waiting) = mpsc::channel();
    let (why, undone) = oneshot::channel();
    let mut remote = Remote {
        writer,
        start: Some((held, waiting, why)),
        orders,
        done: None,
    };
    // Where it fails, dropping the remote undoes everything.
    let kept = work(&mut remote).await?;
    remote.order(Order::Finish(kept.clone()))?;
    let Some(done) = remote.done.take() else {
        return Err(StoreError::Closed.into());
    };
    let done = done.await.unwrap_or(Err(StoreError::Closed));
    match (undone.await, done) {
        (Ok(error), _) => Err(error),
        (Err(_), Ok(())) => Ok(kept),
        (Err(_), Err(error)) => Err(error.into()),
    }
}

/// The handler's end. The writer is asked for at the first statement, not before.
struct Remote {
    writer: mpsc::Sender<Message>,
    start: Option<(Option<HeldKey>, mpsc::Receiver<Order>, Why)>,
    orders: mpsc::Sender<Order>,
    done: Option<oneshot::Receiver<Result<(), StoreError>>>,
}

impl Remote {
    fn order(&mut self, order: Order) -> Result<(), WorkError> {
        if let Some((held, waiting, why)) = self.start.take() {
            let (job, done) = writer::job(move |db| serve(db, held, &waiting, why));
            self.done = Some(done);
            self.writer.send(Message::Job(job)).map_err(|_| StoreError::Closed)?;
        }
        self.orders.send(order).map_err(|_| ended())
    }

    fn run<'t>(&'t mut self, sql: &str, params: Vec<SqlValue>) -> BoxFuture<'t, Ran> {
        let (reply, ran) = oneshot::channel();
        let sent = self.order(Order::Run {
            sql: sql.to_owned(),
            params,
            reply,
        });
        Box::pin(async move {
            sent?;
            ran.await.unwrap_or_else(|_| Err(ended()))
        })
    }
}

/// Taken over, or out of time.
fn ended() -> WorkError {
    WorkError::Statement("the transaction has ended: it took longer than 5s, or its key is another's".to_owned())
}

impl AnswerTransaction for Remote {
    fn execute<'t>(&'t mut self, sql: &'t str, params: Vec<SqlValue>) -> BoxFuture<'t, Result<u64, WorkError>> {
        let ran = self.run(sql, params);
        Box::pin(async move { Ok(ran.await?.0) })
    }

    fn query<'t>(&'t mut self, sql: &'t str, params: Vec<SqlValue>) -> BoxFuture<'t, Result<Rows, WorkError>> {
        let ran = self.run(sql, params);
        Box::pin(async move { Ok(ran.await?.1) })
    }
}

/// The writer's end, in a savepoint; an error undoes it.
fn serve(db: &Connection, held: Option<HeldKey>, orders: &mpsc::Receiver<Order>, why: Why) -> rusqlite::Result<()> {
    // Not shown to anyone: the handler knows why, or is told through `why`.
    let undo = || rusqlite::Error::QueryReturnedNoRows;
    if let Some(HeldKey { id, token }) = held {
        let holds = db
            .prepare_cached(
                "SELECT 1 FROM api_idempotency_keys WHERE id = ?1 AND lease_token = ?2 AND status = 'processing'",
            )?
            .exists(params![id, token])?;
        if !holds {
            let _ = why.send(WorkError::Stale);
            return Err(undo());
        }
    }
    let until = Instant::now() + LONGEST;
    loop {
        match orders.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Order::Run { sql, params, reply }) => {
                let ran = run(db, &sql, &params);
                if db.is_autocommit() {
                    // It ended the whole transaction, that of others too; they are told to come again.
                    let _ = why.send(WorkError::Statement("the statement ended the transaction".to_owned()));
                    return Err(undo());
                }
                let _ = reply.send(ran);
            }
            Ok(Order::Finish(kept)) => {
                return match held {
                    Some(held) => complete(db, held, &kept).map(drop),
                    None => Ok(()),
                };
            }
            Err(_) => {
                let _ = why.send(ended());
                return Err(undo());
            }
        }
    }
}

fn run(db: &Connection, sql: &str, params: &[SqlValue]) -> Ran {
    refuse_control(sql).map_err(|why| WorkError::Statement(why.to_owned()))?;
    // In a savepoint of its own: what fails is undone, and the handler may go on.
    writer::in_savepoint(db, |db| {
        let mut batch = Batch::new(db, sql);
        if batch.next()?.is_none() || batch.next()?.is_some() {
            return Err(rusqlite::Error::MultipleStatement);
        }
        let mut statement = db.prepare_cached(sql)?;
        if statement.parameter_count() != params.len() {
            return Err(rusqlite::Error::InvalidParameterCount(
                params.len(),
                statement.parameter_count(),
            ));
        }
        for (nth, value) in params.iter().enumerate() {
            statement.raw_bind_parameter(nth + 1, Bound(value))?;
        }
        let columns = statement.column_count();
        let mut rows = statement.raw_query();
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            all.push(
                (0..columns)
                    .map(|i| row.get_ref(i).map(value))
                    .collect::<rusqlite::Result<_>>()?,
            );
        }
        Ok((db.changes(), all))
    })
    .map_err(|error| WorkError::Statement(connect::error(&error).to_string()))
}

fn value(value: ValueRef<'_>) -> SqlValue {
    match value {
        ValueRef::Null => SqlValue::Null,
        ValueRef::Integer(int) => SqlValue::Int(int),
        ValueRef::Real(real) => SqlValue::Number(real.to_string()),
        ValueRef::Text(text) => SqlValue::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(blob) => SqlValue::Bytes(Bytes::copy_from_slice(blob)),
    }
}
