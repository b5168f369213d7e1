//! Cerca inside another program: the same parts as those of the command, with handlers of the program's own.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::signal::unix::{SignalKind, signal};

use super::{Plan, Role, Running, Start, plan, start};
use crate::{
    config::{Config, ConfigError, Environment, Problem, Secrets},
    handlers::{Failure, Native},
    store::{InTransaction, Transaction},
    telemetry,
};

/// Cerca, about to be started in this process. See the [crate's documentation](crate) for a first example.
///
/// ```
/// # fn main() -> Result<(), cerca::ConfigError> {
/// use cerca::{Cerca, Native};
///
/// let cerca = Cerca::from_toml("[store]\nurl = \"sqlite:shop.db\"")?
///     .setup(|store| {
///         store.execute("create table if not exists paid (id text primary key)", &[])?;
///         Ok(())
///     })
///     .with(Native::within("paid", |event, store| {
///         let id = event.provider_event_id.as_str();
///         store.execute("insert into paid (id) values ($1)", &[id.into()])?;
///         Ok(())
///     })
///     .events(["stripe:invoice.paid"]));
/// # drop(cerca);
/// # Ok(())
/// # }
/// ```
pub struct Cerca {
    config: Config,
    natives: Vec<Native>,
    adapters: Option<PathBuf>,
    setup: Vec<InTransaction>,
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
            setup: Vec::new(),
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

    /// Runs code in a transaction of the store at every start, before the first event is taken in or handled: for the
    /// tables that handlers write to. On SQLite it may take 5 s at most.
    #[must_use]
    pub fn setup(
        mut self,
        code: impl Fn(&mut Transaction) -> Result<(), Failure> + Send + Sync + 'static,
    ) -> Self {
        let code = move |transaction: &mut Transaction| code(transaction).map_err(|failure| failure.to_string());
        self.setup.push(Arc::new(code));
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
        let mut plan: Plan = plan(&self.config, self.adapters.as_deref())?;
        plan.setup = self.setup;
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
