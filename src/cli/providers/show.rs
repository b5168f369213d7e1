//! `cerca providers show`: all that is needed to register one kind of sender.

use std::{collections::BTreeSet, process::ExitCode};

use comfy_table::Color;
use serde_json::json;

use super::{Context, find, schemes};
use crate::{adapters::Adapter, ingest::OwnedRequest};

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
    out.line("    [[provider]]")?;
    out.line(format!("    name = \"{}\"", adapter.name))?;
    let variable = adapter.name.to_uppercase();
    out.line(format!("    secrets = [\"env:{variable}_SECRET\"]"))?;
    if adapter.decrypts_first() {
        out.line(format!("    decryption_keys = [\"file:{}-private.pem\"]", adapter.name))?;
    }
    let options: Vec<String> = adapter.options().iter().map(|name| format!("{name} = \"…\"")).collect();
    if !options.is_empty() {
        out.line(format!("    options = {{ {} }}", options.join(", ")))?;
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
    let resigns = sender.resigns.map(|anew| match anew {
        true => "each attempt is signed anew".to_owned(),
        false => "all attempts carry the first one's signature and time".to_owned(),
    });
    let options = Some(adapter.options().join(", ")).filter(|names| !names.is_empty());
    let facts = [
        ("URL", Some(urls(context, adapter).join("  "))),
        ("Proof", Some(schemes(adapter).join(", "))),
        ("Secret", adapter.secret_hint().map(str::to_owned)),
        ("Options", options),
        ("Format", format(adapter)),
        ("Success", sender.success.clone()),
        ("Timeout", sender.timeout.clone()),
        ("Retries", sender.retries.clone()),
        ("Signing", resigns),
        ("Disabling", sender.disables.clone()),
        ("Redelivery", sender.redelivers.clone()),
    ];
    for (name, value) in facts {
        if let Some(value) = value {
            out.line(format!("{:<12}{value}", format!("{name}:")))?;
        }
    }
    Ok(())
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
        text.push_str(&format!(
            "a form whose field `{field}` holds the JSON is read too, but choose JSON where the sender lets you"
        ));
    }
    Some(text).filter(|text| !text.is_empty())
}
