//! `cerca providers secrets`: those that senders handed over, on the store that the configuration names.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::{
    context::Context,
    output::{code, table},
};
use crate::{
    config::Config,
    seal::fingerprint,
    store::{SealedSecret, Store},
};

#[derive(Debug, Args)]
pub(super) struct Secrets {
    /// The provider's name in the configuration
    provider: String,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show when a secret came, and a fingerprint of how it is stored
    List,
    /// Print the secret, for senders such as Notion that want it typed in
    Reveal,
    /// Forget it, so that the next handshake may hand over another
    Remove,
}

impl Secrets {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let config = context.config()?;
        let store = context.store(&config).await?;
        let done = self.act(context, &config, &*store).await;
        store.close().await;
        done
    }

    async fn act(&self, context: &Context, config: &Config, store: &dyn Store) -> anyhow::Result<ExitCode> {
        if let Action::Remove = self.action {
            return self.remove(context, store).await;
        }
        let stored = store.secrets().await?;
        let Some(secret) = stored.iter().find(|one| one.provider == self.provider) else {
            return self.none(context);
        };
        match self.action {
            Action::Reveal => self.reveal(context, config, secret),
            _ => list(context, secret),
        }
    }

    async fn remove(&self, context: &Context, store: &dyn Store) -> anyhow::Result<ExitCode> {
        if !store.set_secret(&self.provider, None, "cli").await? {
            return self.none(context);
        }
        if context.out.json {
            context
                .out
                .object(&json!({ "provider": self.provider, "removed": true }))?;
        } else {
            context.out.line(format!(
                "Removed the secret of {}. Running servers stop using it within half a minute; the next handshake may hand \
                 over another.",
                self.provider
            ))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn reveal(&self, context: &Context, config: &Config, secret: &SealedSecret) -> anyhow::Result<ExitCode> {
        let Some(key) = &config.store.seal_key else {
            bail!("`seal_key` in [store] is not set, so the secret cannot be opened");
        };
        let opened = key.open(&secret.provider, &secret.sealed);
        let opened = opened.with_context(|| format!("the secret of {}", self.provider))?;
        let text = opened.expose_secret();
        if context.out.json {
            context
                .out
                .object(&json!({ "provider": secret.provider, "secret": text }))?;
        } else {
            context.out.line(text)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn none(&self, context: &Context) -> anyhow::Result<ExitCode> {
        if !context.out.json {
            context
                .out
                .line(format!("No secret is stored for {}.", self.provider))?;
        }
        Ok(code(false))
    }
}

fn list(context: &Context, secret: &SealedSecret) -> anyhow::Result<ExitCode> {
    let (at, print) = (secret.created_at.to_string(), fingerprint(&secret.sealed));
    if context.out.json {
        context.out.object(&json!({
            "provider": secret.provider, "created_at": at, "source": secret.source, "fingerprint": print,
        }))?;
    } else {
        let mut rows = table(&["PROVIDER", "CAME", "BY", "FINGERPRINT"]);
        rows.add_row([&secret.provider, &at, &secret.source, &print]);
        context.out.table(&rows)?;
    }
    Ok(ExitCode::SUCCESS)
}
