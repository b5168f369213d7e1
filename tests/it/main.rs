//! End to end: the real binary, as senders, targets and operators meet it, on both stores.
//!
//! Each test is a sentence about what Cerca promises. `tests/run` gives them a PostgreSQL; without one the `postgres`
//! half is skipped.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "this whole binary is tests")]
#![allow(unreachable_pub, reason = "the support modules are written as a library would be")]

mod away;
mod backfill;
mod brokers;
mod bytes;
mod dashboard;
mod doubt;
mod durable;
mod elsewhere;
mod gateway;
mod gateway_crashes;
mod gateway_odd;
mod lease;
mod limits;
mod native;
mod once;
mod operate;
mod ordering;
mod orders;
mod outage;
mod outbox;
mod people;
mod pull;
mod quarantine;
mod refuse;
mod retry;
mod seal;
mod senders;
mod shape;
mod slow;
mod support;
mod suspects;
mod vectors;
