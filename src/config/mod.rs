//! Every setting, typed and checked at start: one TOML file, then the environment. The only reader of the environment.
//! Mistakes are reported all together, each with file, line, key and what was expected.

mod check;
mod effective;
mod env;
mod error;
mod file;
mod limits;
mod secret;
mod source;
mod words;

#[cfg(test)]
mod tests;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use secrecy::SecretString;
use serde::Deserialize as _;

use crate::{adapters::ProviderSpec, handlers::HandlerSpec, idempotency::GatewaySpec, seal::SealKey};
use source::Source;

pub use effective::redact_url;
pub use env::Environment;
pub use error::{ConfigError, Problem};
pub use file::{Log, LogFormat, Outbox, Quarantine, Retention, Server, Worker};
pub use secret::Reference;

/// The commented example, which `init` writes. A test proves that it says the defaults.
pub const EXAMPLE: &str = include_str!("../../deploy/cerca.example.toml");

/// The file that commands read when none is named.
pub const DEFAULT_FILE: &str = "cerca.toml";

/// Whether a command needs the secrets of providers, handlers and the admin listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrets {
    /// Those that are missing are mistakes.
    Fetch,
    /// None is looked for: whoever looks at the store need not hold the keys of the senders. The URL of the store is
    /// fetched all the same.
    Leave,
}

/// All settings, checked, with secrets fetched.
pub struct Config {
    pub server: Server,
    pub admin: Admin,
    pub store: StoreUrl,
    pub worker: Worker,
    pub retention: Retention,
    pub outbox: Outbox,
    pub quarantine: Quarantine,
    pub log: Log,
    pub providers: Vec<ProviderConfig>,
    pub handlers: Vec<HandlerSpec>,
    pub gateways: Vec<GatewaySpec>,
    /// Mistakes that do not stop a start.
    pub warnings: Vec<Problem>,
    /// The file that was read; `None` without one.
    pub path: Option<PathBuf>,
    /// The variables that the process was started with.
    pub environment: Environment,
    source: Source,
}

/// `[admin]` with its token fetched.
#[derive(Debug, Clone)]
pub struct Admin {
    pub listen: SocketAddr,
    pub token: Option<SecretString>,
}

/// The URL of the store, which may hold a password, and what secrets in it are sealed with.
#[derive(Debug, Clone)]
pub struct StoreUrl {
    pub url: SecretString,
    pub seal_key: Option<SealKey>,
}

/// One `[[provider]]`.
#[derive(Debug, Clone)]
pub struct ProviderConfig {
    pub spec: ProviderSpec,
    pub backfill: BackfillConfig,
}

/// What `[[provider]]` says of fetching past events from the sender's API.
#[derive(Debug, Clone, Default)]
pub struct BackfillConfig {
    pub api_key: Option<SecretString>,
    /// In the place of scheme, host and port of the adapter's addresses.
    pub api_url: Option<reqwest::Url>,
    /// How often it is done by itself.
    pub every: Option<Duration>,
    /// How far back it looks each time, at least.
    pub window: Duration,
    /// Whether events of derived identity are stored.
    pub derived: bool,
}

impl Config {
    /// Reads `path`; without one, `cerca.toml` in the working folder where it exists, else the defaults.
    ///
    /// # Errors
    /// Every mistake that was found.
    pub fn load(path: Option<&Path>, environment: &Environment, secrets: Secrets) -> Result<Self, ConfigError> {
        let path = match path {
            Some(path) => Some(path.to_owned()),
            None => Some(PathBuf::from(DEFAULT_FILE)).filter(|path| path.exists()),
        };
        let text = match &path {
            Some(path) => std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?,
            None => String::new(),
        };
        Self::parse_for(path.as_deref(), text, environment, secrets)
    }

    /// Reads the text of a file; `path` names it in messages, and its folder is where `file:` references start.
    ///
    /// # Errors
    /// Every mistake that was found.
    pub fn parse(path: Option<&Path>, text: String, environment: &Environment) -> Result<Self, ConfigError> {
        Self::parse_for(path, text, environment, Secrets::Fetch)
    }

    fn parse_for(
        path: Option<&Path>,
        text: String,
        environment: &Environment,
        secrets: Secrets,
    ) -> Result<Self, ConfigError> {
        let source = Source::new(path, text, env::overrides(environment)?)?;
        let file = file::File::deserialize(toml::Deserializer::from(source.tree()?))
            .map_err(|error| source.explain(&error))?;
        check::resolve(file, source, path, environment, secrets)
    }

    /// A problem with the value at `path`, such as `provider[0].adapter`, for what only later stages can judge.
    #[must_use]
    pub fn problem(&self, path: &str, message: impl Into<String>) -> Problem {
        self.source.problem(path, message)
    }

    /// Fetches a secret that a later stage reads, such as a handler's.
    ///
    /// # Errors
    /// Says what is missing or empty.
    pub fn resolve(&self, reference: &str) -> Result<SecretString, String> {
        Reference::from(reference).resolve(&self.folder(), &self.environment)
    }

    /// The folder that relative paths start from: the file's, or the working folder.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        folder_of(self.path.as_deref())
    }
}

fn folder_of(path: Option<&Path>) -> PathBuf {
    path.and_then(Path::parent)
        .filter(|folder| !folder.as_os_str().is_empty())
        .map_or_else(|| PathBuf::from("."), Path::to_owned)
}

fn unreadable(path: &Path, error: &std::io::Error) -> ConfigError {
    let hint = match error.kind() {
        std::io::ErrorKind::NotFound => "; `cerca init` writes one to start from",
        _ => "",
    };
    Problem::new(path.display().to_string(), "", format!("cannot be read: {error}{hint}")).into()
}

/// The candidate that was probably meant, if one is close.
#[must_use]
pub fn near<'c>(word: &str, candidates: &[&'c str]) -> Option<&'c str> {
    candidates
        .iter()
        .map(|candidate| (strsim::jaro_winkler(word, candidate), *candidate))
        .filter(|(score, _)| *score > 0.85)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
