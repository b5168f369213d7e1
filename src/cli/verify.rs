//! `cerca verify`: why a captured request does or does not verify, and files of vectors.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, bail};
use clap::Args;

use super::{
    context::Context,
    output::{code, complain},
};
use crate::ingest;

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
    at: Option<jiff::Timestamp>,
    /// Run signed requests with what must come of them, one JSON object a line; needs no configuration
    #[arg(long, value_name = "FILE", conflicts_with_all = ["provider", "request"])]
    vectors: Option<PathBuf>,
}

impl Verify {
    pub(super) fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        match (&self.vectors, &self.provider, &self.request) {
            (Some(file), _, _) => vectors(context, file),
            (None, Some(provider), Some(file)) => explain(context, provider, file, self.at),
            _ => bail!("name a provider and --request FILE, or --vectors FILE"),
        }
    }
}

/// One JSON result a line, whatever `--json` says: the reader is a program.
fn vectors(context: &Context, file: &PathBuf) -> anyhow::Result<ExitCode> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let registry = context.registry()?;
    let results = ingest::run_vectors(&text, &registry).with_context(|| file.display().to_string())?;
    let mut unmet = 0;
    for result in &results {
        unmet += usize::from(!result.ok());
        context.out.object(result)?;
    }
    if unmet > 0 {
        complain(&format!("{unmet} of {} vectors are not met", results.len()));
    }
    Ok(code(unmet == 0))
}

fn explain(_: &Context, _: &str, _: &PathBuf, _: Option<jiff::Timestamp>) -> anyhow::Result<ExitCode> {
    bail!("not yet")
}
