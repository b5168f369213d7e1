//! `cerca verify`: why a captured request does or does not verify, and files of vectors.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use clap::Args;
use comfy_table::Color;
use jiff::Timestamp;

use super::{
    context::Context,
    output::{code, complain},
    sealed::unseal,
};
use crate::{
    app,
    ingest::{self, Mark, OwnedRequest},
};

#[derive(Debug, Args)]
pub(super) struct Verify {
    /// The registered provider
    #[arg(required_unless_present = "vectors", requires = "request")]
    provider: Option<String>,
    /// The request: request line, headers, an empty line, the exact body
    #[arg(long, value_name = "FILE", requires = "provider")]
    request: Option<PathBuf>,
    /// The receiver's clock, such as 2026-01-31T12:00:00Z [default: now]
    #[arg(long, value_name = "TIME")]
    at: Option<Timestamp>,
    /// Run signed requests with what must come of them, one JSON object a line, of a file or of all *.jsonl in a folder;
    /// needs no configuration
    #[arg(long, value_name = "FILE or FOLDER", conflicts_with_all = ["provider", "request"])]
    vectors: Option<PathBuf>,
}

impl Verify {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        match (&self.vectors, &self.provider, &self.request) {
            (Some(file), _, _) => vectors(context, file),
            (None, Some(provider), Some(file)) => explain(context, provider, file, self.at).await,
            _ => bail!("name a provider and --request FILE, or --vectors FILE"),
        }
    }
}

/// One JSON result a line, whatever `--json` says: the reader is a program.
fn vectors(context: &Context, path: &Path) -> anyhow::Result<ExitCode> {
    let mut files = Vec::new();
    match path.is_dir() {
        true => gather(path, &mut files)?,
        false => files.push(path.to_owned()),
    }
    if files.is_empty() {
        bail!("there is no *.jsonl in {}", path.display());
    }
    let registry = context.registry()?;
    let mut results = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let run = ingest::run_vectors(&text, &registry)
            .map_err(|error| anyhow::anyhow!("{}:{}: {}", file.display(), error.line, error.message))?;
        results.extend(run.into_iter().map(|result| (file, result)));
    }
    let mut unmet = 0;
    for (file, result) in &results {
        unmet += usize::from(!result.ok());
        let mut object = serde_json::to_value(result)?;
        // Always there, so that a reader need not ask first.
        if let Some(fields) = object.as_object_mut() {
            fields.entry("reason").or_insert(serde_json::Value::Null);
            if path.is_dir() {
                fields.insert("file".into(), file.display().to_string().into());
            }
        }
        context.out.object(&object)?;
    }
    if unmet > 0 {
        complain(&format!("{unmet} of {} vectors are not met", results.len()));
    }
    Ok(code(unmet == 0))
}

/// All `*.jsonl` under a folder, in the order of their names. Links to folders are not followed.
fn gather(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let why = || format!("cannot read {}", folder.display());
    let mut entries = fs::read_dir(folder)
        .with_context(why)?
        .collect::<Result<Vec<_>, _>>()
        .with_context(why)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        match entry.file_type().with_context(why)?.is_dir() {
            true => gather(&path, files)?,
            false if path.extension().is_some_and(|ending| ending == "jsonl") => files.push(path),
            false => {}
        }
    }
    Ok(())
}

/// The steps that a server takes with this request, for people; the exit code says whether it verifies.
async fn explain(context: &Context, name: &str, file: &Path, at: Option<Timestamp>) -> anyhow::Result<ExitCode> {
    let out = context.out;
    let config = context.config_with_secrets()?;
    let mut plan = app::plan(&config, context.global.adapters.as_deref())?;
    unseal(context, &config, &mut plan, name).await;
    let Some(provider) = plan.providers.iter().find(|provider| &*provider.name == name) else {
        let names: Vec<&str> = plan.providers.iter().map(|provider| &*provider.name).collect();
        bail!("no provider is called {name}; registered are: {}", names.join(", "));
    };
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let request = OwnedRequest::parse(&bytes, &provider.public_url).with_context(|| file.display().to_string())?;
    let headers = request.header_list();
    let now = at.unwrap_or_else(Timestamp::now);
    let verified = ingest::ingest(provider, &request.raw(&headers), now).is_ok();
    let steps = ingest::explain(provider, &request.raw(&headers), now);
    for step in &steps {
        if out.json {
            out.object(step)?;
            continue;
        }
        let color = match step.mark {
            Mark::Good => Color::Green,
            Mark::Bad => Color::Red,
            Mark::Note => Color::Reset,
            Mark::Hint => Color::Yellow,
        };
        out.line(out.paint(color, step.to_string()))?;
    }
    Ok(code(verified))
}
