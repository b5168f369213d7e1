//! Runs a reprocessing job to its end, step by step, at its rate.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::{Job, JobState, Store, StoreError};

/// How often a step is tried while the store is away.
const TRIES: u32 = 30;
const PAUSE: Duration = Duration::from_secs(1);

/// Goes on with a job until it is done, stopped, or `stop` is cancelled. `progress` is told after every step.
///
/// # Errors
/// The store stays away, or there is no such job ([`StoreError::Refused`]).
pub async fn run_job(
    store: &dyn Store,
    id: i64,
    stop: &CancellationToken,
    progress: &mut (dyn FnMut(&Job) + Send),
) -> Result<Job, StoreError> {
    let absent = || StoreError::Refused(format!("there is no job {id}"));
    let mut job = store.job(id).await?.ok_or_else(absent)?;
    let (began, before) = (Instant::now(), job.events);
    while job.state == JobState::Running && !stop.is_cancelled() {
        job = step(store, &job, stop).await?.ok_or_else(absent)?;
        progress(&job);
        let Some(rate) = job.rate else { continue };
        let due = Duration::from_secs_f64((job.events - before) as f64 / f64::from(rate));
        tokio::select! {
            () = tokio::time::sleep(due.saturating_sub(began.elapsed())) => {}
            () = stop.cancelled() => {}
        }
    }
    Ok(job)
}

async fn step(store: &dyn Store, job: &Job, stop: &CancellationToken) -> Result<Option<Job>, StoreError> {
    let mut tries = 0;
    loop {
        match store.step_job(job.id, job.step()).await {
            Err(StoreError::Unavailable(_) | StoreError::Full) if tries < TRIES && !stop.is_cancelled() => {
                tries += 1;
                tokio::select! {
                    () = tokio::time::sleep(PAUSE) => {}
                    () = stop.cancelled() => {}
                }
            }
            other => return other,
        }
    }
}
