//! What the worker never asks of a store.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;

use super::fake::Fake;
use crate::store::*;

impl Keys for Fake {
    fn reserve(&self, _: NewKey) -> StoreFuture<'static, Reserved> {
        unimplemented!("the worker knows no idempotency keys of an API")
    }
    fn take_over(&self, _: i64, _: Duration) -> StoreFuture<'static, Option<HeldKey>> {
        unimplemented!()
    }
    fn step(&self, _: HeldKey, _: KeyStep) -> StoreFuture<'static, bool> {
        unimplemented!()
    }
    fn answer(&self, _: HeldKey, _: Answering) -> BoxFuture<'static, Result<Arc<KeptAnswer>, TransactionError>> {
        unimplemented!()
    }
    fn abandoned(&self, _: u32) -> StoreFuture<'_, Vec<KeyRow>> {
        unimplemented!()
    }
    fn keys(&self, _: KeyFilter) -> StoreFuture<'_, Vec<KeyRow>> {
        unimplemented!()
    }
    fn key(&self, _: i64) -> StoreFuture<'_, Option<(KeyRow, Option<KeptAnswer>)>> {
        unimplemented!()
    }
    fn key_stats(&self) -> StoreFuture<'_, KeyStats> {
        unimplemented!()
    }
    fn reapable(&self, _: Duration) -> StoreFuture<'_, u64> {
        unimplemented!()
    }
    fn reap(&self, _: Duration, _: u32) -> StoreFuture<'_, u64> {
        unimplemented!()
    }
}

impl Outbox for Fake {
    fn relay(&self, _: Arc<TopicRoutes>) -> StoreFuture<'_, Relayed> {
        unimplemented!()
    }

    fn backlog(&self) -> StoreFuture<'_, Backlog> {
        unimplemented!()
    }
}
crate::store::testing::no_upkeep!(Fake);

impl Admin for Fake {
    fn events(&self, _: EventFilter, _: Option<i64>, _: u32) -> StoreFuture<'_, Page> {
        unimplemented!()
    }

    fn count(&self, _: EventFilter) -> StoreFuture<'_, u64> {
        unimplemented!()
    }

    fn event<'a>(&'a self, _: &'a str, _: &'a str) -> StoreFuture<'a, Option<EventDetail>> {
        unimplemented!()
    }

    fn payload<'a>(&'a self, _: &'a str, _: &'a str) -> StoreFuture<'a, Option<Received>> {
        unimplemented!()
    }

    fn reprocess(&self, _: Reprocess, _: Who) -> StoreFuture<'_, Reprocessed> {
        unimplemented!()
    }

    fn discard<'a>(&'a self, _: &'a str, _: &'a str, _: Who) -> StoreFuture<'a, Option<Discarded>> {
        unimplemented!()
    }

    fn prepare<'a>(&'a self, _: &'a str, _: usize) -> StoreFuture<'a, Prepared> {
        Box::pin(async { Ok(Prepared::Fine) })
    }

    fn stats(&self) -> StoreFuture<'_, Stats> {
        unimplemented!()
    }

    fn purge(&self, _: PurgePolicy, _: bool) -> StoreFuture<'_, Purged> {
        unimplemented!()
    }

    fn secrets(&self) -> StoreFuture<'_, Vec<SealedSecret>> {
        unimplemented!()
    }

    fn set_secret<'a>(&'a self, _: &'a str, _: Option<Vec<u8>>, _: &'a str) -> StoreFuture<'a, bool> {
        unimplemented!()
    }

    fn ping(&self) -> StoreFuture<'_, ()> {
        unimplemented!()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        unimplemented!()
    }
}
