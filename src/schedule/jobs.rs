//! Goes on with reprocessing jobs of servers that ended in the middle of one, and empties the quarantine of what is old.

use jiff::{SignedDuration, Timestamp};

use super::Desk;
use crate::store::{JobState, Runner, StoreError, run_job};

/// A job whose last step is older has nobody who runs it. Two at once would do no harm.
const ORPHANED: SignedDuration = SignedDuration::from_secs(60);

/// Jobs that are looked at; older ones are done or were stopped long ago.
const NEWEST: u32 = 100;

pub(super) async fn resume(desk: Desk) -> Result<(), StoreError> {
    for job in desk.store.jobs(NEWEST).await? {
        let is_orphan = job.state == JobState::Running
            && job.runner == Runner::Server
            && Timestamp::now().duration_since(job.updated_at) > ORPHANED;
        if is_orphan && !desk.stop.is_cancelled() {
            tracing::info!(job = job.id, "going on with a reprocessing job");
            run_job(&*desk.store, job.id, &desk.stop, &mut |_| {}).await?;
        }
    }
    Ok(())
}

pub(super) async fn quarantine(desk: Desk) -> Result<(), StoreError> {
    let gone = desk.store.purge_quarantine(desk.quarantine).await?;
    if gone > 0 {
        tracing::info!(requests = gone, "retention removed refused requests");
    }
    Ok(())
}
