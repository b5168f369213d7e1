//! `/event?provider=…&id=…`: one event with its history, its bytes on demand, and what can be done with it.

use actix_web::{HttpRequest, web};
use askama::Template;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{ACTOR, Frame, Page, access::Viewer, bytes, form, notice, parameters, see, shown, text::filters};
use crate::{
    http::{
        State, admin,
        admin::{discard_event, failed, no_event, reprocess_event},
        error::Problem,
        headers,
        json::{self, EventJson},
        query::ReprocessOne,
    },
    store::Received,
};

#[derive(Template)]
#[template(path = "event.html")]
struct One<'a> {
    frame: Frame,
    event: EventJson<'a>,
    /// Common words and their values.
    normalized: Vec<(&'static str, String)>,
    /// Values that might prove something are left out.
    headers: Vec<(String, Option<String>)>,
    is_purged: bool,
    body: Option<bytes::Shown>,
    handlers: Vec<String>,
}

impl One<'_> {
    fn can_be_discarded(&self) -> bool {
        let mut states = self.event.deliveries.iter().map(|delivery| delivery.state);
        states.any(|state| !matches!(state, "done" | "discarded"))
    }
}

/// `GET /event`
pub(super) async fn show(request: HttpRequest, viewer: Viewer, state: web::Data<State>) -> Page {
    let mut asked = parameters(request.query_string(), &["provider", "id", "body", "done", "count"])?;
    let (provider, id) = (named(asked.remove("provider"))?, named(asked.remove("id"))?);
    let detail = state
        .store
        .event(&provider, &id)
        .await
        .map_err(failed)?
        .ok_or_else(no_event)?;
    let received = state.store.payload(&provider, &id).await.map_err(failed)?;
    let received = received.ok_or_else(no_event)?;
    let endpoint = state.providers.get(&provider);
    let normalize = endpoint.as_ref().and_then(|endpoint| endpoint.provider.normalize());
    let normalized = normalize.and_then(|normalize| json::normalized(normalize, &detail.event, &received));
    let adapter = endpoint.as_ref().map(|endpoint| &*endpoint.provider.adapter);
    let title = detail.event.event_type.clone().unwrap_or_else(|| "Event".to_owned());
    shown(&One {
        frame: Frame::new(viewer, "/events", title).notice(notice(&asked)),
        normalized: words(normalized.as_ref()),
        headers: kept_headers(&received),
        is_purged: received.bytes.is_none(),
        body: asked.get("body").and(received.bytes.as_deref()).map(bytes::show),
        handlers: state.handlers.iter().map(ToString::to_string).collect(),
        event: EventJson::detail(&detail, adapter, normalized),
    })
}

/// `GET /event/payload`: the exact bytes, as a file.
pub(super) async fn payload(request: HttpRequest, _viewer: Viewer, state: web::Data<State>) -> Page {
    let mut asked = parameters(request.query_string(), &["provider", "id"])?;
    let (provider, id) = (named(asked.remove("provider"))?, named(asked.remove("id"))?);
    Ok(admin::payload_of(&state, &provider, &id).await?)
}

/// `POST /event/reprocess`
pub(super) async fn reprocess(
    request: HttpRequest,
    body: web::Payload,
    viewer: Viewer,
    state: web::Data<State>,
) -> Page {
    let mut sent = form::sent(&request, body, &viewer, &state).await?;
    let (provider, id) = event_of(&sent.fields)?;
    if !sent.is_first() {
        return see(&link(&provider, &id, "again", 0));
    }
    let asked = ReprocessOne {
        handlers: sent.fields.list("handlers"),
        reason: sent.fields.reason(),
        forget_steps: sent.fields.one("forget_steps").is_some(),
    };
    let done = reprocess_event(&state, (provider.clone(), id.clone()), asked, ACTOR).await?;
    sent.done();
    see(&link(&provider, &id, "reprocessed", done.deliveries))
}

/// `POST /event/discard`
pub(super) async fn discard(request: HttpRequest, body: web::Payload, viewer: Viewer, state: web::Data<State>) -> Page {
    let mut sent = form::sent(&request, body, &viewer, &state).await?;
    let (provider, id) = event_of(&sent.fields)?;
    if !sent.is_first() {
        return see(&link(&provider, &id, "again", 0));
    }
    let who = admin::by(ACTOR, sent.fields.reason());
    let done = discard_event(&state, &provider, &id, who).await?;
    sent.done();
    see(&link(&provider, &id, "discarded", done.deliveries))
}

/// The event that a form names, as its page's query does: a field of its own would not bring every id back as it was,
/// because browsers change the ends of lines.
fn event_of(fields: &form::Fields) -> Result<(String, String), Problem> {
    let mut event = parameters(fields.need("event")?, &["provider", "id"])?;
    Ok((named(event.remove("provider"))?, named(event.remove("id"))?))
}

/// No name and no id is empty or holds a NUL, which one of the databases would not even look for.
fn named(value: Option<String>) -> Result<String, Problem> {
    value.filter(|text| !text.contains('\0')).ok_or_else(no_event)
}

fn link(provider: &str, id: &str, done: &str, count: u64) -> String {
    let encoded = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
    format!(
        "/event?provider={}&id={}&done={done}&count={count}",
        encoded(provider),
        encoded(id)
    )
}

fn words(normalized: Option<&crate::ingest::Normalized>) -> Vec<(&'static str, String)> {
    let Some(said) = normalized else { return Vec::new() };
    let pairs = [
        ("Type", said.event_type.map(str::to_owned)),
        ("Amount in minor units", said.amount.map(|amount| amount.to_string())),
        ("Currency", said.currency.clone()),
        ("Reference", said.reference.clone()),
        ("Customer", said.customer.clone()),
        ("Occurred", said.occurred_at.map(|at| at.to_string())),
    ];
    pairs
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

fn kept_headers(received: &Received) -> Vec<(String, Option<String>)> {
    let text = received.headers.as_deref().unwrap_or_default();
    let all: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).unwrap_or_default();
    let shown = |(name, value): (String, serde_json::Value)| {
        let is_open = name.starts_with("cerca-") || headers::is_stored(&name, &[]);
        let value = value.as_str().filter(|_| is_open).map(str::to_owned);
        (name, value)
    };
    all.into_iter().map(shown).collect()
}
