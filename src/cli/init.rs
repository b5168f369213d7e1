//! `cerca init`: a commented configuration to start from.

use std::{fs, io, io::Write as _, path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::Args;

use super::context::Context;
use crate::config;

#[derive(Debug, Args)]
pub(super) struct Init {
    /// Where to write it [default: --config, or cerca.toml]
    file: Option<PathBuf>,
}

impl Init {
    pub(super) fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let path = self
            .file
            .or_else(|| context.global.config.clone())
            .unwrap_or_else(|| config::DEFAULT_FILE.into());
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => {
                    anyhow::anyhow!(
                        "{} is there already and was left as it is; name another file",
                        path.display()
                    )
                }
                _ => anyhow::Error::new(error).context(format!("cannot write {}", path.display())),
            })?;
        file.write_all(config::EXAMPLE.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
        if context.out.json {
            context.out.object(&serde_json::json!({ "written": path }))?;
        } else {
            context.out.line(format!("Wrote {}. Next:", path.display()))?;
            context
                .out
                .line("  1. take the # off [[provider]] and [[handler]], and fill them in")?;
            context
                .out
                .line("  2. export the secrets that it names as env:…; `check` and `serve` both read them")?;
            context.out.line("  3. cerca check")?;
            context.out.line("  4. cerca serve")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
