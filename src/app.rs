//! The composition root: builds every part from the configuration and alone knows them all. One token stops everything,
//! in the order in which nothing is lost: no new requests, then no requests, then no work, then no store.

mod backfill;
mod confirm;
mod keys;
mod library;
mod overrides;
mod plan;
mod secrets;
mod statements;
mod wakes;

use std::{net::SocketAddr, os::unix::fs::OpenOptionsExt as _, str::FromStr as _, sync::Arc, time::Duration};

use anyhow::Context as _;
use metrics_exporter_prometheus::PrometheusHandle;
use secrecy::ExposeSecret as _;
use sqlx::sqlite::SqliteConnectOptions;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    config::{Config, Retention},
    domain::OUTBOX,
    handlers::HandlerSpec,
    http,
    idempotency::{Completer, Engine, Gateways, Layer},
    schedule::{Desk, Relay, Timetable},
    store::{self, PurgePolicy, Store},
    worker::{self, Worker},
};

pub(crate) use backfill::backfiller;
pub use library::{Cerca, attach, set_up};
pub use plan::{DEFAULT_HANDLER, FIRST_PROVIDER, Plan, plan, registry};
pub(crate) use plan::{provider_notes, provider_problem, provider_warnings};
pub use statements::{Findings, look};

/// Which parts run in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// Everything.
    #[default]
    All,
    /// Takes webhooks in and stores them; another process runs the handlers.
    Ingest,
    /// Runs the handlers; takes no webhooks in.
    Worker,
}

/// How to start.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    pub role: Role,
    /// Bring the schema up to date first.
    pub migrate: bool,
}

/// Everything, while it runs. [`Running::stop`] ends it.
pub struct Running {
    /// Where webhooks come in; `None` for [`Role::Worker`].
    pub public: Option<SocketAddr>,
    /// Where the JSON API and the metrics are.
    pub admin: SocketAddr,
    #[doc(hidden)]
    pub store: Arc<dyn Store>,
    engine: Arc<Engine>,
    stop: CancellationToken,
    deadline: Duration,
    servers: JoinHandle<std::io::Result<()>>,
    relay: Option<JoinHandle<()>>,
    worker: Option<(CancellationToken, JoinHandle<()>)>,
    timetable: Option<Timetable>,
}

/// Starts every part that the role asks for. When this returns, webhooks are taken.
///
/// # Errors
/// The store cannot be opened, an address cannot be bound, or the timetable cannot start.
pub async fn start(
    config: &Config,
    plan: Plan,
    start: Start,
    prometheus: Option<PrometheusHandle>,
) -> anyhow::Result<Running> {
    http::metrics::describe();
    let stop = CancellationToken::new();
    let deadline = config.server.shutdown_timeout;
    let shown = config.store.redacted();
    let options = store::Options {
        migrate: start.migrate,
        ..store_options(config)
    };
    if start.migrate {
        create_private(config.store.url.expose_secret()).with_context(|| format!("cannot create the store {shown}"))?;
    }
    let store = store::open(config.store.url.expose_secret(), options)
        .await
        .with_context(|| format!("cannot open the store {shown}"))?;

    if start.migrate {
        set_up(&*store, &config.handlers).await?;
    }
    statements::refuse(config, &*store, &plan.routes).await?;
    let handlers = plan.routes.iter().map(|route| Arc::clone(&route.name)).collect();
    let pulls = Arc::new(http::Pulls::new(plan::pulled(&plan.routes)));
    let running = match start.role {
        Role::Ingest => Vec::new(),
        Role::All | Role::Worker => plan::outside(&plan.routes),
    };
    let worker = (start.role != Role::Ingest).then(|| {
        let settings = worker::Settings {
            concurrency: config.worker.concurrency,
            lease: config.worker.lease,
            drain: deadline.mul_f64(0.5),
            ..worker::Settings::default()
        };
        Worker::new(Arc::clone(&store), plan.routes, settings)
    });
    if let Some(handoff) = wakes::handoff(worker.as_ref().map(Worker::handoff), &pulls) {
        store.set_handoff(handoff);
    }
    let router = Arc::new(plan.router);
    let topics = Arc::clone(&router);
    let backfills = backfill::turns(config, &plan.providers, &router);
    let providers = Arc::new(http::Providers::new(plan.providers));
    if start.role != Role::Worker {
        tokio::spawn(keys::refresh(Arc::clone(&providers), stop.clone()));
        tokio::spawn(confirm::confirm(Arc::clone(&providers), stop.clone()));
    }
    let adapters = Arc::new(plan.registry);
    let remake = secrets::remakes(&adapters, plan.waiting);
    let secrets = http::Secrets::new(
        Arc::clone(&store),
        Arc::clone(&providers),
        config.store.seal_key.clone(),
        remake,
    );
    let secrets = Arc::new(secrets);
    if start.role != Role::Worker {
        secrets.load().await;
        tokio::spawn(Arc::clone(&secrets).poll(stop.clone()));
    }
    let gateways = Arc::new(Gateways::new(plan.gateways));
    let engine = Arc::new(Engine::new(Layer::new(Arc::clone(&store))));
    let services = http::Services {
        store: Arc::clone(&store),
        providers,
        secrets,
        router: Arc::new(move |provider, adapter, event_type| router.routes(provider, adapter, event_type)),
        pulls,
        quarantine: http::QuarantineLimits {
            rows: config.quarantine.rows,
            bytes: config.quarantine.bytes,
            rate: config.quarantine.rate,
        },
        handlers,
        running,
        adapters,
        gateways: Arc::clone(&gateways),
        engine: Arc::clone(&engine),
        prometheus: prometheus.clone(),
    };
    let servers = http::start(http_settings(config, start.role), services, stop.clone())?;
    let (public, admin) = (servers.public, servers.admin);

    let worker = worker.map(|worker| {
        let stop = CancellationToken::new();
        let token = stop.clone();
        (stop, tokio::spawn(async move { worker.run(token).await }))
    });
    let relay = (start.role != Role::Ingest).then(|| {
        let relay = Relay {
            store: Arc::clone(&store),
            routes: Arc::new(move |topic| topics.routes(OUTBOX, OUTBOX, Some(topic))),
            poll: config.outbox.poll,
        };
        tokio::spawn(relay.run(stop.clone()))
    });
    let timetable = match start.role {
        Role::Ingest => None,
        Role::All | Role::Worker => {
            let desk = Desk {
                store: Arc::clone(&store),
                retention: purge_policy(&config.retention),
                quarantine: config.retention.quarantine,
                backfills,
                idempotency_keys: config.retention.idempotency_keys,
                completer: Arc::new(Completer::new(Arc::clone(&store), gateways)),
                stop: stop.clone(),
            };
            Some(Timetable::start(&desk).await.context("cannot start the timetable")?)
        }
    };
    if let Some(prometheus) = prometheus {
        tokio::spawn(upkeep(prometheus, stop.clone()));
    }
    Ok(Running {
        public,
        admin,
        store,
        engine,
        stop,
        deadline,
        servers: tokio::spawn(servers.stopped()),
        relay,
        worker,
        timetable,
    })
}

impl Running {
    /// Cancel it to stop everything.
    #[must_use]
    pub fn stopper(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Stops accepting, finishes what is in flight, and releases the rest, within `[server] shutdown_timeout`.
    ///
    /// # Errors
    /// Those of [`Running::stopped`].
    pub async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        self.stopped().await
    }

    /// Resolves when everything has stopped, because it was told to or because a server failed.
    ///
    /// # Errors
    /// What made a server fail, or that the deadline passed. Nothing acknowledged is lost in either case.
    pub async fn stopped(mut self) -> anyhow::Result<()> {
        let early = tokio::select! {
            () = self.stop.cancelled() => None,
            ended = &mut self.servers => Some(ended),
        };
        self.stop.cancel();
        let deadline = self.deadline;
        let served = tokio::time::timeout(deadline, self.wind_down(early))
            .await
            .with_context(|| {
                let seconds = deadline.as_secs();
                format!("the shutdown took longer than {seconds} s and was cut off; leases end by themselves")
            })?;
        served.context("a server failed")
    }

    async fn wind_down(
        self,
        early: Option<Result<std::io::Result<()>, tokio::task::JoinError>>,
    ) -> std::io::Result<()> {
        let served = match early {
            Some(ended) => ended,
            None => self.servers.await,
        };
        self.engine.finished().await;
        tracing::debug!("all requests are answered");
        // Before the worker, which it hands events over to.
        if let Some(relay) = self.relay
            && let Err(error) = relay.await
        {
            tracing::error!(%error, "the relay of the outbox ended badly; its rows are still there");
        }
        if let Some((stop, worker)) = self.worker {
            stop.cancel();
            if let Err(error) = worker.await {
                tracing::error!(%error, "the worker ended badly; its leases will end");
            }
            tracing::debug!("the worker has stopped");
        }
        if let Some(timetable) = self.timetable {
            timetable.stop().await;
        }
        self.store.close().await;
        served.map_err(std::io::Error::other)?
    }
}

fn http_settings(config: &Config, role: Role) -> http::Settings {
    let mut settings = http::Settings {
        listen: config.server.listen,
        admin_listen: config.admin.listen,
        admin_token: config.admin.token.clone(),
        max_body: config.server.max_body,
        body_timeout: config.server.body_timeout,
        max_connections: config.server.max_connections,
        trusted_proxies: config.server.trusted_proxies.clone(),
        shutdown_timeout: config.server.shutdown_timeout.mul_f64(0.4),
        webhooks: role != Role::Worker,
        gateway_body: config.server.max_body,
        ..http::Settings::default()
    };
    if config.server.workers > 0 {
        settings.workers = config.server.workers;
    }
    settings
}

/// Creates the file of a SQLite URL, where there is none, so that only its owner can read it: it holds what senders
/// meant for us alone. SQLite gives the files beside it the same mode. Says whether it did.
///
/// # Errors
/// The file cannot be created.
pub fn create_private(url: &str) -> std::io::Result<bool> {
    let Some(options) = url
        .starts_with("sqlite:")
        .then(|| SqliteConnectOptions::from_str(url).ok())
        .flatten()
    else {
        return Ok(false);
    };
    let mut new = std::fs::OpenOptions::new();
    new.write(true).create_new(true).mode(0o600);
    match new.open(options.get_filename()) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// How the store treats events and deliveries, as is configured.
#[must_use]
pub fn store_options(config: &Config) -> store::Options {
    store::Options {
        ordered: config.handlers.iter().filter_map(HandlerSpec::ordered).collect(),
        max_wait: config.server.max_wait,
        ..store::Options::default()
    }
}

/// What retention removes.
#[must_use]
pub fn purge_policy(retention: &Retention) -> PurgePolicy {
    PurgePolicy {
        done: retention.done,
        failed: retention.failed,
        dedupe: retention.dedupe,
    }
}

/// Histograms gather their samples until they are drained; a scraper that stays away must not make them grow.
async fn upkeep(prometheus: PrometheusHandle, stop: CancellationToken) {
    let mut every = tokio::time::interval(Duration::from_secs(5));
    loop {
        tokio::select! {
            _ = every.tick() => prometheus.run_upkeep(),
            () = stop.cancelled() => return,
        }
    }
}
