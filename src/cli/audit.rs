//! `cerca audit`: who did what by hand, and why, newest first.

use std::process::ExitCode;

use clap::Args;

use super::{
    context::Context,
    events::{clock, printable},
    output::{complain, grouped, table},
};
use crate::store::{AuditFilter, AuditRow, Store};

/// Lines in one query.
const PAGE: u32 = 500;

#[derive(Debug, Args)]
pub(super) struct Audit {
    /// By whom: cli, api, dashboard, or a name
    #[arg(long)]
    actor: Option<String>,
    /// What was done, such as reprocess or discard
    #[arg(long)]
    action: Option<String>,
    /// How many at most
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

impl Audit {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let config = context.config()?;
        let store = context.store(&config).await?;
        let done = self.print(context, &*store).await;
        store.close().await;
        done.map(|()| ExitCode::SUCCESS)
    }

    async fn print(self, context: &Context, store: &dyn Store) -> anyhow::Result<()> {
        let out = context.out;
        let mut list = table(&["WHEN", "BY", "ACTION", "WHAT", "REASON", "DELIVERIES"]);
        let (mut left, mut before, mut shown) = (self.limit, None, 0);
        while left > 0 {
            let limit = left.min(PAGE);
            let filter = AuditFilter {
                actor: self.actor.clone(),
                action: self.action.clone(),
                before,
                limit,
            };
            let rows = store.audit(filter).await?;
            for row in &rows {
                match out.json {
                    true => out.object(&row.to_json())?,
                    false => drop(list.add_row(cells(row))),
                }
            }
            shown += rows.len();
            left -= limit;
            before = rows.last().map(|row| row.id);
            if rows.len() < limit as usize {
                before = None;
                break;
            }
        }
        if out.json {
            return Ok(());
        }
        match shown {
            0 => out.line("Nobody did anything by hand that matches.")?,
            _ => out.table(&list)?,
        }
        if before.is_some() {
            complain(&format!("(the newest {shown}; more with --limit)"));
        }
        Ok(())
    }
}

fn cells(row: &AuditRow) -> [String; 6] {
    [
        clock(row.at),
        printable(&row.actor),
        printable(&row.action),
        printable(&row.target),
        row.reason.as_deref().map(printable).unwrap_or_default(),
        grouped(row.deliveries),
    ]
}
