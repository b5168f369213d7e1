//! What `idempotency` asks: the keys of an API's writes.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::future::BoxFuture;

use super::{
    super::{
        HeldKey, KeptAnswer, KeyFilter, KeyRow, KeyStats, KeyStep, KeyWork, Keys, NewKey, Reserved, StoreFuture,
        WorkError,
    },
    PostgresStore, key_found, key_rows,
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

    fn answer(&self, held: Option<HeldKey>, work: KeyWork) -> BoxFuture<'static, Result<Arc<KeptAnswer>, WorkError>> {
        let turn = self.next_transaction.fetch_add(1, Ordering::Relaxed) % self.transactions.len();
        let done = self.transactions[turn].ask(move |db| Box::pin(key_rows::transact(db, held, work)));
        Box::pin(async move { done.await?.map(Arc::new) })
    }

    fn abandoned(&self, limit: u32) -> StoreFuture<'_, Vec<KeyRow>> {
        Box::pin(key_rows::abandoned(&self.read, limit))
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

    fn reap(&self, age: Duration, limit: u32) -> StoreFuture<'_, u64> {
        self.people
            .ask(move |db| Box::pin(async move { key_rows::reap(db, age, limit).await }))
    }
}
