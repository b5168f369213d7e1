//! A handler's own transaction: its effect, its key and its answer commit together, or not at all.

use std::{
    cell::Cell,
    future::{Ready, ready},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use actix_web::{FromRequest, HttpMessage as _, HttpRequest, HttpResponse, dev::Payload, http::StatusCode};
use bytes::Bytes;

use super::{
    layer::{Layer, Run},
    refusal::Refusal,
    upstream::kept,
};
use crate::store::{Answering, KeptAnswer, Left, SqlError, Transaction, TransactionError};

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

    fn to_keep(&self) -> KeptAnswer {
        kept(self.status, self.headers.clone(), Some(self.body.clone()))
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
    /// The answer was committed.
    pub(super) is_done: Cell<bool>,
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

/// Why a handler's code wants everything undone.
#[derive(Debug)]
pub enum Undo {
    /// This is answered instead. What is kept of it, and whether the key is freed, follows from its status as ever.
    Answer(Answer),
    /// A statement failed.
    Error(SqlError),
}

impl From<SqlError> for Undo {
    fn from(error: SqlError) -> Self {
        Self::Error(error)
    }
}

impl From<Answer> for Undo {
    fn from(answer: Answer) -> Self {
        Self::Answer(answer)
    }
}

impl KeyTransaction {
    /// Runs the code in a [`Transaction`] of the store and commits what it did together with the key and its answer. An
    /// error or a panic undoes everything.
    ///
    /// The code is not async, because nothing outside may be waited for while a transaction is open. It has 5 s, and on
    /// SQLite nothing else is written meanwhile. It may run more than once, after a deadlock for example; only the run that
    /// is committed counts.
    ///
    /// # Errors
    /// Why everything was undone, where the code gave no answer of its own. The key is then freed.
    pub async fn commit(
        self,
        code: impl Fn(&mut Transaction) -> Result<Answer, Undo> + Send + Sync + 'static,
    ) -> Result<HttpResponse, TransactionError> {
        let slot = self.0;
        let undone: Left<Answer> = Left::default();
        let left = undone.clone();
        let code: Answering = Arc::new(move |transaction| {
            left.put(None);
            match code(transaction) {
                Ok(answer) => Ok(answer.to_keep()),
                Err(Undo::Error(error)) => Err(error.to_string()),
                Err(Undo::Answer(answer)) => {
                    left.put(Some(answer));
                    Err("undone by the handler".to_owned())
                }
            }
        });
        let done = match &slot.run {
            Some(run) => slot.layer.answer(run, code).await,
            None => slot
                .layer
                .transact_as(move |transaction| code(transaction))
                .await
                .map(Arc::new),
        };
        match done {
            Ok(answer) => {
                slot.is_done.set(true);
                Ok(respond(&answer, false))
            }
            Err(TransactionError::Failed(why)) => match undone.take() {
                Some(answer) => Ok(respond(&answer.to_keep(), false)),
                None => Err(TransactionError::Failed(why)),
            },
            Err(error) => Err(error),
        }
    }
}

/// What a failed transaction is answered with where the handler says nothing of its own.
impl actix_web::ResponseError for TransactionError {
    fn status_code(&self) -> StatusCode {
        match self {
            Self::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Stale => StatusCode::CONFLICT,
            Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn error_response(&self) -> HttpResponse {
        match self {
            Self::Store(error) => Refusal::Store(error.clone()).respond(),
            // Nothing was done here; another has the key by now.
            Self::Stale => Refusal::InProgress {
                retry_after: Duration::from_secs(1),
            }
            .respond(),
            Self::Failed(_) => {
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
