//! A provider that nobody registered, for reading samples.

use std::sync::Arc;

use super::{adapter::Adapter, provider::Provider};

impl Provider {
    /// Reads samples of an adapter and verifies nothing: no key is made.
    pub(crate) fn for_samples(adapter: &Adapter) -> Self {
        let mut rules = adapter.rules.clone();
        rules.verify = false;
        let options = adapter.options().into_iter();
        Self {
            name: Arc::from(&*adapter.name),
            adapter: adapter.name.clone(),
            public_url: "https://hooks.example.com".to_owned(),
            max_body: 0,
            on_conflict: 200,
            rate_limit: None,
            revive: false,
            answer_macs: None,
            keys: vec![Vec::new(); rules.signatures.len()],
            rules,
            ciphers: Vec::new(),
            decryption_keys: Vec::new(),
            fetched: Arc::default(),
            calls: Arc::default(),
            roots: Vec::new(),
            secrets: Vec::new(),
            options: options
                .map(|name| (name.to_owned(), format!("sample-{name}")))
                .collect(),
            normalize: adapter.normalize().cloned(),
            backfills: Arc::clone(adapter.backfills()),
            warnings: Vec::new(),
            notes: Vec::new(),
            sender: adapter.sender().clone(),
        }
    }
}
