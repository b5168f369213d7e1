//! Removes what is older than the policy says, batch after batch until it has caught up.

use std::time::{Duration, Instant};

use super::Desk;
use crate::store::StoreError;

/// Between batches the writer is left alone for as long as the batch took, within these bounds: retention may take half
/// of it at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(2));

pub(super) async fn run(desk: Desk) -> Result<(), StoreError> {
    let (mut payloads, mut events) = (0, 0);
    loop {
        let started = Instant::now();
        let purged = desk.store.purge(desk.retention, false).await?;
        payloads += purged.payloads;
        events += purged.events;
        if !purged.more || desk.stop.is_cancelled() {
            break;
        }
        tokio::select! {
            () = tokio::time::sleep(started.elapsed().clamp(PAUSE.0, PAUSE.1)) => {}
            () = desk.stop.cancelled() => break,
        }
    }
    if payloads + events > 0 {
        tracing::info!(payloads, events, "retention removed old events");
    }
    Ok(())
}
