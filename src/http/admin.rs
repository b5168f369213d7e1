//! The JSON API: inspect, reprocess, discard. It asks the same `Admin` as the command line, so the two cannot disagree.

use std::{sync::Arc, time::Duration};

use actix_web::{
    HttpRequest, HttpResponse,
    http::{
        StatusCode,
        header::{self, HeaderValue},
    },
    web,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::adapters::Sender;
use crate::store::{Discarded, Received, Reprocess, ReprocessScope, Reprocessed, StoreError, Who};

use super::{
    State,
    body::{self, BodyError, Budget, Share},
    error::Problem,
    json::{self, EventJson, PageJson, StatsJson},
    query::{self, DiscardOne, EventsQuery, ReprocessMany, ReprocessOne},
};

pub(super) type Answer = Result<HttpResponse, Problem>;

/// `GET /events`
pub(super) async fn events(request: HttpRequest, state: web::Data<State>) -> Answer {
    let query = EventsQuery::read(request.query_string())?;
    let page = state
        .store
        .events(query.filter, query.cursor, query.limit)
        .await
        .map_err(failed)?;
    let adapter = |provider: &str| state.providers.adapter(provider).map(|adapter| adapter.to_string());
    Ok(ok(&PageJson::new(&page, adapter)))
}

/// `GET /events/{provider}/{id}`
pub(super) async fn event(request: HttpRequest, state: web::Data<State>) -> Answer {
    query::none(request.query_string())?;
    let (provider, id) = query::event_path(request.path())?;
    let detail = state
        .store
        .event(&provider, &id)
        .await
        .map_err(failed)?
        .ok_or_else(no_event)?;
    let endpoint = state.providers.get(&provider);
    let normalized = match endpoint.as_ref().and_then(|endpoint| endpoint.provider.normalize()) {
        Some(normalize) => {
            let received = state.store.payload(&provider, &id).await.map_err(failed)?;
            received.and_then(|received| json::normalized(normalize, &detail.event, &received))
        }
        None => None,
    };
    let adapter = endpoint.as_ref().map(|endpoint| &*endpoint.provider.adapter);
    Ok(ok(&EventJson::detail(&detail, adapter, normalized)))
}

/// `GET /events/{provider}/{id}/payload`: the bytes received. They are a stranger's, so no browser may run them.
pub(super) async fn payload(request: HttpRequest, state: web::Data<State>) -> Answer {
    query::none(request.query_string())?;
    let (provider, id) = query::event_path(request.path())?;
    payload_of(&state, &provider, &id).await
}

/// The bytes of an event, to be kept and not shown.
pub(super) async fn payload_of(state: &State, provider: &str, id: &str) -> Answer {
    let received = state
        .store
        .payload(provider, id)
        .await
        .map_err(failed)?
        .ok_or_else(no_event)?;
    let bytes = received
        .bytes
        .ok_or_else(|| Problem::new(StatusCode::GONE, "retention has removed the payload"))?;
    let content_type = received
        .content_type
        .and_then(|text| HeaderValue::from_str(&text).ok())
        .unwrap_or(HeaderValue::from_static("application/octet-stream"));
    Ok(HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, content_type))
        .insert_header((header::CONTENT_DISPOSITION, "attachment; filename=\"payload\""))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((header::CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox"))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .body(bytes))
}

/// `POST /events/{provider}/{id}/reprocess`
pub(super) async fn reprocess_one(request: HttpRequest, mut body: web::Payload, state: web::Data<State>) -> Answer {
    let asked: ReprocessOne = read_json(&request, &mut body).await?;
    let event = query::event_path(request.path())?;
    Ok(reprocessed(reprocess_event(&state, event, asked, API).await?, false))
}

/// Gives one event's deliveries a new life; `event` is its provider and its id.
pub(super) async fn reprocess_event(
    state: &State,
    event: (String, String),
    asked: ReprocessOne,
    actor: &str,
) -> Result<Reprocessed, Problem> {
    let (provider, provider_event_id) = event;
    let what = Reprocess {
        filter: ReprocessScope::Event {
            provider: provider.clone(),
            provider_event_id: provider_event_id.clone(),
        },
        handlers: known_handlers(state, asked.handlers)?,
        dry_run: false,
        forget_steps: asked.forget_steps,
    };
    let done = state.store.reprocess(what, by(actor, asked.reason)).await;
    let done = done.map_err(failed)?;
    if done.events == 0 {
        return Err(not_there(state, &provider, &provider_event_id).await);
    }
    Ok(done)
}

/// Why an event was not found to be reprocessed.
async fn not_there(state: &State, provider: &str, id: &str) -> Problem {
    match state.store.payload(provider, id).await {
        Ok(Some(Received { bytes: None, .. })) => Problem::new(
            StatusCode::CONFLICT,
            "retention has removed the payload, so the event cannot be delivered again",
        ),
        Ok(_) => no_event(),
        Err(error) => failed(error),
    }
}

/// `POST /events/reprocess`
pub(super) async fn reprocess_many(request: HttpRequest, mut body: web::Payload, state: web::Data<State>) -> Answer {
    let asked: ReprocessMany = read_json(&request, &mut body).await?;
    let filter = asked.filter()?;
    if filter == crate::store::EventFilter::default() && !asked.dry_run {
        return Err(Problem::bad_request(
            "name at least one of provider, type, status, handler, since, until, q",
        ));
    }
    if !asked.dry_run && (asked.background || asked.rate.is_some()) {
        return super::jobs::begin(&state, filter, asked).await;
    }
    let what = Reprocess {
        filter: ReprocessScope::Filter(filter),
        handlers: known_handlers(&state, asked.handlers)?,
        dry_run: asked.dry_run,
        forget_steps: asked.forget_steps,
    };
    let done = state
        .store
        .reprocess(what, by_api(asked.reason))
        .await
        .map_err(failed)?;
    Ok(reprocessed(done, asked.dry_run))
}

/// A delivery to a handler that is not configured would wait for ever.
pub(super) fn known_handlers(state: &State, names: Option<Vec<String>>) -> Result<Option<Vec<Arc<str>>>, Problem> {
    let Some(names) = names else { return Ok(None) };
    if names.is_empty() {
        return Err(Problem::bad_request(
            "`handlers` is empty; leave it out to take the event's own",
        ));
    }
    let known: Result<Vec<Arc<str>>, Problem> = names
        .iter()
        .map(|name| {
            let known = state.handlers.iter().find(|handler| ***handler == **name);
            known.cloned().ok_or_else(|| {
                let name: String = name.chars().take(64).collect();
                Problem::bad_request(format!("no handler is called `{name}`"))
            })
        })
        .collect();
    known.map(Some)
}

fn reprocessed(done: Reprocessed, dry_run: bool) -> HttpResponse {
    ok(&json!({"events": done.events, "deliveries": done.deliveries, "dry_run": dry_run}))
}

/// `POST /events/{provider}/{id}/discard`
pub(super) async fn discard(request: HttpRequest, mut body: web::Payload, state: web::Data<State>) -> Answer {
    let asked: DiscardOne = read_json(&request, &mut body).await?;
    let (provider, id) = query::event_path(request.path())?;
    let done = discard_event(&state, &provider, &id, by(API, asked.reason)).await?;
    Ok(ok(&json!({"deliveries": done.deliveries, "in_flight": done.in_flight})))
}

/// Gives up what is not done of one event.
pub(super) async fn discard_event(state: &State, provider: &str, id: &str, who: Who) -> Result<Discarded, Problem> {
    let done = state.store.discard(provider, id, who).await;
    done.map_err(failed)?.ok_or_else(no_event)
}

/// `GET /stats`
pub(super) async fn stats(request: HttpRequest, state: web::Data<State>) -> Answer {
    query::none(request.query_string())?;
    let mut stats = state.store.stats().await.map_err(failed)?;
    json::add_idle(&mut stats, state.handlers.iter().map(|name| &**name));
    Ok(ok(&StatsJson::from(&stats).with_breakers(|name| state.breaker(name))))
}

/// `GET /providers`
pub(super) async fn providers(request: HttpRequest, state: web::Data<State>) -> Answer {
    #[derive(Serialize)]
    struct ProviderJson {
        name: Arc<str>,
        adapter: Arc<str>,
        url: String,
        verify: String,
        /// What the sender takes as received, how long it waits, how it tries again, and what makes it stop.
        sender: Option<Sender>,
    }
    query::none(request.query_string())?;
    let all = state.providers.all();
    let list: Vec<ProviderJson> = all
        .iter()
        .map(|endpoint| ProviderJson {
            name: endpoint.provider.name.clone(),
            adapter: endpoint.provider.adapter.clone(),
            url: format!("{}/webhooks/{}", endpoint.provider.public_url, endpoint.provider.name),
            verify: endpoint.verify(),
            sender: state
                .adapters
                .get(&endpoint.provider.adapter)
                .map(|adapter| adapter.sender().clone()),
        })
        .collect();
    Ok(ok(&json!({"providers": list})))
}

pub(super) fn ok(value: &impl Serialize) -> HttpResponse {
    match serde_json::to_vec(value) {
        Ok(json) => HttpResponse::Ok()
            .insert_header((header::CONTENT_TYPE, "application/json"))
            .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
            .insert_header((header::CACHE_CONTROL, "no-store"))
            .body(json),
        Err(error) => {
            tracing::error!(%error, "an answer could not be written as JSON");
            Problem::unavailable("the answer could not be written").respond()
        }
    }
}

pub(super) fn no_event() -> Problem {
    Problem::not_found("there is no such event")
}

pub(super) fn failed(error: StoreError) -> Problem {
    tracing::warn!(%error, "the store did not answer the API");
    error.into()
}

/// Who does what is asked here, for the audit.
pub(super) const API: &str = "api";

pub(super) fn by_api(reason: Option<String>) -> Who {
    by(API, reason)
}

pub(super) fn by(actor: &str, reason: Option<String>) -> Who {
    Who {
        actor: actor.to_owned(),
        reason,
    }
}

pub(super) async fn read_json<T>(request: &HttpRequest, payload: &mut web::Payload) -> Result<T, Problem>
where
    T: for<'de> Deserialize<'de> + Default,
{
    read_json_within(request, payload, MAX_JSON).await
}

/// Reads a JSON body of at most `max` bytes, which may be absent.
pub(super) async fn read_json_within<T>(
    request: &HttpRequest,
    payload: &mut web::Payload,
    max: usize,
) -> Result<T, Problem>
where
    T: for<'de> Deserialize<'de> + Default,
{
    query::none(request.query_string())?;
    let budget = Budget::new(max);
    let read = body::read(payload, None, max, JSON_TIMEOUT, &mut Share::none_of(&budget)).await;
    let bytes = read.map_err(|error| unread(error, max))?;
    query::json(&bytes)
}

/// Why a body of at most `max` bytes was not read.
pub(super) fn unread(error: BodyError, max: usize) -> Problem {
    match error {
        BodyError::TooLarge | BodyError::NoRoom => Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body is larger than {}", crate::units::format_size(max)),
        ),
        BodyError::TooSlow => Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"),
        BodyError::Broken => Problem::bad_request("the body is not well formed"),
    }
}

pub(super) const MAX_JSON: usize = 64 * 1024;
pub(super) const JSON_TIMEOUT: Duration = Duration::from_secs(10);
