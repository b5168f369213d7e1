//! The senders' published keys, fetched in the background: at the start, before they end, and when a request needs one
//! that is not at hand. No request waits for it; its sender is asked to come again.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::{
    adapters::{Refresher, fetch},
    http::Providers,
};

/// How often we look whether a key is due. Looking costs nothing.
const EVERY: Duration = Duration::from_secs(1);

/// Keeps the keys of whatever providers there are fresh, until told to stop.
pub(super) async fn refresh(providers: Arc<Providers>, stop: CancellationToken) {
    let refresher = Refresher::default();
    let mut every = tokio::time::interval(EVERY);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = every.tick() => {}
        }
        for endpoint in providers.all() {
            let provider = &endpoint.provider;
            if !provider.fetches_keys() {
                continue;
            }
            let turn = refresher.refresh(provider, Timestamp::now(), fetch);
            let (fetched, errors) = tokio::select! {
                () = stop.cancelled() => return,
                done = turn => done,
            };
            if fetched > 0 {
                tracing::info!(provider.name = &*provider.name, fetched, "keys of the sender fetched");
            }
            for error in errors {
                let error = format!("{:#}", anyhow::Error::from(error));
                tracing::warn!(
                    provider.name = &*provider.name,
                    error,
                    "a key of the sender cannot be fetched"
                );
            }
        }
    }
}
