//! `cerca providers`: the adapters, built in and from a folder.

use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;
use comfy_table::Color;
use serde_json::json;

use super::{
    context::Context,
    output::{code, table},
    secrets::Secrets,
};
use crate::{
    adapters::{Adapter, Registry},
    config, ingest,
};

#[derive(Debug, Subcommand)]
pub(super) enum Providers {
    /// List the adapters
    List {
        /// Only those whose name or title holds this
        word: Option<String>,
    },
    /// Show how one kind of sender signs, and how to set it up
    Show { name: String },
    /// Read every adapter and report what is wrong with it
    Check {
        /// Only this one
        name: Option<String>,
    },
    /// Look at the secret that a sender handed over in its handshake
    Secrets(Secrets),
}

impl Providers {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { word } => list(context, word.as_deref()),
            Self::Show { name } => show(context, &name),
            Self::Check { name } => check(context, name.as_deref()),
            Self::Secrets(command) => command.run(context).await,
        }
    }
}

fn list(context: &Context, word: Option<&str>) -> anyhow::Result<ExitCode> {
    let registry = context.registry()?;
    let word = word.unwrap_or_default().to_lowercase();
    let matches = |adapter: &&Adapter| adapter.name.contains(&word) || adapter.title().to_lowercase().contains(&word);
    let found: Vec<&Adapter> = registry.iter().filter(matches).collect();
    if context.out.json {
        for adapter in &found {
            context.out.object(&json!({
                "name": &*adapter.name,
                "title": adapter.title(),
                "schemes": schemes(adapter),
                "docs": adapter.docs(),
                "samples": adapter.samples().keys().collect::<Vec<_>>(),
            }))?;
        }
        return Ok(code(!found.is_empty()));
    }
    if found.is_empty() {
        let word = context.out.paint(Color::Yellow, &word);
        context.out.line(format!(
            "No adapter matches {word}. A sender that signs its body can use generic_hmac, one that sends a token generic_token."
        ))?;
        return Ok(code(false));
    }
    let mut rows = table(&["ADAPTER", "TITLE", "PROOF"]);
    for adapter in &found {
        rows.add_row([&*adapter.name, adapter.title(), &schemes(adapter).join(", ")]);
    }
    context.out.table(&rows)?;
    Ok(ExitCode::SUCCESS)
}

fn show(context: &Context, name: &str) -> anyhow::Result<ExitCode> {
    let out = context.out;
    let registry = context.registry()?;
    let adapter = find(&registry, name)?;
    if out.json {
        out.object(&json!({
            "name": &*adapter.name,
            "title": adapter.title(),
            "docs": adapter.docs(),
            "schemes": schemes(adapter),
            "secret": adapter.secret_hint(),
            "setup": adapter.setup(),
            "samples": adapter.samples().keys().collect::<Vec<_>>(),
            "source": adapter.source(),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    out.line(format!("{}  ({})", adapter.title(), adapter.name))?;
    if let Some(docs) = adapter.docs() {
        out.line(out.paint(Color::DarkGrey, docs))?;
    }
    out.line("")?;
    if let Some(hint) = adapter.secret_hint() {
        out.line(format!("Secret: {hint}"))?;
    }
    for (number, step) in adapter.setup().iter().enumerate() {
        out.line(format!("{}. {step}", number + 1))?;
    }
    if !adapter.samples().is_empty() {
        let names: Vec<&str> = adapter.samples().keys().map(String::as_str).collect();
        out.line(format!("Samples for `cerca trigger`: {}", names.join(", ")))?;
    }
    out.line("")?;
    out.line("In cerca.toml:")?;
    out.line("")?;
    out.line("    [[provider]]")?;
    out.line(format!("    name = \"{}\"", adapter.name))?;
    out.line(format!(
        "    secrets = [\"env:{}_SECRET\"]",
        adapter.name.to_uppercase()
    ))?;
    out.line("")?;
    out.line(out.paint(Color::DarkGrey, "# adapter.toml"))?;
    out.line(adapter.source().trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// Every folder is read, every lint looked at, and the folder's own vectors are run.
fn check(context: &Context, only: Option<&str>) -> anyhow::Result<ExitCode> {
    let out = context.out;
    let (registry, errors) = Registry::read_all(context.global.adapters.as_deref())?;
    if let Some(name) = only.filter(|name| !errors.iter().any(|error| error.file.contains(name))) {
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
        .filter(|error| only.is_none_or(|only| error.file.contains(only)))
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
        for text in adapter.lint() {
            notes += 1;
            report("note", Color::Yellow, &adapter.name, &text)?;
        }
        for result in ingest::run_vectors(adapter.vectors().unwrap_or_default(), &registry)? {
            if !result.ok() {
                wrong += 1;
                let text = format!("vector {}: {}", result.case, result.differences.join("; "));
                report("error", Color::Red, &adapter.name, &text)?;
            }
        }
    }
    if out.json {
        out.object(&json!({ "kind": "result", "checked": checked, "errors": wrong, "notes": notes }))?;
    } else {
        out.line(format!("{checked} adapters read, {wrong} errors, {notes} notes"))?;
    }
    Ok(code(wrong == 0))
}

fn prefix(key: &str) -> String {
    if key.is_empty() {
        String::new()
    } else {
        format!("{key}: ")
    }
}

fn find<'r>(registry: &'r Registry, name: &str) -> anyhow::Result<&'r Adapter> {
    if let Some(adapter) = registry.get(name) {
        return Ok(adapter);
    }
    let names: Vec<&str> = registry.names().collect();
    match config::near(name, &names) {
        Some(near) => bail!("there is no adapter {name}; did you mean {near}?"),
        None => bail!("there is no adapter {name}; `cerca providers list` names them all"),
    }
}

fn schemes(adapter: &Adapter) -> Vec<&str> {
    let mut schemes: Vec<&str> = adapter.signatures().map(|(_, scheme)| scheme).collect();
    schemes.dedup();
    if schemes.is_empty() {
        schemes.push("none");
    }
    schemes
}
