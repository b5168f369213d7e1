//! The registered providers, as requests look them up: a map that is replaced as a whole when one is added or changed.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use crate::{adapters::Provider, ingest::Answer};

use super::{log_gate::LogGate, metrics::ProviderMetrics};

/// A provider with what the HTTP surface needs to know of it besides.
#[derive(Debug, Clone)]
pub struct Registration {
    pub provider: Arc<Provider>,
    /// The name of its adapter.
    pub adapter: Arc<str>,
    /// How it proves its requests, in a word or two for people: the scheme, or `none`. No secret.
    pub verify: String,
    /// Headers that the adapter reads signatures, tokens or credentials from; never stored.
    pub proof_headers: Vec<String>,
    /// What this sender wants to read after an event; `None`: 200 and `{"received":true}`.
    pub response: Option<Answer>,
}

/// A registered provider, ready to receive.
pub struct Endpoint {
    pub provider: Arc<Provider>,
    pub adapter: Arc<str>,
    pub verify: String,
    /// Lower case.
    pub proof_headers: Box<[Box<str>]>,
    pub response: Option<Answer>,
    pub metrics: ProviderMetrics,
    pub(super) log_gate: LogGate,
}

impl Endpoint {
    fn new(registration: Registration) -> Self {
        Self {
            metrics: ProviderMetrics::register(&registration.provider.name),
            proof_headers: registration
                .proof_headers
                .iter()
                .map(|name| name.to_ascii_lowercase().into_boxed_str())
                .collect(),
            provider: registration.provider,
            adapter: registration.adapter,
            verify: registration.verify,
            response: registration.response,
            log_gate: LogGate::default(),
        }
    }
}

/// Name → endpoint. Readers hold the lock only to clone an `Arc`.
#[derive(Default)]
pub struct Providers {
    map: RwLock<HashMap<Arc<str>, Arc<Endpoint>>>,
}

impl Providers {
    #[must_use]
    pub fn new(registrations: impl IntoIterator<Item = Registration>) -> Self {
        let providers = Self::default();
        providers.replace(registrations);
        providers
    }

    /// Puts these in the place of all that were registered before. Requests in flight finish with what they began with.
    pub fn replace(&self, registrations: impl IntoIterator<Item = Registration>) {
        let map = registrations
            .into_iter()
            .map(|registration| {
                (
                    registration.provider.name.clone(),
                    Arc::new(Endpoint::new(registration)),
                )
            })
            .collect();
        *self.map.write().unwrap_or_else(PoisonError::into_inner) = map;
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<Endpoint>> {
        self.map
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .cloned()
    }

    /// All of them, by name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Endpoint>> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = map.values().cloned().collect();
        all.sort_by(|a, b| a.provider.name.cmp(&b.provider.name));
        all
    }

    /// The adapter of a provider, where it is still registered.
    #[must_use]
    pub fn adapter(&self, name: &str) -> Option<Arc<str>> {
        self.get(name).map(|endpoint| endpoint.adapter.clone())
    }
}
