//! How the store hands fresh deliveries over. On the way of every ingest batch: counters and one short lock.

use std::{sync::Arc, sync::atomic::Ordering::Relaxed, time::Duration};

use tokio::time::Instant;

use super::Shared;
use crate::{domain::Claim, store::Handoff};

impl Handoff for Shared {
    fn reserve(&self, handler: &str, count: usize, bytes: usize) -> bool {
        !self.closed.load(Relaxed) && self.by_name.get(handler).is_some_and(|lane| lane.reserve(count, bytes))
    }

    fn give_back(&self, handler: &str, count: usize, bytes: usize) {
        if let Some(lane) = self.by_name.get(handler) {
            lane.give_back(count, bytes);
        }
    }

    /// Claims that arrive while the worker stops are queued too: the shutdown waits for what was reserved, and
    /// releases it.
    fn hand_over(&self, claims: Vec<Claim>) {
        let since = Instant::now();
        let mut claims = claims.into_iter().peekable();
        while let Some(first) = claims.next() {
            let Some(lane) = self.by_name.get(&first.handler) else {
                tracing::error!(handler = %first.handler, "a delivery was handed over to a handler that is not configured");
                continue;
            };
            let name: Arc<str> = first.handler.clone();
            let same = std::iter::from_fn(|| claims.next_if(|next| next.handler == name));
            lane.push_reserved(std::iter::once(first).chain(same), since);
        }
    }

    fn wake(&self) {
        self.wake.notify_one();
    }

    fn lease(&self) -> Duration {
        self.settings.lease
    }
}
