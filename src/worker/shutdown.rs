//! Stopping without losing anything: what has not started is released untouched, what runs may end within the deadline.
//!
//! What still runs then is cut off. Whether it had its effect is unknown, so the attempt counts and stands in the
//! history, and the delivery is due again at once, even if that was its last attempt: a deployment is not a reason to
//! give an event up. (An effect in the store is fenced by its token: if it was committed after all, this settle changes
//! nothing.)

use std::{sync::Arc, sync::atomic::Ordering::Relaxed, time::Duration};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout_at},
};

use super::{Shared, attempt::release, lane::Lane};
use crate::{
    domain::{Outcome, Settle},
    handlers::Action,
    store::StoreError,
};

/// How long a store may take for the last settles, beyond the deadline.
const FLUSH: Duration = Duration::from_secs(5);
/// How often to look whether reserved hand-overs have arrived.
const LOOK: Duration = Duration::from_millis(10);

pub(super) async fn drain(shared: &Arc<Shared>, mut runners: JoinSet<JoinSet<()>>) {
    shared.closed.store(true, Relaxed);
    let deadline = Instant::now() + shared.settings.drain;

    // Outside of the future that the deadline drops: dropping this aborts the attempts and forgets their claims.
    let mut attempts = JoinSet::new();
    let finish = async {
        while let Some(runner) = runners.join_next().await {
            match runner {
                Ok(mut running) => {
                    attempts.spawn(async move { while running.join_next().await.is_some() {} });
                }
                Err(error) => tracing::error!(%error, "a runner ended badly"),
            }
        }
        release_queued(shared).await;
        while attempts.join_next().await.is_some() {}
        // The store gives every reservation back or turns it into a claim.
        while shared.lanes.iter().any(|lane| lane.waiting() > 0) {
            release_queued(shared).await;
            sleep(LOOK).await;
        }
    };
    let in_time = timeout_at(deadline, finish).await.is_ok();
    let last = async {
        if !in_time {
            cut_off(shared).await;
        }
        // What was cut off may have held up commits, whose deliveries are handed over only now.
        loop {
            release_queued(shared).await;
            shared.store.flush().await?;
            if shared.lanes.iter().all(|lane| lane.waiting() == 0) {
                return Ok::<(), StoreError>(());
            }
            sleep(LOOK).await;
        }
    };
    match timeout_at(deadline + FLUSH, last).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(%error, "the last outcomes were not written; their leases will end"),
        Err(_) => tracing::error!("the last outcomes were not written in time; their leases will end"),
    }
}

async fn release_queued(shared: &Shared) {
    for lane in &shared.lanes {
        for claim in lane.take_queued() {
            lane.metrics.released.increment(1);
            release(shared, &claim).await;
        }
    }
}

async fn cut_off(shared: &Shared) {
    for (lane, running) in shared.lanes.iter().flat_map(|lane: &Arc<Lane>| {
        let running = lane.take_running();
        running.into_iter().map(move |running| (lane, running))
    }) {
        running.abort.abort();
        let outcome = match &lane.route.action {
            Action::Outside(_) | Action::Native(_) => {
                lane.metrics.unknown.increment(1);
                Outcome::Unknown {
                    after: Some(Duration::ZERO),
                    error: "cut off by a shutdown; whether it had its effect is unknown".into(),
                }
            }
            // Its effect commits with its settle or not at all.
            Action::InStore(_) | Action::Pull => {
                lane.metrics.retry.increment(1);
                Outcome::Retry {
                    after: Duration::ZERO,
                    error: "cut off by a shutdown".into(),
                }
            }
        };
        let settle = Settle::of(&running.claim, running.started_at, running.begun.elapsed(), outcome);
        shared.store.settle(settle).await;
    }
}
