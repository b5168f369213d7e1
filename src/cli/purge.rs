//! `cerca purge`: retention by hand, batch after batch.

use std::{
    io::{self, IsTerminal as _},
    process::ExitCode,
    sync::Arc,
};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::{context::Context, output::counted};
use crate::{
    app,
    config::Retention,
    store::{PurgePolicy, Purged, Store, StoreError},
};

/// Idempotency keys in one transaction.
const BATCH: u32 = 500;

#[derive(Debug, Args)]
pub(super) struct Purge {
    /// Only count what would go
    #[arg(long)]
    dry_run: bool,
}

impl Purge {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let config = context.config()?;
        let store = context.store(&config).await?;
        let policy = app::purge_policy(&config.retention);
        let result = if self.dry_run {
            would_remove(&*store, policy, &config.retention).await
        } else {
            match purge(&store, policy).await {
                Ok(purged) => reap(&store, &config.retention).await.map(|keys| (purged, keys)),
                Err(error) => Err(error),
            }
        };
        store.close().await;
        let (purged, keys) = result?;
        if context.out.json {
            context.out.object(&serde_json::json!({
                "payloads": purged.payloads, "events": purged.events, "idempotency_keys": keys, "dry_run": self.dry_run,
            }))?;
        } else {
            let verb = if self.dry_run { "Would remove" } else { "Removed" };
            context.out.line(format!(
                "{verb} the payloads of {}, and {} whole.",
                counted(purged.payloads, "event", "events"),
                counted(purged.events, "event", "events")
            ))?;
            if keys > 0 {
                let keys = counted(keys, "idempotency key", "idempotency keys");
                context.out.line(format!("{verb} {keys}."))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn would_remove(
    store: &dyn Store,
    policy: PurgePolicy,
    retention: &Retention,
) -> Result<(Purged, u64), StoreError> {
    let purged = store.purge(policy, true).await?;
    Ok((purged, store.reapable(retention.idempotency_keys).await?))
}

/// Old idempotency keys; gives how many went.
async fn reap(store: &Arc<dyn Store>, retention: &Retention) -> Result<u64, StoreError> {
    let mut total = 0;
    loop {
        let gone = store.reap(retention.idempotency_keys, BATCH).await?;
        total += gone;
        if gone < u64::from(BATCH) {
            return Ok(total);
        }
    }
}

async fn purge(store: &Arc<dyn Store>, policy: PurgePolicy) -> Result<Purged, StoreError> {
    let bar = bar(store, policy).await?;
    let mut total = Purged::default();
    loop {
        let batch = store.purge(policy, false).await?;
        total.payloads += batch.payloads;
        total.events += batch.events;
        if let Some(bar) = &bar {
            bar.set_position(total.payloads + total.events);
        }
        if !batch.more {
            break;
        }
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(total)
}

/// A progress bar where a person looks on; counting first costs a query that nobody else needs.
async fn bar(store: &Arc<dyn Store>, policy: PurgePolicy) -> Result<Option<ProgressBar>, StoreError> {
    if !io::stderr().is_terminal() {
        return Ok(None);
    }
    let ahead = store.purge(policy, true).await?;
    let bar = ProgressBar::new(ahead.payloads + ahead.events);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {human_pos}/{human_len}  {per_sec}  {eta} left") {
        bar.set_style(style);
    }
    Ok(Some(bar))
}
