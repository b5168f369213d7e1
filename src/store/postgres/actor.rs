//! Tasks that own a connection, and how they end. No statement runs in a future that a caller can drop.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use sqlx::PgConnection;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    super::{StoreError, StoreFuture},
    connect::Link,
};

/// Ends the tasks when the store closes: what is queued is finished first.
#[derive(Clone, Default)]
pub(super) struct Closing {
    pub(super) token: CancellationToken,
    pub(super) tasks: TaskTracker,
}

impl Closing {
    /// The next message; `None` when the store is closed and nothing is queued any more.
    pub(super) async fn next<T>(&self, receiver: &mut mpsc::UnboundedReceiver<T>) -> Option<T> {
        tokio::select! {
            biased;
            message = receiver.recv() => message,
            () = self.token.cancelled() => {
                receiver.close();
                receiver.recv().await
            }
        }
    }
}

type Work = Box<dyn for<'c> FnOnce(&'c mut Link) -> BoxFuture<'c, ()> + Send>;

/// A task that does one piece of work after the other, or several that share a queue.
pub(super) struct Actor(mpsc::UnboundedSender<Work>);

impl Actor {
    pub(super) fn start(link: Link, closing: &Closing) -> Self {
        Self::pool([link], closing)
    }

    /// One task for each connection; what is queued goes to the first that has time.
    pub(super) fn pool(links: impl IntoIterator<Item = Link>, closing: &Closing) -> Self {
        let (sender, queue) = mpsc::unbounded_channel::<Work>();
        let queue = Arc::new(Mutex::new(queue));
        for mut link in links {
            let (queue, ending) = (Arc::clone(&queue), closing.clone());
            closing.tasks.spawn(async move {
                loop {
                    let next = ending.next(&mut *queue.lock().await).await;
                    let Some(work) = next else { break };
                    work(&mut link).await;
                }
            });
        }
        Self(sender)
    }

    /// Queues work, and waits for its end; it goes on without the waiter.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        work: impl for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, sqlx::Result<T>> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        self.queue(work, false)
    }

    /// The same for what is of use only to the waiter: when nobody waits any more, it does not begin.
    pub(super) fn ask_while_waiting<T: Send + 'static>(
        &self,
        work: impl for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, sqlx::Result<T>> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        self.queue(work, true)
    }

    fn queue<T: Send + 'static>(
        &self,
        work: impl for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, sqlx::Result<T>> + Send + 'static,
        only_while_waiting: bool,
    ) -> StoreFuture<'static, T> {
        let (reply, answer) = oneshot::channel();
        let sent = self.0.send(Box::new(move |link| {
            Box::pin(async move {
                if only_while_waiting && reply.is_closed() {
                    return;
                }
                let done = link.run(work).await.map_err(|failed| failed.error);
                let _ = reply.send(done);
            })
        }));
        Box::pin(async move {
            sent.map_err(|_| StoreError::Closed)?;
            answer.await.unwrap_or(Err(StoreError::Closed))
        })
    }
}
