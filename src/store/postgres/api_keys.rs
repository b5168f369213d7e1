//! What `idempotency` asks: the keys of an API's writes.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;

use super::{
    super::{
        Answering, Applied, HeldKey, KeptAnswer, KeyFilter, KeyRow, KeyStats, KeyStep, Keys, LONGEST, NewKey, Reserved,
        StoreError, StoreFuture, TransactionError, keys::Completes,
    },
    PostgresStore, key_found, key_rows, key_sent,
};

impl Keys for PostgresStore {
    fn reserve(&self, new: NewKey) -> StoreFuture<'static, Reserved> {
        self.keys.reserve(new)
    }

    fn take_over(&self, id: i64, lease: Duration) -> StoreFuture<'static, Option<HeldKey>> {
        self.people
            .ask(move |db| Box::pin(async move { key_found::take_over(db, id, lease).await }))
    }

    fn step(&self, held: HeldKey, step: KeyStep) -> StoreFuture<'static, bool> {
        self.keys.step(held, step)
    }

    fn answer(&self, held: HeldKey, work: Answering) -> BoxFuture<'static, Result<Arc<KeptAnswer>, TransactionError>> {
        let (key, work) = Completes::new(held, work);
        let answer = key.answer.clone();
        let done = self.transactions.ask_while_waiting(move |db| {
            Box::pin(async move { key_rows::transact(db, (&work, Some(&key)), LONGEST).await })
        });
        Box::pin(async move {
            match done.await? {
                Applied::Done => Ok(Arc::new(answer.take().ok_or(StoreError::Closed)?)),
                Applied::Stale => Err(TransactionError::Stale),
                Applied::Failed(why) => Err(TransactionError::Failed(why)),
            }
        })
    }

    fn abandoned(&self, limit: u32) -> StoreFuture<'_, Vec<KeyRow>> {
        Box::pin(async move {
            let ids = key_sent::walk(&self.people, limit as usize).await?;
            match ids.is_empty() {
                true => Ok(Vec::new()),
                false => key_rows::abandoned(&self.read, &ids).await,
            }
        })
    }

    fn keys(&self, filter: KeyFilter) -> StoreFuture<'_, Vec<KeyRow>> {
        Box::pin(async move { key_rows::list(&self.read, &filter).await })
    }

    fn key(&self, id: i64) -> StoreFuture<'_, Option<(KeyRow, Option<KeptAnswer>)>> {
        Box::pin(key_rows::one(&self.read, id))
    }

    fn key_stats(&self) -> StoreFuture<'_, KeyStats> {
        Box::pin(self.key_stats.get(key_rows::stats(&self.read)))
    }

    fn reapable(&self, age: Duration) -> StoreFuture<'_, u64> {
        Box::pin(key_rows::reapable(&self.read, age))
    }

    fn reap(&self, age: Duration, limit: u32) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            let gone = self
                .people
                .ask(move |db| Box::pin(async move { key_rows::reap(db, age, limit).await }))
                .await?;
            // With the last batch: a program of its own that reaps may have nobody who asks for what was abandoned.
            if gone < u64::from(limit) {
                key_sent::walk(&self.people, 0).await?;
            }
            Ok(gone)
        })
    }
}
