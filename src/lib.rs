//! Cerca is the fence between webhook providers and business code: it verifies each event, stores it before it says
//! 200, and runs the handlers until each event has had its effect once.

#![forbid(unsafe_code)]

pub mod adapters;
pub mod app;
pub mod cli;
pub mod config;
pub mod domain;
pub mod handlers;
pub mod http;
pub mod idempotency;
pub mod ingest;
mod json;
pub mod schedule;
pub mod seal;
pub mod store;
pub mod telemetry;
pub mod units;
pub mod worker;
