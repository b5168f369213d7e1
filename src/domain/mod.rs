//! Nouns and pure rules. Nothing in here does I/O, knows a database, or imports another part of Cerca.

mod adapter;
mod answer;
mod delivery;
mod event;
mod intent;
mod money;
mod number;
mod ordering;
mod rate;
mod request;
mod retry;

pub use adapter::AdapterName;
pub use answer::Answer;
pub use delivery::{Attempt, AttemptOutcome, Claim, Delivery, DeliveryState, Outcome, Settle};
pub use event::{BACKFILLED, EventStatus, NewEvent, StoredEvent};
pub use intent::{Intent, MAX_INTENT_BYTES, MAX_KEY_BYTES, MAX_TOPIC_BYTES, OUTBOX};
pub(crate) use money::{decimals, scaled};
pub(crate) use number::exact_double;
pub use ordering::{OrderedHandler, OrderingDead, lane};
pub use rate::{Bucket, Rate, per_second};
pub use request::{HeaderList, RawRequest};
pub use retry::RetryPolicy;
