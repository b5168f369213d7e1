//! What becomes of a webhook that is not taken: what its sender reads, what the log says, what is counted. The reason of
//! a refusal is for us; a sender that cannot prove itself learns nothing from the answer.

use actix_web::{HttpRequest, http::StatusCode};
use jiff::Timestamp;

use crate::{adapters::Provider, ingest::Rejection, store::StoreError};

use super::{State, body::BodyError, error::Problem, log_gate::LogGate, metrics, proxies, secrets::NotTaken};

/// A request that is not taken: what the sender reads, and what we keep of it.
pub(super) struct Refusal {
    pub(super) problem: Problem,
    /// A constant name, for log and metrics.
    reason: &'static str,
    /// For the log only.
    detail: Option<String>,
}

impl Refusal {
    pub(super) fn new(reason: &'static str, problem: Problem) -> Self {
        Self {
            problem,
            reason,
            detail: None,
        }
    }

    pub(super) fn method(allow: &'static str) -> Self {
        Self::new("method", Problem::method_not_allowed(allow))
    }

    /// Over the provider's rate limit, until `wait` has passed.
    pub(super) fn rate_limited(wait: std::time::Duration) -> Self {
        Self::new("rate_limited", Problem::too_many_requests(wait))
    }

    pub(super) fn unavailable(cause: &'static str) -> Self {
        Self::new(cause, Problem::unavailable("not stored; send it again"))
    }

    /// A secret that was handed over and not taken. `status` is what the adapter says of handshakes that are refused.
    pub(super) fn not_taken(why: NotTaken, status: u16) -> Self {
        let rejected = Self::rejected(&Rejection::Handshake { status });
        let lost = |reason, detail: &str| Self {
            detail: Some(detail.to_owned()),
            ..Self::unavailable(reason)
        };
        match why {
            NotTaken::Another => Self {
                detail: Some("the sender hands over a secret, and the provider has another".to_owned()),
                ..rejected
            },
            NotTaken::Unfit(problem) => Self {
                detail: Some(format!("the sender hands over a secret that cannot be used: {problem}")),
                ..rejected
            },
            NotTaken::NoKey => lost(
                "no_seal_key",
                "the sender hands over its secret and there is no key to seal it with: set `seal_key` in `[store]` \
                 (`openssl rand -hex 32` makes one); until then its handshake cannot succeed",
            ),
            NotTaken::Sealing(problem) => lost("sealing", problem),
            NotTaken::Store(error) => Self::from(error),
        }
    }

    pub(super) fn rejected(rejection: &Rejection) -> Self {
        let status = StatusCode::from_u16(rejection.status()).unwrap_or(StatusCode::BAD_REQUEST);
        let problem = match status {
            StatusCode::UNAUTHORIZED => Problem::unauthorized(),
            // Whoever reads this has proved itself, and may know what to mend.
            StatusCode::BAD_REQUEST => match rejection {
                Rejection::MissingId => {
                    Problem::bad_request("the request holds no event id where this provider has it")
                }
                Rejection::MalformedBody(why) => Problem::bad_request(format!(
                    "the request is not of the form that this provider sends: {why}"
                )),
                _ => Problem::bad_request("the request is not of the form that this provider sends"),
            },
            StatusCode::SERVICE_UNAVAILABLE => Problem::unavailable("cannot be verified now; send it again"),
            other => Problem::new(other, "refused"),
        };
        Self {
            detail: Some(rejection.to_string()),
            ..Self::new(rejection.reason(), problem)
        }
    }

    /// Asks for a user and a password where the provider takes them: some senders show none before they are asked.
    pub(super) fn asking_for(mut self, provider: &Provider) -> Self {
        if provider.takes_password() {
            self.problem.challenge = r#"Basic realm="webhooks", charset="UTF-8""#;
        }
        self
    }

    /// Counts it, and writes a line as long as there are not too many. The line holds no body, header or signature.
    pub(super) fn report(&self, provider: &str, gate: &LogGate, request: &HttpRequest, state: &State) {
        let status = self.problem.status.as_u16();
        if status == 503 {
            metrics::count_unavailable(provider, self.reason);
        } else {
            metrics::count_rejected(provider, self.reason);
        }
        let second = u64::try_from(Timestamp::now().as_second()).unwrap_or_default();
        let Some(held_back) = gate.pass(second) else { return };
        let client = proxies::client(request, &state.settings.trusted_proxies);
        let client = client.map(tracing::field::display);
        let (reason, detail) = (self.reason, self.detail.as_deref());
        if matches!(self.reason, "refused_by_store" | "panic" | "no_seal_key" | "sealing") {
            tracing::error!(
                provider.name = provider,
                status,
                reason,
                detail,
                client,
                held_back,
                "request not stored"
            );
        } else {
            tracing::warn!(
                provider.name = provider,
                status,
                reason,
                detail,
                client,
                held_back,
                "request refused"
            );
        }
    }
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge => Self::new(
                "too_large",
                Problem::new(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "the body is larger than this provider may send",
                ),
            ),
            BodyError::TooSlow => Self::new(
                "too_slow",
                Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"),
            ),
            BodyError::NoRoom => Self::unavailable("bytes_in_flight"),
            BodyError::Broken => Self::new("broken_body", Problem::bad_request("the body is not well formed")),
        }
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        let detail = Some(error.to_string());
        let refusal = match error {
            StoreError::Full => Self::unavailable("store_full"),
            StoreError::Unavailable(_) => Self::unavailable("store_unavailable"),
            StoreError::Closed => Self::unavailable("store_closed"),
            StoreError::Refused(_) => Self::new(
                "refused_by_store",
                Problem::bad_request("these values cannot be stored"),
            ),
        };
        Self { detail, ..refusal }
    }
}
