//! `cerca providers vectors`: the samples of an adapter, signed and spoiled, as lines of its `vectors.jsonl`.

use std::{fs, io::ErrorKind, path::Path, process::ExitCode};

use anyhow::{Context as _, bail};
use secrecy::ExposeSecret as _;
use serde_json::Value;

use super::{Context, find};
use crate::{
    config::{Environment, Reference},
    ingest::{self, MadeVector},
};

pub(super) fn run(context: &Context, name: &str, secret: Option<&str>, write: bool) -> anyhow::Result<ExitCode> {
    let registry = context.registry()?;
    let adapter = find(&registry, name)?;
    let secret = secret
        .map(|text| Reference::from(text).resolve(Path::new("."), &Environment::of_process()))
        .transpose()
        .map_err(|problem| anyhow::anyhow!("--secret: {problem}"))?;
    let secret = secret.as_ref().map(|secret| secret.expose_secret());
    let made = ingest::make_vectors(adapter, &registry, secret).with_context(|| format!("no vectors for {name}"))?;
    if !write {
        for vector in &made {
            context.out.line(&vector.line)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let folder = Path::new(adapter.folder());
    if !folder.is_dir() {
        bail!(
            "{} is not here; name the folder that the adapter's lies in with --providers DIR",
            folder.display()
        );
    }
    let path = folder.join("vectors.jsonl");
    // What lies there, and not what the binary was built with.
    let old = match fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        read => read.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let (text, written, kept) = merge(&made, &old);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    context.out.line(format!(
        "{}: {written} made from samples, {kept} others kept",
        path.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// What was made, and what was there and came from elsewhere: that shows more, so its cases are not made again.
fn merge(made: &[MadeVector], old: &str) -> (String, usize, usize) {
    let read = |line: &str, key: &str| {
        let value: Value = serde_json::from_str(line).unwrap_or_default();
        value.get(key).and_then(Value::as_str).map(str::to_owned)
    };
    let is_other = |line: &&str| !line.trim().is_empty() && read(line, "basis").as_deref() != Some(ingest::BASIS);
    let kept: Vec<&str> = old.lines().filter(is_other).collect();
    let cases: Vec<String> = kept.iter().filter_map(|line| read(line, "case")).collect();
    let new: Vec<&str> = made
        .iter()
        .filter(|vector| !cases.contains(&vector.case))
        .map(|vector| vector.line.as_str())
        .collect();
    let lines: Vec<&str> = new.iter().chain(&kept).copied().collect();
    (lines.join("\n") + "\n", new.len(), kept.len())
}
