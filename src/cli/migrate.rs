//! `cerca migrate`: the schema of the store, created or brought up to date.

use std::process::ExitCode;

use anyhow::Context as _;
use secrecy::ExposeSecret as _;

use super::context::Context;
use crate::{
    app,
    store::{self, Schema},
};

pub(super) async fn run(context: &Context) -> anyhow::Result<ExitCode> {
    let config = context.config()?;
    let shown = config.store.redacted();
    let url = config.store.url.expose_secret();
    app::create_private(url).with_context(|| format!("cannot create {shown}"))?;
    let migrating = || format!("cannot migrate {shown}");
    let before = store::schema(url).await.with_context(migrating)?;
    let store = store::open(url, store::Options::default())
        .await
        .with_context(migrating)?;
    let done = app::set_up(&*store, &config.handlers).await;
    store.close().await;
    done?;
    let created = before == Schema::Absent;
    if context.out.json {
        context
            .out
            .object(&serde_json::json!({ "store": shown, "migrated": true, "created": created }))?;
    } else {
        let done = match before {
            Schema::Absent => "was created",
            Schema::Older => "was brought up to date",
            Schema::Current | Schema::Newer => "is up to date already",
        };
        context.out.line(format!("The schema of {shown} {done}."))?;
    }
    Ok(ExitCode::SUCCESS)
}
