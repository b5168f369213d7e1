//! `cerca migrate`: the schema of the store, created or brought up to date.

use std::process::ExitCode;

use anyhow::Context as _;
use secrecy::ExposeSecret as _;

use super::context::Context;
use crate::{app, store};

pub(super) async fn run(context: &Context) -> anyhow::Result<ExitCode> {
    let config = context.config()?;
    let shown = config.store.redacted();
    let created =
        app::create_private(config.store.url.expose_secret()).with_context(|| format!("cannot create {shown}"))?;
    let store = store::open(config.store.url.expose_secret(), store::Options::default())
        .await
        .with_context(|| format!("cannot migrate {shown}"))?;
    let done = app::set_up(&*store, &config.handlers).await;
    store.close().await;
    done?;
    if context.out.json {
        context
            .out
            .object(&serde_json::json!({ "store": shown, "migrated": true, "created": created }))?;
    } else {
        let done = if created { "was created" } else { "is up to date" };
        context.out.line(format!("{shown} {done}"))?;
    }
    Ok(ExitCode::SUCCESS)
}
