//! What commands share: the configuration, the adapters, the store, and where to write.

use std::{path::Path, sync::Arc};

use anyhow::Context as _;
use secrecy::ExposeSecret as _;

use super::{Global, output::Out};
use crate::{
    adapters::Registry,
    config::{Config, ConfigError, Environment, Secrets},
    handlers::Native,
    store::{self, Store},
};

pub(super) struct Context {
    pub(super) global: Global,
    pub(super) out: Out,
    /// Handlers of the program that this command line is a part of.
    natives: Vec<Native>,
}

impl Context {
    pub(super) fn new(global: Global, natives: Vec<Native>) -> Self {
        let out = Out::new(global.json);
        Self { global, out, natives }
    }

    /// For what looks at the store: the secrets of senders and handlers need not be at hand.
    pub(super) fn config(&self) -> anyhow::Result<Config> {
        Ok(self.load(Secrets::Leave)?)
    }

    /// For what verifies, signs, or runs handlers.
    pub(super) fn config_with_secrets(&self) -> anyhow::Result<Config> {
        Ok(self.load(Secrets::Fetch)?)
    }

    /// The configuration with the program's own handlers in it.
    ///
    /// # Errors
    /// Every mistake that was found.
    pub(super) fn load(&self, secrets: Secrets) -> Result<Config, ConfigError> {
        let path = self.global.config.as_deref();
        let mut config = Config::load(path, &Environment::of_process(), secrets)?;
        crate::app::attach(&mut config, &self.natives)?;
        Ok(config)
    }

    pub(super) fn registry(&self) -> anyhow::Result<Registry> {
        Ok(crate::app::registry(self.global.adapters.as_deref())?)
    }

    /// Opens the store that the configuration names, as it is: nothing is created and no schema is changed.
    pub(super) async fn store(&self, config: &Config) -> anyhow::Result<Arc<dyn Store>> {
        let url = config.store.url.expose_secret();
        if let Some(path) = sqlite_path(url)
            && !Path::new(path).exists()
        {
            anyhow::bail!("there is no database at {path} yet; `cerca serve` or `cerca migrate` creates it");
        }
        let options = store::Options {
            migrate: false,
            ..crate::app::store_options(config)
        };
        store::open(url, options)
            .await
            .with_context(|| format!("cannot open the store {}", config.store.redacted()))
    }

    /// How the same command line names its configuration, for hints.
    pub(super) fn config_flag(config: &Config) -> String {
        match &config.path {
            Some(path) if path.as_os_str() != crate::config::DEFAULT_FILE => format!(" --config {}", path.display()),
            _ => String::new(),
        }
    }
}

/// The file of a SQLite URL; `None` for anything else and for databases in memory.
pub(super) fn sqlite_path(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("sqlite:")?;
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let path = rest.split('?').next().unwrap_or(rest);
    (!path.is_empty() && path != ":memory:" && !rest.contains("mode=memory")).then_some(path)
}
