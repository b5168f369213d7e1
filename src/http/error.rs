//! The one table from what goes wrong to a status and `application/problem+json` (RFC 9457). To the sender little: the
//! reason of a refused signature goes to the log and a metric, never into the answer.

use std::borrow::Cow;

use actix_web::{
    HttpResponse,
    body::{BodySize, BoxBody, MessageBody},
    http::{StatusCode, header},
    web::{self, Bytes},
};
use serde::Serialize;

use crate::store::StoreError;

/// An answer that is not a success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub status: StatusCode,
    /// For the reader of the answer; holds nothing that the sender does not know already.
    pub detail: Cow<'static, str>,
    /// The methods of the resource, with 405.
    pub allow: Option<&'static str>,
    /// Seconds after which to come again, with 429 and 503.
    pub retry_after: Option<u32>,
    /// What the resource wants to be shown, with 401.
    pub challenge: &'static str,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            detail: detail.into(),
            allow: None,
            retry_after: None,
            challenge: "Bearer",
        }
    }

    pub(super) fn bad_request(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(super) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized")
    }

    pub(super) fn not_found(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    pub(super) fn method_not_allowed(allow: &'static str) -> Self {
        Self {
            allow: Some(allow),
            ..Self::new(StatusCode::METHOD_NOT_ALLOWED, "this resource has no such method")
        }
    }

    /// Nothing was read; the same request can be sent again after this long.
    pub(super) fn too_many_requests(wait: std::time::Duration) -> Self {
        let seconds = u32::try_from(wait.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX);
        Self {
            retry_after: Some(seconds.max(1)),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, "over the rate limit of this provider")
        }
    }

    /// Nothing was stored; the same request can be sent again. The time is a little random, so that senders that were
    /// turned away together do not come back together.
    pub(super) fn unavailable(detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            retry_after: Some(rand::random_range(1..=5)),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        }
    }

    /// The answer itself.
    #[must_use]
    pub(super) fn respond(&self) -> HttpResponse {
        self.builder().body(self.json())
    }

    /// The answer to a request whose body was not read to its end. See [`Unread`].
    pub(super) fn respond_unread(&self, payload: web::Payload) -> HttpResponse {
        let unread = Unread {
            answer: Some(Bytes::from(self.json())),
            _payload: payload,
        };
        self.builder().body(unread)
    }

    fn builder(&self) -> actix_web::HttpResponseBuilder {
        let mut builder = HttpResponse::build(self.status);
        builder
            .insert_header((header::CONTENT_TYPE, "application/problem+json"))
            .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"));
        if self.status == StatusCode::UNAUTHORIZED {
            builder.insert_header((header::WWW_AUTHENTICATE, self.challenge));
        }
        if let Some(allow) = self.allow {
            builder.insert_header((header::ALLOW, allow));
        }
        if let Some(seconds) = self.retry_after {
            builder.insert_header((header::RETRY_AFTER, seconds.to_string()));
        }
        builder
    }

    fn json(&self) -> Vec<u8> {
        let body = Body {
            kind: "about:blank",
            title: self.status.canonical_reason().unwrap_or("Error"),
            status: self.status.as_u16(),
            detail: &self.detail,
        };
        serde_json::to_vec(&body).unwrap_or_default()
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.status, self.detail)
    }
}

impl actix_web::ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        self.status
    }

    fn error_response(&self) -> HttpResponse {
        self.respond()
    }
}

/// What the admin API makes of the store's errors; the text of the error is for the log, not for the answer.
impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full | StoreError::Unavailable(_) | StoreError::Closed => {
                Self::unavailable("the store cannot answer now")
            }
            StoreError::Refused(_) => Self::bad_request("the store refused these values"),
        }
    }
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
}

/// The same for an answer that is made already.
pub(super) fn hold(response: HttpResponse, payload: web::Payload) -> HttpResponse {
    response
        .map_body(|_, body| Held {
            body,
            _payload: payload,
        })
        .map_into_boxed_body()
}

struct Held {
    body: BoxBody,
    _payload: web::Payload,
}

impl MessageBody for Held {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Bytes, Self::Error>>> {
        std::pin::Pin::new(&mut self.get_mut().body).poll_next(context)
    }
}

/// A body that holds the request's unread payload until the answer is written. actix-http drains a dropped chunked
/// payload without a time limit, so one that is dropped early lets a sender hold the connection for ever; while it
/// lives, the connection is closed after the answer (with a short linger, so that the sender can read it).
struct Unread {
    answer: Option<Bytes>,
    _payload: web::Payload,
}

impl MessageBody for Unread {
    type Error = std::convert::Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.answer.as_ref().map_or(0, Bytes::len) as u64)
    }

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Bytes, Self::Error>>> {
        std::task::Poll::Ready(self.get_mut().answer.take().map(Ok))
    }
}
