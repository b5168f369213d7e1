//! `cerca check`: validates everything that a start would, without a port. The store is opened only where statements run
//! in it and it is there already; nothing in it is changed.

use std::{path::Path, process::ExitCode};

use comfy_table::Color;
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::{
    context::{Context, sqlite_path},
    output::{code, table},
};
use crate::{
    app::{self, Plan},
    config::{Config, ConfigError, Problem, Secrets},
    handlers::Action,
};

pub(super) async fn run(context: &Context) -> anyhow::Result<ExitCode> {
    let out = context.out;
    let checked = context.load(Secrets::Fetch).and_then(|config| {
        let plan = app::plan(&config, context.global.adapters.as_deref())?;
        Ok((config, plan))
    });
    let checked = match checked {
        Ok((config, plan)) => with_statements(context, config, plan).await,
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
        Ok((config, plan)) if out.json => as_json(context, &config, &plan),
        Ok((config, plan)) => as_text(context, &config, &plan),
    }
}

/// Adds what the store says of the statements that run in it.
async fn with_statements(context: &Context, config: Config, mut plan: Plan) -> Result<(Config, Plan), ConfigError> {
    let is_any = plan.routes.iter().any(|r| matches!(r.action, Action::InStore(_)));
    let is_there = sqlite_path(config.store.url.expose_secret()).is_none_or(|path| Path::new(path).exists());
    if !is_any || !is_there {
        return Ok((config, plan));
    }
    let looked = async {
        let store = context.store(&config).await?;
        let findings = app::look(&config, &*store, &plan.routes).await;
        store.close().await;
        anyhow::Ok(findings?)
    };
    match looked.await {
        Ok(findings) if findings.problems.is_empty() => plan.warnings.extend(findings.warnings),
        Ok(findings) => return Err(ConfigError(findings.problems)),
        Err(error) => {
            let why = format!("the statements of handlers were not looked at: {error:#}");
            plan.warnings.push(config.problem("store.url", why));
        }
    }
    Ok((config, plan))
}

fn as_json(context: &Context, config: &Config, plan: &Plan) -> anyhow::Result<ExitCode> {
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
    context
        .out
        .object(&json!({ "kind": "result", "ok": true, "file": config.path }))?;
    Ok(ExitCode::SUCCESS)
}

fn as_text(context: &Context, config: &Config, plan: &Plan) -> anyhow::Result<ExitCode> {
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
    let warnings: Vec<&Problem> = config.warnings.iter().chain(&plan.warnings).collect();
    if !warnings.is_empty() {
        out.line("")?;
    }
    for warning in &warnings {
        out.line(format!("{} {warning}", out.paint(Color::Yellow, "warning:")))?;
    }
    out.line("")?;
    out.line(match warnings.len() {
        0 => out.paint(Color::Green, "Everything is in order."),
        1 => "Valid, with 1 warning.".to_owned(),
        count => format!("Valid, with {count} warnings."),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn url(provider: &crate::adapters::Provider) -> String {
    format!("{}/webhooks/{}", provider.public_url, provider.name)
}

fn problem_json(kind: &str, problem: &Problem) -> serde_json::Value {
    json!({ "kind": kind, "place": problem.place, "key": problem.key, "message": problem.message })
}
