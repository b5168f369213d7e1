//! The plain values that the store takes and gives.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;

use super::{Step, Work};
use crate::domain::{Attempt, Claim, Delivery, EventStatus};

/// What went wrong, as far as a caller branches on it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Too much is waiting already.
    #[error("the store's queue is full")]
    Full,
    /// Away, restarting, read-only, out of space, or the outcome is unknown. Trying again may help.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The database refuses these values, whatever the number of tries.
    #[error("the store refused the data: {0}")]
    Refused(String),
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
}

/// What became of one event that was sent to the inbox. All three are acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    Stored,
    /// The same event was there already, with the same bytes.
    Duplicate,
    /// The same id was there already with other bytes; the first stays, the conflict is recorded.
    Conflict,
}

/// What to claim.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// Handlers with how many deliveries each has room for.
    pub wants: Vec<(Arc<str>, u32)>,
    pub lease: Duration,
    /// Bytes of payload to take at most; at least one delivery is taken.
    pub max_bytes: usize,
    /// For a backlog: providers take turns, and so do deliveries that were tried before with those that were not. May
    /// take less than there is room for while more is due; it is worked off when nothing is found.
    pub fair: bool,
}

/// The name of a claim, for renewing it.
#[derive(Debug, Clone)]
pub struct Lease {
    pub event_id: i64,
    pub handler: Arc<str>,
    pub token: i64,
}

/// After how many attempts a lost delivery of this handler is dead.
#[derive(Debug, Clone)]
pub struct AttemptLimit {
    pub handler: Arc<str>,
    pub attempts: u32,
    /// Its attempts run inside of a worker, so one whose lease was lost may have killed it: from then on it is found by
    /// `Queue::claim_suspect` only, until an attempt has ended.
    pub isolate: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    pub ready: u64,
    pub dead: u64,
}

/// A value that a statement takes or gives.
#[derive(Debug, Clone, PartialEq)]
pub enum SqlValue {
    Null,
    Bool(bool),
    Int(i64),
    /// Any other JSON number, in the exact digits that were sent.
    Number(String),
    Text(String),
    Bytes(bytes::Bytes),
}

/// What is to be done in the transaction that settles a delivery.
#[derive(Debug, Clone)]
pub struct Effect {
    pub claim: Claim,
    pub work: Work,
    pub started_at: Timestamp,
    /// How long it may run; the store ends it and says so. SQLite takes less where this is more than 5 s.
    pub limit: Duration,
}

/// What the database says of a statement before it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prepared {
    Fine,
    /// Could work later, such as when its table is there.
    Doubtful(String),
    /// Can never work as it is written.
    Wrong(String),
}

/// What became of an [`Effect`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// Effect and settle are committed together.
    Done,
    /// The claim had ended; nothing was changed.
    Stale,
    /// It failed; nothing was changed and the delivery is still claimed.
    Failed(String),
}

/// Which events. Every field that is set must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFilter {
    pub provider: Option<String>,
    pub event_type: Option<String>,
    pub status: Option<EventStatus>,
    /// Events with an unfinished delivery to this handler.
    pub handler: Option<String>,
    /// Arrived at or after.
    pub since: Option<Timestamp>,
    /// Arrived before.
    pub until: Option<Timestamp>,
    /// Text that the provider event id or the ordering key begins with.
    pub q: Option<String>,
}

/// An event as lists show it.
#[derive(Debug, Clone)]
pub struct EventRow {
    pub id: i64,
    pub provider: String,
    pub provider_event_id: String,
    pub event_type: Option<String>,
    pub status: EventStatus,
    pub occurred_at: Option<Timestamp>,
    pub created_at: Timestamp,
    /// When its last delivery was done; only where the status is done.
    pub processed_at: Option<Timestamp>,
    pub ordering_key: Option<String>,
    pub content_type: Option<String>,
    /// Bytes of the payload as received.
    pub size: u64,
    pub body_sha256: [u8; 32],
    /// How often another body came under this id.
    pub conflicts: u64,
    pub deliveries: Vec<Delivery>,
    /// Handlers whose filter did not want it.
    pub filtered: Vec<String>,
}

/// The exact bytes of an event, with what came beside them.
#[derive(Debug, Clone)]
pub struct Received {
    pub content_type: Option<String>,
    /// A JSON object, as in [`crate::domain::StoredEvent`]; `None` once retention removed it.
    pub headers: Option<String>,
    /// `None` once retention removed them.
    pub bytes: Option<bytes::Bytes>,
}

/// One event with its history.
#[derive(Debug, Clone)]
pub struct EventDetail {
    pub event: EventRow,
    pub attempts: Vec<Attempt>,
    /// Steps of native handlers, in the order of recording; empty in lists.
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone, Default)]
pub struct Page {
    pub events: Vec<EventRow>,
    /// Pass as `cursor` for the next page; `None` on the last.
    pub next: Option<i64>,
}

/// Who does something by hand, for the audit.
#[derive(Debug, Clone)]
pub struct Who {
    /// `cli`, `api`, or a name.
    pub actor: String,
    pub reason: Option<String>,
}

/// What to give a new life.
#[derive(Debug, Clone)]
pub struct Reprocess {
    pub filter: ReprocessScope,
    /// The handlers that each event is sent to anew, done or not. `None`: its dead and discarded deliveries; where it has
    /// none of these, its routes at ingest.
    pub handlers: Option<Vec<Arc<str>>>,
    /// Only count.
    pub dry_run: bool,
    /// Forget the steps that native handlers recorded for these deliveries, so that each is done again. Otherwise they are
    /// kept, and only what is missing is done.
    pub forget_steps: bool,
}

/// One event, or all that match.
#[derive(Debug, Clone)]
pub enum ReprocessScope {
    Event {
        provider: String,
        provider_event_id: String,
    },
    Filter(EventFilter),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reprocessed {
    /// Events found.
    pub events: u64,
    /// Deliveries made ready; those in flight or waiting already are left alone.
    pub deliveries: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Discarded {
    pub deliveries: u64,
    /// How many of them were in flight. Their attempt ends first; it may still be done.
    pub in_flight: u64,
}

/// Counts for people and metrics.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    pub events: u64,
    pub pending: u64,
    pub failed: u64,
    pub unrouted: u64,
    pub discarded: u64,
    pub conflicts: u64,
    pub handlers: Vec<HandlerStats>,
    /// Events stored, by provider.
    pub providers: Vec<(String, u64)>,
}

#[derive(Debug, Clone, Default)]
pub struct HandlerStats {
    pub handler: String,
    pub ready: u64,
    pub claimed: u64,
    pub blocked: u64,
    pub dead: u64,
    /// Age of the oldest delivery that is due and not claimed.
    pub oldest_due: Option<Duration>,
}

/// A provider's secret as it is kept. [`crate::seal`] opens it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedSecret {
    pub provider: String,
    pub sealed: Vec<u8>,
    pub created_at: Timestamp,
    /// How it came, such as `handshake`.
    pub source: String,
}

/// Ages after which things go.
#[derive(Debug, Clone, Copy)]
pub struct PurgePolicy {
    /// Payloads, headers and attempts of done, unrouted and discarded events.
    pub done: Duration,
    /// The same of failed events, whose dead deliveries go too.
    pub failed: Duration,
    /// The rest of the row, which keeps its id from being taken as new.
    pub dedupe: Duration,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Purged {
    /// Events whose payload went.
    pub payloads: u64,
    /// Rows that went whole.
    pub events: u64,
    /// There is more to do.
    pub more: bool,
}

/// Gives the handlers that want a topic of the outbox: their names joined by commas.
pub type TopicRoutes = dyn Fn(&str) -> Arc<str> + Send + Sync;

/// What one batch of the outbox became.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Relayed {
    /// Events stored.
    pub stored: u64,
    /// Rows whose event was there already, with the same body.
    pub duplicates: u64,
    /// Rows whose key was there already with another body; recorded as conflicts.
    pub conflicts: u64,
    /// Rows that no event can hold; they stay, with what is wrong in `error`.
    pub refused: u64,
    /// There may be more.
    pub more: bool,
}

/// What waits in the outbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backlog {
    pub rows: u64,
    /// Age of the oldest row that waits.
    pub oldest: Option<Duration>,
    /// Rows that were refused and wait for a person.
    pub refused: u64,
}

/// What became of a settle whose sender waits for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    Written,
    /// The same outcome of the same attempt was written before.
    Repeated,
    /// The claim had ended, by its lease or by another outcome; nothing was changed.
    Stale,
}
