//! Cerca inside another program: the same parts as those of the command, with handlers of the program's own.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use super::{Role, Running, Start, plan, start};
use crate::{
    config::{Config, ConfigError, Environment, Problem, Secrets},
    handlers::{HandlerSpec, Native},
    store::Store,
    telemetry,
};

/// How long a handler's setup of the store may take.
const SETUP: Duration = Duration::from_secs(20);

/// Cerca, about to be started in this process. See the [crate's documentation](crate) for a first example.
///
/// ```
/// # fn main() -> Result<(), cerca::ConfigError> {
/// use cerca::{Cerca, Native};
///
/// let cerca = Cerca::from_toml("[store]\nurl = \"sqlite:shop.db\"")?
///     .with(Native::within("paid", |event, store| {
///         let id = event.provider_event_id.as_str();
///         store.execute("insert into paid (id) values ($1)", &[id.into()])?;
///         Ok(())
///     })
///     .events(["stripe:invoice.paid"])
///     .setup(|store| {
///         store.execute("create table if not exists paid (id text primary key)", &[])?;
///         Ok(())
///     }));
/// # drop(cerca);
/// # Ok(())
/// # }
/// ```
pub struct Cerca {
    config: Config,
    natives: Vec<Native>,
    adapters: Option<PathBuf>,
    start: Start,
    is_observed: bool,
}

impl Cerca {
    /// As this configuration file says, with the environment's settings over it, as `cerca serve` reads them.
    ///
    /// # Errors
    /// Every mistake that was found, each with its place.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let environment = Environment::of_process();
        Config::load(Some(path.as_ref()), &environment, Secrets::Fetch).map(Self::new)
    }

    /// The same from the text of such a file; relative paths in it start from the working folder.
    ///
    /// # Errors
    /// Every mistake that was found, each with its place.
    pub fn from_toml(text: impl Into<String>) -> Result<Self, ConfigError> {
        Config::parse(None, text.into(), &Environment::of_process()).map(Self::new)
    }

    fn new(config: Config) -> Self {
        Self {
            config,
            natives: Vec::new(),
            adapters: None,
            start: Start {
                role: Role::All,
                migrate: true,
            },
            is_observed: false,
        }
    }

    /// Adds a handler.
    #[must_use]
    pub fn with(mut self, handler: Native) -> Self {
        self.natives.push(handler);
        self
    }

    /// A folder of adapters that adds to the built-in ones, or overrides them.
    #[must_use]
    pub fn adapters(mut self, folder: impl Into<PathBuf>) -> Self {
        self.adapters = Some(folder.into());
        self
    }

    /// Which parts run in this process; without this, all.
    #[must_use]
    pub fn role(mut self, role: Role) -> Self {
        self.start.role = role;
        self
    }

    /// Refuses to start where the schema is not up to date, instead of changing it.
    #[must_use]
    pub fn without_migrating(mut self) -> Self {
        self.start.migrate = false;
        self
    }

    /// Sets up logs and metrics of this process as the command does: by `[log]`, and at `/metrics` of the admin listener.
    /// Without this they are the program's own affair (`tracing` and `metrics`).
    #[must_use]
    pub fn with_telemetry(mut self) -> Self {
        self.is_observed = true;
        self
    }

    /// Starts everything, on a runtime of tokio. When this returns, webhooks are taken in and handlers run.
    ///
    /// # Errors
    /// A mistake in the configuration or in the handlers, a store that cannot be opened, an address that is in use.
    pub async fn start(mut self) -> anyhow::Result<Running> {
        // Clients of TLS ask for the process's choice; one that is made already stands.
        let _ = rustls::crypto::ring::default_provider().install_default();
        attach(&mut self.config, &self.natives)?;
        let plan = plan(&self.config, self.adapters.as_deref())?;
        let metrics = if self.is_observed {
            telemetry::log(&self.config.log)?;
            Some(telemetry::metrics()?)
        } else {
            None
        };
        for warning in self.config.warnings.iter().chain(&plan.warnings) {
            tracing::warn!("{warning}");
        }
        Box::pin(start(&self.config, plan, self.start, metrics)).await
    }

    /// Runs until SIGTERM or SIGINT, then finishes what is in flight.
    ///
    /// # Errors
    /// Those of [`Cerca::start`] and [`Running::stopped`].
    pub async fn run(self) -> anyhow::Result<()> {
        let running = self.start().await?;
        let stop = running.stopper();
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            stop.cancel();
        });
        running.stopped().await
    }
}

/// Puts the handlers of a program where its configuration names them, or adds them.
///
/// # Errors
/// What does not fit together.
pub fn attach(config: &mut Config, natives: &[Native]) -> Result<(), ConfigError> {
    Native::attach(natives, &mut config.handlers).map_err(|message| {
        ConfigError(vec![Problem {
            place: "this program".to_owned(),
            key: String::new(),
            message,
        }])
    })
}

/// Does in the store what native handlers want done before their first event.
///
/// # Errors
/// The handler and what its code says.
pub async fn set_up(store: &dyn Store, handlers: &[HandlerSpec]) -> anyhow::Result<()> {
    for handler in handlers {
        if let Some(code) = handler.native.as_ref().and_then(|native| native.setup()) {
            let done = store.transact(code, SETUP).await;
            done.with_context(|| format!("the handler `{}` could not set up its part of the store", handler.name))?;
        }
    }
    Ok(())
}
