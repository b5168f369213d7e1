//! `[[handler]]` as the configuration file says it.

use std::time::Duration;

use serde::Deserialize;

use crate::domain::{OrderedHandler, OrderingDead, Rate};

/// One configured handler. Which of the optional keys belong to which kind is checked by `build`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandlerSpec {
    /// `[a-z0-9_-]{1,64}`; part of the idempotency key, so renaming a handler makes it a new one.
    pub name: String,
    /// `provider:type` globs; a provider's or an adapter's name. `*` alone is everything.
    pub events: Vec<String>,
    pub kind: Kind,
    #[serde(default)]
    pub retry: RetrySpec,
    /// Deliveries in flight at once. Default 16.
    #[serde(default = "default_concurrency")]
    pub concurrency: usize,
    /// How long one attempt may take. Default 30 s.
    #[serde(default = "default_timeout", with = "crate::units::duration")]
    pub timeout: Duration,
    /// Attempts begun by one process in a time, such as `100/s`; what one second brings may come at once. Default: no limit.
    pub rate_limit: Option<Rate>,
    /// Whether deliveries of one ordering key wait for each other. Default `none`.
    #[serde(default)]
    pub ordering: Ordering,
    /// With `ordering = "key"`: whether a dead delivery holds its key. Default `hold`.
    pub ordering_dead: Option<OrderingDead>,

    /// `http`: where to send.
    pub url: Option<String>,
    /// `http`: the `whsec_` secret that signs what we send, by reference.
    pub secret: Option<String>,
    /// `sql`: one statement.
    pub statement: Option<String>,
    /// `sql`: expressions that give its parameters, in order.
    #[serde(default)]
    pub params: Vec<String>,
    /// `sql`: the URL of another database; the store's own when absent.
    pub database: Option<String>,
    /// `exec`: program and arguments; no shell.
    #[serde(default)]
    pub command: Vec<String>,
}

impl HandlerSpec {
    /// How its deliveries are ordered, if they are.
    #[must_use]
    pub fn ordered(&self) -> Option<OrderedHandler> {
        (self.ordering == Ordering::Key).then(|| OrderedHandler {
            name: self.name.as_str().into(),
            dead: self.ordering_dead.unwrap_or_default(),
        })
    }
}

/// Which deliveries of a handler wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ordering {
    #[default]
    None,
    /// Those of one provider's ordering key: one at a time, oldest first.
    Key,
}

/// The kinds of handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Http,
    Sql,
    Exec,
    Log,
}

/// `retry = { attempts = 15, base = "2s", cap = "1h" }`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetrySpec {
    pub attempts: u32,
    #[serde(with = "crate::units::duration")]
    pub base: Duration,
    #[serde(with = "crate::units::duration")]
    pub cap: Duration,
}

impl Default for RetrySpec {
    fn default() -> Self {
        let policy = crate::domain::RetryPolicy::default();
        Self {
            attempts: policy.attempts,
            base: policy.base,
            cap: policy.cap,
        }
    }
}

fn default_concurrency() -> usize {
    16
}

fn default_timeout() -> Duration {
    Duration::from_secs(30)
}
