//! The sending side of an Idempotency-Key: an outbox on disk for programs that call somebody's API and may lose their
//! network, their power or their patience at any moment.
//!
//! An operation is put into a [`Spool`] (a SQLite file of its own) and gets its key there, once. Only then is it sent, with
//! the key in `Idempotency-Key`, until the server has said a final word: whatever is killed in between, the next
//! run sends the same bytes under the same key, and a server that honours keys has one effect.
//!
//! [`send()`] sends what waits, oldest first and one at a time. 2xx is done. 409 (the first try is still at work), 408,
//! 425, 429, 5xx and no answer at all wait and are tried again: exponential backoff times a random 0.5 to 1.0, or what
//! `Retry-After` says. Every other answer is final and kept as a failure.

mod send;
mod spool;
#[cfg(test)]
mod spool_tests;

pub use send::{Progress, Settings, Summary, send};
pub use spool::{Added, Lock, NewOperation, Operation, Spool, SpoolError, State};
