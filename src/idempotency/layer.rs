//! Asks the store for keys and tells it how they end, by the rules of `decision`.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    cache::Cache,
    decision::{Decision, Policy, decide},
    refusal::Refusal,
};
use crate::store::{
    Answering, HeldKey, InTransaction, KeptAnswer, KeyName, KeyStep, LONGEST, Left, NewKey, SqlError, Store,
    StoreError, Transaction, TransactionError,
};

/// Bytes of answers that are kept in memory for replays.
const CACHE_BYTES: usize = 32 << 20;

/// How often the end of a request is written again when the store is away, and the pause before each.
const TRIES: u32 = 6;
const PAUSE: Duration = Duration::from_millis(100);

/// After that the client has its answer, and the end is tried this often, for as long as a failover or a restore takes.
const LATER: Duration = Duration::from_secs(2);
const LONGEST_OUTAGE: Duration = Duration::from_secs(15 * 60);

/// A request that has a key.
#[derive(Debug, Clone)]
pub struct Ask {
    pub name: KeyName,
    /// See [`super::request_hash`].
    pub request_hash: [u8; 32],
    /// How long it may take until another may find out what became of it.
    pub lease: Duration,
    /// How long its answer is kept.
    pub expiry: Duration,
}

/// What to do with it.
#[derive(Debug)]
pub enum Entry {
    /// Run it, and say how it ended.
    Run(Run),
    /// Give this answer again.
    Replay(Arc<KeptAnswer>),
    /// It was sent, and nobody knows how it ended: ask, or refuse it as [`Refusal::Unknown`].
    Unknown {
        id: i64,
    },
    Refuse(Refusal),
}

/// The right to run a request.
#[derive(Debug, Clone)]
pub struct Run {
    pub held: HeldKey,
    pub ask: Ask,
}

/// Idempotency on a store. Cheap to share; one for each process, so that its memory of answers is shared too.
pub struct Layer {
    store: Arc<dyn Store>,
    cache: Cache,
}

impl Layer {
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            store,
            cache: Cache::new(CACHE_BYTES),
        })
    }

    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The answer that was given already, where it is in memory; `None` says nothing.
    #[must_use]
    pub fn recall(&self, ask: &Ask) -> Option<Entry> {
        let (first, answer) = self.cache.get(&ask.name)?;
        Some(match first == ask.request_hash {
            true => Entry::Replay(answer),
            false => Entry::Refuse(Refusal::Mismatch),
        })
    }

    /// Asks for the key.
    pub async fn enter(&self, ask: Ask) -> Entry {
        if let Some(known) = self.recall(&ask) {
            return known;
        }
        let new = NewKey {
            name: ask.name.clone(),
            request_hash: ask.request_hash,
            lease: ask.lease,
            expiry: ask.expiry,
        };
        let reserved = match self.store.reserve(new).await {
            Ok(reserved) => reserved,
            Err(error) => return Entry::Refuse(refused(error)),
        };
        match decide(reserved, &ask.request_hash) {
            Decision::Run(held) => Entry::Run(Run { held, ask }),
            Decision::Replay { answer, expires_in } => {
                self.cache.put(&ask.name, ask.request_hash, &answer, expires_in);
                Entry::Replay(answer)
            }
            Decision::Mismatch => Entry::Refuse(Refusal::Mismatch),
            Decision::InProgress { retry_after } => Entry::Refuse(Refusal::InProgress { retry_after }),
            Decision::Unknown { id } => Entry::Unknown { id },
            Decision::NotKept(answer) => Entry::Refuse(Refusal::NotKept(answer)),
        }
    }

    /// Takes over a key whose outcome is unknown, to find it out; `None` where another is at it.
    ///
    /// # Errors
    /// The store cannot answer.
    pub async fn take_over(&self, id: i64, ask: Ask) -> Result<Option<Run>, Refusal> {
        let held = self.store.take_over(id, ask.lease).await.map_err(refused)?;
        Ok(held.map(|held| Run { held, ask }))
    }

    /// Says that the request is about to be sent. Nothing may be sent unless this is `Ok`.
    ///
    /// # Errors
    /// The store cannot write it, or the key was taken over.
    pub async fn sent(&self, run: &Run) -> Result<(), Refusal> {
        match self.store.step(run.held, KeyStep::Sent).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Refusal::InProgress {
                retry_after: Duration::from_secs(1),
            }),
            Err(error) => {
                // Nothing was sent, but the step may be on disk: then the client would be told for a day that it might have been.
                let store = Arc::clone(&self.store);
                let held = run.held;
                tokio::spawn(async move {
                    if persist(&*store, held, &KeyStep::Return).await == Persisted::NotYet {
                        persist_later(&*store, held, &KeyStep::Return).await;
                    }
                });
                Err(refused(error))
            }
        }
    }

    /// Keeps the answer, or frees the key, as the policy says. The answer is the client's in any case: where it cannot be
    /// kept, the log says so.
    pub async fn finish(&self, run: &Run, answer: &Arc<KeptAnswer>, policy: &Policy) {
        let has_retry_after = answer.headers.iter().any(|(name, _)| name == "retry-after");
        if !policy.keeps(answer.status, has_retry_after) {
            self.end(run, KeyStep::Release).await;
        } else if self.end(run, KeyStep::Complete(Arc::clone(answer))).await {
            self.remember(run, answer);
        }
    }

    /// Runs code in a transaction of the store, of 5 s at most, that has nothing to do with a key: to make tables, to read.
    /// It may run more than once; only the run that is committed counts.
    ///
    /// # Errors
    /// Why everything was undone.
    pub async fn transact<T: Send + 'static>(
        &self,
        code: impl Fn(&mut Transaction) -> Result<T, SqlError> + Send + Sync + 'static,
    ) -> Result<T, TransactionError> {
        self.transact_as(move |transaction| code(transaction).map_err(|error| error.to_string()))
            .await
    }

    pub(super) async fn transact_as<T: Send + 'static>(
        &self,
        code: impl Fn(&mut Transaction) -> Result<T, String> + Send + Sync + 'static,
    ) -> Result<T, TransactionError> {
        let given = Left::default();
        let left = given.clone();
        let code: InTransaction = Arc::new(move |transaction| {
            let value = code(transaction)?;
            transaction.sound().map_err(|error| error.to_string())?;
            left.put(Some(value));
            Ok(())
        });
        self.store.transact(code, LONGEST).await?;
        Ok(given.take().ok_or(StoreError::Closed)?)
    }

    /// Runs code and completes the key with its answer in one transaction of the store.
    pub(super) async fn answer(&self, run: &Run, code: Answering) -> Result<Arc<KeptAnswer>, TransactionError> {
        let answer = self.store.answer(run.held, code).await?;
        self.remember(run, &answer);
        Ok(answer)
    }

    /// Ends a run in another way; `false`: it is not written yet, or the key is another's by now. What the store cannot
    /// take now is written when it is back.
    pub async fn end(&self, run: &Run, step: KeyStep) -> bool {
        let held = run.held;
        match persist(&*self.store, held, &step).await {
            Persisted::Yes => true,
            Persisted::Never => false,
            Persisted::NotYet => {
                let store = Arc::clone(&self.store);
                tokio::spawn(async move { persist_later(&*store, held, &step).await });
                false
            }
        }
    }

    fn remember(&self, run: &Run, answer: &Arc<KeptAnswer>) {
        let ask = &run.ask;
        // The clock of the database began a little earlier.
        let left = ask.expiry.saturating_sub(ask.lease);
        self.cache.put(&ask.name, ask.request_hash, answer, left);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Persisted {
    Yes,
    /// The store is away.
    NotYet,
    /// The key is another's, or the database refuses the values.
    Never,
}

async fn persist(store: &dyn Store, held: HeldKey, step: &KeyStep) -> Persisted {
    for nth in 1..=TRIES {
        match store.step(held, step.clone()).await {
            Ok(true) => return Persisted::Yes,
            // A try before this one may have been written although it was not answered.
            Ok(false) if nth > 1 => return Persisted::Yes,
            Ok(false) => {
                tracing::warn!(
                    key.id = held.id,
                    "an idempotency key was taken over before its request ended"
                );
                return Persisted::Never;
            }
            Err(StoreError::Refused(error)) => {
                tracing::error!(
                    key.id = held.id,
                    error,
                    "the end of an idempotent request was refused by the database"
                );
                return Persisted::Never;
            }
            Err(error) if nth == TRIES => {
                tracing::error!(key.id = held.id, %error, "the end of an idempotent request is not written yet");
                return Persisted::NotYet;
            }
            Err(_) => tokio::time::sleep(PAUSE * nth).await,
        }
    }
    Persisted::NotYet
}

/// Goes on while the answer is of use: the token says whether somebody else has found out meanwhile.
async fn persist_later(store: &dyn Store, held: HeldKey, step: &KeyStep) {
    let begun = Instant::now();
    while begun.elapsed() < LONGEST_OUTAGE {
        tokio::time::sleep(LATER.mul_f64(0.5 + rand::random::<f64>() / 2.0)).await;
        match store.step(held, step.clone()).await {
            Err(StoreError::Refused(_) | StoreError::Closed) => break,
            Err(_) => {}
            Ok(_) => {
                return tracing::info!(
                    key.id = held.id,
                    "the end of an idempotent request is written after all"
                );
            }
        }
    }
    tracing::error!(key.id = held.id, "the end of an idempotent request was never written");
}

pub(super) fn refused(error: StoreError) -> Refusal {
    tracing::warn!(%error, "idempotency keys cannot be kept now");
    Refusal::Store(error)
}
