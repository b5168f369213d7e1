//! Requests with a key that are not run, as `application/problem+json`. `code` tells them apart for programs.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use actix_web::{
    HttpResponse,
    body::{BodySize, BoxBody, MessageBody},
    http::{StatusCode, header},
    web::Bytes,
};
use serde_json::json;

use super::key::KeyError;
use crate::store::{KeptAnswer, StoreError};

/// Why a request was not run, or not answered.
#[derive(Debug, Clone)]
pub enum Refusal {
    /// 400: a key is required.
    Missing,
    /// 400
    BadKey(KeyError),
    /// 400: the path leads elsewhere than it seems to.
    BadPath,
    /// 401: it does not say who sends it.
    NoPrincipal(String),
    /// 422: the key was used for another request.
    Mismatch,
    /// 409: another runs it.
    InProgress { retry_after: Duration },
    /// 409: it was sent, and nobody knows how it ended.
    Unknown,
    /// 409: it was answered with this, which was too large to keep.
    NotKept(Arc<KeptAnswer>),
    /// 413
    TooLarge { limit: usize },
    /// 400 or 408: the body did not come whole.
    Body { too_slow: bool },
    /// 503: the upstream cannot be reached; nothing was sent.
    UpstreamDown,
    /// 502: the upstream did not answer to the end. Without a key nobody knows what it did.
    UpstreamBroke,
    /// 504
    UpstreamSlow,
    /// 503: the keys cannot be read or written now.
    Store(StoreError),
}

impl Refusal {
    /// For programs and metrics.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing => "idempotency_key_missing",
            Self::BadKey(_) => "idempotency_key_invalid",
            Self::BadPath => "path_invalid",
            Self::NoPrincipal(_) => "principal_missing",
            Self::Mismatch => "idempotency_key_reused",
            Self::InProgress { .. } => "request_in_progress",
            Self::Unknown => "outcome_unknown",
            Self::NotKept(_) => "answer_not_kept",
            Self::TooLarge { .. } => "body_too_large",
            Self::Body { too_slow: true } => "body_too_slow",
            Self::Body { too_slow: false } => "body_broken",
            Self::UpstreamDown => "upstream_down",
            Self::UpstreamBroke => "upstream_broke",
            Self::UpstreamSlow => "upstream_slow",
            Self::Store(_) => "store_unavailable",
        }
    }

    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Missing | Self::BadKey(_) | Self::BadPath | Self::Body { too_slow: false } => StatusCode::BAD_REQUEST,
            Self::NoPrincipal(_) => StatusCode::UNAUTHORIZED,
            Self::Mismatch => StatusCode::UNPROCESSABLE_ENTITY,
            Self::InProgress { .. } | Self::Unknown | Self::NotKept(_) => StatusCode::CONFLICT,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Body { too_slow: true } => StatusCode::REQUEST_TIMEOUT,
            Self::UpstreamBroke => StatusCode::BAD_GATEWAY,
            Self::UpstreamSlow => StatusCode::GATEWAY_TIMEOUT,
            Self::UpstreamDown | Self::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn detail(&self) -> String {
        match self {
            Self::Missing => "this request needs an Idempotency-Key".to_owned(),
            Self::BadKey(error) => error.to_string(),
            Self::BadPath => "the path holds a dot segment or a backslash".to_owned(),
            Self::NoPrincipal(why) => why.clone(),
            Self::Mismatch => "this Idempotency-Key was used for another request".to_owned(),
            Self::InProgress { .. } => "a request with this Idempotency-Key is in progress".to_owned(),
            Self::Unknown => "a request with this Idempotency-Key was sent, and it is not known how it ended; \
                              it is not sent again"
                .to_owned(),
            Self::NotKept(answer) => format!(
                "the request was answered with {}, and the answer was too large to be kept",
                answer.status
            ),
            Self::TooLarge { limit } => format!("the body is larger than {limit} bytes"),
            Self::Body { too_slow: true } => "the body did not arrive in time".to_owned(),
            Self::Body { too_slow: false } => "the body ended early or is not well formed".to_owned(),
            Self::UpstreamDown => "the service behind cannot be reached; nothing was sent to it".to_owned(),
            Self::UpstreamBroke => "the service behind did not answer to the end".to_owned(),
            Self::UpstreamSlow => "the service behind did not answer in time".to_owned(),
            Self::Store(_) => "idempotency keys cannot be kept now; nothing was done".to_owned(),
        }
    }

    fn retry_after(&self) -> Option<u64> {
        match self {
            Self::InProgress { retry_after } => Some(retry_after.as_secs().max(1)),
            Self::Unknown => Some(30),
            // Not all at once.
            Self::UpstreamDown | Self::Store(_) => Some(rand::random_range(1..=5)),
            _ => None,
        }
    }

    /// The answer.
    #[must_use]
    pub fn respond(&self) -> HttpResponse {
        let status = self.status();
        let mut body = json!({
            "type": "about:blank",
            "title": status.canonical_reason().unwrap_or("Error"),
            "status": status.as_u16(),
            "detail": self.detail(),
            "code": self.code(),
        });
        let mut builder = HttpResponse::build(status);
        if let Self::NotKept(answer) = self {
            body["answered"] = json!(answer.status);
            let location = answer.headers.iter().find(|(name, _)| name == "location");
            if let Some((_, location)) = location {
                builder.insert_header((header::LOCATION, location.as_slice()));
            }
        }
        if let Some(seconds) = self.retry_after() {
            builder.insert_header((header::RETRY_AFTER, seconds.to_string()));
        }
        builder
            .insert_header((header::CONTENT_TYPE, "application/problem+json"))
            .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
            .body(body.to_string())
    }
}

impl Refusal {
    /// The answer to a request whose body was not read to its end. The rest must live until the answer is written: then
    /// the connection is closed, where a payload that is dropped early is drained without an end.
    #[must_use]
    pub(crate) fn respond_unread(&self, payload: impl Unpin + 'static) -> HttpResponse {
        self.respond().map_body(|_, body| {
            BoxBody::new(Holding {
                body,
                _payload: payload,
            })
        })
    }
}

struct Holding<P> {
    body: BoxBody,
    _payload: P,
}

impl<P: Unpin> MessageBody for Holding<P> {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_next(context)
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.code())
    }
}
