//! The seam to the database: a trait for each reader. `http::receive` sees [`Inbox`], the worker sees [`Queue`], people
//! and the clock see [`Admin`], native handlers see [`Native`], `idempotency` sees [`Keys`]. Methods are the verbs of the flow and one transaction each; no
//! connection, transaction or SQL type leaves this module, so the two engines may differ inside.
//!
//! No database call runs in a future that a client can drop: callers send a message to a task (PostgreSQL) or a thread
//! (SQLite) that owns its connection, and wait for the answer.

pub(crate) mod answers;
mod assemble;
mod audit;
mod batch;
mod budget;
mod cache;
mod filter;
mod jobs;
mod keys;
mod migrations;
mod native;
mod options;
mod ordering;
mod outbox;
mod postgres;
mod refused;
mod retention;
mod schema;
mod sqlite;
mod statement;
mod task;
#[cfg(test)]
pub(crate) mod testing;
mod thread;
mod transaction;
mod types;
mod upkeep;
mod validate;
mod walk;

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;

use crate::domain::{Claim, NewEvent, Settle};

pub use audit::{AuditFilter, AuditRow};
pub use jobs::run_job;
pub use keys::{
    Answering, HeldKey, KeptAnswer, KeyFilter, KeyName, KeyRow, KeyState, KeyStats, KeyStep, Keys, NewKey,
    RecoveryPoint, Reserved,
};
pub use native::{InTransaction, Native, NewStep, Step, Work};
pub use options::{Options, open};
pub(crate) use postgres::run_elsewhere;
pub use refused::{Quarantine, Refused, RefusedFilter, RefusedPage, RefusedRow, Room};
pub use schema::{Schema, schema};
pub use transaction::{FromSql, Row, SqlError, Transaction, TransactionError};
pub(crate) use transaction::{LONGEST, Left};
pub use types::{
    Accepted, Applied, AttemptLimit, Backlog, ClaimRequest, Discarded, Effect, EventDetail, EventFilter, EventRow,
    HandlerStats, Lease, Page, Prepared, PurgePolicy, Purged, Received, Relayed, Reprocess, ReprocessScope,
    Reprocessed, SealedSecret, Settled, SqlValue, Stats, StoreError, Swept, TopicRoutes, Who,
};
pub use upkeep::{BackfillTurn, Export, Job, JobState, NewJob, Runner, Upkeep};

pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Everything that a database does for Cerca.
pub trait Store: Inbox + Queue + Outbox + Admin + Native + Upkeep + Quarantine + Keys {}

/// Takes events in.
pub trait Inbox: Send + Sync {
    /// Stores the events of one request in one transaction, shared with other requests that wait at the same time
    /// (group commit), and answers after the commit, in the order given. The events are queued before this returns: if
    /// the future is dropped they are stored all the same.
    ///
    /// # Errors
    /// [`StoreError::Full`] at once when the queue is full, [`StoreError::Unavailable`] when the commit failed or its
    /// outcome is unknown. In both cases nothing may be acknowledged.
    fn accept(&self, events: Vec<NewEvent>) -> StoreFuture<'static, Vec<Accepted>>;

    /// Gives the dead deliveries of an event a new life, because its sender sent it again; answers how many, after the
    /// commit. `who` goes to the audit where there was one.
    fn revive<'a>(&'a self, provider: &'a str, provider_event_id: &'a str, who: Who) -> StoreFuture<'a, u64>;

    /// Fresh deliveries are given to this receiver with their bytes still in memory. Set once, before the first event.
    fn set_handoff(&self, handoff: Arc<dyn Handoff>);
}

/// The local worker, as the store sees it: takes fresh deliveries without a claim query, while it has room.
pub trait Handoff: Send + Sync {
    /// Reserves room for `count` deliveries of `handler`, `bytes` in total, by `NewEvent::size`. All or nothing;
    /// `false`: insert as ready.
    fn reserve(&self, handler: &str, count: usize, bytes: usize) -> bool;

    /// Gives a reservation back: the insert failed, or some events were duplicates.
    fn give_back(&self, handler: &str, count: usize, bytes: usize);

    /// Hands over claims that were reserved and are committed.
    fn hand_over(&self, claims: Vec<Claim>);

    /// Says that ready deliveries were committed, so that the worker claims without waiting for its next poll.
    fn wake(&self);

    /// How long a fresh claim is leased.
    fn lease(&self) -> Duration;
}

/// The work list. Instants are the database's clock; callers pass durations.
pub trait Queue: Send + Sync {
    /// Claims due deliveries of the named handlers, oldest `run_at` first, counts the attempt, and reads their events.
    fn claim(&self, request: ClaimRequest) -> StoreFuture<'_, Vec<Claim>>;

    /// Claims the oldest due delivery of these handlers whose last lease was lost (see `AttemptLimit::isolate`). It may
    /// have killed the process that held it, so nothing else should run beside it.
    fn claim_suspect(&self, handlers: Vec<Arc<str>>, lease: Duration) -> StoreFuture<'_, Option<Claim>>;

    /// Queues the outcome of an attempt; written in batches, retried until the database takes it. Resolves when it is
    /// queued (this is the back-pressure), not when it is written. A settle whose token is not that of the present claim changes nothing
    /// and is counted.
    fn settle(&self, settle: Settle) -> BoxFuture<'_, ()>;

    /// Writes outcomes in one transaction of their own and says, in order, what became of each, after the commit. For
    /// claims whose worker is not of this process.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]: the outcome is unknown, and the same settles may be sent again.
    fn settle_each(&self, settles: Vec<Settle>) -> StoreFuture<'_, Vec<Settled>>;

    /// Resolves when every settle queued before this call is written.
    fn flush(&self) -> StoreFuture<'_, ()>;

    /// Runs an effect and settles its delivery as done in one transaction, fenced by the claim's token (exactly once).
    /// Effects of one handler wait for each other, and for no others (PostgreSQL). The answer always comes, and once it is
    /// there nothing of the effect runs any more. Dropping the future ends a statement that runs and forgets one that waits.
    fn apply(&self, effect: Effect) -> StoreFuture<'_, Applied>;

    /// Extends leases; answers, in order, which claims still hold.
    fn renew(&self, leases: Vec<Lease>, lease: Duration) -> StoreFuture<'_, Vec<bool>>;

    /// Ends leases that ran out: an attempt `lost` in the history, and the delivery ready again, or dead when it is out
    /// of attempts. Wakes ordered deliveries that wait for nobody any more.
    fn sweep(&self, limits: Vec<AttemptLimit>) -> StoreFuture<'_, Swept>;
}

/// The table that applications write to in transactions of their own.
pub trait Outbox: Send + Sync {
    /// Makes events of the oldest rows and removes these, in one transaction, oldest first; one batch of bounded size.
    /// `routes` says which handlers want a topic. Whatever is committed is found, in whatever order it was: nothing is
    /// skipped for its id. Where another process is at it, nothing is done.
    ///
    /// # Errors
    /// Those of the database; the rows are still there.
    fn relay(&self, routes: Arc<TopicRoutes>) -> StoreFuture<'_, Relayed>;

    /// Counts what waits.
    fn backlog(&self) -> StoreFuture<'_, Backlog>;
}

/// What people, the API and the timetable ask.
pub trait Admin: Send + Sync {
    /// One page of events, newest first. A page that had to look long is short, even empty, and has a `next`.
    fn events(&self, filter: EventFilter, cursor: Option<i64>, limit: u32) -> StoreFuture<'_, Page>;

    /// How many events the filter matches.
    fn count(&self, filter: EventFilter) -> StoreFuture<'_, u64>;

    fn event<'a>(&'a self, provider: &'a str, provider_event_id: &'a str) -> StoreFuture<'a, Option<EventDetail>>;

    /// What was received of an event, as it was received.
    fn payload<'a>(&'a self, provider: &'a str, provider_event_id: &'a str) -> StoreFuture<'a, Option<Received>>;

    /// Gives deliveries a new life, and writes down who asked.
    fn reprocess(&self, what: Reprocess, who: Who) -> StoreFuture<'_, Reprocessed>;

    /// Gives up every delivery of an event that is not done.
    fn discard<'a>(
        &'a self,
        provider: &'a str,
        provider_event_id: &'a str,
        who: Who,
    ) -> StoreFuture<'a, Option<Discarded>>;

    fn stats(&self) -> StoreFuture<'_, Stats>;

    /// Looks at the statement of a sql handler that gives it this many parameters; nothing runs.
    fn prepare<'a>(&'a self, statement: &'a str, params: usize) -> StoreFuture<'a, Prepared>;

    /// Removes what is older than the policy says, one bounded batch; repeat until `Purged::more` is false.
    fn purge(&self, policy: PurgePolicy, dry_run: bool) -> StoreFuture<'_, Purged>;

    /// The secrets that are kept for providers, sealed; at most one for each.
    fn secrets(&self) -> StoreFuture<'_, Vec<SealedSecret>>;

    /// Keeps a provider's secret where it has none, or with `None` removes the one that it has. Answers after the
    /// commit; `false`: there was one already, or none to remove, and nothing changed. `source` says who did it, in the audit too.
    fn set_secret<'a>(&'a self, provider: &'a str, sealed: Option<Vec<u8>>, source: &'a str) -> StoreFuture<'a, bool>;

    /// Whether the database can be written now.
    fn ping(&self) -> StoreFuture<'_, ()>;

    /// Finishes what is queued and closes the connections.
    fn close(&self) -> BoxFuture<'_, ()>;
}
