//! `/keys`: idempotency keys of the operator's own API. What was answered is shown on demand only.

use actix_web::{HttpRequest, web};
use askama::Template;

use super::{Frame, Page, access::Viewer, bytes, parameters, shown, text::filters, without_empty};
use crate::{
    http::{State, admin::failed, error::Problem, headers, idempotency, query},
    idempotency::key_json,
    store::{KeptAnswer, KeyRow},
};

#[derive(Template)]
#[template(path = "keys.html")]
struct List {
    frame: Frame,
    status: String,
    route: String,
    key: String,
    keys: Vec<KeyRow>,
    next: Option<String>,
}

/// `GET /keys`
pub(super) async fn list(request: HttpRequest, viewer: Viewer, state: web::Data<State>) -> Page {
    let asked = without_empty(request.query_string());
    let filter = idempotency::read(&asked)?;
    let limit = filter.limit;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (status, route, key) = (text(&filter.status), text(&filter.route), text(&filter.key));
    let keys = state.store.keys(filter).await.map_err(failed)?;
    let next = query::next_place(&keys, limit, |row| row.id).map(|id| super::next_page(&asked, id));
    shown(&List {
        frame: Frame::new(viewer, "/keys", "Idempotency keys"),
        status,
        route,
        key,
        keys,
        next,
    })
}

#[derive(Template)]
#[template(path = "key.html")]
struct One {
    frame: Frame,
    id: i64,
    /// As the API names them.
    facts: Vec<(String, String)>,
    answer: Option<KeptAnswer>,
    headers: Vec<(String, Option<String>)>,
    body: Option<bytes::Shown>,
}

/// `GET /keys/key`
pub(super) async fn show(request: HttpRequest, viewer: Viewer, state: web::Data<State>) -> Page {
    let asked = parameters(request.query_string(), &["id", "body"])?;
    let none = || Problem::not_found("there is no such key");
    let id = asked.get("id").and_then(|id| id.parse().ok()).ok_or_else(none)?;
    let (row, answer) = state.store.key(id).await.map_err(failed)?.ok_or_else(none)?;
    let facts = match key_json(&row) {
        serde_json::Value::Object(facts) => facts.into_iter().filter_map(fact).collect(),
        _ => Vec::new(),
    };
    let kept = answer.as_ref().and_then(|answer| answer.body.as_deref());
    shown(&One {
        frame: Frame::new(viewer, "/keys", "Idempotency key"),
        id,
        facts,
        headers: answer.iter().flat_map(|answer| &answer.headers).map(header).collect(),
        body: asked.get("body").and(kept).map(bytes::show),
        answer,
    })
}

fn fact((name, value): (String, serde_json::Value)) -> Option<(String, String)> {
    let value = match value {
        serde_json::Value::Null => return None,
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    Some((name.replace('_', " "), value))
}

fn header((name, value): &(String, Vec<u8>)) -> (String, Option<String>) {
    let value = (!headers::is_secret(name)).then(|| String::from_utf8_lossy(value).into_owned());
    (name.clone(), value)
}
