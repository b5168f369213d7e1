//! Threads for filters: a runtime thread must not be held by one, and deep recursion needs a larger stack than it has.
//!
//! What takes long has a thread of its own, so that a filter that never ends keeps nobody's waiting but its like.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

/// Bytes of stack. Address space only: memory is taken as it is used.
pub(super) const STACK: usize = 256 << 20;
/// However many cores there are.
const MOST: usize = 8;
/// Whose last run took longer is slow, until it is quick again.
const SLOW: Duration = Duration::from_millis(100);

/// How long the last run of a handler's filters took.
#[derive(Debug, Default)]
pub(in crate::handlers) struct Pace {
    is_slow: AtomicBool,
}

struct Job {
    pace: Arc<Pace>,
    work: Box<dyn FnOnce() + Send>,
}

struct Queues {
    quick: mpsc::Sender<Job>,
    slow: mpsc::Sender<Job>,
}

/// Runs work on one of the threads and gives what it returns. `None` where no thread can be had, or the work panicked.
///
/// Whoever stops waiting does not stop the work, which must have an end of its own.
pub(in crate::handlers) async fn run_apart<T: Send + 'static>(
    pace: &Arc<Pace>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (answer, answered) = oneshot::channel();
    let job = Job {
        pace: pace.clone(),
        work: Box::new(move || {
            if !answer.is_closed() {
                let _ = answer.send(work());
            }
        }),
    };
    queues()?.of(&job).send(job).ok()?;
    answered.await.ok()
}

impl Queues {
    fn of(&self, job: &Job) -> &mpsc::Sender<Job> {
        match job.pace.is_slow.load(Relaxed) {
            true => &self.slow,
            false => &self.quick,
        }
    }
}

fn queues() -> Option<&'static Queues> {
    static QUEUES: OnceLock<Option<Queues>> = OnceLock::new();
    QUEUES.get_or_init(start).as_ref()
}

fn start() -> Option<Queues> {
    let (quick, quick_queue) = mpsc::channel::<Job>();
    let (slow, slow_queue) = mpsc::channel::<Job>();
    let count = thread::available_parallelism().map_or(1, usize::from).min(MOST);
    let quick_queue = Arc::new(Mutex::new(quick_queue));
    let started = (0..count)
        .filter(|_| {
            let (queue, slow) = (quick_queue.clone(), slow.clone());
            spawn(move || work(&queue, Some(&slow)))
        })
        .count();
    let is_whole = started > 0 && spawn(move || work(&Mutex::new(slow_queue), None));
    is_whole.then_some(Queues { quick, slow })
}

fn spawn(run: impl FnOnce() + Send + 'static) -> bool {
    let thread = thread::Builder::new().name("cerca-jq".into()).stack_size(STACK);
    thread.spawn(run).is_ok()
}

/// Does what comes. What has turned out to be slow since it was queued is left to `slow`.
fn work(queue: &Mutex<mpsc::Receiver<Job>>, slow: Option<&mpsc::Sender<Job>>) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(mut job) = next else { return };
        if let Some(slow) = slow
            && job.pace.is_slow.load(Relaxed)
        {
            match slow.send(job) {
                Ok(()) => continue,
                Err(mpsc::SendError(back)) => job = back,
            }
        }
        let begun = Instant::now();
        let _ = std::panic::catch_unwind(AssertUnwindSafe(job.work));
        job.pace.is_slow.store(begun.elapsed() > SLOW, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a filter that never ends does, until it is stopped.
    fn endless(until: &Arc<AtomicBool>) -> impl FnOnce() + use<> {
        let until = until.clone();
        move || {
            while !until.load(Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    #[tokio::test]
    async fn what_takes_long_keeps_nobody_waiting_but_its_like() {
        let (slow, quick) = (Arc::<Pace>::default(), Arc::<Pace>::default());
        run_apart(&slow, || thread::sleep(2 * SLOW)).await.unwrap();
        let until = Arc::<AtomicBool>::default();
        // More than there are threads.
        let many: Vec<_> = (0..2 * MOST)
            .map(|_| {
                let (slow, work) = (slow.clone(), endless(&until));
                tokio::spawn(async move { run_apart(&slow, work).await })
            })
            .collect();
        for n in 0..100 {
            assert_eq!(run_apart(&quick, move || n).await, Some(n));
        }
        assert!(many.iter().all(|work| !work.is_finished()), "they run all the while");
        until.store(true, Relaxed);
        for work in many {
            assert_eq!(work.await.unwrap(), Some(()));
        }
        run_apart(&slow, || {}).await.unwrap();
        assert!(!slow.is_slow.load(Relaxed), "it is quick again");
    }
}
