//! `cerca quarantine`: requests that were refused, on the store that the configuration names.

use std::{process::ExitCode, sync::Arc};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};

use super::{
    context::Context,
    events::{clock, printable, who},
    output::{complain, counted, table},
};
use crate::{
    app,
    config::Config,
    http::{self, NotReadmitted, RefusedJson},
    store::{RefusedFilter, RefusedRow, Store},
};

#[derive(Debug, Subcommand)]
pub(super) enum Quarantine {
    /// List refused requests, newest first
    List(List),
    /// Show one request: why it was refused, and what is kept of it
    Show(Show),
    /// Verify a request with today's secrets, and take its events in
    Readmit(Readmit),
}

#[derive(Debug, Args)]
pub(super) struct List {
    /// Of this registered provider
    #[arg(long)]
    provider: Option<String>,
    /// Refused for this reason, such as `wrong_signature`
    #[arg(long)]
    reason: Option<String>,
    /// How many at most
    #[arg(long, short = 'n', default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
}

#[derive(Debug, Args)]
pub(super) struct Show {
    /// Its number
    id: i64,
    /// Write the exact bytes of its body to standard output, and nothing else
    #[arg(long)]
    body: bool,
}

#[derive(Debug, Args)]
pub(super) struct Readmit {
    /// Its number
    id: i64,
    /// Take it in though it does not verify
    #[arg(long, requires = "reason")]
    force: bool,
    /// Why, for the audit
    #[arg(long)]
    reason: Option<String>,
}

/// Rows asked of the store at once.
const PAGE: u32 = 200;

impl Quarantine {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let config = match self {
            Self::Readmit(_) => context.config_with_secrets()?,
            _ => context.config()?,
        };
        let store = context.store(&config).await?;
        let done = match &self {
            Self::List(command) => list(context, &*store, command).await,
            Self::Show(command) => show(context, &*store, command).await,
            Self::Readmit(command) => readmit(context, &config, &*store, command).await,
        };
        store.close().await;
        done.map(|()| ExitCode::SUCCESS)
    }
}

async fn list(context: &Context, store: &dyn Store, command: &List) -> anyhow::Result<()> {
    let out = context.out;
    let filter = RefusedFilter {
        provider: command.provider.clone(),
        reason: command.reason.clone(),
    };
    let mut rows = table(&["ID", "CAME", "PROVIDER", "REASON", "PROVED", "BYTES", "READMITTED"]);
    let (mut left, mut cursor, mut shown) = (command.limit, None, 0);
    while left > 0 {
        let size = u32::try_from(left).map_or(PAGE, |left| left.min(PAGE));
        let page = store.quarantined(filter.clone(), cursor, size).await?;
        for one in &page.requests {
            if out.json {
                out.object(&RefusedJson::from(one))?;
                continue;
            }
            rows.add_row([
                one.id.to_string(),
                clock(one.at),
                printable(&one.provider),
                one.reason.clone(),
                if one.authentic { "yes" } else { "no" }.to_owned(),
                one.size.to_string(),
                one.readmitted_at.map(clock).unwrap_or_default(),
            ]);
        }
        left -= (page.requests.len() as u64).min(left);
        shown += page.requests.len();
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    if out.json {
        return Ok(());
    }
    if shown == 0 {
        out.line("Nothing is in quarantine.")?;
    } else {
        out.table(&rows)?;
    }
    if cursor.is_some() {
        complain(&format!("(the newest {shown}; more with --limit)"));
    }
    Ok(())
}

async fn show(context: &Context, store: &dyn Store, command: &Show) -> anyhow::Result<()> {
    let out = context.out;
    let (row, body) = found(store, command.id).await?;
    if command.body {
        return Ok(out.bytes(&body)?);
    }
    if out.json {
        return out.object(&RefusedJson::from(&row));
    }
    let mut lines = vec![
        format!("{} {}  {}", row.method, printable(&row.target), clock(row.at)),
        format!("provider    {}", printable(&row.provider)),
        format!("reason      {}", row.reason),
    ];
    if let Some(detail) = &row.detail {
        lines.push(format!("detail      {}", printable(detail)));
    }
    lines.push(format!("proved      {}", if row.authentic { "yes" } else { "no" }));
    if let Some(client) = &row.client {
        lines.push(format!("client      {}", printable(client)));
    }
    lines.push(format!(
        "body        {} bytes, SHA-256 {}",
        body.len(),
        hex::encode(row.body_sha256)
    ));
    if let Some(what) = &row.left_out {
        lines.push(format!("not kept    {}", printable(what)));
    }
    if let Some(at) = row.readmitted_at {
        lines.push(format!("readmitted  {}", clock(at)));
    }
    let headers: Vec<(String, String)> = serde_json::from_str(&row.headers).unwrap_or_default();
    lines.extend(
        headers
            .iter()
            .map(|(name, value)| format!("  {}: {}", printable(name), printable(value))),
    );
    for line in lines {
        out.line(line)?;
    }
    Ok(())
}

async fn readmit(context: &Context, config: &Config, store: &dyn Store, command: &Readmit) -> anyhow::Result<()> {
    if command.force && command.reason.as_deref().is_none_or(|reason| reason.trim().is_empty()) {
        bail!("--force takes in what does not verify: say why with --reason");
    }
    let plan = app::plan(config, context.global.adapters.as_deref())?;
    let (row, body) = found(store, command.id).await?;
    let provider = plan.providers.iter().find(|provider| *provider.name == row.provider);
    let provider = provider.ok_or_else(|| NotReadmitted::NoProvider(row.provider.clone()))?;
    let router = plan.router;
    let router: http::Router =
        Arc::new(move |provider, adapter, event_type| router.routes(provider, adapter, event_type));
    let who = who(command.reason.clone());
    let done = http::readmit(store, provider, &router, (&row, &body), command.force, who).await;
    let done = done.with_context(|| format!("the request {} was not taken in", row.id))?;
    if context.out.json {
        return context.out.object(&done);
    }
    context.out.line(format!(
        "Took in {}{}.",
        counted(done.stored, "event", "events"),
        match done.duplicates + done.conflicts {
            0 => String::new(),
            known => format!("; {known} stored before"),
        }
    ))?;
    Ok(())
}

async fn found(store: &dyn Store, id: i64) -> anyhow::Result<(RefusedRow, bytes::Bytes)> {
    let found = store.quarantined_one(id).await?;
    found.with_context(|| format!("there is no request {id} in quarantine"))
}
