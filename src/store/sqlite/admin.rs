//! What people, the API and the timetable ask.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::{
    super::{
        Admin, Discarded, EventDetail, EventFilter, Page, Prepared, PurgePolicy, Purged, Received, Reprocess,
        ReprocessScope, Reprocessed, SealedSecret, Stats, StoreFuture, Who, task::Task,
    },
    CHUNK, SqliteStore, effects, people, purge, read, secrets, writer,
};

impl Admin for SqliteStore {
    fn events(&self, filter: EventFilter, cursor: Option<i64>, limit: u32) -> StoreFuture<'_, Page> {
        Box::pin(async move { read::events(&self.read, &filter, cursor, limit).await })
    }

    fn count(&self, filter: EventFilter) -> StoreFuture<'_, u64> {
        Box::pin(async move { read::count(&self.read, &filter).await })
    }

    fn event<'a>(&'a self, provider: &'a str, provider_event_id: &'a str) -> StoreFuture<'a, Option<EventDetail>> {
        Box::pin(async move { read::event(&self.read, provider, provider_event_id).await })
    }

    fn payload<'a>(&'a self, provider: &'a str, provider_event_id: &'a str) -> StoreFuture<'a, Option<Received>> {
        Box::pin(async move { read::payload(&self.read, provider, provider_event_id).await })
    }

    fn reprocess(&self, what: Reprocess, who: Who) -> StoreFuture<'_, Reprocessed> {
        Box::pin(async move {
            let task = Task::new(&what, &who, &self.ordered);
            let filter = match what.filter {
                ReprocessScope::Event {
                    provider,
                    provider_event_id,
                } => {
                    let id = read::id(&self.read, &provider, &provider_event_id).await?;
                    return match id {
                        Some(id) => Ok(self
                            .on_writer(move |db| people::reprocess(db, &task, &[id], None))
                            .await?
                            .0),
                        None => Ok(Reprocessed::default()),
                    };
                }
                ReprocessScope::Filter(filter) => filter,
            };
            let (mut total, mut cursor, mut audit) = (Reprocessed::default(), None, None);
            loop {
                let ids = read::ids(&self.read, &filter, cursor, CHUNK).await?;
                cursor = ids.last().copied();
                if cursor.is_none() {
                    return Ok(total);
                }
                let task = Arc::clone(&task);
                let (some, row) = self
                    .on_writer(move |db| people::reprocess(db, &task, &ids, audit))
                    .await?;
                audit = row;
                total.events += some.events;
                total.deliveries += some.deliveries;
            }
        })
    }

    fn discard<'a>(
        &'a self,
        provider: &'a str,
        provider_event_id: &'a str,
        who: Who,
    ) -> StoreFuture<'a, Option<Discarded>> {
        Box::pin(async move {
            let Some(id) = read::id(&self.read, provider, provider_event_id).await? else {
                return Ok(None);
            };
            let target = format!("{provider}:{provider_event_id}");
            self.on_writer(move |db| people::discard(db, id, &target, &who)).await
        })
    }

    fn stats(&self) -> StoreFuture<'_, Stats> {
        Box::pin(self.stats.get(read::stats(&self.read)))
    }

    fn prepare<'a>(&'a self, statement: &'a str, params: usize) -> StoreFuture<'a, Prepared> {
        let statement = statement.to_owned();
        self.on_writer(move |db| Ok(effects::prepare(db, &statement, params)))
    }

    fn purge(&self, policy: PurgePolicy, dry_run: bool) -> StoreFuture<'_, Purged> {
        Box::pin(async move {
            let from = self.purge.start(dry_run);
            let walked = self
                .on_writer(move |db| purge::purge(db, policy, dry_run, from, CHUNK))
                .await?;
            self.purge.advance(dry_run, walked.next);
            Ok(walked.purged)
        })
    }

    fn secrets(&self) -> StoreFuture<'_, Vec<SealedSecret>> {
        Box::pin(secrets::list(&self.read))
    }

    fn set_secret<'a>(&'a self, provider: &'a str, sealed: Option<Vec<u8>>, source: &'a str) -> StoreFuture<'a, bool> {
        let (provider, source) = (provider.to_owned(), source.to_owned());
        Box::pin(async move {
            self.on_writer(move |db| secrets::set(db, &provider, sealed.as_deref(), &source))
                .await
        })
    }

    fn ping(&self) -> StoreFuture<'_, ()> {
        // BEGIN IMMEDIATE takes the write lock; a full disk shows itself at the first real write.
        self.on_writer(|_| Ok(()))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let _ = self.writer.send(writer::Message::Close);
            if let Some(thread) = self.thread.lock().await.take() {
                let _ = tokio::task::spawn_blocking(move || thread.join()).await;
            }
            self.read.close().await;
        })
    }
}
