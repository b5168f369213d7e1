//! What happens by the clock: short calls to the store, safe to run twice and on two nodes.

mod backfill;
mod idempotency;
mod jobs;
mod outbox;
mod retention;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use tokio::sync::Mutex;
use tokio_cron_scheduler::{Job, JobScheduler, JobSchedulerError};
use tokio_util::sync::CancellationToken;

use crate::{
    idempotency::Completer,
    store::{PurgePolicy, Store, StoreError},
};

pub use backfill::Turn;
pub use outbox::Relay;

/// What jobs work with.
#[derive(Clone)]
pub struct Desk {
    pub store: Arc<dyn Store>,
    pub retention: PurgePolicy,
    /// How long refused requests are kept.
    pub quarantine: Duration,
    /// Providers whose past events are fetched.
    pub backfills: Arc<[Turn]>,
    /// Age after which expired idempotency keys go.
    pub idempotency_keys: Duration,
    pub completer: Arc<Completer>,
    /// Cancelled when the process stops; long jobs end at their next step.
    pub stop: CancellationToken,
}

/// One line of the timetable.
struct Entry {
    name: &'static str,
    /// Seconds, minutes, hours, day, month, weekday; UTC.
    cron: &'static str,
    run: fn(Desk) -> BoxFuture<'static, Result<(), StoreError>>,
}

/// Everything that happens by the clock. Odd minutes, so that it does not fall together with everyone else's jobs.
const TIMETABLE: &[Entry] = &[
    Entry {
        name: "retention",
        cron: "0 3/10 * * * *",
        run: |desk| Box::pin(retention::run(desk)),
    },
    Entry {
        name: "quarantine",
        cron: "20 7/10 * * * *",
        run: |desk| Box::pin(jobs::quarantine(desk)),
    },
    // Looks who is due; how often that is, each provider says.
    Entry {
        name: "backfill",
        cron: "40 * * * * *",
        run: |desk| Box::pin(backfill::run(desk)),
    },
    Entry {
        name: "reprocess",
        cron: "50 * * * * *",
        run: |desk| Box::pin(jobs::resume(desk)),
    },
    Entry {
        name: "abandoned idempotency keys",
        cron: "7/15 * * * * *",
        run: |desk| Box::pin(idempotency::complete(desk)),
    },
    Entry {
        name: "expired idempotency keys",
        cron: "0 8/10 * * * *",
        run: |desk| Box::pin(idempotency::reap(desk)),
    },
];

/// The running timetable.
pub struct Timetable(JobScheduler);

impl Timetable {
    /// Starts all jobs.
    ///
    /// # Errors
    /// Where the scheduler cannot start.
    pub async fn start(desk: &Desk) -> Result<Self, JobSchedulerError> {
        let scheduler = JobScheduler::new().await?;
        for entry in TIMETABLE {
            let desk = desk.clone();
            // A job that is not done when its time comes again is left to finish.
            let busy = Arc::new(Mutex::new(()));
            let job = Job::new_async(entry.cron, move |_, _| {
                let (desk, busy) = (desk.clone(), Arc::clone(&busy));
                Box::pin(async move {
                    if let Ok(_guard) = busy.try_lock() {
                        once(entry, desk).await;
                    }
                })
            })?;
            scheduler.add(job).await?;
        }
        scheduler.start().await?;
        Ok(Self(scheduler))
    }

    /// Starts no further job.
    pub async fn stop(mut self) {
        if let Err(error) = self.0.shutdown().await {
            tracing::warn!(%error, "the timetable did not stop cleanly");
        }
    }
}

async fn once(entry: &Entry, desk: Desk) {
    if desk.stop.is_cancelled() {
        return;
    }
    let started = Instant::now();
    match (entry.run)(desk).await {
        Ok(()) => tracing::debug!(
            job = entry.name,
            duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
            "job done"
        ),
        Err(error) => tracing::warn!(job = entry.name, %error, "job failed; it runs again at its next time"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_line_of_the_timetable_runs_and_may_run_twice() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("test.db").display());
        let day = Duration::from_secs(86_400);
        let store = store::open(&url, store::Options::default()).await.unwrap();
        let desk = Desk {
            completer: Arc::new(Completer::new(Arc::clone(&store), Arc::default())),
            idempotency_keys: day,
            store,
            retention: PurgePolicy {
                done: day,
                failed: day,
                dedupe: day,
            },
            quarantine: day,
            backfills: Arc::default(),
            stop: CancellationToken::new(),
        };
        let timetable = Timetable::start(&desk).await.unwrap();
        for entry in TIMETABLE {
            for _ in 0..2 {
                (entry.run)(desk.clone()).await.unwrap();
            }
        }
        timetable.stop().await;
        desk.store.close().await;
    }
}
