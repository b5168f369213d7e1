//! Keeps what was refused, off the way of requests: a bounded queue, a rate for each provider, and room for so much. What
//! does not fit is counted and forgotten, so that strangers can neither fill the disk nor slow anyone down.
//!
//! No credential is kept. Signatures are, because each proves one body and nothing else; tokens and passwords are not,
//! nor a query that may hold one. What lacks them cannot be verified again, and says so.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use actix_web::{HttpRequest, web::Bytes};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{State, headers, metrics, providers::Endpoint, proxies};
use crate::{
    adapters::{Expr, Provider, Scheme},
    ingest::Rejection,
    store::{Refused, Room, Store},
};

/// Requests that wait to be written, at most.
const QUEUE: usize = 512;
/// Their bytes, at most.
const QUEUE_BYTES: usize = 4 << 20;
/// Requests in one transaction.
const BATCH: usize = 64;
/// Nobody waits for these: a pause makes batches of a flood.
const PAUSE: Duration = Duration::from_millis(200);
/// Bytes of headers that are kept of one request.
const MOST_HEADERS: usize = 16 << 10;

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// 0: nothing.
    pub rows: u32,
    pub bytes: usize,
    /// Requests of unproved senders for each provider in a minute.
    pub rate: u32,
}

/// Where requests hand over what they refused.
pub(super) struct Keeper {
    sender: Option<mpsc::Sender<Refused>>,
    waiting: Arc<AtomicUsize>,
    rate: u32,
    minutes: Mutex<HashMap<Arc<str>, (Instant, u32)>>,
}

impl Keeper {
    /// Starts the task that writes; it ends with what is queued once `stop` is cancelled.
    pub(super) fn start(limits: Limits, store: Arc<dyn Store>, stop: CancellationToken) -> Self {
        let waiting = Arc::new(AtomicUsize::new(0));
        let sender = (limits.rows > 0).then(|| {
            let (sender, receiver) = mpsc::channel(QUEUE);
            let room = Room {
                rows: limits.rows.into(),
                bytes: limits.bytes as u64,
            };
            tokio::spawn(write(receiver, store, room, Arc::clone(&waiting), stop));
            sender
        });
        Self {
            sender,
            waiting,
            rate: limits.rate,
            minutes: Mutex::default(),
        }
    }

    /// Keeps a request that was refused, if there is room for it. Never waits.
    pub(super) fn keep(
        &self,
        request: &HttpRequest,
        body: &Bytes,
        state: &State,
        endpoint: &Endpoint,
        rejection: &Rejection,
    ) {
        let Some(sender) = &self.sender else { return };
        let authentic = rejection.status() == 400;
        // What cannot be judged now comes again, and a handshake holds no event.
        if !authentic && rejection.status() != 401 {
            return;
        }
        let provider = &endpoint.provider.name;
        if !authentic && !self.passes(provider) {
            return metrics::count_quarantine("over_rate");
        }
        let size = body.len() + 1024;
        let Ok(permit) = sender.try_reserve() else {
            return metrics::count_quarantine("queue_full");
        };
        if self.waiting.fetch_add(size, Relaxed) + size > QUEUE_BYTES {
            self.waiting.fetch_sub(size, Relaxed);
            return metrics::count_quarantine("queue_full");
        }
        permit.send(refused(request, body, state, endpoint, rejection));
    }

    fn passes(&self, provider: &Arc<str>) -> bool {
        let mut minutes = self.minutes.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let (begun, count) = minutes.entry(Arc::clone(provider)).or_insert((now, 0));
        if now.duration_since(*begun) > Duration::from_secs(60) {
            (*begun, *count) = (now, 0);
        }
        *count += 1;
        *count <= self.rate
    }
}

fn refused(request: &HttpRequest, body: &Bytes, state: &State, endpoint: &Endpoint, rejection: &Rejection) -> Refused {
    let provider = &endpoint.provider;
    let shows_credentials = provider
        .rules
        .signatures
        .iter()
        .any(|rule| matches!(rule.scheme, Scheme::Token | Scheme::Basic | Scheme::Jwt));
    let body_sha256 = Sha256::digest(body).into();
    let mut left_out = Vec::new();
    let mut kept: Vec<(&str, Cow<'_, str>)> = Vec::new();
    let mut total = 0;
    for (name, value) in request.headers() {
        let name = name.as_str();
        let is_proof = endpoint.proof_headers.iter().any(|proof| **proof == *name);
        let is_kept = if is_proof {
            !shows_credentials
        } else {
            headers::is_stored(name, &[]) || is_signed_beside(name, provider)
        };
        if !is_kept {
            if is_proof {
                left_out.push(name.to_owned());
            }
            continue;
        }
        let text = String::from_utf8_lossy(value.as_bytes());
        if matches!(text, Cow::Owned(_)) {
            left_out.push(format!("the exact bytes of {name}"));
        }
        total += name.len() + text.len();
        if total > MOST_HEADERS {
            left_out.push("more headers than are kept".to_owned());
            break;
        }
        kept.push((name, text));
    }
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    // A stranger's query goes nowhere; a signature in it is one of a request, unlike a token.
    let target = match target.split_once('?') {
        Some((path, _)) if shows_credentials => {
            left_out.push("the query".to_owned());
            path
        }
        _ => target,
    };
    let body = if hides_body(provider, shows_credentials) {
        left_out.push("the body".to_owned());
        Bytes::new()
    } else {
        body.clone()
    };
    let client = proxies::client(request, &state.settings.trusted_proxies);
    let clean = |text: &str| text.replace('\0', "\u{fffd}");
    Refused {
        at: Timestamp::now(),
        provider: provider.name.to_string(),
        reason: rejection.reason().to_owned(),
        detail: Some(clean(&rejection.to_string())),
        authentic: rejection.status() == 400,
        method: request.method().to_string(),
        target: clean(target),
        client: client.map(|client| client.to_string()),
        headers: serde_json::to_string(&kept).unwrap_or_else(|_| "[]".to_owned()),
        left_out: (!left_out.is_empty()).then(|| left_out.join(", ")),
        body_sha256,
        body,
    }
}

/// Whether the body may hold a token, or what must not be stored.
fn hides_body(provider: &Provider, shows_credentials: bool) -> bool {
    fn is_outside(expr: &Expr) -> bool {
        match expr {
            Expr::Header(_) | Expr::Headers(_) | Expr::Numbered(_) | Expr::Query(_) => true,
            Expr::At(_, inner) | Expr::Call(_, inner) => is_outside(inner),
            Expr::Join(parts) => parts.iter().all(is_outside),
            _ => false,
        }
    }
    let rules = &provider.rules;
    let mut sources = rules.signatures.iter().flat_map(|rule| &rule.sources);
    !rules.redact.is_empty() || (shows_credentials && !sources.all(is_outside))
}

/// Whether a signature covers or needs this header, though events are stored without it.
fn is_signed_beside(name: &str, provider: &Provider) -> bool {
    fn reads(expr: &Expr, name: &str) -> bool {
        match expr {
            Expr::Header(header) | Expr::Headers(header) => header.eq_ignore_ascii_case(name),
            Expr::HeaderLines(inner) | Expr::At(_, inner) | Expr::Call(_, inner) => reads(inner, name),
            Expr::Join(parts) => parts.iter().any(|part| reads(part, name)),
            _ => false,
        }
    }
    if matches!(name, "authorization" | "cookie" | "proxy-authorization") {
        return false;
    }
    let mut rules = provider.rules.signatures.iter();
    rules.any(|rule| {
        let conditions = rule.when.iter().map(|condition| &condition.expr);
        let all = rule
            .message
            .exprs()
            .into_iter()
            .chain(&rule.timestamp)
            .chain(conditions);
        all.into_iter().any(|expr| reads(expr, name))
    })
}

async fn write(
    mut receiver: mpsc::Receiver<Refused>,
    store: Arc<dyn Store>,
    room: Room,
    waiting: Arc<AtomicUsize>,
    stop: CancellationToken,
) {
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        tokio::select! {
            got = receiver.recv_many(&mut batch, BATCH) => if got == 0 { return },
            () = stop.cancelled() => {
                receiver.close();
                if receiver.recv_many(&mut batch, BATCH).await == 0 {
                    return;
                }
            }
        }
        let bytes: usize = batch.iter().map(|one| one.body.len() + 1024).sum();
        let count = batch.len() as u64;
        match store.quarantine(std::mem::take(&mut batch), room).await {
            Ok(()) => metrics::count_quarantined(count),
            Err(error) => {
                tracing::warn!(%error, requests = count, "refused requests could not be kept");
                (0..count).for_each(|_| metrics::count_quarantine("store"));
            }
        }
        waiting.fetch_sub(bytes, Relaxed);
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = stop.cancelled() => {}
        }
    }
}
