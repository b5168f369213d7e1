//! `/quarantine`: what was refused, why, and taking it in all the same. Headers that prove something, and queries, which
//! may, are never on a page.

use actix_web::{HttpRequest, web};
use askama::Template;

use super::{
    ACTOR, Frame, Page, access::Viewer, bytes, form, notice, parameters, see, shown, text::filters, without_empty,
};
use crate::{
    http::{
        State, admin,
        admin::failed,
        error::Problem,
        headers, query,
        readmit::{self, RefusedJson, as_file, found},
    },
    store::RefusedRow,
};

#[derive(Template)]
#[template(path = "quarantine.html")]
struct List<'a> {
    frame: Frame,
    provider: String,
    reason: String,
    providers: Vec<String>,
    requests: Vec<RefusedJson<'a>>,
    next: Option<String>,
}

/// `GET /quarantine`
pub(super) async fn list(request: HttpRequest, viewer: Viewer, state: web::Data<State>) -> Page {
    let query = without_empty(request.query_string());
    let (filter, cursor, limit) = query::refused(&query)?;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (provider, reason) = (text(&filter.provider), text(&filter.reason));
    let found = state.store.quarantined(filter, cursor, limit).await.map_err(failed)?;
    shown(&List {
        frame: Frame::new(viewer, "/quarantine", "Quarantine"),
        provider,
        reason,
        providers: state.providers.names(),
        requests: found.requests.iter().map(RefusedJson::from).collect(),
        next: found.next.map(|next| super::next_page(&query, next)),
    })
}

#[derive(Template)]
#[template(path = "refused.html")]
struct One<'a> {
    frame: Frame,
    request: RefusedJson<'a>,
    /// Without the query.
    path: &'a str,
    has_query: bool,
    headers: Vec<(String, Option<String>)>,
    has_body: bool,
    body: Option<bytes::Shown>,
}

/// `GET /quarantine/request`
pub(super) async fn show(request: HttpRequest, viewer: Viewer, state: web::Data<State>) -> Page {
    let asked = parameters(request.query_string(), &["id", "body", "done", "count"])?;
    let (row, body) = found(&state, number(asked.get("id"))?).await?;
    let (path, query) = row.target.split_once('?').unwrap_or((&row.target, ""));
    shown(&One {
        frame: Frame::new(viewer, "/quarantine", "Refused request").notice(notice(&asked)),
        request: RefusedJson::from(&row),
        path,
        has_query: !query.is_empty(),
        headers: kept_headers(&row),
        has_body: !body.is_empty(),
        body: asked.get("body").map(|_| bytes::show(&body)),
    })
}

/// `GET /quarantine/body`: the exact bytes, as a file.
pub(super) async fn body(request: HttpRequest, _viewer: Viewer, state: web::Data<State>) -> Page {
    let asked = parameters(request.query_string(), &["id"])?;
    let (_, body) = found(&state, number(asked.get("id"))?).await?;
    Ok(as_file(body))
}

/// `POST /quarantine/readmit`
pub(super) async fn readmit(request: HttpRequest, body: web::Payload, viewer: Viewer, state: web::Data<State>) -> Page {
    let mut sent = form::sent(&request, body, &viewer, &state).await?;
    let id = number(sent.fields.one("id").map(str::to_owned).as_ref())?;
    if !sent.is_first() {
        return see(&format!("/quarantine/request?id={id}&done=again"));
    }
    let force = sent.fields.one("force").is_some();
    let who = admin::by(ACTOR, sent.fields.reason());
    let done = readmit::readmit_one(&state, id, force, who).await?;
    sent.done();
    see(&format!(
        "/quarantine/request?id={id}&done=readmitted&count={}",
        done.stored
    ))
}

fn number(text: Option<&String>) -> Result<i64, Problem> {
    let number = text.and_then(|text| text.parse().ok());
    number.ok_or_else(|| Problem::not_found("there is no such request"))
}

fn kept_headers(row: &RefusedRow) -> Vec<(String, Option<String>)> {
    let pairs: Vec<(String, String)> = serde_json::from_str(&row.headers).unwrap_or_default();
    let shown = |(name, value): (String, String)| {
        let value = headers::is_stored(&name, &[]).then_some(value);
        (name, value)
    };
    pairs.into_iter().map(shown).collect()
}
