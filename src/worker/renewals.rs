//! Upkeep of leases: ours are extended while we hold the claim, queued or running; those of workers that died are ended.

use std::{collections::HashMap, sync::Arc, time::Duration};

use metrics::counter;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Shared, lane::Key, outage::Outage};
use crate::store::{AttemptLimit, Lease, StoreError};

/// At least this often, leases that ran out are ended.
const SWEEP: Duration = Duration::from_secs(5);

pub(super) async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    tokio::join!(
        every(&shared, &stop, Upkeep::Renew, shared.settings.lease / 3),
        every(&shared, &stop, Upkeep::Sweep, SWEEP.min(shared.settings.lease / 4)),
    );
}

#[derive(Clone, Copy)]
enum Upkeep {
    Renew,
    Sweep,
}

async fn every(shared: &Shared, stop: &CancellationToken, what: Upkeep, period: Duration) {
    let mut outage = Outage::new(match what {
        Upkeep::Renew => "renew leases",
        Upkeep::Sweep => "end the leases that ran out",
    });
    let mut pause = period;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = sleep(pause) => {}
        }
        let work = async {
            match what {
                Upkeep::Renew => renew(shared).await,
                Upkeep::Sweep => sweep(shared).await,
            }
        };
        let result = timeout(shared.settings.lease, work)
            .await
            .unwrap_or_else(|_| Err(StoreError::Unavailable("no answer for as long as a lease".into())));
        pause = match &result {
            Ok(()) => {
                outage.over();
                period
            }
            Err(error) => outage.failed(error).min(period),
        };
        if let (Upkeep::Sweep, Err(_)) = (what, &result) {
            // While the store was away nobody could renew. Let those that live do it before they are taken for dead.
            wait_for_renewals(shared, stop, &mut outage).await;
            pause = Duration::ZERO;
        }
    }
}

/// Waits until the store is back, and then for as long as every worker takes to renew its leases.
async fn wait_for_renewals(shared: &Shared, stop: &CancellationToken, outage: &mut Outage) {
    let lease = shared.settings.lease;
    let back = async {
        loop {
            let answer = timeout(lease, shared.store.renew(Vec::new(), lease)).await;
            let error = match answer {
                Ok(Ok(_)) => break,
                Ok(Err(error)) => error,
                Err(_) => StoreError::Unavailable("no answer for as long as a lease".into()),
            };
            sleep(outage.failed(&error).min(lease / 3)).await;
        }
        sleep(lease / 2).await;
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = back => {}
    }
}

async fn renew(shared: &Shared) -> Result<(), StoreError> {
    let lease = shared.settings.lease;
    let now = Instant::now();
    let mut leases: Vec<Lease> = Vec::new();
    let mut of_lane = Vec::new();
    for lane in &shared.lanes {
        lane.resize();
        let before = leases.len();
        leases.extend(lane.older_than(lease / 3, now));
        of_lane.push((lane, before..leases.len()));
    }
    if leases.is_empty() {
        return Ok(());
    }
    let held = shared.store.renew(leases.clone(), lease).await?;
    for (lane, range) in of_lane {
        let keys = leases[range.clone()].iter().map(|lease| (lease.event_id, lease.token));
        let answers: HashMap<Key, bool> = keys.zip(held.iter().copied().skip(range.start)).collect();
        lane.renewed(&answers, now);
    }
    Ok(())
}

async fn sweep(shared: &Shared) -> Result<(), StoreError> {
    let limits = shared
        .lanes
        .iter()
        .map(|lane| AttemptLimit {
            handler: lane.name.clone(),
            attempts: lane.route.retry.attempts,
            isolate: true,
        })
        .chain(shared.pulled.iter().cloned())
        .collect();
    let swept = shared.store.sweep(limits).await?;
    if swept.ready + swept.dead > 0 {
        tracing::warn!(
            ready = swept.ready,
            dead = swept.dead,
            "leases ran out without a word from their worker"
        );
        counter!("cerca_leases_expired_total", "outcome" => "ready").increment(swept.ready);
        counter!("cerca_leases_expired_total", "outcome" => "dead").increment(swept.dead);
        shared.wake.notify_one();
    }
    Ok(())
}
