//! What a native handler is given: the event, and a memory of what earlier attempts have done.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};
use tokio::{sync::OnceCell, time::sleep};

use super::{Failure, encode, idempotency_key};
use crate::{
    domain::{Claim, StoredEvent},
    store::{Lease, Native, NewStep, StoreError},
};

/// Bytes of a step's result.
const LONGEST_RESULT: usize = 256 << 10;
/// Bytes of a step's name.
const LONGEST_NAME: usize = 200;
/// Steps of one delivery.
const MOST_STEPS: usize = 1_000;
/// Between two tries to record a step that is done, while the store is away.
const PAUSE: Duration = Duration::from_millis(200);

/// One attempt of one delivery. Clones are cheap and are of the same attempt.
#[derive(Clone)]
pub struct Call {
    inner: Arc<Inner>,
}

struct Inner {
    claim: Claim,
    key: String,
    store: Arc<dyn Native>,
    /// Results by the names of their steps, as earlier attempts left them. Read when the first step is taken.
    earlier: OnceCell<HashMap<String, String>>,
    /// Names of the steps of this attempt.
    taken: Mutex<HashSet<String>>,
}

impl Call {
    pub(crate) fn new(claim: Claim, store: Arc<dyn Native>) -> Self {
        let key = encode(&idempotency_key(&claim)).into_owned();
        Self {
            inner: Arc::new(Inner {
                claim,
                key,
                store,
                earlier: OnceCell::new(),
                taken: Mutex::default(),
            }),
        }
    }

    #[must_use]
    pub fn event(&self) -> &StoredEvent {
        &self.inner.claim.event
    }

    /// The payload, read as JSON.
    ///
    /// # Errors
    /// [`Failure::GiveUp`] when it is not what was asked for: it will not change.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.event().payload)
            .map_err(|error| Failure::GiveUp(format!("the payload is not what the handler reads: {error}")))
    }

    /// Number of this attempt, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.inner.claim.attempt
    }

    /// The key under which a target can recognise a repeated effect: `{provider}:{provider_event_id}:{handler}`, the same
    /// in every attempt. Fit for a header: what is not visible ASCII is percent-encoded, and so is `%`.
    #[must_use]
    pub fn idempotency_key(&self) -> &str {
        &self.inner.key
    }

    /// Does a part of the work at most once in each attempt, and not again once its result is recorded: a later attempt
    /// gets the recorded result and goes on after it. The result is stored as JSON, 256 KiB at most, with the event's
    /// history; it must hold no secret.
    ///
    /// Between the end of the work and the record a crash can come, so what the work does elsewhere must be under a key
    /// that stays the same: [`Call::idempotency_key`], with the step's name added where there are several. `name` is 1 to
    /// 200 bytes and unique within the handler; a changed meaning needs a changed name.
    ///
    /// # Errors
    /// That of the work, of which nothing is recorded then; or the claim has ended (another worker has the delivery), the
    /// store is away, or a result does not fit.
    pub async fn step<T, Fut>(&self, name: &str, work: impl FnOnce() -> Fut) -> Result<T, Failure>
    where
        T: Serialize + DeserializeOwned,
        Fut: Future<Output = Result<T, Failure>>,
    {
        if name.is_empty() || name.len() > LONGEST_NAME || name.contains('\0') {
            return Err(Failure::Retry(format!(
                "the name of a step is 1 to {LONGEST_NAME} bytes without NUL, not {name:?}"
            )));
        }
        if !self.taken().insert(name.to_owned()) {
            return Err(Failure::Retry(format!(
                "the step `{name}` was taken twice in one attempt; each needs its own name"
            )));
        }
        let earlier = self.earlier().await?;
        if let Some(result) = earlier.get(name) {
            return serde_json::from_str(result).map_err(|error| {
                Failure::Retry(format!(
                    "the recorded result of the step `{name}` cannot be read: {error}"
                ))
            });
        }
        if earlier.len().max(self.taken().len()) > MOST_STEPS {
            return Err(Failure::GiveUp(format!("more than {MOST_STEPS} steps")));
        }
        let done = work().await?;
        let result = serde_json::to_string(&done)
            .map_err(|error| Failure::GiveUp(format!("the result of the step `{name}` is no JSON: {error}")))?;
        if result.len() > LONGEST_RESULT {
            return Err(Failure::GiveUp(format!(
                "the result of the step `{name}` is longer than {LONGEST_RESULT} bytes; keep what is needed to go on"
            )));
        }
        self.record(name, result).await?;
        Ok(done)
    }

    /// The work is done, so the record is worth waiting for until the attempt's time is up.
    async fn record(&self, name: &str, result: String) -> Result<(), Failure> {
        let step = NewStep {
            claim: self.lease(),
            name: name.to_owned(),
            attempt: self.attempt(),
            result,
        };
        loop {
            match self.inner.store.record(step.clone()).await {
                Ok(true) => return Ok(()),
                Ok(false) => return Err(lost()),
                Err(StoreError::Full | StoreError::Unavailable(_)) => sleep(PAUSE).await,
                Err(error) => return Err(Failure::Retry(format!("the step `{name}` was not recorded: {error}"))),
            }
        }
    }

    async fn earlier(&self) -> Result<&HashMap<String, String>, Failure> {
        let read = async || match self.inner.store.steps(self.lease()).await {
            Ok(Some(steps)) => Ok(steps.into_iter().map(|step| (step.name, step.result)).collect()),
            Ok(None) => Err(lost()),
            Err(error) => Err(Failure::Retry(format!("the steps could not be read: {error}"))),
        };
        self.inner.earlier.get_or_try_init(read).await
    }

    fn lease(&self) -> Lease {
        let claim = &self.inner.claim;
        Lease {
            event_id: claim.event.id,
            handler: Arc::clone(&claim.handler),
            token: claim.token,
        }
    }

    fn taken(&self) -> MutexGuard<'_, HashSet<String>> {
        self.inner.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whatever is settled after this has no effect.
fn lost() -> Failure {
    Failure::Retry("the claim has ended; another worker has the delivery".into())
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("event", &self.event().id)
            .field("handler", &self.inner.claim.handler)
            .field("attempt", &self.attempt())
            .finish()
    }
}
