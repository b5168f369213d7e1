//! Idempotency keys: a task that reserves keys and takes steps with them, many in one statement.

use std::collections::HashMap;

use sqlx::{PgConnection, postgres::PgBindIterExt as _};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::{
    super::{HeldKey, KeyState, KeyStep, NewKey, Reserved, StoreError, StoreFuture, keys::write_headers},
    actor::Closing,
    connect::{Failed, Fault, Link},
    key_found::{Found, look, renew},
    micros,
};

/// Keys in one statement, at most.
const BATCH: usize = 512;
/// Bytes of answers in one statement, at most; a larger one goes alone.
const BATCH_BYTES: usize = 8 << 20;
/// Tries of a batch that met a deadlock, and of a key that was there and is gone.
const TRIES: u32 = 3;

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

enum Message {
    Reserve(NewKey, Reply<Reserved>),
    Step(HeldKey, KeyStep, Reply<bool>),
}

impl Message {
    fn bytes(&self) -> usize {
        match self {
            Self::Step(_, KeyStep::Complete(kept), _) => kept.body.as_ref().map_or(0, bytes::Bytes::len),
            _ => 0,
        }
    }

    fn fail(self, error: &StoreError) {
        match self {
            Self::Reserve(_, reply) => drop(reply.send(Err(error.clone()))),
            Self::Step(_, _, reply) => drop(reply.send(Err(error.clone()))),
        }
    }
}

/// The task's queue.
pub(super) struct KeyDesk(mpsc::UnboundedSender<Message>);

impl KeyDesk {
    pub(super) fn start(link: Link, closing: &Closing) -> Self {
        let (sender, queue) = mpsc::unbounded_channel();
        let keeper = Keeper {
            queue,
            link,
            closing: closing.clone(),
        };
        closing.tasks.spawn(keeper.run());
        Self(sender)
    }

    pub(super) fn reserve(&self, new: NewKey) -> StoreFuture<'static, Reserved> {
        self.ask(|reply| Message::Reserve(new, reply))
    }

    pub(super) fn step(&self, held: HeldKey, step: KeyStep) -> StoreFuture<'static, bool> {
        self.ask(|reply| Message::Step(held, step, reply))
    }

    fn ask<T: Send + 'static>(&self, message: impl FnOnce(Reply<T>) -> Message) -> StoreFuture<'static, T> {
        let (reply, answer) = oneshot::channel();
        let sent = self.0.send(message(reply));
        Box::pin(async move {
            sent.map_err(|_| StoreError::Closed)?;
            answer.await.unwrap_or(Err(StoreError::Closed))
        })
    }
}

struct Keeper {
    queue: mpsc::UnboundedReceiver<Message>,
    link: Link,
    closing: Closing,
}

impl Keeper {
    async fn run(mut self) {
        while let Some(first) = self.closing.next(&mut self.queue).await {
            let mut bytes = first.bytes();
            let mut batch = vec![first];
            while batch.len() < BATCH && bytes < BATCH_BYTES {
                let Ok(next) = self.queue.try_recv() else { break };
                bytes += next.bytes();
                batch.push(next);
            }
            self.flush(batch).await;
        }
    }

    /// Writes a batch; where the values of one are at fault, only that one is refused.
    async fn flush(&mut self, batch: Vec<Message>) {
        let mut waiting = vec![batch];
        while let Some(mut batch) = waiting.pop() {
            let failed = match self.write(&mut batch).await {
                Ok(()) => continue,
                Err(failed) => failed,
            };
            if failed.fault == Fault::Data && batch.len() > 1 {
                waiting.push(batch.split_off(batch.len() / 2));
                waiting.push(batch);
                continue;
            }
            tracing::warn!(error = %failed.error, "idempotency keys could not be written");
            batch.into_iter().for_each(|message| message.fail(&failed.error));
            if failed.fault != Fault::Data {
                waiting
                    .drain(..)
                    .flatten()
                    .for_each(|message| message.fail(&failed.error));
                self.link.back_off().await;
            }
        }
    }

    /// On success everyone has their answer, and the batch is empty.
    async fn write(&mut self, batch: &mut Vec<Message>) -> Result<(), Failed> {
        let limit = self.link.limit();
        let mut tries = 1;
        let written = loop {
            // Sorted, so that replicas lock in the same order.
            let result = timeout(limit, Batch::new(batch).write(self.link.get().await?)).await;
            match self.link.end(result) {
                Err(failed) if failed.fault == Fault::Again && tries < TRIES => tries += 1,
                other => break other?,
            }
        };
        let mut taken = Vec::new();
        let mut nth = 0_i64;
        for message in batch.drain(..) {
            match message {
                Message::Step(_, _, reply) => {
                    nth += 1;
                    let _ = reply.send(Ok(written.steps.contains(&nth)));
                }
                Message::Reserve(new, reply) => taken.push((new, reply)),
            }
        }
        let mut tokens = written.tokens.into_iter();
        let mut rest = Vec::new();
        for (new, reply) in taken {
            let token = tokens.next().unwrap_or_default();
            match written.added.get(&token) {
                Some(id) => drop(reply.send(Ok(Reserved::Yours(HeldKey { id: *id, token })))),
                None => rest.push((new, reply)),
            }
        }
        if rest.is_empty() {
            return Ok(());
        }
        self.tell(rest).await;
        Ok(())
    }

    /// Tells those that got no key what is there, in a new statement, because the inserting one need not see it.
    async fn tell(&mut self, rest: Vec<(NewKey, Reply<Reserved>)>) {
        let limit = self.link.limit();
        let result = match self.link.get().await {
            Ok(db) => timeout(limit, look(db, &rest)).await,
            Err(failed) => {
                return rest
                    .into_iter()
                    .for_each(|(_, reply)| drop(reply.send(Err(failed.error.clone()))));
            }
        };
        let found = match self.link.end(result) {
            Ok(found) => found,
            Err(failed) => {
                return rest
                    .into_iter()
                    .for_each(|(_, reply)| drop(reply.send(Err(failed.error.clone()))));
            }
        };
        let mut found: HashMap<usize, Found> = found.into_iter().collect();
        for (at, (new, reply)) in rest.into_iter().enumerate() {
            let reserved = match found.remove(&at) {
                Some(found) if found.is_over => self.renew(&new, &found).await,
                Some(found) => Ok(found.taken()),
                // There a moment ago, and gone: released. To the client it was still running.
                None => Ok(Reserved::Taken {
                    id: 0,
                    request_hash: new.request_hash,
                    state: KeyState::Processing {
                        left: std::time::Duration::ZERO,
                    },
                }),
            };
            let _ = reply.send(reserved);
        }
    }

    /// Begins a key anew that is expired or that nobody runs and that sent nothing, unless another was first.
    async fn renew(&mut self, new: &NewKey, found: &Found) -> Result<Reserved, StoreError> {
        let limit = self.link.limit();
        let db = self.link.get().await.map_err(|failed| failed.error)?;
        let result = timeout(limit, renew(db, new, found)).await;
        match self.link.end(result).map_err(|failed| failed.error)? {
            Some(held) => Ok(Reserved::Yours(held)),
            None => Ok(Reserved::Taken {
                id: found.id,
                request_hash: found.request_hash,
                state: KeyState::Processing { left: new.lease },
            }),
        }
    }
}

/// One batch as the statement takes it.
struct Batch<'a> {
    news: Vec<(i64, &'a NewKey)>,
    steps: Vec<(HeldKey, &'a KeyStep)>,
    /// In the order of the messages.
    tokens: Vec<i64>,
}

struct Written {
    /// Ids by token.
    added: HashMap<i64, i64>,
    /// Places of the steps that were taken, from 1.
    steps: Vec<i64>,
    tokens: Vec<i64>,
}

impl<'a> Batch<'a> {
    fn new(messages: &'a [Message]) -> Self {
        let mut batch = Self {
            news: Vec::new(),
            steps: Vec::new(),
            tokens: Vec::new(),
        };
        for message in messages {
            match message {
                Message::Reserve(new, _) => {
                    let token = rand::random();
                    batch.tokens.push(token);
                    batch.news.push((token, new));
                }
                Message::Step(held, step, _) => batch.steps.push((*held, step)),
            }
        }
        batch.news.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        batch
    }

    async fn write(self, db: &mut PgConnection) -> sqlx::Result<Written> {
        let news = || self.news.iter();
        let steps = || self.steps.iter();
        let kept = |step: &'a KeyStep| match step {
            KeyStep::Complete(kept) => Some(kept),
            _ => None,
        };
        let rows: Vec<(bool, i64, i64)> = sqlx::query_as(include_str!("keys.sql"))
            .bind(news().map(|(_, n)| &*n.name.scope).bind_iter())
            .bind(news().map(|(_, n)| &*n.name.method).bind_iter())
            .bind(news().map(|(_, n)| &*n.name.route).bind_iter())
            .bind(news().map(|(_, n)| &*n.name.key).bind_iter())
            .bind(news().map(|(_, n)| n.request_hash.as_slice()).bind_iter())
            .bind(news().map(|(token, _)| *token).bind_iter())
            .bind(news().map(|(_, n)| micros(n.lease)).bind_iter())
            .bind(news().map(|(_, n)| micros(n.expiry)).bind_iter())
            .bind(steps().map(|(held, _)| held.id).bind_iter())
            .bind(steps().map(|(held, _)| held.token).bind_iter())
            .bind(steps().map(|(_, step)| word(step)).bind_iter())
            .bind(
                steps()
                    .map(|(_, step)| kept(step).map(|kept| kept.key_status()))
                    .bind_iter(),
            )
            .bind(
                steps()
                    .map(|(_, step)| kept(step).map(|kept| i32::from(kept.status)))
                    .bind_iter(),
            )
            .bind(
                steps()
                    .map(|(_, step)| kept(step).map(|kept| write_headers(&kept.headers)))
                    .bind_iter(),
            )
            .bind(
                steps()
                    .map(|(_, step)| kept(step).and_then(|kept| kept.resource_id.as_deref()))
                    .bind_iter(),
            )
            .bind(
                steps()
                    .map(|(_, step)| kept(step).and_then(|kept| kept.body.as_deref()))
                    .bind_iter(),
            )
            .fetch_all(db)
            .await?;
        let mut written = Written {
            added: HashMap::new(),
            steps: Vec::new(),
            tokens: self.tokens,
        };
        for (is_new, number, id) in rows {
            if is_new {
                written.added.insert(number, id);
            } else {
                written.steps.push(number);
            }
        }
        Ok(written)
    }
}

fn word(step: &KeyStep) -> &'static str {
    match step {
        KeyStep::Sent => "sent",
        KeyStep::Complete(_) => "complete",
        KeyStep::Release => "release",
        KeyStep::Return => "return",
        KeyStep::GiveUp => "give_up",
        KeyStep::Abandon => "abandon",
    }
}
