//! Where events go: one file per kind. A handler never sees the store; it says how the attempt went, and the worker
//! settles it. Sql and native handlers are the exception: they may give a statement or code, which the store runs in the
//! settle's transaction.

mod breaker;
mod brokers;
mod build;
mod call;
mod envelope;
mod exec;
mod guard;
mod http;
mod http_client;
mod jq;
mod log;
mod native;
mod normalized;
mod outgoing;
mod params;
mod pull;
mod router;
mod shape;
mod spec;
mod sql;

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;

use crate::{
    domain::{Claim, Rate, RetryPolicy},
    store::SqlValue,
};

pub use build::{Context, HandlerError, build};
pub use call::Call;
pub use log::LogHandler;
pub use native::{Done, Native, NativeAction, NativeHandler};
pub use normalized::Normalizers;
pub use outgoing::{Outgoing, SentMark};
pub use params::FormFields;
pub use pull::{PullToken, Said, judge};
pub use router::Router;
pub use shape::{Format, Shape, Shaped};
pub use spec::{AllowPrivate, BreakerSpec, HandlerSpec, Kind, OnUnknown, OnUnknownSpec, Ordering, RetrySpec, TlsSpec};

/// A business effect outside the store.
pub trait Handler: Send + Sync {
    /// Tries the delivery once. Must be safe to call again: the effect is at-least-once, under the stable key
    /// [`idempotency_key`]. Dropped when the handler's timeout runs out.
    ///
    /// # Errors
    /// A [`Failure`] says whether another try can help.
    fn handle<'a>(&'a self, outgoing: &'a Outgoing<'a>) -> BoxFuture<'a, Result<(), Failure>>;

    /// How many deliveries it can use now: none while its target is known to be away, so that they wait in the table
    /// and cost no attempt. Asked before deliveries are claimed or handed over; must be cheap.
    fn room(&self) -> usize {
        usize::MAX
    }

    /// How its circuit breaker stands; `None` for a handler that has none.
    fn breaker(&self) -> Option<BreakerState> {
        None
    }

    /// Asks the target whether an earlier try had its effect. Called only where a probe is configured, and when an earlier
    /// try ended without an answer.
    ///
    /// # Errors
    /// Where the target did not say.
    fn probe<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Probed, Failure>> {
        let _ = claim;
        Box::pin(async { Ok(Probed::Nothing) })
    }
}

/// How the circuit breaker of a handler stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// Deliveries flow.
    Closed,
    /// One delivery looks whether the target is back; the others wait.
    HalfOpen,
    /// The target does not answer and is left alone for a while.
    Open,
}

impl BreakerState {
    pub const ALL: [Self; 3] = [Self::Closed, Self::HalfOpen, Self::Open];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half_open",
            Self::Open => "open",
        }
    }

    /// Reads what [`Self::as_str`] gives.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

/// What a target said of an earlier try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probed {
    /// It had its effect.
    Effect,
    /// It had none.
    Nothing,
}

/// How an attempt failed. The text is kept in the history and must hold no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// By the handler's retry policy.
    #[error("{0}")]
    Retry(String),
    /// Not before this long, as the target asked.
    #[error("{error}")]
    RetryAfter { after: Duration, error: String },
    /// Another try cannot help.
    #[error("{0}")]
    GiveUp(String),
    /// Sent, but no answer came: the effect may have happened.
    #[error("{0}")]
    Unknown(String),
    /// Nothing was tried, because the target is known to be away. Comes again after this long; the attempt does not count.
    #[error("{error}")]
    NotNow { after: Duration, error: String },
}

impl Failure {
    /// Another try may help. For `map_err`.
    pub fn retry(error: impl std::fmt::Display) -> Self {
        Self::Retry(error.to_string())
    }

    /// Another try cannot help. For `map_err`.
    pub fn give_up(error: impl std::fmt::Display) -> Self {
        Self::GiveUp(error.to_string())
    }
}

/// What a configured handler does.
pub enum Action {
    Outside(Arc<dyn Handler>),
    /// A statement in the store's own database.
    InStore(SqlAction),
    /// Code of the program that Cerca is a part of.
    Native(NativeAction),
    /// Nothing: consumers take the deliveries themselves, through the API.
    Pull,
}

/// The statement of a sql handler with the expressions that give its parameters.
pub struct SqlAction {
    pub statement: Arc<str>,
    /// How many parameters it is given.
    pub count: usize,
    /// Reads the parameters from an event; an unreadable one is a failed attempt.
    pub params: Box<ReadParams>,
}

/// Gives the parameters of a statement for one event.
pub type ReadParams = dyn Fn(&Outgoing<'_>) -> Result<Vec<SqlValue>, Failure> + Send + Sync;

/// A configured handler with what the worker needs to know of it.
pub struct Route {
    pub name: Arc<str>,
    pub action: Action,
    pub retry: RetryPolicy,
    /// Deliveries in flight at once, at most.
    pub concurrency: usize,
    /// Attempts begun in a time, at most.
    pub rate_limit: Option<Rate>,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// What is made of a payload before the handler gets it; `None` for the bytes received.
    pub shape: Option<Shape>,
    /// What follows an attempt that was sent and not answered.
    pub on_unknown: OnUnknown,
}

/// The key under which a target can recognise a repeated effect; the same in every try.
#[must_use]
pub fn idempotency_key(claim: &Claim) -> String {
    format!(
        "{}:{}:{}",
        claim.event.provider, claim.event.provider_event_id, claim.handler
    )
}

/// Text that any header or environment variable can hold: what is not visible ASCII is percent-encoded, and so is the
/// percent sign, so that two different texts never become the same.
#[must_use]
pub(crate) fn encode(text: &str) -> std::borrow::Cow<'_, str> {
    const HOSTILE: &percent_encoding::AsciiSet = &percent_encoding::CONTROLS.add(b' ').add(b'%');
    percent_encoding::utf8_percent_encode(text, HOSTILE).into()
}

#[cfg(test)]
pub(crate) mod testing {
    use std::sync::Arc;

    use bytes::Bytes;

    use crate::domain::{Claim, StoredEvent};

    /// A claim of the handler `h` on an event of `stripe` with this id and body.
    pub(crate) fn claim(id: &str, payload: impl Into<Bytes>) -> Claim {
        Claim {
            event: Arc::new(StoredEvent {
                id: 7,
                provider: "stripe".into(),
                provider_event_id: id.into(),
                event_type: Some("invoice.paid".into()),
                payload: payload.into(),
                content_type: Some("application/json".into()),
                headers: r#"{"user-agent":"Stripe/1.0","x-trace":"a"}"#.into(),
                body_sha256: [0; 32],
                ordering_key: None,
                occurred_at: "2026-01-02T03:04:05Z".parse().ok(),
                created_at: "2026-01-02T03:04:06.5Z".parse().unwrap(),
            }),
            handler: "h".into(),
            attempt: 2,
            token: 1,
        }
    }
}
