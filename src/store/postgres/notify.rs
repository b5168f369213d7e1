//! Tells the workers of other processes that deliveries became ready. A hint only: workers poll always, so a notification
//! that a pooler drops or a failover loses delays work by one poll.
//!
//! A transaction with a NOTIFY takes a lock of the whole database at its commit. So it is sent after the commit of the
//! events, on a connection of its own that does not wait for the disk, and at most once in [`PAUSE`] for any number of them.

use std::{sync::Arc, time::Duration};

use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use super::{super::Handoff, actor::Closing, connect::Link};

/// The least time between two notifications of one process.
const PAUSE: Duration = Duration::from_millis(100);

/// How long to wait before the listener is made anew.
const AGAIN: Duration = Duration::from_secs(5);

const CHANNEL: &str = "cerca.ready";

/// The way to the task that sends.
#[derive(Clone)]
pub(super) struct Notifier(Arc<Notify>);

impl Notifier {
    /// `own` names this process, which needs no notification of its own.
    pub(super) fn start(mut link: Link, own: u64, closing: &Closing) -> Self {
        let due = Arc::new(Notify::new());
        let (asked, token) = (Arc::clone(&due), closing.token.clone());
        closing.tasks.spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    () = token.cancelled() => return,
                    () = asked.notified() => {}
                }
                let sent = link.run(move |db| {
                    Box::pin(async move {
                        sqlx::query("SELECT pg_notify($1, $2::text || ' ' || current_schema()::text)")
                            .bind(CHANNEL)
                            .bind(own.to_string())
                            .execute(db)
                            .await
                    })
                });
                if let Err(failed) = sent.await {
                    tracing::debug!(error = %failed.error, "other processes were not notified; they poll");
                }
                tokio::select! {
                    () = token.cancelled() => return,
                    () = sleep(PAUSE) => {}
                }
            }
        });
        Self(due)
    }

    /// Has the others told soon. Costs nothing when it was asked already.
    pub(super) fn notify(&self) {
        self.0.notify_one();
    }
}

/// Wakes the local worker for what other processes say, until the store closes.
pub(super) fn listen(server: &PgConnectOptions, own: u64, handoff: Arc<dyn Handoff>, closing: &Closing) {
    let token = closing.token.clone();
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(AGAIN)
        .connect_lazy_with(server.clone().application_name("cerca listen"));
    closing.tasks.spawn(async move {
        tokio::select! {
            () = token.cancelled() => {}
            () = hear(&pool, own, &*handoff) => {}
        }
        let _ = timeout(AGAIN, pool.close()).await;
    });
}

async fn hear(pool: &PgPool, own: u64, handoff: &dyn Handoff) {
    let own = format!("{own} ");
    loop {
        if let Err(error) = hear_until_cut(pool, &own, handoff).await {
            tracing::debug!(%error, "notifications of other processes cannot be heard; the worker polls");
        }
        sleep(AGAIN.mul_f64(0.5 + rand::random::<f64>() / 2.0)).await;
        // For what was said meanwhile.
        handoff.wake();
    }
}

async fn hear_until_cut(pool: &PgPool, own: &str, handoff: &dyn Handoff) -> sqlx::Result<()> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(CHANNEL).await?;
    let schema: Option<String> = sqlx::query_scalar("SELECT current_schema()::text")
        .fetch_one(&mut listener)
        .await?;
    let schema = schema.unwrap_or_default();
    loop {
        let Some(said) = listener.try_recv().await? else {
            handoff.wake();
            continue;
        };
        let of_schema = said.payload().split_once(' ').is_some_and(|(_, of)| of == schema);
        if of_schema && !said.payload().starts_with(own) {
            handoff.wake();
        }
    }
}
