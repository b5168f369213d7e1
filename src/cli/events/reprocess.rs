//! `cerca events reprocess`: one event, or all that a filter matches.

use std::{
    io::{self, IsTerminal as _, Write as _},
    num::NonZero,
    process::ExitCode,
    sync::Arc,
};

use anyhow::bail;
use clap::Args;

use super::{Desk, Filter, Id, printable, unknown, who};
use crate::{
    cli::output::counted,
    config,
    domain::per_second,
    store::{self, NewJob, Received, ReprocessScope, Reprocessed, Runner},
};

#[derive(Debug, Args)]
pub(in crate::cli) struct Reprocess {
    /// The registered provider of one event
    #[arg(value_name = "PROVIDER", requires = "id")]
    one: Option<String>,
    /// The provider's own id of the event, exactly
    #[arg(allow_hyphen_values = true, conflicts_with_all = ["provider", "event_type", "status", "handler", "since", "until", "q"])]
    id: Option<String>,
    #[command(flatten)]
    filter: Filter,
    /// Send to this handler anew, done or not [default: what is dead or discarded; else the handlers at ingest]
    #[arg(long = "handler", value_name = "HANDLER")]
    to: Vec<String>,
    /// Every event there is
    #[arg(long, conflicts_with = "id")]
    all: bool,
    /// Let native handlers do every step again, instead of going on after those that are recorded
    #[arg(long)]
    forget_steps: bool,
    /// Only count
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Why, for the audit
    #[arg(long)]
    reason: Option<String>,
    /// Events a second, at most, such as 100/s
    #[arg(long, value_name = "RATE", value_parser = per_second, conflicts_with = "id")]
    rate: Option<NonZero<u32>>,
    /// Go on with this job, which ended in the middle
    #[arg(long, value_name = "JOB", conflicts_with_all = ["one", "id", "provider", "event_type", "status", "handler", "since", "until", "q", "to", "all", "dry_run", "forget_steps", "rate", "reason"])]
    resume: Option<i64>,
}

impl Desk<'_> {
    pub(super) async fn reprocess(&self, command: Reprocess) -> anyhow::Result<ExitCode> {
        if let Some(job) = command.resume {
            return self.resume_job(job).await;
        }
        self.check_handlers(&command.to)?;
        let handlers =
            (!command.to.is_empty()).then(|| command.to.iter().map(|name| Arc::from(name.as_str())).collect());
        let one = command.one.zip(command.id).map(|(provider, id)| Id { provider, id });
        let scope = match &one {
            Some(id) => ReprocessScope::Event {
                provider: id.provider.clone(),
                provider_event_id: id.id.clone(),
            },
            None if command.filter.is_empty() && !command.all => {
                bail!("name an event (PROVIDER ID), a filter such as --status failed, or --all")
            }
            None => ReprocessScope::Filter(command.filter.build()?),
        };
        let what = store::Reprocess {
            filter: scope,
            handlers,
            dry_run: command.dry_run,
            forget_steps: command.forget_steps,
        };
        if one.is_none() && !command.dry_run && !command.yes && !self.confirmed(&what).await? {
            bail!("nothing was done");
        }
        if let (ReprocessScope::Filter(filter), false) = (&what.filter, command.dry_run) {
            let new = NewJob {
                filter: filter.clone(),
                handlers: what.handlers,
                forget_steps: what.forget_steps,
                rate: command.rate.map(NonZero::get),
                runner: Runner::Cli,
            };
            return self.begin_job(new, command.reason).await;
        }
        let done = self.store.reprocess(what, who(command.reason)).await?;
        if let (Some(id), 0) = (&one, done.events) {
            return Err(self.not_there(id).await);
        }
        self.report(done, command.dry_run)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Why an event was not found to be reprocessed.
    async fn not_there(&self, id: &Id) -> anyhow::Error {
        match self.store.payload(&id.provider, &id.id).await {
            Ok(Some(Received { bytes: None, .. })) => anyhow::anyhow!(
                "retention has removed the payload of {} {}, so it cannot be delivered again",
                id.provider,
                printable(&id.id)
            ),
            Ok(_) => unknown(id),
            Err(error) => error.into(),
        }
    }

    /// A misspelt handler would get deliveries that nobody takes.
    fn check_handlers(&self, names: &[String]) -> anyhow::Result<()> {
        let known: Vec<&str> = self
            .config
            .handlers
            .iter()
            .map(|handler| handler.name.as_str())
            .collect();
        for name in names {
            if !known.contains(&name.as_str()) && (!known.is_empty() || name != crate::app::DEFAULT_HANDLER) {
                let guess = config::near(name, &known).map_or_else(
                    || format!("one of {}", known.join(", ")),
                    |near| format!("did you mean {near}?"),
                );
                bail!("no handler is called {name}; {guess}");
            }
        }
        Ok(())
    }

    /// Says how much it is and asks; where nobody can be asked, `--yes` is needed.
    async fn confirmed(&self, what: &store::Reprocess) -> anyhow::Result<bool> {
        if !io::stdin().is_terminal() {
            bail!("a filter may match many events: look with --dry-run, then pass --yes");
        }
        let count = store::Reprocess {
            dry_run: true,
            ..what.clone()
        };
        let found = self.store.reprocess(count, who(None)).await?;
        let mut stderr = io::stderr().lock();
        write!(
            stderr,
            "Reprocess {} of {}? [y/N] ",
            counted(found.deliveries, "delivery", "deliveries"),
            counted(found.events, "event", "events")
        )?;
        stderr.flush()?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
    }

    fn report(&self, done: Reprocessed, dry_run: bool) -> anyhow::Result<()> {
        let out = self.context.out;
        if out.json {
            return out.object(&serde_json::json!({
                "events": done.events, "deliveries": done.deliveries, "dry_run": dry_run,
            }));
        }
        let verb = if dry_run { "Would make ready" } else { "Made ready" };
        let left = match done.deliveries {
            0 => "; what is ready or in flight already was left alone",
            _ => "",
        };
        out.line(format!(
            "{verb} {} of {}{left}.",
            counted(done.deliveries, "delivery", "deliveries"),
            counted(done.events, "event", "events")
        ))?;
        Ok(())
    }
}
