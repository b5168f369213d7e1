//! `cerca providers`: the adapters, built in and from a folder.

mod check;
pub(in crate::cli) mod example;
mod folder;
mod page;
pub(in crate::cli) mod received;
mod show;
mod vectors;

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
    config,
};

#[derive(Debug, Subcommand)]
pub(super) enum Providers {
    /// List the adapters
    List {
        /// Only those whose name or title holds this
        word: Option<String>,
    },
    /// Show how one kind of sender signs, and how to set it up
    Show {
        name: String,
        /// Print its adapter.toml instead
        #[arg(long, conflicts_with = "json")]
        toml: bool,
    },
    /// Read every adapter and report what is wrong with it, and with the registered providers
    Check {
        /// Only this adapter or provider
        name: Option<String>,
    },
    /// Sign the samples of an adapter, rightly and in every wrong way, and print them as vectors
    Vectors {
        name: String,
        /// The secret to sign with (`env:NAME`, `file:PATH` or itself), which stands in the vectors [default: one made up]
        #[arg(long, value_name = "SECRET")]
        secret: Option<String>,
        /// Write them to vectors.jsonl in the adapter's folder; lines that were not made so stay
        #[arg(long)]
        write: bool,
    },
    /// Print the table of all adapters, as Markdown
    Docs {
        /// Write it to docs/providers.md instead
        #[arg(long)]
        write: bool,
    },
    /// Look at the secret that a sender handed over in its handshake
    Secrets(Secrets),
}

impl Providers {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { word } => list(context, word.as_deref()),
            Self::Show { name, toml } => show::run(context, &name, toml),
            Self::Check { name } => check::run(context, name.as_deref()).await,
            Self::Vectors { name, secret, write } => vectors::run(context, &name, secret.as_deref(), write),
            Self::Docs { write } => page::run(context, write),
            Self::Secrets(command) => command.run(context).await,
        }
    }
}

/// So many matches are shown with what is needed to register them.
const FEW: usize = 3;

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
    if !word.is_empty() && found.len() <= FEW {
        for adapter in found {
            context.out.line("")?;
            show::registering(context, adapter)?;
        }
    }
    Ok(ExitCode::SUCCESS)
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
    let mut schemes: Vec<&str> = Vec::new();
    for (_, scheme) in adapter.signatures() {
        if !schemes.contains(&scheme) {
            schemes.push(scheme);
        }
    }
    if schemes.is_empty() {
        schemes.push("none");
    }
    schemes
}
