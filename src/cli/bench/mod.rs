//! `cerca bench`: how many webhooks a second this machine stores durably. A server on a scratch store of the configured
//! kind and in its place, and senders in the same process.

mod disk;
mod load;
mod scratch;

use std::{process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context as _;
use clap::Args;
use futures_util::future::BoxFuture;
use secrecy::ExposeSecret as _;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{
    context::Context,
    output::{grouped, table},
    serve::stop_on_signal,
};
use crate::{
    app::{self, Plan, Role, Running, Start},
    config::{Config, Environment, Log, LogFormat},
    handlers::{Action, Failure, Handler, Outgoing},
    store::EventFilter,
    telemetry, units,
};
use load::{Load, Outcome};
use scratch::Scratch;

#[derive(Debug, Args)]
pub(super) struct Bench {
    /// Events in each run
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    events: u32,
    /// Connections that send at once; one run for each
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,256", value_parser = clap::value_parser!(u16).range(1..=4096))]
    connections: Vec<u16>,
    /// Size of a body, about
    #[arg(long, default_value = "2KiB", value_name = "SIZE", value_parser = body_size)]
    body: usize,
}

fn body_size(text: &str) -> Result<usize, String> {
    match units::parse_size(text)? {
        bytes @ 256..=0x10_0000 => Ok(bytes),
        _ => Err("expected 256 to 1MiB".into()),
    }
}

/// What is measured.
#[derive(Clone, Copy)]
enum Mode {
    /// Events that no handler wants.
    Ingest,
    /// Each event goes to a handler that does nothing, and is settled.
    Handle,
}

impl Mode {
    fn title(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Handle => "ingest and handle",
        }
    }

    fn events(self) -> &'static str {
        match self {
            Self::Ingest => "stripe:nothing",
            Self::Handle => "*",
        }
    }
}

struct Row {
    mode: Mode,
    connections: u16,
    outcome: Outcome,
    /// From the last answer until nothing was pending.
    drained: Duration,
}

impl Bench {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let config = context.config()?;
        telemetry::log(&Log {
            format: LogFormat::Auto,
            level: "error".into(),
        })?;
        let mut scratch = Scratch::new(config.store.url.expose_secret(), &config.store.redacted()).await?;
        let stop = CancellationToken::new();
        stop_on_signal(stop.clone())?;
        let measured = tokio::select! {
            measured = Box::pin(self.measure(context, &scratch)) => measured,
            () = stop.cancelled() => Err(anyhow::anyhow!("stopped")),
        };
        let removed = scratch.remove().await;
        measured?;
        removed?;
        Ok(ExitCode::SUCCESS)
    }

    async fn measure(&self, context: &Context, scratch: &Scratch) -> anyhow::Result<()> {
        let sync = scratch.sync_time().await?;
        self.open(context, scratch, sync)?;
        let mut rows = Vec::new();
        for mode in [Mode::Ingest, Mode::Handle] {
            let running = start(scratch, mode).await?;
            let address = running.public.context("the server takes webhooks")?;
            let measured = async {
                for &connections in &self.connections {
                    let prefix = format!("{}{connections}", mode.title().len());
                    let load = Load::new(self.events, self.body, &prefix)?;
                    let outcome = load.send(address, connections).await?;
                    let drained = drain(&running).await?;
                    let row = Row {
                        mode,
                        connections,
                        outcome,
                        drained,
                    };
                    self.report(context, &row)?;
                    rows.push(row);
                }
                anyhow::Ok(())
            };
            let measured = measured.await;
            running.stopper().cancel();
            running.stopped().await?;
            measured?;
        }
        self.close(context, &rows)
    }

    fn open(&self, context: &Context, scratch: &Scratch, sync: Duration) -> anyhow::Result<()> {
        if context.out.json {
            return context.out.object(&serde_json::json!({
                "store": scratch.kind(), "cores": cores(), "sync_us": sync.as_micros(),
                "events": self.events, "body": self.body,
            }));
        }
        let what = match scratch.kind() {
            "sqlite" => "one fdatasync there takes",
            _ => "one commit of one row there takes",
        };
        context.out.line(format!(
            "A scratch {} store in {}; {what} {}. {} cores, shared by the senders and the server.",
            scratch.kind(),
            scratch.place(),
            millis(sync),
            cores()
        ))?;
        let size = units::format_size(self.body);
        context.out.line(format!(
            "{} signed events of {size} in each run:",
            grouped(self.events.into())
        ))?;
        Ok(context.out.line("")?)
    }

    fn report(&self, context: &Context, row: &Row) -> anyhow::Result<()> {
        if !context.out.json {
            return Ok(());
        }
        let Outcome {
            rate,
            p50,
            p99,
            refused,
        } = row.outcome;
        context.out.object(&serde_json::json!({
            "mode": row.mode.title(), "connections": row.connections, "acks_per_second": rate.round(),
            "p50_us": p50.as_micros(), "p99_us": p99.as_micros(), "refused": refused,
            "drained_ms": row.drained.as_millis(),
        }))
    }

    fn close(&self, context: &Context, rows: &[Row]) -> anyhow::Result<()> {
        if context.out.json {
            return Ok(());
        }
        let mut shown = table(&[
            "",
            "CONNECTIONS",
            "DURABLE ACKS/S",
            "P50",
            "P99",
            "ALL HANDLED AFTER",
            "REFUSED",
        ]);
        for row in rows {
            let drained = match row.mode {
                Mode::Ingest => "-".to_owned(),
                Mode::Handle => millis(row.drained),
            };
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a rate is positive and small"
            )]
            shown.add_row([
                row.mode.title().to_owned(),
                row.connections.to_string(),
                grouped(row.outcome.rate as u64),
                millis(row.outcome.p50),
                millis(row.outcome.p99),
                drained,
                row.outcome.refused.to_string(),
            ]);
        }
        Ok(context.out.table(&shown)?)
    }
}

/// A handler that costs nothing.
struct Nothing;

impl Handler for Nothing {
    fn handle<'a>(&'a self, _: &'a Outgoing<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }
}

async fn start(scratch: &Scratch, mode: Mode) -> anyhow::Result<Running> {
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = {}\n\
         [[provider]]\nname = \"stripe\"\nsecrets = [\"{}\"]\n\
         [[handler]]\nname = \"nothing\"\nkind = \"log\"\nevents = [\"{}\"]\n",
        toml::Value::from(scratch.url()),
        load::SECRET,
        mode.events()
    );
    let config = Config::parse(None, text, &Environment::default())?;
    let mut plan: Plan = app::plan(&config, None)?;
    for route in &mut plan.routes {
        route.action = Action::Outside(Arc::new(Nothing));
    }
    let start = Start {
        role: Role::All,
        migrate: true,
    };
    Box::pin(app::start(&config, plan, start, None)).await
}

/// Waits until nothing is pending; gives how long that took.
async fn drain(running: &Running) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let pending = EventFilter {
        status: Some(crate::domain::EventStatus::Pending),
        ..EventFilter::default()
    };
    while !running.store.events(pending.clone(), None, 1).await?.events.is_empty() {
        sleep(Duration::from_millis(5)).await;
    }
    Ok(begun.elapsed())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}
