//! `cerca check`: validates everything that a start would, without a port. Nothing in the store is changed.

mod store;

use std::process::ExitCode;

use comfy_table::Color;
use serde_json::json;

use super::{
    context::Context,
    output::{code, table},
    providers::received::{self, Received},
};
use crate::{
    app::{self, Plan},
    config::{Config, ConfigError, Problem, Secrets},
    store::Schema,
};
use store::Looked;

/// What is right, with what was found of the store.
struct Checked {
    config: Config,
    plan: Plan,
    store: Looked,
}

pub(super) async fn run(context: &Context) -> anyhow::Result<ExitCode> {
    let out = context.out;
    let checked = context.load(Secrets::Fetch).and_then(|config| {
        let plan = app::plan(&config, context.global.adapters.as_deref())?;
        Ok((config, plan))
    });
    let checked = match checked {
        Ok((config, mut plan)) => {
            let looked = store::look(context, &config, &mut plan).await;
            if let Ok(Looked::At(Schema::Current | Schema::Newer)) = &looked {
                received(context, &config, &mut plan).await;
            }
            looked.map(|store| Checked { config, plan, store })
        }
        Err(error) => Err(error),
    };
    match checked {
        Err(ConfigError(problems)) => {
            for problem in &problems {
                if out.json {
                    out.object(&problem_json("error", problem))?;
                } else {
                    out.line(format!("{} {problem}", out.paint(Color::Red, "error:")))?;
                }
            }
            Ok(code(false))
        }
        Ok(checked) if out.json => as_json(context, &checked),
        Ok(checked) => as_text(context, &checked),
    }
}

/// Adds what the events and the refused requests in the store show.
async fn received(context: &Context, config: &Config, plan: &mut Plan) {
    match received::look(context, config, &plan.registry).await {
        Received::Nothing => {}
        Received::Forms(forms) => {
            let warnings = forms.into_iter();
            let warnings = warnings.map(|(index, count)| received::came_as_forms(config, index, count));
            plan.warnings.extend(warnings);
        }
        Received::Unknown(why) => {
            let why = format!("what came already was not looked at: {why}");
            plan.warnings.push(config.problem("store.url", why));
        }
    }
}

fn as_json(context: &Context, checked: &Checked) -> anyhow::Result<ExitCode> {
    let Checked { config, plan, store } = checked;
    for warning in config.warnings.iter().chain(&plan.warnings) {
        context.out.object(&problem_json("warning", warning))?;
    }
    for provider in &plan.providers {
        context.out.object(&json!({
            "kind": "provider",
            "name": &*provider.name,
            "adapter": &*provider.adapter,
            "url": url(provider),
            "verified": provider.verifies(),
        }))?;
    }
    for handler in &config.handlers {
        let kind = handler.kind.as_str();
        context.out.object(&json!({
            "kind": "handler", "name": handler.name, "handler_kind": kind, "events": handler.events,
        }))?;
    }
    for gateway in &config.gateways {
        context.out.object(&json!({
            "kind": "gateway", "path": gateway.path, "upstream": gateway.upstream, "methods": gateway.methods,
            "required": gateway.required, "principal": gateway.principal,
        }))?;
    }
    context.out.object(&json!({
        "kind": "store", "store": config.store.redacted(), "state": store.state(), "message": store.text(),
    }))?;
    context.out.object(&json!({
        "kind": "result", "ok": true, "file": config.path, "store_looked_at": store.is_looked_at(),
    }))?;
    Ok(ExitCode::SUCCESS)
}

fn as_text(context: &Context, checked: &Checked) -> anyhow::Result<ExitCode> {
    let Checked { config, plan, store } = checked;
    let out = context.out;
    let file = match &config.path {
        Some(path) => path.display().to_string(),
        None => "no configuration file; these are the defaults".to_owned(),
    };
    out.line(out.paint(Color::DarkGrey, format!("# {file}")))?;
    out.line(config.effective().trim_end())?;
    out.line("")?;
    if plan.providers.is_empty() {
        out.line("No provider is registered, so nothing can come in yet. Add one to the file, such as")?;
        out.line("")?;
        out.line(app::FIRST_PROVIDER)?;
    } else {
        let mut urls = table(&["PROVIDER", "ADAPTER", "URL", "SIGNED"]);
        for provider in &plan.providers {
            let signed = if provider.verifies() { "yes" } else { "no" };
            urls.add_row([&*provider.name, &*provider.adapter, &url(provider), signed]);
        }
        out.table(&urls)?;
    }
    out.line("")?;
    if config.handlers.is_empty() {
        out.line("No handler is configured: events are stored and printed to the log.")?;
    } else {
        let mut handlers = table(&["HANDLER", "KIND", "EVENTS"]);
        for handler in &config.handlers {
            let kind = handler.kind.as_str();
            handlers.add_row([&handler.name, kind, &handler.events.join("  ")]);
        }
        out.table(&handlers)?;
    }
    if !config.gateways.is_empty() {
        out.line("")?;
        let mut gateways = table(&["GATEWAY", "UPSTREAM", "KEYS FOR", "KEYS OF"]);
        for gateway in &config.gateways {
            let methods = gateway.methods.join(" ");
            gateways.add_row([&gateway.path, &gateway.upstream, &methods, &gateway.principal]);
        }
        out.table(&gateways)?;
    }
    out.line("")?;
    out.line(format!("The store {} {}.", config.store.redacted(), store.text()))?;
    let warnings: Vec<&Problem> = config.warnings.iter().chain(&plan.warnings).collect();
    if !warnings.is_empty() {
        out.line("")?;
    }
    for warning in &warnings {
        out.line(format!("{} {warning}", out.paint(Color::Yellow, "warning:")))?;
    }
    out.line("")?;
    let but = match store.is_looked_at() {
        true => "",
        false => "; the store was not looked at",
    };
    out.line(match warnings.len() {
        0 => out.paint(Color::Green, "Everything is in order."),
        1 => format!("Valid, with 1 warning{but}."),
        count => format!("Valid, with {count} warnings{but}."),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn url(provider: &crate::adapters::Provider) -> String {
    format!("{}/webhooks/{}", provider.public_url, provider.name)
}

fn problem_json(kind: &str, problem: &Problem) -> serde_json::Value {
    json!({ "kind": kind, "place": problem.place, "key": problem.key, "message": problem.message })
}
