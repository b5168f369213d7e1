//! Threads for filters: a runtime thread must not be held by one, and deep recursion needs a larger stack than it has.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, OnceLock, PoisonError, mpsc},
    thread,
};

use tokio::sync::oneshot;

/// Bytes of stack. Address space only: memory is taken as it is used.
pub(super) const STACK: usize = 256 << 20;
/// However many cores there are.
const MOST: usize = 8;

type Job = Box<dyn FnOnce() + Send>;

/// Runs work on one of the threads and gives what it returns. `None` where no thread can be had, or the work panicked.
///
/// Whoever stops waiting does not stop the work, which must have an end of its own.
pub(in crate::handlers) async fn run_apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (answer, answered) = oneshot::channel();
    let job: Job = Box::new(move || {
        if !answer.is_closed() {
            let _ = answer.send(work());
        }
    });
    jobs()?.send(job).ok()?;
    answered.await.ok()
}

fn jobs() -> Option<&'static mpsc::Sender<Job>> {
    static JOBS: OnceLock<Option<mpsc::Sender<Job>>> = OnceLock::new();
    JOBS.get_or_init(start).as_ref()
}

fn start() -> Option<mpsc::Sender<Job>> {
    let (sender, queue) = mpsc::channel::<Job>();
    let queue = Arc::new(Mutex::new(queue));
    let count = thread::available_parallelism().map_or(1, usize::from).min(MOST);
    let started = (0..count)
        .filter(|_| {
            let queue = queue.clone();
            let thread = thread::Builder::new().name("cerca-jq".into()).stack_size(STACK);
            thread.spawn(move || work(&queue)).is_ok()
        })
        .count();
    (started > 0).then_some(sender)
}

fn work(queue: &Mutex<mpsc::Receiver<Job>>) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { return };
        let _ = std::panic::catch_unwind(AssertUnwindSafe(job));
    }
}
