//! What a configuration amounts to, before anything is opened or bound: adapters, providers and handlers made ready.
//! `check` stops here; a start goes on.

use std::{path::Path, sync::Arc};

use crate::{
    adapters::{Provider, ProviderError, ProviderSpec, Registry, RegistryError},
    config::{Config, ConfigError, Problem},
    handlers::{self, Action, FormFields, HandlerError, HandlerSpec, Normalizers, Route, Router},
    http::PullHandler,
    idempotency::Gateway,
    telemetry,
};

use super::overrides;

/// The handler that prints every event, used where none is configured.
pub const DEFAULT_HANDLER: &str = "log";

/// What a newcomer adds to the file first.
pub const FIRST_PROVIDER: &str = "    [[provider]]\n    name = \"stripe\"\n    secrets = [\"env:STRIPE_SECRET\"]";

const NO_SEAL_KEY: &str = "its sender hands over the secret in a handshake, which is refused as long as `seal_key` in \
    `[store]` is not set; make one with `openssl rand -hex 32`";

/// The parts, ready to run.
pub struct Plan {
    pub registry: Registry,
    pub providers: Vec<Arc<Provider>>,
    pub routes: Vec<Route>,
    pub router: Router,
    pub gateways: Vec<Gateway>,
    /// Specs of the providers whose secret is to come in a handshake.
    pub waiting: Vec<ProviderSpec>,
    /// What is allowed but deserves a look, beyond the configuration's own warnings.
    pub warnings: Vec<Problem>,
}

/// The adapters of the binary, and those of a folder that adds to them.
///
/// # Errors
/// A folder that cannot be read, or an adapter that is wrong.
pub fn registry(folder: Option<&Path>) -> Result<Registry, RegistryError> {
    match folder {
        Some(folder) => Registry::with_dir(folder),
        None => Ok(Registry::embedded()),
    }
}

/// Makes providers and handlers ready.
///
/// # Errors
/// Everything that keeps them from working, with its place in the configuration.
pub fn plan(config: &Config, adapters: Option<&Path>) -> Result<Plan, ConfigError> {
    let registry = registry(adapters).map_err(|error| {
        let place = adapters.map_or_else(|| "adapters".to_owned(), |folder| folder.display().to_string());
        ConfigError(vec![Problem {
            place,
            key: String::new(),
            message: chain(&error),
        }])
    })?;
    let mut problems = Vec::new();
    let mut warnings = Vec::new();
    if let Err(error) = telemetry::filter(&config.log.level) {
        problems.push(config.problem("log.level", error.to_string()));
    }
    let mut waiting = Vec::new();
    let mut providers = Vec::with_capacity(config.providers.len());
    for (index, entry) in config.providers.iter().enumerate() {
        let path = format!("provider[{index}]");
        warnings.extend(overrides::unknown_options(config, &path, &entry.spec, &registry));
        match Provider::new(entry.spec.clone(), &registry) {
            Ok(provider) => {
                warnings.extend(provider_warnings(config, &path, &provider));
                if provider.awaits_secret() {
                    waiting.push(entry.spec.clone());
                }
                providers.push(Arc::new(provider));
            }
            Err(error) => problems.push(provider_problem(config, &path, &error)),
        }
    }
    let gateways = ready_gateways(config, &mut problems, &mut warnings);
    let form_fields = providers.iter().filter_map(|provider: &Arc<Provider>| {
        let field = provider.form_field()?;
        Some((provider.name.to_string(), field.to_owned()))
    });
    let normalizers = providers.iter().filter_map(|provider: &Arc<Provider>| {
        let normalize = provider.normalize()?;
        Some((provider.name.to_string(), Arc::clone(normalize)))
    });
    match ready_handlers(config, form_fields.collect(), normalizers.collect()) {
        Ok((routes, router)) if problems.is_empty() => {
            warnings.extend(without_order(config, &providers, &router));
            Ok(Plan {
                registry,
                providers,
                routes,
                router,
                gateways,
                waiting,
                warnings,
            })
        }
        Ok(_) => Err(ConfigError(problems)),
        Err(error) => {
            problems.push(handler_problem(config, &error));
            Err(ConfigError(problems))
        }
    }
}

/// The handlers whose deliveries consumers pull.
pub(super) fn pulled(routes: &[Route]) -> Vec<PullHandler> {
    routes
        .iter()
        .filter(|route| matches!(route.action, Action::Pull))
        .map(|route| PullHandler {
            name: Arc::clone(&route.name),
            retry: route.retry,
            lease: route.timeout,
        })
        .collect()
}

/// The handlers that may have a circuit breaker.
pub(super) fn outside(routes: &[Route]) -> Vec<(Arc<str>, Arc<dyn handlers::Handler>)> {
    let outside = |route: &Route| match &route.action {
        Action::Outside(handler) => Some((Arc::clone(&route.name), Arc::clone(handler))),
        Action::InStore(_) | Action::Native(_) | Action::Pull => None,
    };
    routes.iter().filter_map(outside).collect()
}

fn ready_gateways(config: &Config, problems: &mut Vec<Problem>, warnings: &mut Vec<Problem>) -> Vec<Gateway> {
    let mut gateways = Vec::with_capacity(config.gateways.len());
    for (index, spec) in config.gateways.iter().enumerate() {
        let at = |key: &str| format!("gateway[{index}].{key}");
        let own = Gateway::warnings(spec).into_iter();
        warnings.extend(own.map(|(key, message)| config.problem(&at(key), message)));
        match Gateway::new(spec, |reference| config.resolve(reference)) {
            Ok(gateway) => gateways.push(gateway),
            Err(error) => problems.push(config.problem(&at(error.key), error.message)),
        }
    }
    gateways
}

fn ready_handlers(
    config: &Config,
    form_fields: FormFields,
    normalizers: Normalizers,
) -> Result<(Vec<Route>, Router), HandlerError> {
    let default;
    let specs: &[HandlerSpec] = if config.handlers.is_empty() {
        default = [log_everything()?];
        &default
    } else {
        &config.handlers
    };
    let folder = config.folder();
    let environment = config.environment.pairs();
    let context = handlers::Context {
        base: &folder,
        environment: &environment,
        resolve: &|reference| config.resolve(reference),
        form_fields: Arc::new(form_fields),
        normalizers: Arc::new(normalizers),
    };
    Ok((handlers::build(specs, &context)?, Router::new(specs)?))
}

/// Handlers that ask for order, and hear senders whose events name no key to order by.
fn without_order(config: &Config, providers: &[Arc<Provider>], router: &Router) -> Vec<Problem> {
    let mut warnings = Vec::new();
    for (index, spec) in config.handlers.iter().enumerate() {
        if spec.ordered().is_none() {
            continue;
        }
        let unordered = providers
            .iter()
            .filter(|provider| !provider.orders() && router.hears(&spec.name, &provider.name, &provider.adapter));
        let names: Vec<&str> = unordered.map(|provider| &*provider.name).collect();
        if !names.is_empty() {
            let message = format!(
                "events of {} name no ordering key, so they are handled in any order; set `event.ordering` at the provider",
                names.join(", ")
            );
            warnings.push(config.problem(&format!("handler[{index}].ordering"), message));
        }
    }
    warnings
}

fn log_everything() -> Result<HandlerSpec, HandlerError> {
    let text = format!("name = \"{DEFAULT_HANDLER}\"\nkind = \"log\"\nevents = [\"*\"]\n");
    toml::from_str(&text).map_err(|error| HandlerError {
        handler: DEFAULT_HANDLER.to_owned(),
        problem: error.message().to_owned(),
    })
}

/// What deserves a look about a provider, each with its place in the configuration.
pub(crate) fn provider_warnings(config: &Config, path: &str, provider: &Provider) -> Vec<Problem> {
    let warnings = provider.warnings().iter();
    let mut warnings: Vec<Problem> = warnings.map(|text| placed(config, path, text)).collect();
    if provider.awaits_secret() && config.store.seal_key.is_none() {
        warnings.push(config.problem(path, NO_SEAL_KEY));
    }
    warnings
}

/// What is right and looks odd.
pub(crate) fn provider_notes(config: &Config, path: &str, provider: &Provider) -> Vec<Problem> {
    let notes = provider.notes().iter();
    notes.map(|text| placed(config, path, text)).collect()
}

/// A sentence about a provider, with the key that it is about.
fn placed(config: &Config, path: &str, text: &str) -> Problem {
    let place = |text: &str| {
        let secret = text
            .strip_prefix("secret ")
            .and_then(|rest| rest.split(' ').next()?.parse().ok());
        if let Some(number) = secret {
            return format!("{path}.secrets[{}]", usize::saturating_sub(number, 1));
        }
        let key = ["signature.key", "public_url", "tolerance"];
        match key.into_iter().find(|key| text.contains(&format!("`{key}`"))) {
            Some(key) => format!("{path}.{key}"),
            None if text.contains("option `") => format!("{path}.options"),
            None => path.to_owned(),
        }
    };
    config.problem(&place(text), text)
}

pub(crate) fn provider_problem(config: &Config, path: &str, error: &ProviderError) -> Problem {
    let key = match error {
        ProviderError::UnknownAdapter { provider, adapter, .. } if provider == adapter => "name".to_owned(),
        ProviderError::UnknownAdapter { .. } => "adapter".to_owned(),
        ProviderError::NoSecret { .. } => "secrets".to_owned(),
        ProviderError::Secret { number, .. } => format!("secrets[{}]", number.saturating_sub(1)),
        ProviderError::Setting { key, .. } if !key.contains(',') => key.clone(),
        ProviderError::Setting { problem, .. } => return overrides::problem(config, path, problem),
        _ => "name".to_owned(),
    };
    let text = chain(error);
    // The place says which provider it is.
    let mut message = match text.strip_prefix("provider `").and_then(|rest| rest.split_once("`: ")) {
        Some((_, message)) => message.to_owned(),
        None => text,
    };
    if matches!(error, ProviderError::UnknownAdapter { .. }) && key == "name" {
        message.push_str("; for a name of your own set `adapter` beside it");
    }
    config.problem(&format!("{path}.{key}"), message)
}

fn handler_problem(config: &Config, error: &HandlerError) -> Problem {
    let index = config.handlers.iter().position(|spec| spec.name == error.handler);
    let key = error
        .problem
        .strip_prefix('`')
        .and_then(|rest| rest.split_once('`'))
        .map(|(key, _)| key);
    let path = match (index, key) {
        (Some(index), Some(key)) => format!("handler[{index}].{key}"),
        (Some(index), None) => format!("handler[{index}]"),
        (None, _) => "handler".to_owned(),
    };
    config.problem(&path, error.problem.clone())
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
