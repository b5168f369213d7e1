//! What came already, looked at for what a configuration alone does not show.

use std::path::Path;

use secrecy::ExposeSecret as _;

use super::super::context::{Context, sqlite_path};
use crate::{
    adapters::Registry,
    config::{Config, Problem, ProviderConfig},
    store::{EventFilter, RefusedFilter, Store},
};

/// How many of a provider's newest events and refused requests are looked at.
const NEWEST: u32 = 50;

/// What the store showed.
pub(in crate::cli) enum Received {
    /// There is none, or nothing in it is worth a look.
    Nothing,
    /// It could not be opened.
    Unknown(String),
    /// By the index of a provider: how many of its newest requests were forms, where JSON is to be had.
    Forms(Vec<(usize, usize)>),
}

/// What is said of a provider whose requests came so.
pub(in crate::cli) fn came_as_forms(config: &Config, index: usize, count: usize) -> Problem {
    let text = format!(
        "{count} of the newest requests came as forms, which are stored as they are: choose JSON (content type \
         application/json) at the sender"
    );
    config.problem(&format!("provider[{index}]"), text)
}

/// Looks at the store of the configuration, if it is there; nothing in it is changed.
pub(in crate::cli) async fn look(context: &Context, config: &Config, registry: &Registry) -> Received {
    let choosers: Vec<(usize, &ProviderConfig)> = config
        .providers
        .iter()
        .enumerate()
        .filter(|(_, provider)| {
            let adapter = provider.spec.adapter.as_deref().unwrap_or(&provider.spec.name);
            registry.get(adapter).is_some_and(|adapter| adapter.prefers_json())
        })
        .collect();
    let is_there = sqlite_path(config.store.url.expose_secret()).is_none_or(|path| Path::new(path).exists());
    if choosers.is_empty() || !is_there {
        return Received::Nothing;
    }
    let store = match context.store(config).await {
        Ok(store) => store,
        Err(error) => return Received::Unknown(format!("{error:#}")),
    };
    let mut forms = Vec::new();
    let mut failed = None;
    for (index, provider) in choosers {
        match count(&*store, &provider.spec.name).await {
            Ok(0) => {}
            Ok(count) => forms.push((index, count)),
            Err(error) => failed = Some(error),
        }
    }
    store.close().await;
    match failed {
        Some(error) => Received::Unknown(format!("{error:#}")),
        None => Received::Forms(forms),
    }
}

/// How many of the newest requests were forms.
async fn count(store: &dyn Store, provider: &str) -> anyhow::Result<usize> {
    let filter = EventFilter {
        provider: Some(provider.to_owned()),
        ..EventFilter::default()
    };
    let page = store.events(filter, None, NEWEST).await?;
    let stored = page
        .events
        .iter()
        .filter(|event| is_form(event.content_type.as_deref()));
    let filter = RefusedFilter {
        provider: Some(provider.to_owned()),
        reason: None,
    };
    let refused = store.quarantined(filter, None, NEWEST).await?;
    let refused = refused.requests.iter().filter(|row| {
        let headers: Vec<(String, String)> = serde_json::from_str(&row.headers).unwrap_or_default();
        let found = headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        is_form(found.map(|(_, value)| value.as_str()))
    });
    Ok(stored.count() + refused.count())
}

fn is_form(content_type: Option<&str>) -> bool {
    let kind = content_type.and_then(|text| text.split(';').next()).unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded")
}
