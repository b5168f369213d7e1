//! Suspects: deliveries whose last lease was lost, so that they may have killed the process that held them. Each is tried
//! with no other attempt of this process beside it, so that it takes nothing down with it. It runs out of attempts like any
//! other, because attempts are counted when they are claimed.
//!
//! A suspect is claimed when there is one; from then on no attempt begins, those that run may end, and then it runs alone.
//! Afterwards the others have at least as much time as it took, so suspects never take more than half of it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use jiff::Timestamp;
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    Shared,
    attempt::attempt,
    lane::{Held, Lane, Running, key},
    outage::Outage,
    runner::Registered,
};
use crate::{domain::Claim, store::StoreError};

/// How often to look for suspects. Crashes are rare, and a lease has to end first.
const LOOK: Duration = Duration::from_secs(2);

/// Who runs now, and whether others may begin.
#[derive(Default)]
pub(super) struct Company {
    running: AtomicUsize,
    is_closed: AtomicBool,
    /// The last one left.
    empty: Notify,
}

/// One attempt that runs, until dropped.
pub(super) struct Member(Arc<Company>);

impl Company {
    /// `None` while a suspect wants to be alone. Whoever is turned away is called when that is over.
    pub(super) fn join(self: &Arc<Self>) -> Option<Member> {
        // Counted first, asked second; `Alone` does it the other way round. So one of the two sees the other.
        self.running.fetch_add(1, SeqCst);
        let member = Member(self.clone());
        (!self.is_closed.load(SeqCst)).then_some(member)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.0.running.fetch_sub(1, SeqCst) == 1 && self.0.is_closed.load(SeqCst) {
            self.0.empty.notify_one();
        }
    }
}

/// Keeps others from beginning, until dropped.
struct Alone(Arc<Shared>);

impl Alone {
    async fn wait(shared: &Arc<Shared>) -> Self {
        let company = &shared.company;
        company.is_closed.store(true, SeqCst);
        let alone = Self(shared.clone());
        while company.running.load(SeqCst) > 0 {
            company.empty.notified().await;
        }
        alone
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.0.company.is_closed.store(false, SeqCst);
        for lane in &self.0.lanes {
            lane.arrived.notify_one();
        }
    }
}

/// Tries suspects until `stop`; answers what still runs.
pub(super) async fn run(shared: Arc<Shared>, stop: CancellationToken) -> JoinSet<()> {
    let mut running = JoinSet::new();
    let mut outage = Outage::new("look for deliveries whose lease was lost");
    loop {
        let begun = Instant::now();
        let pause = match claim(&shared).await {
            Ok(Some((lane, claim))) => {
                outage.over();
                start(&shared, lane, claim, &mut running);
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return running,
                    _ = running.join_next() => {}
                }
                begun.elapsed()
            }
            Ok(None) => {
                outage.over();
                LOOK
            }
            Err(error) => outage.failed(&error),
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => return running,
            () = sleep(pause) => {}
        }
    }
}

/// Tries every suspect that is due, one after the other; answers how many.
pub(super) async fn empty(shared: &Arc<Shared>) -> Result<usize, StoreError> {
    let mut attempts = 0;
    while let Some((lane, claim)) = claim(shared).await? {
        let mut running = JoinSet::new();
        start(shared, lane, claim, &mut running);
        running.join_next().await;
        attempts += 1;
        shared.store.flush().await?;
    }
    Ok(attempts)
}

async fn claim(shared: &Shared) -> Result<Option<(Arc<Lane>, Claim)>, StoreError> {
    let names = shared.lanes.iter().map(|lane| lane.name.clone()).collect();
    let claim = shared.store.claim_suspect(names, shared.settings.lease).await?;
    Ok(claim.and_then(|claim| Some((shared.by_name.get(&claim.handler)?.clone(), claim))))
}

/// Begins to wait for the suspect's turn. From now on its lease is renewed with those of its handler.
fn start(shared: &Arc<Shared>, lane: Arc<Lane>, claim: Claim, running: &mut JoinSet<()>) {
    let key = key(&claim);
    let (shared, of_lane, suspect) = (shared.clone(), lane.clone(), claim.clone());
    lane.register(key, || {
        let registered = Registered::new(lane.clone(), key);
        let abort = running.spawn(async move {
            let _registered = registered;
            alone(shared, of_lane, suspect).await;
        });
        let now = Instant::now();
        Running {
            claim,
            since: now,
            started_at: Timestamp::now(),
            begun: now,
            abort,
        }
    });
}

async fn alone(shared: Arc<Shared>, lane: Arc<Lane>, claim: Claim) {
    while let Err(wait) = lane.pace() {
        sleep(wait).await;
    }
    let _alone = Alone::wait(&shared).await;
    // Nobody else runs, so a slot is free.
    let Ok(slot) = lane.own.clone().acquire_owned().await else {
        return;
    };
    let Some(since) = lane.since(key(&claim)) else { return };
    tracing::warn!(
        handler.name = %claim.handler, event.id = claim.event.id, provider.name = %claim.event.provider,
        delivery.attempt = claim.attempt, "the last lease of this delivery was lost; it is tried alone"
    );
    let (held, weight) = lane.weigh(Held::new(claim, since));
    attempt(shared, lane, held, Timestamp::now(), Instant::now(), (weight, slot)).await;
}
