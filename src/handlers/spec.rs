//! `[[handler]]` as the configuration file says it.

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;

use super::{Format, NativeAction};
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
    /// How long one attempt may take; the lease of a consumer that pulls. Default 30 s.
    #[serde(default = "default_timeout", with = "crate::units::duration")]
    pub timeout: Duration,
    /// Attempts begun by one process in a time, such as `100/s`; what one second brings may come at once. Default: no limit.
    pub rate_limit: Option<Rate>,
    /// Whether deliveries of one ordering key wait for each other. Default `none`.
    #[serde(default)]
    pub ordering: Ordering,
    /// With `ordering = "key"`: whether a dead delivery holds its key. Default `hold`.
    pub ordering_dead: Option<OrderingDead>,

    /// A filter in jq: the event is wanted unless it gives `false` or `null`.
    pub when: Option<String>,
    /// A filter in jq that makes the payload which the handler gets.
    pub transform: Option<String>,
    /// How the payload is wrapped; for kinds that send it somewhere. Default `raw`.
    pub format: Option<Format>,
    /// What follows an attempt that was sent and not answered. Default `retry`; `probe` where there is one.
    pub on_unknown: Option<OnUnknownSpec>,

    /// `http`: where to send. `nats`, `amqp`, `redis`: the broker, by reference where it holds a password.
    pub url: Option<String>,
    /// `http`: the `whsec_` secret that signs what we send, by reference.
    pub secret: Option<String>,
    /// `http`: private addresses that a public name may resolve to: all of them, or some networks. Default none. An
    /// address that `url` itself names, `localhost`, and names that are never public are allowed without it.
    pub allow_private: Option<AllowPrivate>,
    /// `http`: a file of certificates (PEM) that are trusted too, relative to the configuration file.
    pub ca_file: Option<String>,
    /// `http`: a URL with `{idempotency_key}` that says whether an earlier try had its effect (2xx) or not (404).
    pub probe: Option<String>,
    /// `http`: when a target that does not answer is left alone.
    pub breaker: Option<BreakerSpec>,
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

    /// `native`: the code, which the program gives.
    #[serde(skip)]
    pub native: Option<NativeAction>,
}

impl HandlerSpec {
    /// A handler about which nothing else is said.
    #[must_use]
    pub fn new(name: &str, kind: Kind, events: Vec<String>) -> Self {
        Self {
            name: name.to_owned(),
            events,
            kind,
            retry: RetrySpec::default(),
            concurrency: default_concurrency(),
            timeout: default_timeout(),
            rate_limit: None,
            ordering: Ordering::None,
            ordering_dead: None,
            url: None,
            secret: None,
            statement: None,
            params: Vec::new(),
            database: None,
            command: Vec::new(),
            subject: None,
            credentials: None,
            exchange: None,
            routing_key: None,
            brokers: Vec::new(),
            topic: None,
            options: BTreeMap::new(),
            queue: None,
            region: None,
            endpoint: None,
            stream: None,
            max_length: None,
            tls: None,
            when: None,
            transform: None,
            format: None,
            allow_private: None,
            ca_file: None,
            breaker: None,
            probe: None,
            on_unknown: None,
            native: None,
        }
    }
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
    Native,
    Pull,
    Log,
    Nats,
    Amqp,
    Kafka,
    Sqs,
    Redis,
}

impl Kind {
    /// As the configuration says it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Sql => "sql",
            Self::Exec => "exec",
            Self::Native => "native",
            Self::Pull => "pull",
            Self::Log => "log",
            Self::Nats => "nats",
            Self::Amqp => "amqp",
            Self::Kafka => "kafka",
            Self::Sqs => "sqs",
            Self::Redis => "redis",
        }
    }
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

/// `allow_private = true`, or networks such as `["10.0.0.0/8"]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    untagged,
    expecting = "expected true, false, or a list of networks such as [\"10.0.0.0/8\"]"
)]
pub enum AllowPrivate {
    All(bool),
    Networks(Vec<String>),
}

/// What follows an attempt that was sent and not answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnUnknown {
    /// Another try under the same key.
    #[default]
    Retry,
    /// Nothing, until a person decides: the delivery is dead.
    Hold,
    /// The target is asked first.
    Probe,
}

/// `on_unknown = "retry" | "hold"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnUnknownSpec {
    Retry,
    Hold,
}

/// `breaker = { failures = 5, pause = "10s" }`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BreakerSpec {
    /// Attempts without an answer, one after the other, that open it; 0 for no breaker.
    pub failures: u32,
    /// How long the target is then left alone, before one attempt looks again.
    #[serde(with = "crate::units::duration")]
    pub pause: Duration,
}

impl Default for BreakerSpec {
    fn default() -> Self {
        Self {
            failures: 5,
            pause: Duration::from_secs(10),
        }
    }
}
