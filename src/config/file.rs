//! The configuration file, table by table. Each field's comment gives meaning, unit and default; the defaults here and
//! those of the commented example are held together by a test.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, de};

use super::secret::{Reference, references};
use crate::{
    domain::Rate,
    handlers::HandlerSpec,
    idempotency::GatewaySpec,
    units::{duration, size},
};

/// The whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    pub(super) server: Server,
    pub(super) admin: AdminTable,
    pub(super) store: StoreTable,
    pub(super) worker: Worker,
    pub(super) retention: Retention,
    pub(super) outbox: Outbox,
    pub(super) quarantine: Quarantine,
    pub(super) log: Log,
    pub(super) provider: Vec<ProviderTable>,
    pub(super) handler: Vec<HandlerSpec>,
    pub(super) gateway: Vec<GatewaySpec>,
}

/// `[server]`: the public listener.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// Where webhooks come in. Default `127.0.0.1:8080`.
    #[serde(deserialize_with = "address")]
    pub listen: SocketAddr,
    /// Scheme, host and port that senders call; some schemes sign it. Default: `http://` and the listener.
    pub public_url: Option<String>,
    /// Largest body, up to 32 MiB. Default 1 MiB.
    #[serde(with = "size")]
    pub max_body: usize,
    /// How long a body may take to arrive. Default 10 s.
    #[serde(with = "duration")]
    pub body_timeout: Duration,
    /// Proxies whose `X-Forwarded-For` is believed, as networks. Default: none.
    #[serde(deserialize_with = "networks")]
    pub trusted_proxies: Vec<IpNet>,
    /// Threads that read requests; 0 is one a core, the default.
    pub workers: usize,
    /// Connections at once; others wait to be accepted. Default 8192, and at most a third of the files that the process
    /// may open.
    pub max_connections: usize,
    /// How long an event may have to wait for its commit, as far as can be foreseen; more is refused with 503 at once.
    /// Default 2 s; no commit is waited for longer than 5 s.
    #[serde(with = "duration")]
    pub max_wait: Duration,
    /// How long a shutdown may take before it is forced. Default 25 s.
    #[serde(with = "duration")]
    pub shutdown_timeout: Duration,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            public_url: None,
            max_body: 1 << 20,
            body_timeout: Duration::from_secs(10),
            trusted_proxies: Vec::new(),
            workers: 0,
            max_connections: 8192,
            max_wait: Duration::from_secs(2),
            shutdown_timeout: Duration::from_secs(25),
        }
    }
}

/// `[admin]`: JSON API and metrics.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AdminTable {
    /// Default `127.0.0.1:8081`.
    #[serde(deserialize_with = "address")]
    pub(super) listen: SocketAddr,
    /// Required off loopback. Default: none.
    pub(super) token: Option<Reference>,
}

impl Default for AdminTable {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8081)),
            token: None,
        }
    }
}

/// `[store]`: the database.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct StoreTable {
    /// `sqlite:PATH` or `postgres://user:password@host/database`; may be a reference. Default `sqlite:cerca.db`.
    pub(super) url: Reference,
    /// 32 bytes as hex or base64, which secrets in the database are sealed with. Default: none.
    pub(super) seal_key: Option<Reference>,
}

impl Default for StoreTable {
    fn default() -> Self {
        Self {
            url: "sqlite:cerca.db".into(),
            seal_key: None,
        }
    }
}

/// `[worker]`: how much is handled at once.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Worker {
    /// Deliveries in flight at once, over all handlers. Default 64.
    pub concurrency: usize,
    /// How long a claim is held before another worker may take over; renewed while work goes on. Default 30 s.
    #[serde(with = "duration")]
    pub lease: Duration,
}

impl Default for Worker {
    fn default() -> Self {
        Self {
            concurrency: 64,
            lease: Duration::from_secs(30),
        }
    }
}

/// `[retention]`: ages after which things go.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Retention {
    /// Payloads and history of done, unrouted and discarded events. Default 30 d.
    #[serde(with = "duration")]
    pub done: Duration,
    /// The same of failed events. Default 90 d.
    #[serde(with = "duration")]
    pub failed: Duration,
    /// The rest of the row, which keeps a late repetition from being taken as new. Default 365 d.
    #[serde(with = "duration")]
    pub dedupe: Duration,
    /// Requests in quarantine. Default 7 d.
    #[serde(with = "duration")]
    pub quarantine: Duration,
    /// Idempotency keys with their answers, once they have expired. Default 72 h.
    #[serde(with = "duration")]
    pub idempotency_keys: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        let days = |n: u64| Duration::from_secs(n * 86_400);
        Self {
            done: days(30),
            failed: days(90),
            dedupe: days(365),
            quarantine: days(7),
            idempotency_keys: days(3),
        }
    }
}

/// `[quarantine]`: what is kept of refused requests, for `retention.quarantine`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quarantine {
    /// Requests, at most; the oldest go first, those of strangers before those that were authentic. 0 keeps none.
    /// Default 10,000.
    pub rows: u32,
    /// Bytes of their bodies and headers, at most. Default 64 MiB.
    #[serde(with = "size")]
    pub bytes: usize,
    /// Requests of unproved senders that are kept for each provider in a minute; more are only counted. Default 60.
    pub rate: u32,
}

impl Default for Quarantine {
    fn default() -> Self {
        Self {
            rows: 10_000,
            bytes: 64 << 20,
            rate: 60,
        }
    }
}

/// `[outbox]`: the table that applications write to.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Outbox {
    /// How often an empty outbox is looked at: how late its events are at most. Default 250 ms.
    #[serde(with = "duration")]
    pub poll: Duration,
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            poll: Duration::from_millis(250),
        }
    }
}

/// `[log]`: what is written to standard error.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// Default `auto`: pretty on a terminal, JSON elsewhere.
    pub format: LogFormat,
    /// A level, or directives such as `info,cerca::http=debug`. `CERCA_LOG` overrides it. Default `info`.
    pub level: String,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            format: LogFormat::Auto,
            level: "info".to_owned(),
        }
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Auto,
    Pretty,
    Json,
}

/// `[[provider]]`: a registered sender.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProviderTable {
    /// The last part of its URL: `[a-z0-9_-]{1,64}`.
    pub(super) name: String,
    /// Default: the name.
    pub(super) adapter: Option<String>,
    /// Newest first; any of them suffices.
    #[serde(default, deserialize_with = "references")]
    pub(super) secrets: Vec<Reference>,
    /// Private RSA keys that the sender encrypts to; any of them suffices.
    #[serde(default, deserialize_with = "references")]
    pub(super) decryption_keys: Vec<Reference>,
    /// Overrides the adapter's: a duration, or `none`.
    pub(super) tolerance: Option<String>,
    /// Default: that of `[server]`.
    pub(super) public_url: Option<String>,
    /// Default: that of `[server]`.
    #[serde(default, deserialize_with = "optional_size")]
    pub(super) max_body: Option<usize>,
    /// 200 (the default) or 409.
    pub(super) on_conflict: Option<u16>,
    /// Requests in a time, such as `100/s`; more is answered 429. Default: no limit.
    pub(super) rate_limit: Option<Rate>,
    /// Whether an event that is sent again gets its dead deliveries a new life. Default: where its sender redelivers by hand.
    pub(super) revive: Option<bool>,
    /// Names of the adapter's signature rules that count. Default: all.
    pub(super) accept: Option<Vec<String>>,
    /// Whether to call URLs that confirm subscriptions. Default: as the adapter says.
    pub(super) confirm: Option<bool>,
    /// `none` switches verification off.
    pub(super) verify: Option<String>,
    /// Values that the adapter asks for as `config:name`.
    #[serde(default)]
    pub(super) options: BTreeMap<String, String>,
    /// Fields that override those of the adapter's signatures.
    #[serde(default)]
    pub(super) signature: toml::Table,
    /// Fields that override those of the adapter's `[event]`.
    #[serde(default)]
    pub(super) event: toml::Table,
    /// Of the sender's own API, which `backfill` asks for past events.
    pub(super) api_key: Option<Reference>,
    /// Takes the place of scheme, host and port of that API, such as a sandbox's. Default: the adapter's.
    pub(super) api_url: Option<String>,
    /// How often to look by itself for events that never arrived. Default: only by hand.
    #[serde(default, deserialize_with = "optional_duration")]
    pub(super) backfill: Option<Duration>,
    /// How far to look back each time, at least. Default: twice `backfill`, and an hour at least.
    #[serde(default, deserialize_with = "optional_duration")]
    pub(super) backfill_window: Option<Duration>,
    /// Store also what gets an id of ours, because the API does not say the webhook's. Default: only report it.
    #[serde(default)]
    pub(super) backfill_derived: bool,
}

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| {
        de::Error::custom(format!(
            "`{text}` is not an address such as 127.0.0.1:8080, 0.0.0.0:8080 or [::1]:8080"
        ))
    })
}

fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    let one = |text: &String| match text.parse::<IpNet>() {
        Ok(network) => Ok(network),
        Err(_) => text
            .parse::<std::net::IpAddr>()
            .map(IpNet::from)
            .map_err(|_| de::Error::custom(format!("`{text}` is not a network such as 10.0.0.0/8 or an address"))),
    };
    texts.iter().map(one).collect()
}

fn optional_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    duration::deserialize(deserializer).map(Some)
}

fn optional_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    size::deserialize(deserializer).map(Some)
}
