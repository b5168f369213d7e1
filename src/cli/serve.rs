//! `cerca serve`: everything, until a signal.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::context::Context;
use crate::{
    app::{self, Plan, Role, Running, Start},
    config::Config,
    telemetry,
};

#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Which parts run here
    #[arg(long, value_enum, default_value_t = RoleName::All)]
    role: RoleName,
    /// Refuse to start where the schema is not up to date, instead of changing it
    #[arg(long)]
    no_migrate: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RoleName {
    /// Take webhooks in, and run their handlers
    All,
    /// Take webhooks in and store them
    Ingest,
    /// Run handlers
    Worker,
}

impl Serve {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let config = context.config_with_secrets()?;
        let plan = app::plan(&config, context.global.adapters.as_deref())?;
        telemetry::log(&config.log)?;
        let metrics = telemetry::metrics()?;
        for warning in config.warnings.iter().chain(&plan.warnings) {
            tracing::warn!("{warning}");
        }
        let start = Start {
            role: match self.role {
                RoleName::All => Role::All,
                RoleName::Ingest => Role::Ingest,
                RoleName::Worker => Role::Worker,
            },
            migrate: !self.no_migrate,
        };
        let (providers, handlers) = (plan.providers.len(), plan.routes.len());
        hint(&config, &plan);
        let running = Box::pin(app::start(&config, plan, start, Some(metrics))).await?;
        announce(&config, &running, providers, handlers);
        // A limit on the size of files is an error of the store then, and not the end of the process.
        drop(signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
        stop_on_signal(running.stopper())?;
        running.stopped().await?;
        tracing::info!("stopped");
        Ok(ExitCode::SUCCESS)
    }
}

fn announce(config: &Config, running: &Running, providers: usize, handlers: usize) {
    let public = running
        .public
        .map(|address| format!("http://{address}/webhooks/"))
        .unwrap_or_default();
    tracing::info!(
        public,
        admin = %format!("http://{}", running.admin),
        store = config.store.redacted(),
        providers,
        handlers,
        "ready"
    );
}

fn hint(config: &Config, plan: &Plan) {
    if plan.providers.is_empty() {
        let file = match &config.path {
            Some(path) => format!("add one to {}", path.display()),
            None => "`cerca init` writes a cerca.toml; add one to it".to_owned(),
        };
        tracing::warn!(
            "no provider is registered, so every webhook is answered 404; {file}, such as\n{}",
            app::FIRST_PROVIDER
        );
    }
    if config.handlers.is_empty() {
        tracing::info!("no handler is configured: events are stored and printed to standard output");
    }
}

/// The first SIGTERM or SIGINT stops in good order, a second one at once.
pub(super) fn stop_on_signal(stop: CancellationToken) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = terminate.recv() => 143,
                _ = interrupt.recv() => 130,
            }
        };
        next().await;
        tracing::info!("stopping: finishing what is in flight; a second signal ends at once");
        stop.cancel();
        let code = next().await;
        std::process::exit(code);
    });
    Ok(())
}
