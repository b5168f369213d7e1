//! `cerca demo`: a server on a scratch database, and senders that behave as senders do: some events come twice, some are
//! forged, some are stale, and some nobody wants.

mod account;
mod scene;
mod stream;

use std::{net::SocketAddr, process::ExitCode};

use anyhow::Context as _;
use clap::Args;

use super::{context::Context, sender::Sender, serve::stop_on_signal};
use crate::{
    app::{self, Role, Start},
    config::{Config, Environment, Log, LogFormat},
    telemetry,
};
use account::Account;
use scene::Scene;

#[derive(Debug, Args)]
pub(super) struct Demo {
    /// Where webhooks come in [default: 127.0.0.1:8080, or a free port]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Where the API is [default: 127.0.0.1:8081, or a free port]
    #[arg(long, value_name = "ADDRESS")]
    admin_listen: Option<SocketAddr>,
    /// End after the summary instead of serving on
    #[arg(long)]
    once: bool,
    /// Leave the scratch folder behind
    #[arg(long)]
    keep: bool,
}

impl Demo {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let environment = Environment::of_process();
        let scene = Scene::new(self.listen, self.admin_listen)?;
        let config = Config::parse(Some(&scene.config), scene.text.clone(), &Environment::default())?;
        let mut plan = app::plan(&config, None)?;
        scene.log_to_file(&mut plan.routes)?;
        // The account is what people came for; the server speaks only when something is wrong.
        telemetry::log(&Log {
            format: LogFormat::Auto,
            level: environment.get("CERCA_LOG").unwrap_or("error").to_owned(),
        })?;
        let metrics = telemetry::metrics()?;
        let providers = plan.providers.clone();
        let registry = app::registry(None)?;
        let start = Start {
            role: Role::All,
            migrate: true,
        };
        let running = Box::pin(app::start(&config, plan, start, Some(metrics))).await?;
        let stop = running.stopper();
        stop_on_signal(stop.clone())?;
        let played = async {
            let public = running.public.context("the demo takes webhooks")?;
            scene.create_payments()?;
            let mut account = Account::new(context.out, &scene, public, running.admin);
            account.open()?;
            let sender = Sender::new(&format!("http://{public}"))?;
            let stage = stream::Stage {
                sender: &sender,
                providers: &providers,
                registry: &registry,
                store: &*running.store,
            };
            tokio::select! {
                played = stream::play(&stage, &mut account) => played?,
                () = stop.cancelled() => {}
            }
            let settled = account.close(&*running.store).await?;
            if !self.once || self.keep {
                account.where_to_look()?;
            }
            anyhow::Ok(settled)
        };
        let right = Box::pin(played).await;
        if self.once || right.is_err() {
            stop.cancel();
        } else if !stop.is_cancelled() && !context.out.json {
            context.out.line("Serving on; Ctrl-C ends the demo.").ok();
        }
        running.stopped().await?;
        if self.keep {
            super::output::complain(&format!("The scratch folder is left at {}", scene.folder.display()));
        } else {
            scene.remove();
        }
        Ok(super::output::code(right?))
    }
}
