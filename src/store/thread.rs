//! The thread on which the code of a transaction runs. Code that hangs or panics costs its own attempt and a thread, never
//! the connection; on SQLite that connection is the only writer.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
    thread,
};

use super::{
    InTransaction,
    transaction::{Said, Transaction},
};

/// Runs code, one piece after the other, on a thread that is made when it is needed.
#[derive(Default)]
pub(super) struct Runner {
    jobs: Option<mpsc::Sender<Job>>,
}

type Job = Box<dyn FnOnce() + Send>;

impl Runner {
    /// Starts the code; everything it says goes to `say`, at the end that it has ended, unless it never does.
    pub(super) fn start(&mut self, work: &InTransaction, say: impl Fn(Said) + Send + Clone + 'static) {
        let work = Arc::clone(work);
        let job: Job = Box::new(move || {
            let mut transaction = Transaction {
                say: Box::new(say.clone()),
                failed: None,
            };
            let done = catch_unwind(AssertUnwindSafe(|| work(&mut transaction)));
            say(Said::Ended(match (done, transaction.failed) {
                (Ok(Ok(())), None) => Ok(()),
                // The code may have gone on; what it did is undone.
                (Ok(Ok(())), Some(error)) => Err(error.0),
                (Ok(Err(error)), _) => Err(error),
                (Err(panic), _) => Err(format!("the handler panicked: {}", text_of(&*panic))),
            }));
        });
        let job = match &self.jobs {
            Some(jobs) => match jobs.send(job) {
                Ok(()) => return,
                Err(mpsc::SendError(job)) => job,
            },
            None => job,
        };
        let (jobs, queue) = mpsc::channel::<Job>();
        // Without a thread the code never says a word: its channel closes.
        let thread = thread::Builder::new().name("cerca-native".to_owned()).spawn(move || {
            while let Ok(job) = queue.recv() {
                job();
            }
        });
        if thread.is_ok() && jobs.send(job).is_ok() {
            self.jobs = Some(jobs);
        }
    }

    /// Leaves the thread to code that did not end in time; it ends after it.
    pub(super) fn abandon(&mut self) {
        self.jobs = None;
    }
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_thread_survives_panics_and_is_left_to_code_that_hangs() {
        let mut runner = Runner::default();
        let (sender, said) = mpsc::channel();
        let run = |runner: &mut Runner, work: InTransaction| {
            let sender = sender.clone();
            runner.start(&work, move |said| drop(sender.send(said)));
        };
        run(&mut runner, Arc::new(|_| panic!("no luck")));
        assert!(matches!(said.recv(), Ok(Said::Ended(Err(why))) if why.contains("no luck")));

        let (go, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let hangs: InTransaction = Arc::new(move |_| {
            let _ = wait.lock().unwrap().recv();
            Ok(())
        });
        run(&mut runner, hangs);
        runner.abandon();
        run(&mut runner, Arc::new(|_| Err("second".into())));
        assert!(matches!(said.recv(), Ok(Said::Ended(Err(why))) if why == "second"));
        drop(go);
        assert!(matches!(said.recv(), Ok(Said::Ended(Ok(())))));
    }
}
