//! Calls the URLs that confirm subscriptions, in the background: no request waits for it.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::{
    adapters::{Called, fetch},
    http::{Providers, metrics::count_confirmation},
};

/// How often we look whether a call is due. Looking costs nothing.
const EVERY: Duration = Duration::from_secs(1);

/// Makes the calls of whatever providers there are, until told to stop.
pub(super) async fn confirm(providers: Arc<Providers>, stop: CancellationToken) {
    let mut every = tokio::time::interval(EVERY);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = every.tick() => {}
        }
        for endpoint in providers.all() {
            let provider = &endpoint.provider;
            let outcomes = tokio::select! {
                () = stop.cancelled() => return,
                done = provider.make_calls(Timestamp::now(), fetch) => done,
            };
            for outcome in outcomes {
                report(&provider.name, outcome);
            }
        }
    }
}

/// The URL is not told: whoever has it can confirm.
fn report(provider: &str, outcome: Called) {
    let (outcome, error) = match outcome {
        Called::Confirmed => {
            tracing::info!(provider.name = provider, "the subscription is confirmed");
            return count_confirmation(provider, "confirmed");
        }
        Called::Failed(error) => ("failed", error),
        Called::GivenUp(error) => ("given_up", error),
    };
    tracing::warn!(
        provider.name = provider,
        outcome,
        error = error.reason(),
        "the URL that confirms the subscription does not answer"
    );
    count_confirmation(provider, outcome);
}
