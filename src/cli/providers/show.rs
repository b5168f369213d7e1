//! `cerca providers show`: all that is needed to register one kind of sender.

use std::{collections::BTreeSet, process::ExitCode};

use comfy_table::Color;
use serde_json::json;

use super::{Context, example, find, schemes};
use crate::{
    adapters::{Adapter, Gap, SecretNeed, Uncovered},
    ingest::OwnedRequest,
};

pub(super) fn run(context: &Context, name: &str, toml: bool) -> anyhow::Result<ExitCode> {
    let out = context.out;
    let registry = context.registry()?;
    let adapter = find(&registry, name)?;
    if toml {
        out.bytes(adapter.source().as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    if out.json {
        out.object(&json!({
            "name": &*adapter.name,
            "title": adapter.title(),
            "docs": adapter.docs(),
            "schemes": schemes(adapter),
            "urls": urls(context, adapter),
            "format": format(adapter),
            "secret": adapter.secret_hint(),
            "options": adapter.options(),
            "needs": needs(adapter),
            "not_covered": not_covered(adapter),
            "sender": adapter.sender(),
            "setup": adapter.setup(),
            "samples": adapter.samples().keys().collect::<Vec<_>>(),
            "normalized": adapter.normalize().is_some(),
            "source": adapter.source(),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    registering(context, adapter)?;
    if !adapter.samples().is_empty() {
        let names: Vec<&str> = adapter.samples().keys().map(String::as_str).collect();
        out.line(format!("Samples for `cerca trigger`: {}", names.join(", ")))?;
    }
    out.line("")?;
    out.line("In cerca.toml:")?;
    out.line("")?;
    let has_url = context
        .config()
        .is_ok_and(|config| config.server.public_url.is_some_and(|url| !is_default_url(&url)));
    for line in example::lines(adapter, has_url) {
        out.line(format!("    {line}").trim_end())?;
    }
    out.line("")?;
    let rules = format!("Its rules: cerca providers show {} --toml", adapter.name);
    out.line(out.paint(Color::DarkGrey, rules))?;
    Ok(ExitCode::SUCCESS)
}

/// What a person enters at the sender, step by step, and how the sender then behaves.
pub(super) fn registering(context: &Context, adapter: &Adapter) -> anyhow::Result<()> {
    let out = context.out;
    out.line(format!("{}  ({})", adapter.title(), adapter.name))?;
    if let Some(docs) = adapter.docs() {
        out.line(out.paint(Color::DarkGrey, docs))?;
    }
    out.line("")?;
    for (number, step) in adapter.setup().iter().enumerate() {
        out.line(format!("{}. {step}", number + 1))?;
    }
    let sender = adapter.sender();
    let resigns = match sender.resigns {
        Some(true) => Some("each attempt is signed anew".to_owned()),
        Some(false) => Some("all attempts carry the first one's signature and time".to_owned()),
        None => adapter.signs_time().then(|| "not told".to_owned()),
    };
    let options = Some(adapter.options().join(", ")).filter(|names| !names.is_empty());
    let facts = [
        ("URL", Some(urls(context, adapter).join("  "))),
        ("Proof", Some(schemes(adapter).join(", "))),
        ("Secret", adapter.secret_hint().map(str::to_owned)),
        ("Options", options),
        ("Format", format(adapter)),
        ("Success", known(&sender.success)),
        ("Timeout", known(&sender.timeout_text())),
        ("Retries", known(&sender.retries)),
        ("Signing", resigns),
        ("Disabling", known(&sender.disables)),
        ("Redelivery", sender.redelivers.clone()),
    ];
    for (name, value) in facts {
        if let Some(value) = value {
            out.line(format!("{:<12}{value}", format!("{name}:")))?;
        }
    }
    for line in open(adapter) {
        out.line(line)?;
    }
    Ok(())
}

/// A fact about the sender, or that nobody knows it.
fn known(fact: &Option<String>) -> Option<String> {
    Some(fact.clone().unwrap_or_else(|| "not told".to_owned()))
}

/// What whoever sees a request could change or repeat, in sentences.
fn open(adapter: &Adapter) -> Vec<String> {
    let all = adapter.uncovered();
    let several = all.len() > 1;
    let mut lines = Vec::new();
    for one in &all {
        let which = match several {
            true => format!(" by `{}`", one.rules.join("`, `")),
            false => String::new(),
        };
        if one.gaps.is_empty() {
            lines.push(format!("Proved{which}: the body, the id and a time that is judged."));
            continue;
        }
        lines.push(format!("Not proved{which}:"));
        lines.extend(one.gaps.iter().map(|gap| format!("  - {gap}")));
        if one.names_fields() {
            lines.push(format!("  What is signed: {}", one.message.escape_debug()));
        }
        if !one.bound.is_empty() {
            lines.push(format!("  What must agree with it: {}", one.bound.join(", ")));
        }
    }
    if all.is_empty() {
        lines.push("Not proved: anything. Nothing is verified, so anyone who knows the URL can send.".to_owned());
    }
    lines
}

fn not_covered(adapter: &Adapter) -> serde_json::Value {
    let all = adapter.uncovered();
    let one = |one: &Uncovered| {
        json!({
            "signatures": one.rules,
            "not_covered": one.gaps.iter().map(Gap::word).collect::<Vec<_>>(),
            "because": one.gaps.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "signed": one.message,
            "bound": one.bound,
        })
    };
    all.iter().map(one).collect()
}

fn needs(adapter: &Adapter) -> serde_json::Value {
    let needs = adapter.needs();
    json!({
        "secret": match needs.secret {
            SecretNeed::Shared => "shared",
            SecretNeed::UserPassword => "user:password",
            SecretNeed::PublicKey => "public_key",
            SecretNeed::Fetched => "fetched",
            SecretNeed::HandedOver => "handed_over",
            SecretNeed::Nothing => "none",
        },
        "decryption_key": needs.decryption_key,
        "public_url": needs.public_url,
        "options": needs.options,
        "optional": needs.optional,
    })
}

/// Whether it is what a configuration has that names none.
fn is_default_url(url: &str) -> bool {
    url.is_empty() || url.starts_with("http://127.0.0.1") || url.starts_with("http://localhost")
}

/// Where the registered providers of this kind receive; without one, where the first would.
fn urls(context: &Context, adapter: &Adapter) -> Vec<String> {
    let config = context.config().ok();
    let providers = config.iter().flat_map(|config| &config.providers);
    let found: Vec<String> = providers
        .filter(|provider| provider.spec.adapter.as_ref().unwrap_or(&provider.spec.name) == &*adapter.name)
        .map(|provider| format!("{}/webhooks/{}", provider.spec.public_url, provider.spec.name))
        .collect();
    if found.is_empty() {
        return vec![format!("https://YOUR-HOST/webhooks/{}", adapter.name)];
    }
    found
}

/// What its bodies are, as its samples have them.
fn format(adapter: &Adapter) -> Option<String> {
    let types: BTreeSet<String> = adapter
        .samples()
        .values()
        .filter_map(|text| OwnedRequest::parse_sample(text, "https://h").ok())
        .filter_map(|request| {
            let value = request.header("content-type")?;
            let name = std::str::from_utf8(value).ok()?.split(';').next()?;
            Some(name.trim().to_ascii_lowercase())
        })
        .collect();
    let mut text = types.into_iter().collect::<Vec<_>>().join(", ");
    if let Some(field) = adapter.form_field() {
        if !text.is_empty() {
            text.push_str("; ");
        }
        text.push_str(&format!("a form whose field `{field}` holds the JSON is read too"));
        if adapter.prefers_json() {
            text.push_str(", but choose JSON (application/json) at the sender");
        }
    }
    Some(text).filter(|text| !text.is_empty())
}
