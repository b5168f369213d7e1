//! Live, ready, metrics.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use actix_web::{HttpResponse, http::header, web};

use crate::{
    handlers::BreakerState,
    idempotency::KEYS,
    store::{Backlog, Stats},
};

use super::{State, error::Problem, metrics};

/// `GET /healthz`: the process answers.
pub(super) async fn live() -> HttpResponse {
    text("ok\n")
}

/// `GET /readyz`: events can be stored now. A load balancer that hears 503 sends the next request elsewhere.
pub(super) async fn ready(state: web::Data<State>) -> HttpResponse {
    if state.shutdown.is_cancelled() {
        return Problem::unavailable("shutting down").respond();
    }
    let ready = match state.last_ping.fresh() {
        Some(answer) => answer,
        None => {
            let answer = matches!(tokio::time::timeout(PING_TIMEOUT, state.store.ping()).await, Ok(Ok(())));
            state.last_ping.keep(answer);
            answer
        }
    };
    if ready {
        text("ready\n")
    } else {
        Problem::unavailable("the store does not answer").respond()
    }
}

/// The last answer of the store: the public listener lets anyone ask, and not every question may cost a write.
#[derive(Default)]
pub(super) struct LastPing(Mutex<Option<(Instant, bool)>>);

impl LastPing {
    fn fresh(&self) -> Option<bool> {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.filter(|(at, _)| at.elapsed() < PING_KEPT)
            .map(|(_, answer)| answer)
    }

    fn keep(&self, answer: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), answer));
    }
}

/// `GET /metrics`, in the Prometheus text format. Depths and ages are read from the store now; where it does not answer,
/// the rest is shown all the same.
pub(super) async fn metrics(state: web::Data<State>) -> HttpResponse {
    let Some(prometheus) = &state.prometheus else {
        return Problem::not_found("metrics are not collected").respond();
    };
    // All at once: a store that is away must not cost more than a scraper waits.
    let (stats, backlog, keys) = tokio::join!(
        tokio::time::timeout(STATS_TIMEOUT, state.store.stats()),
        tokio::time::timeout(STATS_TIMEOUT, state.store.backlog()),
        tokio::time::timeout(STATS_TIMEOUT, state.store.key_stats()),
    );
    ::metrics::gauge!(metrics::STORE_UP).set(f64::from(u8::from(matches!(stats, Ok(Ok(_))))));
    if let Ok(Ok(stats)) = stats {
        show(&stats);
    }
    if let Ok(Ok(backlog)) = backlog {
        show_outbox(backlog);
    }
    if let Ok(Ok(keys)) = keys {
        for (name, keys) in [
            ("processing", keys.processing),
            ("abandoned", keys.abandoned),
            ("completed", keys.completed),
            ("failed", keys.failed),
            ("unknown", keys.unknown),
        ] {
            ::metrics::gauge!(KEYS, "state" => name).set(count(keys));
        }
    }
    for (name, handler) in &state.running {
        if let Some(breaker) = handler.breaker() {
            let number = match breaker {
                BreakerState::Closed => 0.0,
                BreakerState::HalfOpen => 1.0,
                BreakerState::Open => 2.0,
            };
            ::metrics::gauge!("cerca_breaker_state", "handler" => name.to_string()).set(number);
        }
    }
    metrics::body_bytes().set(count(state.budget.used() as u64));
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8"))
        .body(prometheus.render())
}

fn show(stats: &Stats) {
    for (status, events) in [
        ("pending", stats.pending),
        ("failed", stats.failed),
        ("unrouted", stats.unrouted),
        ("discarded", stats.discarded),
    ] {
        ::metrics::gauge!(metrics::EVENTS, "status" => status).set(count(events));
    }
    ::metrics::gauge!(metrics::CONFLICTS_STORED).set(count(stats.conflicts));
    for handler in &stats.handlers {
        for (state, deliveries) in [
            ("ready", handler.ready),
            ("claimed", handler.claimed),
            ("blocked", handler.blocked),
            ("dead", handler.dead),
        ] {
            ::metrics::gauge!(metrics::DELIVERIES, "handler" => handler.handler.clone(), "state" => state)
                .set(count(deliveries));
        }
        let age = handler.oldest_due.map_or(0.0, |age| age.as_secs_f64());
        ::metrics::gauge!(metrics::OLDEST_DUE_SECONDS, "handler" => handler.handler.clone()).set(age);
    }
}

fn show_outbox(backlog: Backlog) {
    for (state, rows) in [("waiting", backlog.rows), ("refused", backlog.refused)] {
        ::metrics::gauge!(metrics::OUTBOX_ROWS, "state" => state).set(count(rows));
    }
    let age = backlog.oldest.unwrap_or_default();
    ::metrics::gauge!(metrics::OUTBOX_OLDEST_SECONDS).set(age.as_secs_f64());
}

/// Counts beyond 2^53 lose their last digits, which no graph shows.
#[allow(clippy::cast_precision_loss, reason = "a gauge is a float")]
fn count(n: u64) -> f64 {
    n as f64
}

fn text(body: &'static str) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/plain; charset=utf-8"))
        .body(body)
}

const PING_TIMEOUT: Duration = Duration::from_secs(1);
const PING_KEPT: Duration = Duration::from_millis(500);
const STATS_TIMEOUT: Duration = Duration::from_secs(5);
