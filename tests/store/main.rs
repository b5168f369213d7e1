//! One suite for both engines: every test runs on SQLite, and on PostgreSQL where `CERCA_TEST_POSTGRES` names a server
//! (the URL of a superuser; each test makes a database of its own).

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that fails says so by panicking, and a measurement prints"
)]

#[macro_use]
mod support;
mod cost;
mod deferred;
mod durable;
mod effects;
mod in_flight;
mod inbox;
mod key_transactions;
mod keys;
mod lists;
mod middleware;
mod native;
mod notify;
mod ordering;
mod ordering_model;
mod outages;
mod outbox;
mod people;
mod queue;
mod retention;
mod revive;
mod schema;
mod secrets;
mod upkeep;
mod values;
