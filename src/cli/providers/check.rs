//! `cerca providers check`: what is wrong with the adapters, and the usual mistakes of those who registered them, as the
//! configuration and what came already show them.

use std::process::ExitCode;

use comfy_table::Color;
use serde_json::json;

use super::{
    Context, code, find, folder,
    received::{self, Received},
};
use crate::{
    adapters::{AdapterError, Provider, Registry},
    app,
    config::{Config, ConfigError, Environment, Problem, ProviderConfig, Secrets},
};

/// Every folder is read, every lint looked at, the folder's samples are read by its rules, and its vectors are run.
pub(super) async fn run(context: &Context, only: Option<&str>) -> anyhow::Result<ExitCode> {
    let out = context.out;
    let (registry, errors) = Registry::read_all(context.global.adapters.as_deref())?;
    let configured = Configured::read(context, &registry, errors.is_empty()).await;
    if let Some(name) = only
        .filter(|name| !configured.has(name))
        .filter(|name| !errors.iter().any(|error| folder_of(error) == *name))
    {
        find(&registry, name)?;
    }
    let wanted = |name: &str| only.is_none_or(|only| only == name);
    let (mut wrong, mut notes, mut checked) = (0, 0, 0);
    let report = |kind: &str, color, place: &str, text: &str| {
        if out.json {
            return out.object(&json!({ "kind": kind, "place": place, "message": text }));
        }
        Ok(out.line(format!("{} {place}: {text}", out.paint(color, format!("{kind}:"))))?)
    };
    for error in errors
        .iter()
        .filter(|error| only.is_none_or(|only| folder_of(error) == only))
    {
        wrong += 1;
        report(
            "error",
            Color::Red,
            &format!("{}:{}", error.file, error.line),
            &format!("{}{}", prefix(&error.key), error.message),
        )?;
    }
    for adapter in registry.iter().filter(|adapter| wanted(&adapter.name)) {
        checked += 1;
        for told in folder::look(adapter, &registry) {
            match told.is_error {
                true => wrong += 1,
                false => notes += 1,
            }
            let (kind, color) = match told.is_error {
                true => ("error", Color::Red),
                false => ("note", Color::Yellow),
            };
            report(kind, color, &told.place, &told.text)?;
        }
    }
    let mut registered = 0;
    for provider in configured.0.iter().filter(|provider| provider.is(only)) {
        registered += usize::from(!provider.name.is_empty());
        wrong += provider.errors.len();
        notes += provider.warnings.len() + provider.notes.len();
        for problem in &provider.errors {
            report("error", Color::Red, &problem.place, &place_and_message(problem))?;
        }
        for problem in &provider.warnings {
            report("warning", Color::Yellow, &problem.place, &place_and_message(problem))?;
        }
        for problem in &provider.notes {
            report("note", Color::DarkGrey, &problem.place, &place_and_message(problem))?;
        }
    }
    if out.json {
        out.object(&json!({
            "kind": "result", "checked": checked, "registered": registered, "errors": wrong, "notes": notes,
        }))?;
    } else {
        out.line(format!(
            "{checked} adapters read, {registered} registered providers looked at, {wrong} errors, {notes} notes"
        ))?;
    }
    Ok(code(wrong == 0))
}

/// The name of the folder that an error is in.
fn folder_of(error: &AdapterError) -> &str {
    error.file.rsplit('/').nth(1).unwrap_or_default()
}

fn prefix(key: &str) -> String {
    if key.is_empty() {
        String::new()
    } else {
        format!("{key}: ")
    }
}

/// A registered provider with what is said of it; without a name, the configuration itself.
struct Looked {
    name: String,
    adapter: String,
    errors: Vec<Problem>,
    warnings: Vec<Problem>,
    notes: Vec<Problem>,
}

impl Looked {
    fn is(&self, only: Option<&str>) -> bool {
        only.is_none_or(|only| self.name == only || self.adapter == only)
    }
}

struct Configured(Vec<Looked>);

impl Configured {
    /// Reads the providers of the configuration, where there is one. Nobody needs one to check adapters.
    async fn read(context: &Context, registry: &Registry, adapters_are_right: bool) -> Self {
        if !adapters_are_right {
            return Self(Vec::new());
        }
        let path = context.global.config.as_deref();
        let load = |secrets| Config::load(path, &Environment::of_process(), secrets);
        match load(Secrets::Fetch) {
            Ok(config) => {
                let providers = config.providers.iter().enumerate();
                let look = |(index, provider)| look(&config, registry, index, provider);
                let mut looked: Vec<Looked> = providers.map(look).collect();
                add_received(&mut looked, &config, received::look(context, &config, registry).await);
                Self(looked)
            }
            Err(ConfigError(problems)) => {
                // Where only secrets are missing, this is not the machine that has them: worth a note, and no more.
                let (errors, warnings) = match load(Secrets::Leave) {
                    Ok(_) => (Vec::new(), problems),
                    Err(_) => (problems, Vec::new()),
                };
                Self(vec![Looked {
                    name: String::new(),
                    adapter: String::new(),
                    errors,
                    warnings,
                    notes: Vec::new(),
                }])
            }
        }
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|provider| provider.name == name)
    }
}

fn look(config: &Config, registry: &Registry, index: usize, provider: &ProviderConfig) -> Looked {
    let path = format!("provider[{index}]");
    let spec = &provider.spec;
    let (errors, warnings, notes) = match Provider::new(spec.clone(), registry) {
        Ok(provider) => (
            Vec::new(),
            app::provider_warnings(config, &path, &provider),
            app::provider_notes(config, &path, &provider),
        ),
        Err(error) => (
            vec![app::provider_problem(config, &path, &error)],
            Vec::new(),
            Vec::new(),
        ),
    };
    // What the configuration itself noticed, such as a secret that is written out.
    let own = format!("{path}.");
    let noticed = config.warnings.iter().filter(|warning| warning.key.starts_with(&own));
    Looked {
        name: spec.name.clone(),
        adapter: spec.adapter.clone().unwrap_or_else(|| spec.name.clone()),
        errors,
        warnings: noticed.cloned().chain(warnings).collect(),
        notes,
    }
}

/// Adds what the store shows of the providers.
fn add_received(looked: &mut Vec<Looked>, config: &Config, received: Received) {
    match received {
        Received::Nothing => {}
        Received::Forms(forms) => {
            for (index, count) in forms {
                looked[index]
                    .warnings
                    .push(received::came_as_forms(config, index, count));
            }
        }
        Received::Unknown(why) => looked.push(Looked {
            name: String::new(),
            adapter: String::new(),
            errors: Vec::new(),
            notes: Vec::new(),
            warnings: vec![config.problem("store.url", format!("what came already was not looked at: {why}"))],
        }),
    }
}

fn place_and_message(problem: &Problem) -> String {
    format!("{}{}", prefix(&problem.key), problem.message)
}
