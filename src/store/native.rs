//! What native handlers ask of the store, beyond what every handler needs: to run code of theirs in a transaction, and
//! to keep the results of their steps.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;

use super::{Lease, SqlValue, StoreFuture, Transaction};

/// The store, as native handlers and the programs around them see it.
pub trait Native: Send + Sync {
    /// The steps recorded for a delivery, in the order of recording; `None` when the claim has ended.
    fn steps(&self, claim: Lease) -> StoreFuture<'_, Option<Vec<Step>>>;

    /// Keeps the result of a step. Answers after the commit; `false`: the claim had ended, and nothing was kept. A step
    /// that is there already stays as it is.
    fn record(&self, step: NewStep) -> StoreFuture<'_, bool>;

    /// Runs code in a transaction of its own, which settles nothing. An error of the code undoes it all. On SQLite the
    /// limit is 5 s at most. When the future is dropped, what has not begun does not begin.
    ///
    /// # Errors
    /// `Refused` with the code's own error.
    fn transact(&self, work: InTransaction, limit: Duration) -> StoreFuture<'static, ()>;
}

/// Code that runs in a transaction of the store. It may run more than once, after a deadlock for example; what counts is
/// the run that is committed. The error is kept in the history and must hold no secret.
pub type InTransaction = Arc<dyn Fn(&mut Transaction) -> Result<(), String> + Send + Sync>;

/// What an effect in the store consists of.
#[derive(Clone)]
pub enum Work {
    /// One statement of a sql handler.
    Statement { sql: Arc<str>, params: Vec<SqlValue> },
    /// The end of a native handler.
    Code(InTransaction),
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Statement { sql, params } => f
                .debug_struct("Statement")
                .field("sql", sql)
                .field("params", &params.len())
                .finish(),
            Self::Code(_) => f.write_str("Code"),
        }
    }
}

/// A step to record, under the claim of the attempt that did it.
#[derive(Debug, Clone)]
pub struct NewStep {
    pub claim: Lease,
    pub name: String,
    pub attempt: u32,
    /// Any JSON.
    pub result: String,
}

/// A step that was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub handler: String,
    pub name: String,
    /// Number of the attempt that did it.
    pub attempt: u32,
    pub recorded_at: Timestamp,
    /// JSON.
    pub result: String,
}
