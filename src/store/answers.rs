//! The way back from a commit to the requests that wait for it. To wake another thread costs a system call; so each thread
//! that has many requests takes the answers of a batch together, with one wake-up, and passes them on itself.

use std::{
    cell::RefCell,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Notify, oneshot};

use super::{Accepted, StoreError};

pub(super) type Answer = Result<Vec<Accepted>, StoreError>;
type Letter = (oneshot::Sender<Answer>, Answer);

thread_local! {
    static HERE: RefCell<Option<Arc<Mailbox>>> = const { RefCell::new(None) };
}

/// Where the answers for one thread are left.
#[derive(Default)]
struct Mailbox {
    letters: Mutex<Vec<Letter>>,
    arrived: Notify,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Vec<Letter>> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whom to answer.
pub(super) struct Waiter {
    reply: oneshot::Sender<Answer>,
    /// Of the thread that asked, if it takes its answers together.
    mailbox: Option<Arc<Mailbox>>,
}

impl Waiter {
    /// The waiter may be gone; what it asked for is done all the same.
    pub(super) fn answer(self, answer: Answer) {
        let _ = self.reply.send(answer);
    }
}

pub(super) fn channel() -> (Waiter, oneshot::Receiver<Answer>) {
    let (reply, answer) = oneshot::channel();
    let mailbox = HERE.with_borrow(Clone::clone);
    (Waiter { reply, mailbox }, answer)
}

/// Gives everyone their answer.
pub(super) fn deliver(answers: impl Iterator<Item = (Waiter, Answer)>) {
    let mut bags: Vec<(Arc<Mailbox>, Vec<Letter>)> = Vec::new();
    for (waiter, answer) in answers {
        let Some(mailbox) = waiter.mailbox else {
            let _ = waiter.reply.send(answer);
            continue;
        };
        let letter = (waiter.reply, answer);
        match bags.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &mailbox)) {
            Some((_, letters)) => letters.push(letter),
            None => bags.push((mailbox, vec![letter])),
        }
    }
    for (mailbox, mut letters) in bags {
        // One answer has no use for the detour.
        if letters.len() == 1
            && let Some((reply, answer)) = letters.pop()
        {
            let _ = reply.send(answer);
            continue;
        }
        mailbox.lock().append(&mut letters);
        mailbox.arrived.notify_one();
    }
}

/// From here on, requests that this thread makes get their answers together. To be run on the same thread for as long as
/// it makes requests; when it is dropped, answers come one by one again.
pub(crate) fn together() -> impl Future<Output = ()> {
    struct Open(Arc<Mailbox>);
    impl Drop for Open {
        fn drop(&mut self) {
            let _ = HERE.try_with(|here| here.take());
            pass_on(&self.0);
        }
    }
    fn pass_on(mailbox: &Mailbox) {
        let letters = mem::take(&mut *mailbox.lock());
        for (reply, answer) in letters {
            let _ = reply.send(answer);
        }
    }
    let open = Open(Arc::default());
    HERE.set(Some(Arc::clone(&open.0)));
    async move {
        loop {
            open.0.arrived.notified().await;
            pass_on(&open.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn answers_reach_their_own_requests_whichever_way_they_come() {
        let alone = channel();
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async move {
                let passing = tokio::task::spawn_local(together());
                let mut waiting = vec![alone];
                waiting.extend((0..9).map(|_| channel()));
                let (waiters, answers): (Vec<_>, Vec<_>) = waiting.into_iter().unzip();
                let count = |n: usize| Ok(vec![Accepted::Stored; n]);
                std::thread::spawn(move || {
                    deliver(waiters.into_iter().enumerate().map(|(n, waiter)| (waiter, count(n))));
                });
                for (n, answer) in answers.into_iter().enumerate() {
                    assert_eq!(answer.await.unwrap().unwrap().len(), n);
                }
                // Whoever is gone is passed over; what is left at the end comes too.
                let (one, two) = (channel(), channel());
                drop(one.1);
                passing.abort();
                deliver([(one.0, count(1)), (two.0, count(2))].into_iter());
                assert_eq!(two.1.await.unwrap().unwrap().len(), 2);
                let _ = passing.await;
                assert!(channel().0.mailbox.is_none());
            })
            .await;
    }
}
