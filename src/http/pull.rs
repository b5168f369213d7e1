//! `GET /pull/{handler}`: consumers take deliveries under the same leases as the worker; `settle` is where they say what
//! came of them.
//!
//! Of the consumers of one handler that wait, one asks the store; the others stand in line behind it and are served in
//! their order, so that a hundred of them cost no more than one. A claim is made by a task of its own: a consumer that
//! goes away meanwhile has its deliveries given back at once.

use std::{collections::HashSet, pin::pin, sync::Arc, time::Duration};

use actix_web::{HttpRequest, http::StatusCode, web};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::{
    sync::{Mutex, Notify, oneshot},
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    State,
    admin::{Answer, failed, ok},
    error::Problem,
    query,
};
use crate::{
    domain::{Claim, Outcome, RetryPolicy, Settle},
    handlers::PullToken,
    store::{ClaimRequest, Store, StoreError},
    units::parse_duration,
};

/// Deliveries in one answer: the default and the most.
const DEFAULT_MAX: u32 = 50;
pub(super) const MOST: u32 = 500;

/// Bytes of payload in one answer, about; one delivery is always given.
const MAX_BYTES: usize = 8 << 20;

/// Longest wait for work.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How soon work is noticed that another process made, or that is due again.
const POLL: Duration = Duration::from_millis(500);

/// A handler whose deliveries are pulled.
#[derive(Debug, Clone)]
pub struct PullHandler {
    pub name: Arc<str>,
    pub retry: RetryPolicy,
    /// How long a consumer has for an attempt, unless it extends the lease.
    pub lease: Duration,
}

/// All of them, and who waits.
#[derive(Default)]
pub struct Pulls {
    handlers: Vec<(PullHandler, Mutex<()>)>,
    fresh: Arc<Notify>,
}

impl Pulls {
    #[must_use]
    pub fn new(handlers: Vec<PullHandler>) -> Self {
        Self {
            handlers: handlers
                .into_iter()
                .map(|handler| (handler, Mutex::default()))
                .collect(),
            fresh: Arc::default(),
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.handlers.is_empty()
    }

    /// Notify all waiters of it when deliveries became ready.
    #[must_use]
    pub fn fresh(&self) -> Arc<Notify> {
        Arc::clone(&self.fresh)
    }

    pub(super) fn find(&self, request: &HttpRequest) -> Result<&(PullHandler, Mutex<()>), Problem> {
        let name = request.match_info().get("handler").unwrap_or_default();
        self.handlers
            .iter()
            .find(|(handler, _)| *handler.name == *name)
            .ok_or_else(|| Problem::not_found("no handler of kind \"pull\" has this name"))
    }
}

#[derive(Serialize)]
struct PulledJson<'a> {
    deliveries: Vec<DeliveryJson<'a>>,
}

#[derive(Serialize)]
struct DeliveryJson<'a> {
    token: String,
    attempt: u32,
    /// Seconds until another consumer may take it.
    lease_seconds: f64,
    /// The same in every try.
    idempotency_key: String,
    event: EventJson<'a>,
    /// Base64 of the bytes received.
    payload: String,
}

/// An event as its consumer needs it: the fields of the API that do not change.
#[derive(Serialize)]
struct EventJson<'a> {
    id: i64,
    provider: &'a str,
    adapter: Option<String>,
    provider_event_id: &'a str,
    event_type: Option<&'a str>,
    occurred_at: Option<Timestamp>,
    created_at: Timestamp,
    ordering_key: Option<&'a str>,
    content_type: Option<&'a str>,
    size: usize,
    body_sha256: String,
    headers: Option<&'a RawValue>,
}

/// `GET /pull/{handler}?max=50&wait=20s`
pub(super) async fn pull(request: HttpRequest, state: web::Data<State>) -> Answer {
    // A link that a person follows must not take work away.
    if request.headers().contains_key("sec-fetch-mode") {
        return Err(Problem::new(StatusCode::FORBIDDEN, "browsers cannot pull"));
    }
    let (handler, line) = state.pulls.find(&request)?;
    let asked = Asked::read(request.query_string())?;
    let claims = wait(&state, handler, line, asked).await.map_err(failed)?;
    let now = Timestamp::now();
    let deliveries = claims
        .iter()
        .map(|claim| delivery(&state, handler, claim, now))
        .collect();
    Ok(ok(&PulledJson { deliveries }))
}

fn delivery<'a>(state: &State, handler: &PullHandler, claim: &'a Claim, now: Timestamp) -> DeliveryJson<'a> {
    let event = &*claim.event;
    DeliveryJson {
        token: PullToken::new(claim, now).write(),
        attempt: claim.attempt,
        lease_seconds: handler.lease.as_secs_f64(),
        idempotency_key: crate::handlers::idempotency_key(claim),
        event: EventJson {
            id: event.id,
            provider: &event.provider,
            adapter: state.providers.adapter(&event.provider).map(|name| name.to_string()),
            provider_event_id: &event.provider_event_id,
            event_type: event.event_type.as_deref(),
            occurred_at: event.occurred_at,
            created_at: event.created_at,
            ordering_key: event.ordering_key.as_deref(),
            content_type: event.content_type.as_deref(),
            size: event.payload.len(),
            body_sha256: hex::encode(event.body_sha256),
            headers: serde_json::from_str(&event.headers).ok(),
        },
        payload: STANDARD.encode(&event.payload),
    }
}

/// What the query asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asked {
    max: u32,
    wait: Duration,
}

impl Asked {
    fn read(text: &str) -> Result<Self, Problem> {
        let mut asked = Self {
            max: DEFAULT_MAX,
            wait: Duration::ZERO,
        };
        let mut seen = HashSet::new();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            if !seen.insert(name.clone()) {
                let name: String = name.chars().take(64).collect();
                return Err(Problem::bad_request(format!("`{name}` is given twice")));
            }
            match &*name {
                "max" => {
                    asked.max = value
                        .parse()
                        .ok()
                        .filter(|max| (1..=MOST).contains(max))
                        .ok_or_else(|| Problem::bad_request(format!("`max` is a number from 1 to {MOST}")))?;
                }
                "wait" => {
                    asked.wait = parse_duration(&value)
                        .ok()
                        .filter(|wait| *wait <= LONGEST_WAIT)
                        .ok_or_else(|| Problem::bad_request("`wait` is a duration such as 20s, at most 60s"))?;
                }
                _ => return Err(query::unknown(&name)),
            }
        }
        Ok(asked)
    }
}

/// Claims what is due, or waits for it. Empty when the time is up, or the process stops.
async fn wait(state: &State, handler: &PullHandler, line: &Mutex<()>, asked: Asked) -> Result<Vec<Claim>, StoreError> {
    if asked.wait.is_zero() {
        return claim(&state.store, handler, asked.max).await;
    }
    let until = Instant::now() + asked.wait;
    let waiting = async {
        let Ok(_first) = timeout_at(until, line.lock()).await else {
            return Ok(Vec::new());
        };
        loop {
            // Listens before it looks: what comes in between is not missed.
            let mut fresh = pin!(state.pulls.fresh.notified());
            fresh.as_mut().enable();
            let claims = claim(&state.store, handler, asked.max).await?;
            let now = Instant::now();
            if !claims.is_empty() || now >= until {
                return Ok(claims);
            }
            tokio::select! {
                () = fresh => {}
                () = sleep_until(until.min(now + POLL)) => {}
            }
        }
    };
    tokio::select! {
        claims = waiting => claims,
        () = state.shutdown.cancelled() => Ok(Vec::new()),
    }
}

async fn claim(store: &Arc<dyn Store>, handler: &PullHandler, max: u32) -> Result<Vec<Claim>, StoreError> {
    let request = ClaimRequest {
        wants: vec![(Arc::clone(&handler.name), max)],
        lease: handler.lease,
        max_bytes: MAX_BYTES,
        fair: false,
    };
    let (reply, answer) = oneshot::channel();
    let store = Arc::clone(store);
    tokio::spawn(async move {
        let claimed = store.claim(request).await;
        if let Err(Ok(claims)) = reply.send(claimed) {
            for claim in claims {
                store
                    .settle(settle_of(
                        &PullToken::new(&claim, Timestamp::now()),
                        claim.handler,
                        Outcome::Released,
                    ))
                    .await;
            }
        }
    });
    answer.await.unwrap_or(Err(StoreError::Closed))
}

pub(super) fn settle_of(token: &PullToken, handler: Arc<str>, outcome: Outcome) -> Settle {
    let taken = Timestamp::now().duration_since(token.taken_at);
    Settle {
        event_id: token.event_id,
        handler,
        token: token.token,
        attempt: token.attempt,
        started_at: token.taken_at,
        duration: Duration::try_from(taken).unwrap_or_default(),
        outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_or_refused() {
        let asked = |text| Asked::read(text);
        let of = |max, seconds| Asked {
            max,
            wait: Duration::from_secs(seconds),
        };
        assert_eq!(asked(""), Ok(of(50, 0)));
        assert_eq!(asked("max=500&wait=20s"), Ok(of(500, 20)));
        for (text, named) in [
            ("max=0", "max"),
            ("max=501", "max"),
            ("wait=61s", "wait"),
            ("wait=soon", "wait"),
            ("max=1&max=2", "max"),
            ("limit=1", "limit"),
        ] {
            assert!(asked(text).unwrap_err().detail.contains(named), "{text}");
        }
    }
}
