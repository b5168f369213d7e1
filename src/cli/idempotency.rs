//! `cerca idempotency`: the keys of the gateway and of the admin API, on the store that the configuration names.

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use super::{
    context::Context,
    events::printable,
    output::{code, grouped, table},
};
use crate::{
    idempotency::{answer_json, key_json, stats_json},
    store::{KeyFilter, KeyRow, Store},
};

#[derive(Debug, Subcommand)]
pub(super) enum Idempotency {
    /// List keys, newest first
    List(List),
    /// Show one key, and what was answered under it (never the body)
    Show {
        /// The number in the first column of the list
        id: i64,
    },
    /// Count keys by state
    Stats,
}

#[derive(Debug, Args)]
pub(super) struct List {
    #[arg(long, value_enum)]
    status: Option<Status>,
    /// The path of the gateway's route, or admin: and that of the API's
    #[arg(long)]
    route: Option<String>,
    #[arg(long)]
    key: Option<String>,
    /// How many at most
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Status {
    Processing,
    Completed,
    Failed,
}

impl Idempotency {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let config = context.config()?;
        let store = context.store(&config).await?;
        let done = self.act(context, &*store).await;
        store.close().await;
        done
    }

    async fn act(self, context: &Context, store: &dyn Store) -> anyhow::Result<ExitCode> {
        let out = context.out;
        match self {
            Self::List(list) => print(context, &store.keys(list.filter()).await?),
            Self::Show { id } => {
                let Some((row, kept)) = store.key(id).await? else {
                    if !out.json {
                        out.line(format!("There is no key {id}."))?;
                    }
                    return Ok(code(false));
                };
                let mut value = key_json(&row);
                value["answer"] = json!(kept.as_ref().map(answer_json));
                if out.json {
                    out.object(&value)?;
                } else {
                    out.line(serde_json::to_string_pretty(&value)?)?;
                }
                Ok(ExitCode::SUCCESS)
            }
            Self::Stats => {
                let stats = store.key_stats().await?;
                if out.json {
                    out.object(&stats_json(&stats))?;
                } else {
                    let mut rows = table(&["PROCESSING", "ABANDONED", "COMPLETED", "FAILED", "UNKNOWN"]);
                    let counts = [
                        stats.processing,
                        stats.abandoned,
                        stats.completed,
                        stats.failed,
                        stats.unknown,
                    ];
                    rows.add_row(counts.map(grouped));
                    out.table(&rows)?;
                }
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

impl List {
    fn filter(self) -> KeyFilter {
        let status = self.status.map(|status| match status {
            Status::Processing => "processing",
            Status::Completed => "completed",
            Status::Failed => "failed",
        });
        KeyFilter {
            status: status.map(str::to_owned),
            route: self.route,
            key: self.key,
            before: None,
            limit: self.limit,
        }
    }
}

fn print(context: &Context, rows: &[KeyRow]) -> anyhow::Result<ExitCode> {
    let out = context.out;
    if out.json {
        for row in rows {
            out.object(&key_json(row))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut list = table(&[
        "ID", "KEY", "METHOD", "ROUTE", "STATUS", "ANSWER", "RESOURCE", "CREATED",
    ]);
    for row in rows {
        let answer = row
            .response_status
            .map_or_else(|| "-".to_owned(), |status| status.to_string());
        list.add_row([
            row.id.to_string(),
            row.name.key.to_string(),
            row.name.method.to_string(),
            row.name.route.to_string(),
            row.status.clone(),
            answer,
            row.resource_id.as_deref().map_or_else(|| "-".to_owned(), printable),
            row.created_at.to_string(),
        ]);
    }
    out.table(&list)?;
    Ok(ExitCode::SUCCESS)
}
