//! Native handlers under a program's own tests: attempts of a delivery, without a store and without a server.
//!
//! ```
//! use cerca::{Call, Failure, testing::Delivery};
//!
//! async fn charge(call: Call) -> Result<(), Failure> {
//!     let order: serde_json::Value = call.json()?;
//!     let receipt: String = call.step("charge", async || Ok(format!("{} paid", order["id"]))).await?;
//!     if call.attempt() == 1 {
//!         return Err(Failure::retry("the mail server is away"));
//!     }
//!     assert_eq!((&*receipt, call.idempotency_key()), ("7 paid", "shop:evt_1:charge"));
//!     Ok(())
//! }
//!
//! # #[tokio::main]
//! # async fn main() {
//! let mut delivery = Delivery::new("shop", "evt_1").handler("charge").payload(r#"{"id": 7}"#);
//! assert!(charge(delivery.attempt()).await.is_err());
//! assert_eq!(delivery.steps(), [("charge".to_owned(), r#""7 paid""#.to_owned())]);
//! assert!(charge(delivery.attempt()).await.is_ok(), "it goes on after the step");
//! # }
//! ```
//!
//! Code for the settle's transaction ([`Done::within`](crate::Done::within)) needs a database: start a
//! [`Cerca`](crate::Cerca) on a `sqlite:` file in a temporary folder for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::future::ready;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::{
    domain::{Claim, StoredEvent},
    handlers::Call,
    store::{InTransaction, Lease, Native, NewStep, Step, StoreError, StoreFuture},
};

/// One event on its way to one handler.
#[derive(Debug)]
pub struct Delivery {
    event: StoredEvent,
    handler: Arc<str>,
    attempts: u32,
    memory: Arc<Memory>,
}

impl Delivery {
    /// Of an event with an empty JSON object as its payload, to a handler called `handler`.
    #[must_use]
    pub fn new(provider: &str, provider_event_id: &str) -> Self {
        Self {
            event: StoredEvent {
                id: 1,
                provider: provider.into(),
                provider_event_id: provider_event_id.to_owned(),
                event_type: None,
                payload: Bytes::from_static(b"{}"),
                content_type: Some("application/json".to_owned()),
                headers: "{}".to_owned(),
                body_sha256: [0; 32],
                ordering_key: None,
                occurred_at: None,
                created_at: Timestamp::UNIX_EPOCH,
            },
            handler: "handler".into(),
            attempts: 0,
            memory: Arc::default(),
        }
    }

    /// The bytes received.
    #[must_use]
    pub fn payload(mut self, payload: impl AsRef<[u8]>) -> Self {
        self.event.payload = Bytes::copy_from_slice(payload.as_ref());
        self
    }

    #[must_use]
    pub fn event_type(mut self, event_type: &str) -> Self {
        self.event.event_type = Some(event_type.to_owned());
        self
    }

    /// The name that the handler has, which is a part of [`Call::idempotency_key`].
    #[must_use]
    pub fn handler(mut self, name: &str) -> Self {
        self.handler = name.into();
        self
    }

    /// Changes anything else of the event.
    #[must_use]
    pub fn event(mut self, change: impl FnOnce(&mut StoredEvent)) -> Self {
        change(&mut self.event);
        self
    }

    /// The next attempt, from 1. It knows the steps that earlier ones have recorded, and ends their claims: a step of
    /// theirs that is still under way is not recorded any more, as if another worker had taken the delivery over.
    #[must_use]
    pub fn attempt(&mut self) -> Call {
        self.attempts = self.attempts.saturating_add(1);
        self.event.body_sha256 = Sha256::digest(&self.event.payload).into();
        let token = i64::from(self.attempts);
        self.memory.state().claim = token;
        let claim = Claim {
            event: Arc::new(self.event.clone()),
            handler: Arc::clone(&self.handler),
            attempt: self.attempts,
            token,
        };
        Call::new(claim, Arc::clone(&self.memory) as Arc<dyn Native>)
    }

    /// Names and results (JSON) of the steps that are recorded.
    #[must_use]
    pub fn steps(&self) -> Vec<(String, String)> {
        let state = self.memory.state();
        let steps = state.steps.iter();
        steps.map(|step| (step.name.clone(), step.result.clone())).collect()
    }
}

/// What the store remembers of one delivery.
#[derive(Debug, Default)]
struct Memory(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The token of the present claim.
    claim: i64,
    steps: Vec<Step>,
}

impl Memory {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Native for Memory {
    fn steps(&self, claim: Lease) -> StoreFuture<'_, Option<Vec<Step>>> {
        let state = self.state();
        let steps = (state.claim == claim.token).then(|| state.steps.clone());
        Box::pin(ready(Ok(steps)))
    }

    fn record(&self, step: NewStep) -> StoreFuture<'_, bool> {
        let mut state = self.state();
        let holds = state.claim == step.claim.token;
        if holds && !state.steps.iter().any(|known| known.name == step.name) {
            state.steps.push(Step {
                handler: step.claim.handler.to_string(),
                name: step.name,
                attempt: step.attempt,
                recorded_at: Timestamp::UNIX_EPOCH,
                result: step.result,
            });
        }
        Box::pin(ready(Ok(holds)))
    }

    fn transact(&self, _: InTransaction, _: std::time::Duration) -> StoreFuture<'static, ()> {
        let error = StoreError::Refused("there is no database behind a delivery of a test".to_owned());
        Box::pin(ready(Err(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::Failure;

    #[tokio::test]
    async fn an_attempt_that_was_overtaken_records_nothing() {
        let mut delivery = Delivery::new("shop", "a b").event_type("paid").event(|event| {
            event.ordering_key = Some("k".to_owned());
        });
        let (late, next) = (delivery.attempt(), delivery.attempt());
        assert_eq!((late.attempt(), next.attempt()), (1, 2));
        assert_eq!(next.idempotency_key(), "shop:a%20b:handler");
        assert_eq!(next.event().ordering_key.as_deref(), Some("k"));
        let failed = late.step("one", async || Ok(1)).await;
        assert!(matches!(failed, Err(Failure::Retry(error)) if error.contains("the claim has ended")));
        assert_eq!(next.step("one", async || Ok(2)).await, Ok(2));
        assert_eq!(delivery.steps(), [("one".to_owned(), "2".to_owned())]);
    }
}
