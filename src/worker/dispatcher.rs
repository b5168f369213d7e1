//! The claim loop: one query for all handlers with room. Wakes by `wake()` and by polling always, so a wake that is lost
//! delays work by one poll and never stops it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Shared, lane::Lane, outage::Outage};
use crate::{
    domain::Claim,
    store::{ClaimRequest, StoreError},
};

/// Deliveries in one claim, over all handlers, about: more makes the statement slower per row.
const CLAIM: usize = 512;
/// However many handlers share a claim, each may take this many.
const SMALLEST_WANT: usize = 16;
/// After a claim that found nothing: a full queue makes ingest wake us with every batch, for handlers without room.
const REST: Duration = Duration::from_millis(5);

/// What one claim found.
pub(super) enum Found {
    /// No handler has room.
    NoRoom,
    Nothing,
    /// Everything that is due.
    All,
    /// There may be more.
    More,
}

pub(super) async fn run(shared: &Shared, shutdown: &CancellationToken) {
    let mut outage = Outage::new("claim deliveries");
    loop {
        // Never cancelled half-way: what it claims must reach a queue.
        let pause = match claim(shared).await {
            Ok(found) => {
                outage.over();
                match found {
                    Found::More => continue_or_stop(shutdown),
                    Found::NoRoom | Found::All => Pause::Poll,
                    Found::Nothing => Pause::RestThenPoll,
                }
            }
            Err(error) => Pause::For(outage.failed(&error)),
        };
        if shutdown.is_cancelled() || !wait(shared, shutdown, pause).await {
            return;
        }
    }
}

enum Pause {
    None,
    Poll,
    RestThenPoll,
    For(Duration),
}

fn continue_or_stop(shutdown: &CancellationToken) -> Pause {
    if shutdown.is_cancelled() {
        Pause::Poll
    } else {
        Pause::None
    }
}

/// False when the worker should stop.
async fn wait(shared: &Shared, shutdown: &CancellationToken, pause: Pause) -> bool {
    let work = async {
        match pause {
            Pause::None => return,
            Pause::For(time) => return sleep(time).await,
            Pause::RestThenPoll => sleep(REST).await,
            Pause::Poll => {}
        }
        // Replicas that started together drift apart.
        let poll = shared.settings.poll.mul_f64(0.75 + rand::random::<f64>() / 2.0);
        let _ = timeout(poll, shared.wake.notified()).await;
    };
    tokio::select! {
        biased;
        () = shutdown.cancelled() => false,
        () = work => true,
    }
}

/// Claims once and queues what it got.
pub(super) async fn claim(shared: &Shared) -> Result<Found, StoreError> {
    let has_room = |lane: &&Arc<Lane>| {
        // Whatever woke us may be work for a lane that is full now: it calls when it has room again. It may have got
        // some since, so look twice.
        lane.room() > 0 || {
            lane.set_backlog(true);
            lane.room() > 0
        }
    };
    let hungry: Vec<&Arc<Lane>> = shared.lanes.iter().filter(has_room).collect();
    if hungry.is_empty() {
        return Ok(Found::NoRoom);
    }
    let each = (CLAIM / hungry.len()).max(SMALLEST_WANT);
    let wants: Vec<(Arc<str>, u32)> = hungry
        .iter()
        .map(|lane| {
            (
                lane.name.clone(),
                u32::try_from(lane.room().clamp(1, each)).unwrap_or(u32::MAX),
            )
        })
        .collect();
    let max_bytes = hungry.iter().map(|lane| lane.free_bytes()).sum();
    let lease = shared.settings.lease;
    // With a backlog, oldest first would let a flood of one provider, or of failures, keep everything else waiting.
    let fair = hungry.iter().any(|lane| lane.has_backlog());
    let request = ClaimRequest {
        wants: wants.clone(),
        lease,
        max_bytes,
        fair,
    };
    // The lease runs from some moment after this one. An answer later than the lease would be worth nothing.
    let since = Instant::now();
    let claims = timeout(lease, shared.store.claim(request))
        .await
        .unwrap_or_else(|_| Err(StoreError::Unavailable("a claim took longer than a lease".into())))?;

    let found = claims.len();
    let taken: usize = claims.iter().map(|claim| claim.event.size()).sum();
    // The next one may have been too large for what was left.
    let cut = found > 0 && taken.saturating_mul(2) >= max_bytes;
    let mut by_handler: HashMap<Arc<str>, Vec<Claim>> = HashMap::new();
    for claim in claims {
        by_handler.entry(claim.handler.clone()).or_default().push(claim);
    }
    let mut more = false;
    for (lane, (name, want)) in hungry.into_iter().zip(wants) {
        let claims = by_handler.remove(&name).unwrap_or_default();
        // A fair claim takes less than there is room for where one share has little; it is over when it finds nothing.
        let full = claims.len() >= want as usize || cut || (fair && !claims.is_empty());
        lane.set_backlog(full);
        more |= full;
        if !claims.is_empty() {
            lane.push_claimed(claims, since);
        }
    }
    Ok(match (found, more) {
        (0, _) => Found::Nothing,
        (_, true) => Found::More,
        (_, false) => Found::All,
    })
}
