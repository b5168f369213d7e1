//! A handler's own transaction: its effect, its key and its answer commit together, or not at all.

use std::{
    cell::RefCell,
    future::{Ready, ready},
    rc::Rc,
    sync::Arc,
};

use actix_web::{FromRequest, HttpMessage as _, HttpRequest, HttpResponse, dev::Payload, http::StatusCode};
use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::{
    layer::{Layer, Run},
    refusal::Refusal,
    upstream::kept,
};
use crate::store::{AnswerTransaction, KeptAnswer, WorkError};

/// What a handler answers from within its transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    body: Bytes,
}

impl Answer {
    #[must_use]
    pub fn new(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Bytes::new(),
        }
    }

    /// Adds a header. `Content-Length` and `Set-Cookie` have no effect.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        let name = name.to_ascii_lowercase();
        if name != "content-length" && name != "set-cookie" {
            self.headers.push((name, value.into()));
        }
        self
    }

    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// A JSON body with its content type.
    #[must_use]
    pub fn json(self, value: &serde_json::Value) -> Self {
        self.header("content-type", "application/json").body(value.to_string())
    }
}

/// The extractor. Wrap the app (or scope) in a [`super::Idempotent`] that is [`super::Idempotent::transactional`]; without
/// the middleware, extracting fails with 500.
pub struct KeyTransaction(Rc<Slot>);

/// Beside the request, while its handler runs.
pub(super) struct Slot {
    pub(super) layer: Arc<Layer>,
    /// `None`: the request has no key, which it need not have.
    pub(super) run: Option<Run>,
    pub(super) done: RefCell<Option<Arc<KeptAnswer>>>,
}

impl FromRequest for KeyTransaction {
    type Error = actix_web::Error;
    type Future = Ready<Result<Self, Self::Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let slot = request.extensions().get::<Rc<Slot>>().cloned();
        ready(slot.map(Self).ok_or_else(|| {
            actix_web::error::ErrorInternalServerError("this route is not wrapped in a transactional Idempotent")
        }))
    }
}

impl KeyTransaction {
    /// Runs `work` in a transaction of the store's database and commits its effect together with the key and the answer.
    /// On SQLite it holds the only writer from its first statement on, 5 s at most: it must be short.
    ///
    /// # Errors
    /// Why everything was undone. The key is then freed or kept by the status that the handler answers instead.
    pub async fn commit<F>(self, work: F) -> Result<HttpResponse, WorkError>
    where
        F: for<'t> FnOnce(&'t mut dyn AnswerTransaction) -> BoxFuture<'t, Result<Answer, WorkError>> + Send + 'static,
    {
        let slot = self.0;
        let answer = slot
            .layer
            .transact(
                slot.run.as_ref(),
                Box::new(move |tx| {
                    Box::pin(async move {
                        let answer = work(tx).await?;
                        Ok(kept(answer.status, answer.headers, Some(answer.body)))
                    })
                }),
            )
            .await?;
        slot.done.replace(Some(Arc::clone(&answer)));
        Ok(respond(&answer, false))
    }
}

/// What a failed transaction is answered with where the handler says nothing of its own.
impl actix_web::ResponseError for WorkError {
    fn status_code(&self) -> StatusCode {
        match self {
            Self::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Stale => StatusCode::CONFLICT,
            Self::Undo | Self::Statement(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn error_response(&self) -> HttpResponse {
        match self {
            Self::Store(error) => Refusal::Store(error.clone()).respond(),
            Self::Stale => Refusal::Unknown.respond(),
            Self::Undo | Self::Statement(_) => {
                tracing::error!(error = %self, "a handler's transaction failed");
                let problem = serde_json::json!({
                    "type": "about:blank", "title": "Internal Server Error", "status": 500,
                    "detail": "the request could not be carried out; nothing was done",
                });
                HttpResponse::InternalServerError()
                    .insert_header(("content-type", "application/problem+json"))
                    .body(problem.to_string())
            }
        }
    }
}

/// An answer as it is kept, byte for byte.
pub(crate) fn respond(answer: &KeptAnswer, is_replay: bool) -> HttpResponse {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut builder = HttpResponse::build(status);
    for (name, value) in &answer.headers {
        builder.append_header((name.as_str(), value.as_slice()));
    }
    if is_replay {
        builder.insert_header((super::REPLAYED, "true"));
    }
    builder.body(answer.body.clone().unwrap_or_default())
}
