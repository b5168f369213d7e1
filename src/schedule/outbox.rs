//! The relay: rows that applications wrote to the outbox become events. It asks at a steady pace, because a notification
//! would cost every one of the application's commits a lock that all of them share; while there is work it does not
//! pause.

use std::{sync::Arc, time::Duration};

use metrics::counter;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::store::{Relayed, Store, StoreError, TopicRoutes};

/// Longest pause after errors.
const LONGEST: Duration = Duration::from_secs(10);

/// Makes events of the outbox until told to stop. What is being moved then is moved to its end.
pub struct Relay {
    pub store: Arc<dyn Store>,
    /// The handlers that want a topic.
    pub routes: Arc<TopicRoutes>,
    /// How often an empty outbox is looked at.
    pub poll: Duration,
}

impl Relay {
    pub async fn run(self, stop: CancellationToken) {
        let mut failures = 0_u32;
        while !stop.is_cancelled() {
            let pause = match self.store.relay(Arc::clone(&self.routes)).await {
                Ok(relayed) => {
                    report(relayed);
                    failures = 0;
                    if relayed.more {
                        continue;
                    }
                    self.poll
                }
                // The store closes: everything stops.
                Err(StoreError::Closed) => return,
                Err(error) => {
                    if failures == 0 {
                        tracing::warn!(%error, "the outbox waits for the database");
                    }
                    failures = failures.saturating_add(1);
                    self.poll.saturating_mul(1 << failures.min(10)).min(LONGEST)
                }
            };
            // Replicas that started together drift apart.
            let pause = pause.mul_f64(0.75 + rand::random::<f64>() / 2.0);
            tokio::select! {
                () = sleep(pause) => {}
                () = stop.cancelled() => {}
            }
        }
    }
}

fn report(relayed: Relayed) {
    for (outcome, events) in [
        ("stored", relayed.stored),
        ("duplicate", relayed.duplicates),
        ("conflict", relayed.conflicts),
        ("refused", relayed.refused),
    ] {
        if events > 0 {
            counter!("cerca_outbox_relayed_total", "outcome" => outcome).increment(events);
        }
    }
    if relayed.conflicts > 0 {
        tracing::warn!(
            conflicts = relayed.conflicts,
            "rows of the outbox had a key that is taken by another body; the first stays"
        );
    }
}
