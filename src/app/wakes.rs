//! Who is told of fresh deliveries: the local worker, and the consumers that wait to pull.

use std::{sync::Arc, time::Duration};

use tokio::sync::Notify;

use crate::{domain::Claim, http::Pulls, store::Handoff};

/// Without pulled handlers, the worker alone: then nothing comes between it and the store.
pub(super) fn handoff(worker: Option<Arc<dyn Handoff>>, pulls: &Pulls) -> Option<Arc<dyn Handoff>> {
    if pulls.is_empty() {
        return worker;
    }
    Some(Arc::new(Both {
        worker,
        pulls: pulls.fresh(),
    }))
}

struct Both {
    worker: Option<Arc<dyn Handoff>>,
    pulls: Arc<Notify>,
}

impl Handoff for Both {
    fn reserve(&self, handler: &str, count: usize, bytes: usize) -> bool {
        // The worker knows no pulled handler, and takes nothing for one.
        self.worker
            .as_ref()
            .is_some_and(|worker| worker.reserve(handler, count, bytes))
    }

    fn give_back(&self, handler: &str, count: usize, bytes: usize) {
        if let Some(worker) = &self.worker {
            worker.give_back(handler, count, bytes);
        }
    }

    fn hand_over(&self, claims: Vec<Claim>) {
        if let Some(worker) = &self.worker {
            worker.hand_over(claims);
        }
    }

    fn wake(&self) {
        self.pulls.notify_waiters();
        if let Some(worker) = &self.worker {
            worker.wake();
        }
    }

    fn lease(&self) -> Duration {
        self.worker.as_ref().map_or(Duration::ZERO, |worker| worker.lease())
    }
}
