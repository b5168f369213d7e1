//! `[[handler]]` as the configuration file says it.

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;

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

    /// `http`: where to send. `nats`, `amqp`, `redis`: the broker, by reference where it holds a password.
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
    /// `nats`: `{provider}`, `{type}` and `{handler}` are filled in, as in `routing_key` and `stream`.
    pub subject: Option<String>,
    /// `nats`: the text of a `.creds` file, by reference.
    pub credentials: Option<String>,
    /// `amqp`: the default exchange when absent.
    pub exchange: Option<String>,
    /// `amqp`: with the default exchange the name of a queue.
    pub routing_key: Option<String>,
    /// `kafka`: `host:port` of some brokers.
    #[serde(default)]
    pub brokers: Vec<String>,
    /// `kafka`
    pub topic: Option<String>,
    /// `kafka`: further settings of librdkafka, values by reference.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
    /// `sqs`: the URL of the queue.
    pub queue: Option<String>,
    /// `sqs`: read from `queue`, or from where AWS clients look, when absent.
    pub region: Option<String>,
    /// `sqs`: another address than AWS's own.
    pub endpoint: Option<String>,
    /// `redis`: the key of the stream.
    pub stream: Option<String>,
    /// `redis`: entries that the stream keeps, about; older ones are lost, read or not. All when absent.
    pub max_length: Option<u64>,
    /// `nats`, `amqp`, `redis`: whom to trust and who we are.
    pub tls: Option<TlsSpec>,
}

/// `tls = { ca = "file:ca.pem", certificate = "file:cerca.pem", key = "file:cerca.key" }`, PEM texts by reference.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsSpec {
    /// The only authorities that are trusted. Default: the system's.
    pub ca: Option<String>,
    /// Our own certificate and what leads to its authority.
    pub certificate: Option<String>,
    pub key: Option<String>,
}

/// The kinds of handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Http,
    Sql,
    Exec,
    Log,
    Nats,
    Amqp,
    Kafka,
    Sqs,
    Redis,
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
