//! What fetches past events, for each provider that names its API key.

use std::sync::Arc;

use crate::{
    adapters::Provider,
    backfill::{Backfiller, Patience},
    config::{BackfillConfig, Config},
    handlers::Router,
    http,
    schedule::Turn,
};

/// What fetches the past events of one provider; `None` without an API key.
pub(crate) fn backfiller(config: &BackfillConfig, provider: Arc<Provider>, router: Arc<Router>) -> Option<Backfiller> {
    Some(Backfiller {
        provider,
        api_key: config.api_key.clone()?,
        api_url: config.api_url.clone(),
        router: Arc::new(move |provider, adapter, event_type| router.routes(provider, adapter, event_type)),
        keeps_header: http::keeps_header,
        patience: Patience::default(),
    })
}

/// The backfills that happen by the clock.
pub(super) fn turns(config: &Config, providers: &[Arc<Provider>], router: &Arc<Router>) -> Arc<[Turn]> {
    let turn = |entry: &crate::config::ProviderConfig| {
        let every = entry.backfill.every?;
        let provider = providers.iter().find(|provider| *provider.name == entry.spec.name)?;
        Some(Turn {
            every,
            window: entry.backfill.window,
            derived: entry.backfill.derived,
            backfiller: Arc::new(backfiller(&entry.backfill, Arc::clone(provider), Arc::clone(router))?),
        })
    };
    config.providers.iter().filter_map(turn).collect()
}
