//! What happens by request: every route on this page, and the two servers that serve them.
//!
//! The public server takes webhooks from anyone; the admin server is for people, programs and metrics of the operator.
//! Neither knows the database: events go to the store's queue and are acknowledged when it says that they are on disk.

mod admin;
mod audit;
mod auth;
mod body;
mod connections;
mod dashboard;
mod error;
mod gateway;
mod headers;
mod health;
mod idempotency;
mod jobs;
pub mod json;
mod limits;
mod log_gate;
pub mod metrics;
mod providers;
mod proxies;
mod publish;
mod pull;
mod quarantine;
mod query;
mod readmit;
mod receive;
mod refusal;
mod secrets;
mod settings;
mod settle;
mod upgrade;

#[cfg(test)]
mod tests;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use actix_web::{
    App, FromRequest, Handler, HttpResponse, HttpServer, Resource, Responder,
    dev::Service as _,
    guard,
    middleware::from_fn,
    web::{self, ServiceConfig},
};
use futures_util::future::try_join_all;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    adapters::Registry,
    handlers::{self, BreakerState},
    idempotency::{Engine, Gateways, Idempotent, Principal},
    store::{Store, answers},
};

pub use jobs::JobJson;
pub use providers::{Endpoint, Providers};
pub use pull::{PullHandler, Pulls};
pub use quarantine::Limits as QuarantineLimits;
pub use readmit::{NotReadmitted, Readmitted, RefusedJson, readmit};
pub use secrets::{Remake, Secrets};
pub use settings::{Settings, SettingsError};

use error::Problem;

/// Whether a header of a webhook may be stored, by its name in lower case.
#[must_use]
pub fn keeps_header(name: &str) -> bool {
    headers::is_stored(name, &[])
}

/// The routes of the public server.
fn public_routes(config: &mut ServiceConfig) {
    config
        .service(get("/healthz", health::live))
        .service(get("/readyz", health::ready))
        // `/webhooks/{provider}` is read by hand: a pattern would cost every request a regular expression.
        .default_service(web::to(receive::receive));
}

/// The routes of the admin server.
fn admin_routes(config: &mut ServiceConfig) {
    const EVENT: &str = "/api/v1/events/{provider}/{id}";
    config
        .configure(dashboard::routes)
        .service(get("/metrics", health::metrics))
        .service(get("/healthz", health::live))
        .service(get("/readyz", health::ready))
        .service(
            Resource::new("/api/v1/events")
                .route(web::route().guard(reads()).to(admin::events))
                .route(web::post().to(publish::publish))
                .default_service(web::to(|payload| wrong_method("GET, HEAD, POST", payload))),
        )
        .service(post("/api/v1/events/reprocess", admin::reprocess_many))
        .service(get(EVENT, admin::event))
        .service(get(&format!("{EVENT}/payload"), admin::payload))
        .service(post(&format!("{EVENT}/reprocess"), admin::reprocess_one))
        .service(post(&format!("{EVENT}/discard"), admin::discard))
        // HEAD would take deliveries and show none.
        .service(
            Resource::new("/api/v1/pull/{handler}")
                .route(web::get().to(pull::pull))
                .default_service(web::to(|payload| wrong_method("GET", payload))),
        )
        .service(post("/api/v1/pull/{handler}/settle", settle::settle))
        .service(get("/api/v1/jobs", jobs::list))
        .service(get("/api/v1/jobs/{id}", jobs::show))
        .service(post("/api/v1/jobs/{id}/stop", jobs::stop))
        .service(post("/api/v1/jobs/{id}/resume", jobs::resume))
        .service(get("/api/v1/quarantine", readmit::list))
        .service(get("/api/v1/quarantine/{id}", readmit::show))
        .service(get("/api/v1/quarantine/{id}/body", readmit::body))
        .service(post("/api/v1/quarantine/{id}/readmit", readmit::one))
        .service(get("/api/v1/stats", admin::stats))
        .service(get("/api/v1/providers", admin::providers))
        .service(get("/api/v1/audit", audit::list))
        .service(get("/api/v1/idempotency", idempotency::keys))
        .service(get("/api/v1/idempotency/{id}", idempotency::key))
        .default_service(web::to(nowhere));
}

/// Which handlers want an event of this provider, adapter and type: their names joined by commas.
pub type Router = Arc<dyn Fn(&str, &str, Option<&str>) -> Arc<str> + Send + Sync>;

/// The parts that requests work with.
#[derive(Clone)]
pub struct Services {
    pub store: Arc<dyn Store>,
    pub providers: Arc<Providers>,
    /// Those that come in handshakes.
    pub secrets: Arc<Secrets>,
    pub router: Router,
    /// Handlers whose deliveries are pulled.
    pub pulls: Arc<Pulls>,
    pub quarantine: QuarantineLimits,
    /// Names of the configured handlers, to which events may be reprocessed.
    pub handlers: Vec<Arc<str>>,
    /// Those of them that run in this process and may have a circuit breaker.
    pub running: Vec<(Arc<str>, Arc<dyn handlers::Handler>)>,
    /// What is known of the senders, for people.
    pub adapters: Arc<Registry>,
    /// Routes of the gateway on the public listener.
    pub gateways: Arc<Gateways>,
    /// Runs requests with an idempotency key.
    pub engine: Arc<Engine>,
    /// Renders `/metrics`; 404 without.
    pub prometheus: Option<PrometheusHandle>,
}

/// What every request sees.
struct State {
    store: Arc<dyn Store>,
    providers: Arc<Providers>,
    secrets: Arc<Secrets>,
    router: Router,
    pulls: Arc<Pulls>,
    handlers: Vec<Arc<str>>,
    running: Vec<(Arc<str>, Arc<dyn handlers::Handler>)>,
    adapters: Arc<Registry>,
    gateways: Arc<Gateways>,
    engine: Arc<Engine>,
    prometheus: Option<PrometheusHandle>,
    settings: Settings,
    budget: body::Budget,
    /// Of requests that belong to no provider.
    log_gate: log_gate::LogGate,
    last_ping: health::LastPing,
    keeper: quarantine::Keeper,
    desk: dashboard::Desk,
    shutdown: CancellationToken,
}

impl State {
    /// How the circuit breaker of a handler stands here.
    fn breaker(&self, handler: &str) -> Option<BreakerState> {
        let running = self.running.iter().find(|(name, _)| **name == *handler);
        running.and_then(|(_, handler)| handler.breaker())
    }
}

/// The servers while they run.
pub struct Running {
    /// Where the public server listens, with the port that was taken; `None` where there is none.
    pub public: Option<SocketAddr>,
    pub admin: SocketAddr,
    servers: Vec<JoinHandle<io::Result<()>>>,
}

impl Running {
    /// Resolves when the servers have stopped and every request in flight is answered (or its time is up), or as soon
    /// as one fails.
    ///
    /// # Errors
    /// What made a server stop before it was told to.
    pub async fn stopped(self) -> io::Result<()> {
        let ended = |server: JoinHandle<io::Result<()>>| async { server.await.map_err(io::Error::other)? };
        try_join_all(self.servers.into_iter().map(ended)).await.map(|_| ())
    }
}

/// Binds the listeners and starts the servers on threads of their own, within a tokio runtime. They stop accepting,
/// and finish what is in flight, when `shutdown` is cancelled.
///
/// # Errors
/// Unsafe settings ([`SettingsError`] inside), or an address that cannot be bound.
pub fn start(settings: Settings, services: Services, shutdown: CancellationToken) -> io::Result<Running> {
    settings.check().map_err(io::Error::other)?;
    let keeper = quarantine::Keeper::start(services.quarantine, Arc::clone(&services.store), shutdown.clone());
    let state = web::Data::new(State {
        keeper,
        store: services.store,
        providers: services.providers,
        secrets: services.secrets,
        router: services.router,
        pulls: services.pulls,
        handlers: services.handlers,
        running: services.running,
        adapters: services.adapters,
        gateways: services.gateways,
        engine: services.engine,
        prometheus: services.prometheus,
        budget: body::Budget::new(settings.max_bytes_in_flight),
        log_gate: log_gate::LogGate::default(),
        last_ping: health::LastPing::default(),
        desk: dashboard::Desk::default(),
        shutdown: shutdown.clone(),
        settings: settings.clone(),
    });

    let workers = settings.threads();
    let shared = state.clone();
    let connections = connections::Connections::new(settings.silence);
    tokio::spawn(connections.clone().sweep(shutdown.clone()));
    let public = HttpServer::new(move || {
        // Once for each of its threads.
        actix_web::rt::spawn(answers::together());
        App::new()
            .app_data(shared.clone())
            .wrap_fn(|mut request, service| {
                connections::note(&request);
                upgrade::ignore(&mut request);
                service.call(request)
            })
            .configure(public_routes)
    })
    .on_connect(move |io, data| connections.opened(io, data))
    .workers(workers)
    .max_connections(limits::connections(settings.max_connections).div_ceil(workers));
    // Every write of the API takes a key. The guard has seen the token; it is the only principal there is.
    let keyed = Idempotent::new(
        Arc::clone(state.engine.layer()),
        Principal::operator(&settings.admin_token),
    )
    .named("admin:")
    // The key of a published event is its identity, for as long as the event is known.
    .except(&["/api/v1/events"])
    .max_body(admin::MAX_JSON, admin::JSON_TIMEOUT);
    let admin = HttpServer::new(move || {
        App::new()
            .app_data(state.clone())
            .wrap(keyed.clone())
            .wrap(from_fn(auth::guard))
            .wrap_fn(|mut request, service| {
                upgrade::ignore(&mut request);
                service.call(request)
            })
            .configure(admin_routes)
    })
    // A consumer that hangs up while it waits for work must not be given any.
    .h1_allow_half_closed(false)
    .workers(1)
    .max_connections(ADMIN_CONNECTIONS);

    /// What both servers have in common.
    macro_rules! bind {
        ($server:expr, $listen:expr, $name:literal) => {{
            let server = $server
                .backlog(BACKLOG)
                .keep_alive(settings.keep_alive)
                .client_request_timeout(HEAD_TIMEOUT)
                .client_disconnect_timeout(LINGER)
                .tcp_nodelay(true)
                .shutdown_timeout(settings.shutdown_timeout.as_secs().max(1))
                .shutdown_signal(shutdown.clone().cancelled_owned())
                .bind($listen)
                .map_err(|error| cannot_listen($name, $listen, error))?;
            let address = server.addrs().first().copied().unwrap_or($listen);
            (address, server)
        }};
    }
    let public = match settings.webhooks {
        true => Some(bind!(public, settings.listen, "server")),
        false => None,
    };
    let (admin, admin_server) = bind!(admin, settings.admin_listen, "admin");
    let mut servers = vec![tokio::spawn(admin_server.run())];
    let public = public.map(|(address, server)| {
        servers.push(tokio::spawn(server.run()));
        address
    });
    Ok(Running { public, admin, servers })
}

/// Which listener it is, and why it cannot be had.
fn cannot_listen(table: &str, address: SocketAddr, error: io::Error) -> io::Error {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => "; is another one running already?",
        _ => "",
    };
    io::Error::new(
        error.kind(),
        format!("cannot listen on {address} ([{table}] listen): {error}{hint}"),
    )
}

/// How long the head of a connection's first request may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a sender may go on sending after it was refused, so that it gets to read the answer.
const LINGER: Duration = Duration::from_secs(1);

const ADMIN_CONNECTIONS: usize = 256;

/// Connections that the kernel keeps while all threads are busy.
const BACKLOG: u32 = 1024;

/// A resource that is read.
fn get<F, Args>(path: &str, handler: F) -> Resource
where
    F: Handler<Args>,
    Args: FromRequest + 'static,
    F::Output: Responder + 'static,
{
    Resource::new(path)
        .route(web::route().guard(reads()).to(handler))
        .default_service(web::to(|payload| wrong_method("GET, HEAD", payload)))
}

fn reads() -> impl guard::Guard {
    guard::Any(guard::Get()).or(guard::Head())
}

/// A resource that does something.
fn post<F, Args>(path: &str, handler: F) -> Resource
where
    F: Handler<Args>,
    Args: FromRequest + 'static,
    F::Output: Responder + 'static,
{
    Resource::new(path)
        .route(web::post().to(handler))
        .default_service(web::to(|payload| wrong_method("POST", payload)))
}

async fn wrong_method(allow: &'static str, payload: web::Payload) -> HttpResponse {
    Problem::method_not_allowed(allow).respond_unread(payload)
}

async fn nowhere(payload: web::Payload) -> HttpResponse {
    Problem::not_found("there is nothing here").respond_unread(payload)
}
