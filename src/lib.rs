//! Cerca is the fence between webhook providers and business code: it verifies each event, stores it before it says
//! 200, and runs the handlers until each event has had its effect once.
//!
//! Most people run the `cerca` command and configure handlers of the kinds `http`, `sql` or `exec`. This library is for a
//! Rust program that has handlers of its own, and runs everything in one process:
//!
//! ```
//! use cerca::{Call, Cerca, Done, Failure, Native};
//!
//! /// Asks somebody outside, then writes to the store: in the transaction that settles the delivery, so exactly once.
//! async fn welcome(call: Call) -> Result<Done, Failure> {
//!     let customer = call.event().ordering_key.clone();
//!     let letter: String = call.step("write", async || Ok(format!("Dear {customer:?}"))).await?;
//!     Ok(Done::within(move |store| {
//!         store.execute("insert into letters (body) values ($1)", &[letter.as_str().into()])?;
//!         Ok(())
//!     }))
//! }
//!
//! #[tokio::main]
//! async fn main() -> anyhow::Result<()> {
//! #   let folder = tempfile::tempdir()?;
//! #   std::env::set_current_dir(folder.path())?;
//!     let config = r#"
//!         [server]
//!         listen = "127.0.0.1:0"
//!         [admin]
//!         listen = "127.0.0.1:0"
//!         [[provider]]
//!         name = "stripe"
//!         secrets = ["whsec_bm90IGEgc2VjcmV0IGF0IGFsbA"]
//!     "#;
//!     let running = Cerca::from_toml(config)?
//!         .with(Native::new("welcome", welcome).events(["stripe:customer.created"]).setup(|store| {
//!             store.execute("create table if not exists letters (body text)", &[])?;
//!             Ok(())
//!         }))
//!         .start()
//!         .await?;
//!     println!("post webhooks to http://{:?}/webhooks/stripe", running.public);
//!     // …
//!     running.stop().await
//! }
//! ```
//!
//! - [`Cerca`] reads the configuration, takes the handlers, and starts; [`command_line`] is the whole `cerca` command
//!   with the program's handlers in it.
//! - A handler is an `async fn` from [`Call`] to a [`Failure`], to `()`, or to [`Done`] with code for the [`Transaction`]
//!   that settles the delivery: what it does there happens **exactly once**. [`Native`] gives it a name and its events.
//! - What a handler does elsewhere happens at least once, under [`Call::idempotency_key`]; [`Call::step`] records what is
//!   done, so that a retry goes on after it. `examples/charge.rs` charges a card once, whenever the process dies.
//! - [`testing`] gives attempts to a handler in a program's own tests.
//!
//! Everything else that this crate shows to the compiler (the hidden modules) belongs to the command, to its tests and
//! measurements, and changes without notice.

#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod adapters;
#[doc(hidden)]
pub mod app;
#[doc(hidden)]
pub mod backfill;
#[doc(hidden)]
pub mod cli;
pub mod client;
#[doc(hidden)]
pub mod config;
#[doc(hidden)]
pub mod domain;
#[doc(hidden)]
pub mod handlers;
#[doc(hidden)]
pub mod http;
pub mod idempotency;
#[doc(hidden)]
pub mod ingest;
mod json;
#[doc(hidden)]
pub mod schedule;
#[doc(hidden)]
pub mod seal;
#[doc(hidden)]
pub mod store;
#[doc(hidden)]
pub mod telemetry;
pub mod testing;
#[doc(hidden)]
pub mod units;
#[doc(hidden)]
pub mod worker;

#[doc(inline)]
pub use app::{Cerca, Role, Running};
#[doc(inline)]
pub use cli::main_with as command_line;
#[doc(inline)]
pub use config::{ConfigError, Problem};
#[doc(inline)]
pub use domain::{RetryPolicy, StoredEvent};
#[doc(inline)]
pub use handlers::{Call, Done, Failure, Native, NativeHandler};
#[doc(inline)]
pub use store::{FromSql, Row, SqlError, SqlValue, Transaction};
