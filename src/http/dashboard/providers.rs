//! `/providers`: who is registered, and what a person enters at the sender.

use actix_web::{HttpRequest, web};
use askama::Template;

use super::{Frame, Page, access::Viewer, shown, text::filters};
use crate::http::{State, query};

/// A registered provider, and what its adapter knows.
struct Row {
    name: String,
    adapter: String,
    title: Option<String>,
    /// Of the sender; only what a browser may follow.
    docs: Option<String>,
    url: String,
    verify: String,
    /// What we answer to an event.
    answer: Option<String>,
    facts: Vec<(&'static str, String)>,
    setup: Vec<String>,
}

#[derive(Template)]
#[template(path = "providers.html")]
struct List {
    frame: Frame,
    providers: Vec<Row>,
}

/// `GET /providers`
pub(super) async fn list(request: HttpRequest, viewer: Viewer, state: web::Data<State>) -> Page {
    query::none(request.query_string())?;
    let all = state.providers.all();
    let row = |endpoint: &std::sync::Arc<crate::http::Endpoint>| {
        let provider = &endpoint.provider;
        let adapter = state.adapters.get(&provider.adapter);
        let sender = adapter.map(|adapter| adapter.sender().clone()).unwrap_or_default();
        let facts = [
            ("Timeout", sender.timeout_text()),
            ("Success", sender.success),
            ("Retries", sender.retries),
            ("Disabling", sender.disables),
            ("Redelivery", sender.redelivers),
            (
                "Secret",
                adapter.and_then(|adapter| adapter.secret_hint()).map(str::to_owned),
            ),
            ("Rate limit", provider.rate_limit.map(|rate| rate.to_string())),
        ];
        let answer = adapter.map(|adapter| adapter.response());
        Row {
            name: provider.name.to_string(),
            adapter: provider.adapter.to_string(),
            title: adapter.map(|adapter| adapter.title().to_owned()),
            docs: adapter
                .and_then(|adapter| adapter.docs())
                .filter(|docs| docs.starts_with("https://"))
                .map(str::to_owned),
            url: format!("{}/webhooks/{}", provider.public_url, provider.name),
            verify: endpoint.verify(),
            answer: answer.map(|answer| format!("{} {}", answer.status, String::from_utf8_lossy(&answer.body))),
            facts: facts
                .into_iter()
                .filter_map(|(name, value)| Some((name, value?)))
                .collect(),
            setup: adapter.map(|adapter| adapter.setup().to_vec()).unwrap_or_default(),
        }
    };
    shown(&List {
        frame: Frame::new(viewer, "/providers", "Providers"),
        providers: all.iter().map(row).collect(),
    })
}
