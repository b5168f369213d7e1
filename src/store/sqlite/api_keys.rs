//! What `idempotency` asks: the keys of an API's writes.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;

use super::{
    super::{
        Answering, Applied, HeldKey, KeptAnswer, KeyFilter, KeyRow, KeyStats, KeyStep, Keys, LONGEST, NewKey, Reserved,
        StoreError, StoreFuture, TransactionError, keys::Completes,
    },
    SqliteStore,
    effects::Asked,
    job::single_job,
    keys,
};

impl Keys for SqliteStore {
    fn reserve(&self, new: NewKey) -> StoreFuture<'static, Reserved> {
        self.ask(single_job(move |db| keys::reserve(db, &new)))
    }

    fn take_over(&self, id: i64, lease: Duration) -> StoreFuture<'static, Option<HeldKey>> {
        self.on_writer(move |db| keys::take_over(db, id, lease))
    }

    fn step(&self, held: HeldKey, step: KeyStep) -> StoreFuture<'static, bool> {
        self.ask(single_job(move |db| keys::step(db, held, &step)))
    }

    fn answer(&self, held: HeldKey, work: Answering) -> BoxFuture<'static, Result<Arc<KeptAnswer>, TransactionError>> {
        let (key, work) = Completes::new(held, work);
        let answer = key.answer.clone();
        let done = self.apply_asked(Asked::Code {
            work,
            key: Some(key),
            limit: LONGEST,
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
        Box::pin(keys::abandoned(&self.read, limit))
    }

    fn keys(&self, filter: KeyFilter) -> StoreFuture<'_, Vec<KeyRow>> {
        Box::pin(async move { keys::list(&self.read, &filter).await })
    }

    fn key(&self, id: i64) -> StoreFuture<'_, Option<(KeyRow, Option<KeptAnswer>)>> {
        Box::pin(keys::one(&self.read, id))
    }

    fn key_stats(&self) -> StoreFuture<'_, KeyStats> {
        Box::pin(self.key_stats.get(keys::stats(&self.read)))
    }

    fn reapable(&self, age: Duration) -> StoreFuture<'_, u64> {
        Box::pin(keys::reapable(&self.read, age))
    }

    fn reap(&self, age: Duration, limit: u32) -> StoreFuture<'_, u64> {
        self.on_writer(move |db| keys::reap(db, age, limit))
    }
}
