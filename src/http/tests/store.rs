use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;

use crate::{
    domain::{Claim, EventStatus, NewEvent, Settle},
    store::*,
};

/// Keeps events in a list, and can be told to fail.
#[derive(Default)]
pub(super) struct MemoryStore {
    pub(super) events: Mutex<Vec<NewEvent>>,
    pub(super) failure: Mutex<Option<StoreError>>,
    pub(super) purged: AtomicBool,
    /// While set, accepted events are queued and not answered.
    pub(super) stalled: AtomicBool,
    pub(super) revived: Mutex<Vec<String>>,
    pub(super) reprocessed: Mutex<Vec<(Reprocess, Who)>>,
    pub(super) asked: Mutex<Vec<(EventFilter, Option<i64>, u32)>>,
}

impl MemoryStore {
    pub(super) fn fail(&self, error: impl Into<Option<StoreError>>) {
        *self.failure.lock().unwrap() = error.into();
    }

    pub(super) fn stored(&self) -> Vec<NewEvent> {
        self.events.lock().unwrap().clone()
    }

    fn check(&self) -> Result<(), StoreError> {
        self.failure.lock().unwrap().clone().map_or(Ok(()), Err)
    }

    fn take(&self, event: NewEvent) -> Accepted {
        let mut events = self.events.lock().unwrap();
        let same = |old: &&NewEvent| old.provider == event.provider && old.provider_event_id == event.provider_event_id;
        match events.iter().find(same) {
            Some(old) if old.body_sha256 == event.body_sha256 => Accepted::Duplicate,
            Some(_) => Accepted::Conflict,
            None => {
                events.push(event);
                Accepted::Stored
            }
        }
    }

    fn find(&self, provider: &str, id: &str) -> Option<(usize, NewEvent)> {
        let found = |(_, event): &(usize, NewEvent)| *event.provider == *provider && event.provider_event_id == id;
        self.stored().into_iter().enumerate().find(found)
    }
}

fn row((index, event): (usize, NewEvent)) -> EventRow {
    EventRow {
        id: i64::try_from(index).unwrap() + 1,
        provider: event.provider.to_string(),
        provider_event_id: event.provider_event_id,
        event_type: event.event_type,
        status: EventStatus::Pending,
        occurred_at: None,
        created_at: "2026-01-02T03:04:05Z".parse().unwrap(),
        processed_at: None,
        ordering_key: None,
        content_type: event.content_type,
        size: event.payload.len() as u64,
        body_sha256: event.body_sha256,
        conflicts: 0,
        filtered: Vec::new(),
        deliveries: Vec::new(),
    }
}

impl Store for MemoryStore {}

impl Native for MemoryStore {
    fn steps(&self, _: Lease) -> StoreFuture<'_, Option<Vec<Step>>> {
        unreachable!("requests have no steps")
    }
    fn record(&self, _: NewStep) -> StoreFuture<'_, bool> {
        unreachable!("requests have no steps")
    }
    fn transact(&self, _: InTransaction, _: Duration) -> StoreFuture<'static, ()> {
        unreachable!("requests have no transactions")
    }
}
crate::store::testing::no_upkeep!(MemoryStore);
impl Keys for MemoryStore {
    fn reserve(&self, _: NewKey) -> StoreFuture<'static, Reserved> {
        let failure = self.check().err().unwrap_or(StoreError::Closed);
        Box::pin(async { Err(failure) })
    }
    fn take_over(&self, _: i64, _: Duration) -> StoreFuture<'static, Option<HeldKey>> {
        unreachable!("no key is abandoned here")
    }
    fn step(&self, _: HeldKey, _: KeyStep) -> StoreFuture<'static, bool> {
        unreachable!("no key is held here")
    }
    fn answer(&self, _: HeldKey, _: Answering) -> BoxFuture<'static, Result<Arc<KeptAnswer>, TransactionError>> {
        unreachable!("no handler has a transaction here")
    }
    fn abandoned(&self, _: u32) -> StoreFuture<'_, Vec<KeyRow>> {
        unreachable!("requests do not push keys")
    }
    fn keys(&self, _: KeyFilter) -> StoreFuture<'_, Vec<KeyRow>> {
        Box::pin(async { self.check().map(|()| Vec::new()) })
    }
    fn key(&self, _: i64) -> StoreFuture<'_, Option<(KeyRow, Option<KeptAnswer>)>> {
        Box::pin(async { self.check().map(|()| None) })
    }
    fn key_stats(&self) -> StoreFuture<'_, KeyStats> {
        Box::pin(async { self.check().map(|()| KeyStats::default()) })
    }
    fn reapable(&self, _: Duration) -> StoreFuture<'_, u64> {
        unreachable!("requests do not reap")
    }
    fn reap(&self, _: Duration, _: u32) -> StoreFuture<'_, u64> {
        unreachable!("requests do not reap")
    }
}

impl Inbox for MemoryStore {
    fn accept(&self, events: Vec<NewEvent>) -> StoreFuture<'static, Vec<Accepted>> {
        let accepted = self
            .check()
            .map(|()| events.into_iter().map(|event| self.take(event)).collect());
        let stalled = self.stalled.load(Ordering::SeqCst);
        Box::pin(async move {
            if stalled {
                std::future::pending::<()>().await;
            }
            accepted
        })
    }

    fn revive<'a>(&'a self, provider: &'a str, id: &'a str, _: Who) -> StoreFuture<'a, u64> {
        self.revived.lock().unwrap().push(format!("{provider}:{id}"));
        let checked = self.check();
        Box::pin(async move { checked.map(|()| 1) })
    }

    fn set_handoff(&self, _: Arc<dyn Handoff>) {}
}

impl Queue for MemoryStore {
    fn claim(&self, _: ClaimRequest) -> StoreFuture<'_, Vec<Claim>> {
        unreachable!("requests do not claim")
    }
    fn claim_suspect(&self, _: Vec<Arc<str>>, _: Duration) -> StoreFuture<'_, Option<Claim>> {
        unreachable!("requests do not claim")
    }
    fn settle(&self, _: Settle) -> BoxFuture<'_, ()> {
        unreachable!("requests do not settle")
    }
    fn settle_each(&self, _: Vec<Settle>) -> StoreFuture<'_, Vec<Settled>> {
        unreachable!("no handler of these tests is pulled")
    }
    fn flush(&self) -> StoreFuture<'_, ()> {
        unreachable!("requests do not flush")
    }
    fn apply(&self, _: Effect) -> StoreFuture<'_, Applied> {
        unreachable!("requests do not apply")
    }
    fn renew(&self, _: Vec<Lease>, _: Duration) -> StoreFuture<'_, Vec<bool>> {
        unreachable!("requests do not renew")
    }
    fn sweep(&self, _: Vec<AttemptLimit>) -> StoreFuture<'_, Swept> {
        unreachable!("requests do not sweep")
    }
}

impl Outbox for MemoryStore {
    fn relay(&self, _: Arc<TopicRoutes>) -> StoreFuture<'_, Relayed> {
        unreachable!("requests do not relay")
    }

    fn backlog(&self) -> StoreFuture<'_, Backlog> {
        Box::pin(async { self.check().map(|()| Backlog::default()) })
    }
}

impl Admin for MemoryStore {
    fn events(&self, filter: EventFilter, cursor: Option<i64>, limit: u32) -> StoreFuture<'_, Page> {
        self.asked.lock().unwrap().push((filter, cursor, limit));
        let events = self.stored().into_iter().enumerate().map(row).collect();
        Box::pin(async move {
            self.check()?;
            Ok(Page { events, next: Some(7) })
        })
    }

    fn count(&self, _: EventFilter) -> StoreFuture<'_, u64> {
        Box::pin(async { Ok(self.stored().len() as u64) })
    }

    fn event<'a>(&'a self, provider: &'a str, id: &'a str) -> StoreFuture<'a, Option<EventDetail>> {
        let found = self.find(provider, id).map(|found| EventDetail {
            event: row(found),
            attempts: Vec::new(),
            steps: Vec::new(),
        });
        Box::pin(async { Ok(found) })
    }

    fn payload<'a>(&'a self, provider: &'a str, id: &'a str) -> StoreFuture<'a, Option<Received>> {
        let purged = self.purged.load(Ordering::SeqCst);
        let found = self.find(provider, id).map(|(_, event)| Received {
            content_type: event.content_type,
            headers: (!purged).then_some(event.headers),
            bytes: (!purged).then_some(event.payload),
        });
        Box::pin(async { Ok(found) })
    }

    fn reprocess(&self, what: Reprocess, who: Who) -> StoreFuture<'_, Reprocessed> {
        let events = match &what.filter {
            ReprocessScope::Event {
                provider,
                provider_event_id,
            } => {
                let is_there = self.find(provider, provider_event_id).is_some();
                u64::from(is_there && !self.purged.load(Ordering::SeqCst))
            }
            ReprocessScope::Filter(_) => self.stored().len() as u64,
        };
        self.reprocessed.lock().unwrap().push((what, who));
        Box::pin(async move {
            Ok(Reprocessed {
                events,
                deliveries: events * 2,
            })
        })
    }

    fn discard<'a>(&'a self, provider: &'a str, id: &'a str, _: Who) -> StoreFuture<'a, Option<Discarded>> {
        let found = self.find(provider, id).map(|_| Discarded {
            deliveries: 2,
            in_flight: 1,
        });
        Box::pin(async move { Ok(found) })
    }

    fn prepare<'a>(&'a self, _: &'a str, _: usize) -> StoreFuture<'a, Prepared> {
        Box::pin(async { Ok(Prepared::Fine) })
    }

    fn stats(&self) -> StoreFuture<'_, Stats> {
        Box::pin(async {
            self.check()?;
            Ok(Stats {
                events: self.stored().len() as u64,
                ..Stats::default()
            })
        })
    }

    fn purge(&self, _: PurgePolicy, _: bool) -> StoreFuture<'_, Purged> {
        unreachable!("requests do not purge")
    }

    fn secrets(&self) -> StoreFuture<'_, Vec<SealedSecret>> {
        Box::pin(async { self.check().map(|()| Vec::new()) })
    }

    fn set_secret<'a>(&'a self, _: &'a str, _: Option<Vec<u8>>, _: &'a str) -> StoreFuture<'a, bool> {
        unreachable!("no provider of these tests has a handshake that hands over a secret")
    }

    fn ping(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { self.check() })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
