//! The registered providers, as requests look them up: a map that is replaced as a whole when one is added or changed.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, PoisonError, RwLock},
    time::{Duration, Instant},
};

use crate::{
    adapters::{Expr, Provider},
    domain::{Bucket, Rate},
};

use super::{
    log_gate::LogGate,
    metrics::{self, ProviderMetrics},
};

/// A registered provider, ready to receive.
pub struct Endpoint {
    pub provider: Arc<Provider>,
    /// Headers that signatures, tokens or credentials are read from, lower case; never stored.
    pub(super) proof_headers: Box<[Box<str>]>,
    pub(super) metrics: ProviderMetrics,
    pub(super) log_gate: LogGate,
    /// How long to wait for the commit.
    pub(super) patience: Duration,
    /// The provider's rate limit, as far as it is used up.
    bucket: Option<(Rate, Arc<Bucket>)>,
}

/// What buckets count from.
static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Endpoint {
    /// A provider that is registered anew, with other keys as a rule, goes on with what is left of its rate limit.
    fn new(provider: Arc<Provider>, before: Option<&Self>) -> Self {
        let bucket = provider.rate_limit.map(|rate| {
            let kept = before
                .and_then(|before| before.bucket.clone())
                .filter(|(of, _)| *of == rate);
            kept.unwrap_or_else(|| (rate, Arc::new(Bucket::new(rate))))
        });
        metrics::tell_sender(&provider.name, provider.sender());
        Self {
            bucket,
            patience: patience(provider.sender().timeout),
            metrics: ProviderMetrics::register(&provider.name, provider.secrets.len()),
            proof_headers: proof_headers(&provider),
            log_gate: LogGate::default(),
            provider,
        }
    }

    /// Whether one more request is within the provider's rate limit.
    ///
    /// # Errors
    /// When the next one will be.
    pub(super) fn admit(&self) -> Result<(), Duration> {
        match &self.bucket {
            Some((_, bucket)) => bucket.take(BEGIN.elapsed()),
            None => Ok(()),
        }
    }

    /// How it proves its requests, for people: the names of its signature rules, or `none`.
    #[must_use]
    pub fn verify(&self) -> String {
        if !self.provider.verifies() {
            return "none".into();
        }
        let names: Vec<&str> = self.provider.rules.signatures.iter().map(|rule| &*rule.name).collect();
        names.join(", ")
    }
}

/// How long a commit may take until the sender is told to come again. Several senders give up after 3 to 5 s and then
/// learn nothing; the others hear here that they are to come back.
const ACCEPT: Duration = Duration::from_secs(5);
/// No commit is given up sooner, however impatient a sender is.
const LEAST: Duration = Duration::from_secs(1);

/// A little less than the sender waits, where that is known and short.
fn patience(timeout: Option<Duration>) -> Duration {
    let heard = timeout.map_or(ACCEPT, |timeout| timeout * 9 / 10);
    heard.clamp(LEAST, ACCEPT)
}

fn proof_headers(provider: &Provider) -> Box<[Box<str>]> {
    /// Most numbered headers that are looked at.
    const MOST: usize = 100;

    fn headers(expression: &Expr) -> Vec<String> {
        match expression {
            Expr::Header(name) => vec![name.clone()],
            Expr::Numbered(prefix) => (1..=MOST).map(|number| format!("{prefix}{number}")).collect(),
            Expr::Call(_, inner) | Expr::At(_, inner) => headers(inner),
            Expr::Join(parts) => parts.iter().flat_map(headers).collect(),
            _ => Vec::new(),
        }
    }
    let rules = &provider.rules.signatures;
    rules
        .iter()
        .flat_map(|rule| &rule.sources)
        .flat_map(headers)
        .map(|name| name.to_ascii_lowercase().into_boxed_str())
        .collect()
}

/// Name → endpoint. Readers hold the lock only to clone an `Arc`.
#[derive(Default)]
pub struct Providers {
    map: RwLock<HashMap<Arc<str>, Arc<Endpoint>>>,
}

impl Providers {
    /// Registers these. The metrics recorder must be installed before.
    #[must_use]
    pub fn new(providers: impl IntoIterator<Item = Arc<Provider>>) -> Self {
        let new = Self::default();
        new.replace(providers);
        new
    }

    /// Puts these in the place of all that were registered before. Requests in flight finish with what they began with.
    pub fn replace(&self, providers: impl IntoIterator<Item = Arc<Provider>>) {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        let new = |provider: Arc<Provider>| {
            let before = map.get(&provider.name).map(|endpoint| &**endpoint);
            (provider.name.clone(), Arc::new(Endpoint::new(provider, before)))
        };
        let replaced = providers.into_iter().map(new).collect();
        *map = replaced;
    }

    /// Puts this one in the place of the one with the same name.
    pub fn put(&self, provider: Arc<Provider>) {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        let before = map.get(&provider.name).map(|endpoint| &**endpoint);
        let endpoint = Arc::new(Endpoint::new(provider, before));
        map.insert(endpoint.provider.name.clone(), endpoint);
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<Endpoint>> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        map.get(name).cloned()
    }

    /// All of them, by name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Endpoint>> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = map.values().cloned().collect();
        all.sort_by(|a, b| a.provider.name.cmp(&b.provider.name));
        all
    }

    /// Their names, sorted.
    pub(super) fn names(&self) -> Vec<String> {
        self.all().iter().map(|one| one.provider.name.to_string()).collect()
    }

    /// The adapter of a provider, where it is still registered.
    #[must_use]
    pub fn adapter(&self, name: &str) -> Option<Arc<str>> {
        self.get(name).map(|endpoint| endpoint.provider.adapter.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_that_waits_for_less_hears_before_it_gives_up() {
        for (timeout_ms, expected) in [
            (None, 5_000),
            (Some(30_000), 5_000),
            (Some(5_000), 4_500),
            (Some(3_000), 2_700),
            (Some(1_000), 1_000),
        ] {
            let patience = patience(timeout_ms.map(Duration::from_millis));
            assert_eq!(patience, Duration::from_millis(expected), "{timeout_ms:?}");
        }
    }
}
