//! `cerca stats`: what is stored and what waits.

use std::process::ExitCode;

use super::{
    context::Context,
    output::{grouped, table},
};
use crate::{http::json::StatsJson, store::Stats, units::format_duration};

pub(super) async fn run(context: &Context) -> anyhow::Result<ExitCode> {
    let config = context.config()?;
    let store = context.store(&config).await?;
    let stats = store.stats().await;
    store.close().await;
    let stats = stats?;
    if context.out.json {
        context.out.object(&StatsJson::from(&stats))?;
    } else {
        print(context, &stats)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(context: &Context, stats: &Stats) -> anyhow::Result<()> {
    let out = context.out;
    let mut totals = table(&["EVENTS", "PENDING", "FAILED", "UNROUTED", "DISCARDED", "CONFLICTS"]);
    totals.add_row(
        [
            stats.events,
            stats.pending,
            stats.failed,
            stats.unrouted,
            stats.discarded,
            stats.conflicts,
        ]
        .map(grouped),
    );
    out.table(&totals)?;
    if !stats.handlers.is_empty() {
        let mut handlers = table(&["HANDLER", "READY", "CLAIMED", "BLOCKED", "DEAD", "OLDEST DUE"]);
        for row in &stats.handlers {
            let oldest = row.oldest_due.map_or_else(
                || "-".to_owned(),
                |age| format_duration(std::time::Duration::from_secs(age.as_secs())),
            );
            let counts = [row.ready, row.claimed, row.blocked, row.dead].map(grouped);
            let [ready, claimed, blocked, dead] = counts;
            handlers.add_row([row.handler.clone(), ready, claimed, blocked, dead, oldest]);
        }
        out.line("")?;
        out.table(&handlers)?;
    }
    if !stats.providers.is_empty() {
        let mut providers = table(&["PROVIDER", "EVENTS"]);
        for (name, events) in &stats.providers {
            providers.add_row([name.clone(), grouped(*events)]);
        }
        out.line("")?;
        out.table(&providers)?;
    }
    Ok(())
}
