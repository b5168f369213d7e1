//! One suite for both engines: every test runs on SQLite, and on PostgreSQL where `CERCA_TEST_POSTGRES` names a server
//! (the URL of a superuser; each test makes a database of its own).

#[macro_use]
mod support;
mod effects;
mod inbox;
mod outages;
mod people;
mod queue;
mod retention;
mod speed;
