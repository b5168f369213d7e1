//! `cerca backfill`: fetches from the sender's own API what never arrived.

use std::{
    io::{self, IsTerminal as _},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context as _, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    context::Context,
    events::time,
    output::{Out, code, complain, counted, grouped},
};
use crate::{
    app::{self, Plan},
    backfill::{BackfillError, Backfiller, Order, Report},
    config,
};

#[derive(Debug, Args)]
pub(super) struct Backfill {
    /// The registered provider
    provider: String,
    /// Events since: 2026-01-31T12:00:00Z, or an age such as 2d, by the sender's own time
    #[arg(long, value_name = "TIME")]
    since: String,
    /// Events before [default: now]
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only report what is missing
    #[arg(long)]
    dry_run: bool,
    /// Store also what gets an id of ours, because the API does not say the webhook's
    #[arg(long)]
    derived: bool,
}

impl Backfill {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let config = context.config_with_secrets()?;
        let plan = app::plan(&config, context.global.adapters.as_deref())?;
        let (backfiller, derived) = self.backfiller(&config, plan)?;
        let order = Order {
            since: time(&self.since).context("--since")?,
            until: self
                .until
                .as_deref()
                .map(time)
                .transpose()
                .context("--until")?
                .unwrap_or_else(Timestamp::now),
            dry_run: self.dry_run,
            derived: self.derived || derived,
        };
        if order.since >= order.until {
            bail!("--since is not before --until: there is nothing in between");
        }
        warn_of_reach(&backfiller, &order);
        let store = context.store(&config).await?;
        let stop = CancellationToken::new();
        let ending = stop.clone();
        tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                ending.cancel();
            }
        });
        let bar = spinner();
        let mut last = Report::default();
        let ended = backfiller
            .run(&*store, &order, &stop, &mut |report| {
                last.clone_from(report);
                if let Some(bar) = &bar {
                    bar.set_message(format!(
                        "{} seen, {} missing, {} stored",
                        grouped(report.seen),
                        grouped(report.missing),
                        grouped(report.stored)
                    ));
                }
            })
            .await;
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        store.close().await;
        let error = ended
            .as_ref()
            .err()
            .map(|error| format!("{:#}", anyhow::Error::msg(error.to_string())));
        self.report(context.out, &order, &last, error.as_deref())?;
        match ended {
            Err(error @ BackfillError::NotKnown(_)) => Err(error.into()),
            Err(error) => Err(anyhow::Error::new(error)
                .context("the backfill ended early; what it stored stays, and running it again goes on")),
            Ok(report) => Ok(code(report.failed == 0)),
        }
    }

    /// What fetches, and whether the configuration wants events of derived identity.
    fn backfiller(&self, config: &config::Config, plan: Plan) -> anyhow::Result<(Backfiller, bool)> {
        let names: Vec<&str> = plan.providers.iter().map(|provider| &*provider.name).collect();
        let entry = config.providers.iter().find(|entry| entry.spec.name == self.provider);
        let provider = plan.providers.iter().find(|provider| *provider.name == self.provider);
        let (Some(entry), Some(provider)) = (entry, provider) else {
            let guess = config::near(&self.provider, &names);
            let guess = guess.map_or_else(
                || format!("there are: {}", names.join(", ")),
                |near| format!("did you mean {near}?"),
            );
            bail!("no provider is called {}; {guess}", self.provider);
        };
        let backfiller = app::backfiller(&entry.backfill, Arc::clone(provider), Arc::new(plan.router));
        let backfiller = backfiller.with_context(|| {
            format!(
                "the provider {0} has no `api_key`; add one to its [[provider]], such as api_key = \"env:{1}_API_KEY\"",
                self.provider,
                self.provider.to_uppercase().replace('-', "_")
            )
        })?;
        Ok((backfiller, entry.backfill.derived))
    }

    fn report(&self, out: Out, order: &Order, report: &Report, error: Option<&str>) -> anyhow::Result<()> {
        if out.json {
            let mut object = json!({
                "provider": self.provider, "since": order.since, "until": order.until, "dry_run": order.dry_run,
            });
            if let (Some(object), serde_json::Value::Object(counts)) = (object.as_object_mut(), json!(report)) {
                object.extend(counts);
                object.insert("error".to_owned(), error.into());
            }
            return out.object(&object);
        }
        let seen = counted(report.seen, "event", "events");
        let (known, missing) = (grouped(report.known), grouped(report.missing));
        out.line(format!(
            "{seen} at the sender: {known} here already, {missing} missing."
        ))?;
        for id in &report.missing_ids {
            out.line(format!("  {}", super::events::printable(id)))?;
        }
        let told = report.missing_ids.len() as u64;
        if report.missing > told {
            out.line(format!("  and {} more", grouped(report.missing - told)))?;
        }
        if report.held_back > 0 {
            out.line(format!(
                "Not stored: {}. The sender's API does not say the ids of webhooks, so a webhook that comes later would be \
                 a second event. --derived stores them under ids of ours.",
                counted(report.held_back, "event", "events")
            ))?;
        } else if order.dry_run {
            out.line("Nothing was stored (--dry-run).")?;
        } else if report.missing > 0 {
            out.line(format!("Stored {}.", counted(report.stored, "event", "events")))?;
        }
        for failure in &report.failures {
            complain(&format!("failed: {}", super::events::printable(failure)));
        }
        Ok(())
    }
}

/// What the sender has forgotten, or cannot tell, is not missing in the report.
fn warn_of_reach(backfiller: &Backfiller, order: &Order) {
    let lists = backfiller.provider.backfills();
    for limits in lists.iter().filter_map(crate::adapters::Backfill::limits) {
        complain(&format!("note: {limits}"));
    }
    let age = Timestamp::now().duration_since(order.since);
    let reach = lists.iter().filter_map(crate::adapters::Backfill::reach).min();
    if let Some(reach) = reach
        && SignedDuration::try_from(reach).is_ok_and(|reach| age > reach)
    {
        let reach = crate::units::format_duration(reach);
        complain(&format!(
            "note: the sender lists the last {reach} only; what is older is not looked for"
        ));
    }
}

fn spinner() -> Option<ProgressBar> {
    if !io::stderr().is_terminal() {
        return None;
    }
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(std::time::Duration::from_millis(120));
    Some(bar)
}
