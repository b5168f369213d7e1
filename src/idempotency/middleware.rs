//! The middleware for actix apps.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use actix_web::{App, web, HttpResponse};
//! # use cerca::{idempotency::{Idempotent, Layer}, store};
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = store::open("sqlite:orders.db", store::Options::default()).await?;
//! let layer = Layer::new(store);
//! let app = App::new()
//!     .wrap(Idempotent::new(Arc::clone(&layer), "header:authorization".parse()?).required(true))
//!     .route("/orders", web::post().to(HttpResponse::Created));
//! # Ok(()) }
//! ```

use std::{
    cell::Cell,
    future::{Ready, ready},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use actix_web::{
    Error, HttpMessage as _, HttpResponse,
    body::{self, BoxBody, MessageBody},
    dev::{Payload, Service, ServiceRequest, ServiceResponse, Transform, forward_ready},
    http::header,
    web::{Bytes, BytesMut},
};
use futures_util::{StreamExt as _, future::LocalBoxFuture};

use super::{
    REQUESTS,
    decision::Policy,
    gateway::is_kept_by_default,
    key::{parse_key, request_hash},
    layer::{Ask, Entry, Layer, Run},
    principal::{Caller, Principal},
    refusal::Refusal,
    transaction::{Slot, respond},
    upstream::kept,
};
use crate::store::{KeptAnswer, KeyName, KeyStep};

/// `Idempotency-Key` for the routes that it wraps.
#[derive(Clone)]
pub struct Idempotent(Arc<Settings>);

#[derive(Clone)]
struct Settings {
    layer: Arc<Layer>,
    principal: Principal,
    methods: Vec<String>,
    required: bool,
    transactional: bool,
    prefix: &'static str,
    lease: Duration,
    expiry: Duration,
    max_body: usize,
    body_timeout: Duration,
    policy: Policy,
    except: &'static [&'static str],
}

impl Idempotent {
    /// POST and PATCH, keys not required, a lease of a minute, answers kept for 24 hours, bodies of up to 1 MiB that come
    /// within 10 s. Client certificates are never believed, because this middleware knows no trusted proxies.
    #[must_use]
    pub fn new(layer: Arc<Layer>, principal: Principal) -> Self {
        Self(Arc::new(Settings {
            layer,
            principal,
            methods: vec!["POST".to_owned(), "PATCH".to_owned()],
            required: false,
            transactional: false,
            prefix: "",
            lease: Duration::from_secs(60),
            expiry: Duration::from_secs(86_400),
            max_body: 1 << 20,
            body_timeout: Duration::from_secs(10),
            policy: Policy::default(),
            except: &[],
        }))
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Methods that keys protect; others pass through.
    #[must_use]
    pub fn methods(self, methods: &[&str]) -> Self {
        self.with(|s| s.methods = methods.iter().map(|method| method.to_ascii_uppercase()).collect())
    }

    /// Whether a request of these methods needs a key (400 without).
    #[must_use]
    pub fn required(self, required: bool) -> Self {
        self.with(|s| s.required = required)
    }

    /// The handlers promise to have no effect but through [`super::KeyTransaction`]. Then a crash at any point leaves
    /// either everything or nothing, and the same request may run again as soon as its lease is over.
    #[must_use]
    pub fn transactional(self) -> Self {
        self.with(|s| s.transactional = true)
    }

    /// Before the route in what its keys are kept under, where two apps share a store.
    #[must_use]
    pub fn named(self, prefix: &'static str) -> Self {
        self.with(|s| s.prefix = prefix)
    }

    /// How long a handler may take at most; after that its request counts as abandoned.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        self.with(|s| s.lease = lease)
    }

    /// How long answers are kept.
    #[must_use]
    pub fn expiry(self, expiry: Duration) -> Self {
        self.with(|s| s.expiry = expiry)
    }

    /// Largest body of a request with a key, in bytes, and how long it may take to arrive.
    #[must_use]
    pub fn max_body(self, bytes: usize, timeout: Duration) -> Self {
        self.with(|s| {
            s.max_body = bytes;
            s.body_timeout = timeout;
        })
    }

    /// Paths whose handlers know what to do with a key themselves.
    #[must_use]
    pub fn except(self, paths: &'static [&'static str]) -> Self {
        self.with(|s| s.except = paths)
    }

    /// Which answers are kept.
    #[must_use]
    pub fn policy(self, policy: Policy) -> Self {
        self.with(|s| s.policy = policy)
    }
}

impl<S, B> Transform<S, ServiceRequest> for Idempotent
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<BoxBody>;
    type Error = Error;
    type Transform = IdempotentService<S>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, Self::InitError>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(IdempotentService {
            service: Rc::new(service),
            settings: Arc::clone(&self.0),
        }))
    }
}

#[doc(hidden)]
pub struct IdempotentService<S> {
    service: Rc<S>,
    settings: Arc<Settings>,
}

impl<S, B> Service<ServiceRequest> for IdempotentService<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<BoxBody>;
    type Error = Error;
    type Future = LocalBoxFuture<'static, Result<Self::Response, Error>>;

    forward_ready!(service);

    fn call(&self, mut request: ServiceRequest) -> Self::Future {
        let settings = Arc::clone(&self.settings);
        let method = request.method().as_str();
        let is_protected =
            settings.methods.iter().any(|known| known == method) && !settings.except.contains(&request.path());
        let has_key = request.headers().contains_key("idempotency-key");
        if !is_protected || !(has_key || settings.required) {
            if settings.transactional {
                put_slot(&request, &settings, None);
            }
            let call = self.service.call(request);
            return Box::pin(async move { Ok(call.await?.map_into_boxed_body()) });
        }
        let service = Rc::clone(&self.service);
        Box::pin(async move {
            match settings.enter(&mut request).await {
                Ok(Entered::Run(run)) => run_handler(&*service, settings, request, run).await,
                Ok(Entered::Replay(route, answer)) => {
                    count(&route, "replayed");
                    Ok(request.into_response(respond(&answer, true)))
                }
                Err((route, refusal)) => {
                    count(&route, refusal.code());
                    Ok(refuse(request, &refusal))
                }
            }
        })
    }
}

enum Entered {
    Run(Run),
    Replay(Arc<str>, Arc<KeptAnswer>),
}

impl Settings {
    async fn enter(&self, request: &mut ServiceRequest) -> Result<Entered, (Arc<str>, Refusal)> {
        let pattern = request.match_pattern().unwrap_or_else(|| request.path().to_owned());
        let route: Arc<str> = format!("{}{pattern}", self.prefix).into();
        let entered = self.enter_route(request, &route).await;
        entered.map_err(|refusal| (route, refusal))
    }

    async fn enter_route(&self, request: &mut ServiceRequest, route: &Arc<str>) -> Result<Entered, Refusal> {
        let values = request
            .headers()
            .get_all("idempotency-key")
            .map(header::HeaderValue::as_bytes);
        let key = parse_key(values).map_err(Refusal::BadKey)?.ok_or(Refusal::Missing)?;
        let headers = request.headers();
        let scope = self.principal.scope_of(&Caller {
            header: &|name| headers.get_all(name).map(|value| value.as_bytes().to_vec()).collect(),
            is_trusted: false,
            now: jiff::Timestamp::now().as_second(),
        })?;
        let body = self.read(request).await?;
        let content_type = request
            .headers()
            .get(header::CONTENT_TYPE)
            .map(header::HeaderValue::as_bytes);
        let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
        let ask = Ask {
            name: KeyName {
                scope,
                method: request.method().as_str().into(),
                route: Arc::clone(route),
                key,
            },
            request_hash: request_hash(target, content_type, &body),
            lease: self.lease,
            expiry: self.expiry,
        };
        request.set_payload(Payload::from(body));
        match self.layer.enter(ask).await {
            Entry::Run(run) => Ok(Entered::Run(run)),
            Entry::Replay(answer) => Ok(Entered::Replay(Arc::clone(route), answer)),
            Entry::Unknown { .. } => Err(Refusal::Unknown),
            Entry::Refuse(refusal) => Err(refusal),
        }
    }

    async fn read(&self, request: &mut ServiceRequest) -> Result<Bytes, Refusal> {
        let limit = self.max_body;
        let mut payload = request.take_payload();
        let read = async {
            let mut body = BytesMut::new();
            while let Some(chunk) = payload.next().await {
                let chunk = chunk.map_err(|_| Refusal::Body { too_slow: false })?;
                if body.len() + chunk.len() > limit {
                    return Err(Refusal::TooLarge { limit });
                }
                body.extend_from_slice(&chunk);
            }
            Ok(body.freeze())
        };
        let read = tokio::time::timeout(self.body_timeout, read).await;
        let read = read.unwrap_or(Err(Refusal::Body { too_slow: true }));
        if read.is_err() {
            // Unread, it must live until the answer is written: the connection is then closed, and not drained for ever.
            request.set_payload(payload);
        }
        read
    }
}

/// Calls the handler in a task of its own, so that a client who hangs up does not leave its work half done.
async fn run_handler<S, B>(
    service: &S,
    settings: Arc<Settings>,
    request: ServiceRequest,
    run: Run,
) -> Result<ServiceResponse<BoxBody>, Error>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    if !settings.transactional
        && let Err(refusal) = settings.layer.sent(&run).await
    {
        return Ok(refuse(request, &refusal));
    }
    let slot = settings
        .transactional
        .then(|| put_slot(&request, &settings, Some(run.clone())));
    // The request may not be cloned before it is routed.
    let call = service.call(request);
    let (layer, abandoned) = (Arc::clone(&settings.layer), run.clone());
    let handled = actix_web::rt::spawn(async move {
        match call.await {
            Ok(response) => {
                let (request, response) = response.into_parts();
                let response = settle(&settings, &run, slot, response.map_into_boxed_body()).await;
                Ok(ServiceResponse::new(request, response))
            }
            Err(error) => {
                settle(&settings, &run, slot, error.as_response_error().error_response()).await;
                Err(error)
            }
        }
    });
    match handled.await {
        Ok(response) => response,
        Err(_) => {
            // The handler panicked: nobody knows what it did.
            layer.end(&abandoned, KeyStep::Abandon).await;
            Err(actix_web::error::ErrorInternalServerError("the handler failed"))
        }
    }
}

/// Keeps the answer of the handler, unless its transaction has kept it.
async fn settle(settings: &Settings, run: &Run, slot: Option<Rc<Slot>>, response: HttpResponse) -> HttpResponse {
    let route = &run.ask.name.route;
    count(route, "first");
    let is_done = slot.is_some_and(|slot| slot.is_done.get());
    if is_done {
        return response;
    }
    let (head, body) = response.into_parts();
    let status = head.status().as_u16();
    let Ok(body) = body::to_bytes(body).await else {
        settings.layer.end(run, KeyStep::Abandon).await;
        return Refusal::UpstreamBroke.respond();
    };
    if settings.transactional && status >= 500 {
        // Nothing was committed, so nothing was done.
        settings.layer.end(run, KeyStep::Release).await;
    } else {
        let headers = head
            .headers()
            .iter()
            .filter(|(name, _)| is_kept_by_default(name.as_str()));
        let headers = headers.map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()));
        let answer = Arc::new(kept(status, headers.collect(), Some(body.clone())));
        settings.layer.finish(run, &answer, &settings.policy).await;
    }
    head.set_body(body).map_into_boxed_body()
}

fn put_slot(request: &ServiceRequest, settings: &Settings, run: Option<Run>) -> Rc<Slot> {
    let slot = Rc::new(Slot {
        layer: Arc::clone(&settings.layer),
        run,
        is_done: Cell::new(false),
    });
    request.extensions_mut().insert(Rc::clone(&slot));
    slot
}

fn refuse(request: ServiceRequest, refusal: &Refusal) -> ServiceResponse<BoxBody> {
    let (request, payload) = request.into_parts();
    ServiceResponse::new(request, refusal.respond_unread(payload))
}

fn count(route: &str, outcome: &'static str) {
    metrics::counter!(REQUESTS, "route" => route.to_owned(), "outcome" => outcome).increment(1);
}
