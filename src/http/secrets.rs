//! Secrets that senders hand over in their first handshake: sealed, stored before the handshake is answered, and put to
//! use. One is taken only while its provider has none, so that nobody can plant a second one; the database decides
//! between replicas, which learn of it when a request does not verify, and by looking now and then.

use std::{
    collections::HashMap,
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use crate::{
    adapters::{Provider, ProviderError},
    seal::{SealKey, fingerprint},
    store::{SealedSecret, Store, StoreError},
};

use super::Providers;

/// How often requests may make us read the stored secrets.
const AT_MOST_EVERY: Duration = Duration::from_secs(2);
/// How often they are read without a reason, so that a removed one goes out of use everywhere.
const AT_LEAST_EVERY: Duration = Duration::from_secs(30);
/// How long a request waits for its turn, and then for what is read.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest secret that is taken, in bytes.
const LONGEST: usize = 4096;

/// Makes a provider anew, with the secret that was handed over or without one.
pub type Remake = Box<dyn Fn(Option<SecretString>) -> Result<Provider, ProviderError> + Send + Sync>;

/// The providers whose secret comes in a handshake, and what is known of it.
pub struct Secrets {
    store: Arc<dyn Store>,
    providers: Arc<Providers>,
    key: Option<SealKey>,
    /// Never changes; what does is in `known`.
    waiting: HashMap<Arc<str>, Remake>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// What is stored, by provider.
    held: HashMap<Arc<str>, Held>,
    /// When it was read last, and whether that went well.
    read: Option<(Instant, bool)>,
}

/// A stored secret.
struct Held {
    sealed: Vec<u8>,
    usable: bool,
}

/// Why a secret was not taken.
pub(super) enum NotTaken {
    /// The provider has one, and this is another.
    Another,
    /// No key to seal it with.
    NoKey,
    /// No provider can be made with it.
    Unfit(String),
    /// It cannot be sealed, or the stored one cannot be opened.
    Sealing(&'static str),
    Store(StoreError),
}

/// What another look at the stored secrets gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// The provider's secret is another now.
    Changed,
    /// It is what it was.
    Same,
    /// The last look was too short ago, or failed, or the stored secret cannot be opened.
    Unsure,
}

impl Secrets {
    /// `waiting`: the providers that are configured without a secret and wait for one.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        providers: Arc<Providers>,
        key: Option<SealKey>,
        waiting: impl IntoIterator<Item = (Arc<str>, Remake)>,
    ) -> Self {
        Self {
            store,
            providers,
            key,
            waiting: waiting.into_iter().collect(),
            known: Mutex::default(),
        }
    }

    /// Puts the stored secrets to use. To be called before the first request; a database that is away is no reason to
    /// stay down.
    pub async fn load(&self) {
        match within(self.store.secrets()).await {
            Ok(stored) => {
                self.warn_of_unused(&stored);
                self.install_all(&mut *self.known.lock().await, stored);
            }
            Err(error) => tracing::error!(%error, "the stored secrets of providers cannot be read yet"),
        }
    }

    /// Reads them now and then, until told to stop.
    pub async fn poll(self: Arc<Self>, stop: CancellationToken) {
        if self.waiting.is_empty() {
            return;
        }
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(AT_LEAST_EVERY) => {}
            }
            let read = async { self.read(&mut *self.known.lock().await).await };
            if let Err(error) = read.await {
                tracing::warn!(%error, "the stored secrets of providers cannot be read");
            }
        }
    }

    /// Takes the secret of a handshake: returns when it is on disk and in use. The provider's own secret may come again,
    /// because the answer to it may have been lost.
    pub(super) async fn take(&self, provider: &Provider, secret: SecretString) -> Result<(), NotTaken> {
        let same = provider.has_secret(&secret);
        let Some(remake) = self.waiting.get(&provider.name) else {
            return if same { Ok(()) } else { Err(NotTaken::Another) };
        };
        let Some(key) = &self.key else {
            return Err(NotTaken::NoKey);
        };
        let name = &provider.name;
        let mut known = self.turn().await.ok_or_else(|| NotTaken::Store(busy()))?;
        if known.held.contains_key(name) && (same || known.may_read()) {
            // It may have been removed, which is how a wrong one is replaced. Whoever knows it may make us look at once.
            self.read(&mut known).await.map_err(NotTaken::Store)?;
        }
        if let Some(held) = known.held.get(name) {
            return self.compare(name, held, &secret);
        }
        if secret.expose_secret().len() > LONGEST {
            return Err(NotTaken::Unfit(format!("it is longer than {LONGEST} bytes")));
        }
        let new = remake(Some(secret.clone())).map_err(|error| NotTaken::Unfit(error.to_string()))?;
        let sealed = key.seal(name, &secret);
        let sealed = sealed.map_err(|_| NotTaken::Sealing("the secret cannot be sealed"))?;
        // The store has limits of its own. To give up before it does would be to refuse a secret that it stores later.
        let stored = self.store.set_secret(name, Some(sealed.clone()), "handshake").await;
        if stored.map_err(NotTaken::Store)? {
            tracing::info!(
                provider.name = &**name,
                fingerprint = fingerprint(&sealed),
                "the sender handed over its secret; it is stored and in use"
            );
            self.install(new);
            known.held.insert(Arc::clone(name), Held { sealed, usable: true });
            return Ok(());
        }
        // Another replica was first.
        self.read(&mut known).await.map_err(NotTaken::Store)?;
        match known.held.get(name) {
            Some(held) => self.compare(name, held, &secret),
            None => Err(NotTaken::Store(busy())),
        }
    }

    /// Looks whether a request that does not verify would do so with what is stored by now. Requests together cause no
    /// more than one look in [`AT_MOST_EVERY`].
    pub(super) async fn look_again(&self, provider: &Provider) -> Look {
        if !self.waiting.contains_key(&provider.name) {
            return Look::Same;
        }
        let asked = Instant::now();
        let Some(mut known) = self.turn().await else {
            return Look::Unsure;
        };
        if known.may_read() {
            // What went wrong is noted in `known`.
            let _ = self.read(&mut known).await;
        }
        let present = self.providers.get(&provider.name);
        if present.is_some_and(|present| !present.provider.same_secrets(provider)) {
            return Look::Changed;
        }
        let unusable = known.held.get(&provider.name).is_some_and(|held| !held.usable);
        match known.read {
            Some((at, true)) if at >= asked && !unusable => Look::Same,
            _ => Look::Unsure,
        }
    }

    fn compare(&self, name: &str, held: &Held, secret: &SecretString) -> Result<(), NotTaken> {
        if !held.usable {
            return Err(NotTaken::Sealing("the stored secret cannot be opened"));
        }
        let present = self.providers.get(name);
        match present.is_some_and(|present| present.provider.has_secret(secret)) {
            true => Ok(()),
            false => Err(NotTaken::Another),
        }
    }

    async fn turn(&self) -> Option<MutexGuard<'_, Known>> {
        tokio::time::timeout(PATIENCE, self.known.lock()).await.ok()
    }

    async fn read(&self, known: &mut Known) -> Result<(), StoreError> {
        let at = Instant::now();
        // Noted first: whoever is dropped in the middle has had its look.
        known.read = Some((at, false));
        let stored = within(self.store.secrets()).await?;
        self.install_all(known, stored);
        known.read = Some((at, true));
        Ok(())
    }

    /// Brings the registered providers to what is stored.
    fn install_all(&self, known: &mut Known, stored: Vec<SealedSecret>) {
        let mut stored: HashMap<String, Vec<u8>> = stored.into_iter().map(|one| (one.provider, one.sealed)).collect();
        for (name, remake) in &self.waiting {
            let held = known.held.get(name);
            match (held, stored.remove(&**name)) {
                (Some(held), Some(sealed)) if held.sealed == sealed => {}
                (_, Some(sealed)) => {
                    let usable = self.open(name, &sealed, remake);
                    known.held.insert(Arc::clone(name), Held { sealed, usable });
                }
                (Some(_), None) => {
                    tracing::warn!(provider.name = &**name, "the provider's secret was removed");
                    known.held.remove(name);
                    self.install_without(name, remake);
                }
                (None, None) => {}
            }
        }
    }

    /// Puts a stored secret to use; false where it cannot be.
    fn open(&self, name: &str, sealed: &[u8], remake: &Remake) -> bool {
        let opened = match &self.key {
            None => Err("`seal_key` in `[store]` is not set".to_owned()),
            Some(key) => key.open(name, sealed).map_err(|error| error.to_string()),
        };
        let made = opened.and_then(|secret| remake(Some(secret)).map_err(|error| error.to_string()));
        let (fingerprint, usable) = (fingerprint(sealed), made.is_ok());
        match made {
            Ok(provider) => {
                tracing::info!(provider.name = name, fingerprint, "stored secret in use");
                self.install(provider);
            }
            Err(problem) => {
                tracing::error!(
                    provider.name = name,
                    fingerprint,
                    problem,
                    "the stored secret cannot be opened, so nothing of this provider verifies"
                );
                self.install_without(name, remake);
            }
        }
        usable
    }

    fn install_without(&self, name: &str, remake: &Remake) {
        match remake(None) {
            Ok(provider) => self.install(provider),
            // It was made so at the start.
            Err(error) => tracing::error!(provider.name = name, %error, "the provider cannot be made anew"),
        }
    }

    fn install(&self, provider: Provider) {
        let provider = match self.providers.get(&provider.name) {
            Some(present) => provider.with_keys_of(&present.provider),
            None => provider,
        };
        self.providers.put(Arc::new(provider));
    }

    fn warn_of_unused(&self, stored: &[SealedSecret]) {
        for one in stored.iter().filter(|one| !self.waiting.contains_key(&*one.provider)) {
            if self.providers.get(&one.provider).is_some() {
                tracing::warn!(
                    provider.name = &*one.provider,
                    "the secret that was handed over is not used, because the configuration names secrets"
                );
            }
        }
    }
}

impl Known {
    fn may_read(&self) -> bool {
        self.read.is_none_or(|(at, _)| at.elapsed() >= AT_MOST_EVERY)
    }
}

fn busy() -> StoreError {
    StoreError::Unavailable("the stored secrets are being read".to_owned())
}

async fn within<T>(asked: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let late = |_| Err(StoreError::Unavailable("no answer in time".to_owned()));
    tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(late)
}
