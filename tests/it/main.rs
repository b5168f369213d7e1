//! End to end: the real binary, as senders, targets and operators meet it, on both stores.
//!
//! Each test is a sentence about what Cerca promises. `tests/run` gives them a PostgreSQL; without one the `postgres`
//! half is skipped.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "this whole binary is tests")]
#![allow(unreachable_pub, reason = "the support modules are written as a library would be")]

mod brokers;
mod bytes;
mod durable;
mod lease;
mod once;
mod operate;
mod outage;
mod refuse;
mod retry;
mod seal;
mod senders;
mod slow;
mod support;
mod vectors;
