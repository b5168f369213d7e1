//! `cerca stats`: what is stored and what waits.

use std::{collections::HashMap, net::SocketAddr, process::ExitCode, time::Duration};

use reqwest::header::AUTHORIZATION;
use secrecy::ExposeSecret as _;
use serde::Deserialize;

use super::{
    context::Context,
    output::{grouped, table},
};
use crate::{
    app::DEFAULT_HANDLER,
    config::Config,
    handlers::BreakerState,
    http::json::{StatsJson, add_idle},
    units::format_duration,
};

/// How long the server may take to say how its breakers stand.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) async fn run(context: &Context) -> anyhow::Result<ExitCode> {
    let config = context.config()?;
    let store = context.store(&config).await?;
    let stats = store.stats().await;
    store.close().await;
    let mut stats = stats?;
    let names = config.handlers.iter().map(|handler| handler.name.as_str());
    let default = config.handlers.is_empty().then_some(DEFAULT_HANDLER);
    add_idle(&mut stats, names.chain(default));
    let breakers = breakers(&config).await.unwrap_or_default();
    let stats = StatsJson::from(&stats).with_breakers(|name| breakers.get(name).copied());
    if context.out.json {
        context.out.object(&stats)?;
    } else {
        print(context, &stats)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// How the circuit breakers stand in the server of this configuration: they are its own, and not in the store. `None` where
/// none answers.
async fn breakers(config: &Config) -> Option<HashMap<String, BreakerState>> {
    #[derive(Deserialize)]
    struct Answer {
        handlers: Vec<Row>,
    }
    #[derive(Deserialize)]
    struct Row {
        handler: String,
        breaker: Option<String>,
    }
    let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().ok()?;
    let mut request = client.get(format!("http://{}/api/v1/stats", reachable(config.admin.listen)));
    if let Some(token) = &config.admin.token {
        request = request.header(AUTHORIZATION, format!("Bearer {}", token.expose_secret()));
    }
    let answer = request.send().await.ok()?.error_for_status().ok()?;
    let answer: Answer = serde_json::from_slice(&answer.bytes().await.ok()?).ok()?;
    let of = |row: Row| Some((row.handler, BreakerState::parse(&row.breaker?)?));
    Some(answer.handlers.into_iter().filter_map(of).collect())
}

/// Where a server that listens on every address can be reached from its own machine.
fn reachable(mut listen: SocketAddr) -> SocketAddr {
    if listen.ip().is_unspecified() {
        listen.set_ip(match listen {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    listen
}

fn print(context: &Context, stats: &StatsJson<'_>) -> anyhow::Result<()> {
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
        let mut handlers = table(&[
            "HANDLER",
            "READY",
            "CLAIMED",
            "BLOCKED",
            "DEAD",
            "OLDEST DUE",
            "BREAKER",
        ]);
        for row in &stats.handlers {
            let age = row.oldest_due_seconds.map(Duration::from_secs_f64);
            let oldest = match age.map(|age| age.as_secs()) {
                None => "-".to_owned(),
                Some(0) => "now".to_owned(),
                Some(seconds) => format_duration(Duration::from_secs(seconds)),
            };
            let counts = [row.ready, row.claimed, row.blocked, row.dead].map(grouped);
            let [ready, claimed, blocked, dead] = counts;
            let breaker = row.breaker.unwrap_or("-").to_owned();
            handlers.add_row([row.handler.to_owned(), ready, claimed, blocked, dead, oldest, breaker]);
        }
        out.line("")?;
        out.table(&handlers)?;
    }
    if !stats.providers.is_empty() {
        let mut providers = table(&["PROVIDER", "EVENTS"]);
        for row in &stats.providers {
            providers.add_row([row.provider.to_owned(), grouped(row.events)]);
        }
        out.line("")?;
        out.table(&providers)?;
    }
    Ok(())
}
