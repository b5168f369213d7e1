//! Where a mistake lies in what a provider says over its adapter: `event = { … }`, `signature = { … }`, `options`.

use crate::{
    adapters::{ProviderSpec, Registry},
    config::{self, Config, Problem},
};

/// A problem of the merged rules, at the key that the operator wrote.
pub(super) fn problem(config: &Config, path: &str, text: &str) -> Problem {
    let spec = config
        .providers
        .iter()
        .enumerate()
        .find(|(index, _)| path == format!("provider[{index}]"))
        .map(|(_, provider)| &provider.spec);
    // The compiler names the key first; what cannot even be read names only the word that it does not know.
    let quoted = text.strip_prefix('`').and_then(|rest| rest.split_once("`: "));
    let (key, message) = match (quoted, spec) {
        (Some((key, message)), Some(spec)) => (written(key, spec), message),
        (Some((key, message)), None) => (key.to_owned(), message),
        (None, Some(spec)) => (unread(text, spec), text),
        (None, None) => ("signature".to_owned(), text),
    };
    config.problem(&format!("{path}.{key}"), message)
}

/// `signature[0].source` as this provider writes it: its keys hold for every signature, and a header may be named alone.
fn written(key: &str, spec: &ProviderSpec) -> String {
    let Some((table, field)) = key.split_once('.') else {
        return key.split('[').next().unwrap_or(key).to_owned();
    };
    let table = table.split('[').next().unwrap_or(table);
    let by_header = table == "signature" && field == "source" && !spec.signature.contains_key("source");
    let field = if by_header { "header" } else { field };
    format!("{table}.{field}")
}

fn unread(text: &str, spec: &ProviderSpec) -> String {
    let named = text.split('`').nth(1).unwrap_or_default();
    if spec.event.contains_key(named) {
        format!("event.{named}")
    } else if spec.signature.contains_key(named) {
        format!("signature.{named}")
    } else if spec.signature.is_empty() {
        "event".to_owned()
    } else {
        "signature".to_owned()
    }
}

/// Options that no `config:name` of the adapter, or of what the provider says over it, asks for.
pub(super) fn unknown_options(config: &Config, path: &str, spec: &ProviderSpec, registry: &Registry) -> Vec<Problem> {
    if spec.options.is_empty() {
        return Vec::new();
    }
    let Some(adapter) = registry.get(spec.adapter.as_deref().unwrap_or(&spec.name)) else {
        return Vec::new();
    };
    let own = format!("{}\n{}", spec.signature, spec.event);
    let mut used: Vec<&str> = names(adapter.source()).chain(names(&own)).collect();
    used.sort_unstable();
    used.dedup();
    let unused = spec.options.keys().filter(|name| !used.contains(&name.as_str()));
    let say = |name: &String| {
        let expected = match (config::near(name, &used), used.as_slice()) {
            (Some(near), _) => format!("did you mean \"{near}\"?"),
            (None, []) => "it uses none".to_owned(),
            (None, used) => format!("it uses {}", used.join(", ")),
        };
        let message = format!("the adapter {} does not use this option; {expected}", adapter.name);
        config.problem(&format!("{path}.options.{name}"), message)
    };
    unused.map(say).collect()
}

/// Every `name` of a `config:name` in the text.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split("config:").skip(1).filter_map(|rest| {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let end = rest.find(|c| !plain(c)).unwrap_or(rest.len());
        (end > 0).then(|| &rest[..end])
    })
}
