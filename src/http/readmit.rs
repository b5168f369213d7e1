//! The quarantine for people: what was refused and why, and taking it in all the same. The same for API and command line.

use actix_web::{
    HttpRequest, HttpResponse,
    http::{StatusCode, header},
    web,
};
use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{
    Router, State,
    admin::{Answer, by_api, failed, ok, read_json},
    error::Problem,
    headers, query,
};
use crate::{
    adapters::Provider,
    domain::{HeaderList, NewEvent, RawRequest},
    ingest::{self, Ingested, Rejection},
    store::{Accepted, RefusedRow, Store, StoreError, Who},
};

/// The stored header of an event that was refused at first: when it was let in.
const READMITTED: &str = "cerca-readmitted";

/// A refused request as API and command line show it, without its body.
#[derive(Debug, Serialize)]
pub struct RefusedJson<'a> {
    pub id: i64,
    pub at: Timestamp,
    pub provider: &'a str,
    pub reason: &'a str,
    pub detail: Option<&'a str>,
    /// Whether its sender was proved.
    pub authentic: bool,
    pub method: &'a str,
    pub target: &'a str,
    pub client: Option<&'a str>,
    /// Names and values, those that are kept.
    pub headers: serde_json::Value,
    /// What is not kept, in words.
    pub left_out: Option<&'a str>,
    /// Bytes that it takes, about.
    pub size: u64,
    pub body_sha256: String,
    pub readmitted_at: Option<Timestamp>,
}

impl<'a> From<&'a RefusedRow> for RefusedJson<'a> {
    fn from(row: &'a RefusedRow) -> Self {
        Self {
            id: row.id,
            at: row.at,
            provider: &row.provider,
            reason: &row.reason,
            detail: row.detail.as_deref(),
            authentic: row.authentic,
            method: &row.method,
            target: &row.target,
            client: row.client.as_deref(),
            headers: serde_json::from_str(&row.headers).unwrap_or_default(),
            left_out: row.left_out.as_deref(),
            size: row.size,
            body_sha256: hex::encode(row.body_sha256),
            readmitted_at: row.readmitted_at,
        }
    }
}

/// What became of the events of a request that was let in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Readmitted {
    pub stored: u64,
    pub duplicates: u64,
    pub conflicts: u64,
    pub events: Vec<String>,
}

/// Why a request is not let in.
#[derive(Debug, thiserror::Error)]
pub enum NotReadmitted {
    #[error("no provider `{0}` is registered any more")]
    NoProvider(String),
    #[error("it still does not verify: {rejection}{}", left_out.as_ref().map(|what| format!(" (not kept: {what})")).unwrap_or_default())]
    Refused {
        rejection: Rejection,
        left_out: Option<String>,
    },
    #[error("it cannot be read: {0}")]
    Unreadable(Rejection),
    #[error("it holds no event")]
    Empty,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Judges a request by today's secrets as of the time when it came, and stores its events. With `force` it is not
/// judged.
///
/// # Errors
/// [`NotReadmitted`]; nothing was stored, except where the store failed in the middle.
pub async fn readmit(
    store: &dyn Store,
    provider: &Provider,
    router: &Router,
    (row, body): (&RefusedRow, &Bytes),
    force: bool,
    who: Who,
) -> Result<Readmitted, NotReadmitted> {
    let events = read(provider, router, row, body, force)?;
    if events.is_empty() {
        return Err(NotReadmitted::Empty);
    }
    let ids = events.iter().map(|event| event.provider_event_id.clone()).collect();
    let mut done = Readmitted {
        events: ids,
        ..Readmitted::default()
    };
    for one in store.accept(events).await? {
        match one {
            Accepted::Stored => done.stored += 1,
            Accepted::Duplicate => done.duplicates += 1,
            Accepted::Conflict => done.conflicts += 1,
        }
    }
    store.readmitted(row.id, who).await?;
    Ok(done)
}

fn read(
    provider: &Provider,
    router: &Router,
    row: &RefusedRow,
    body: &Bytes,
    force: bool,
) -> Result<Vec<NewEvent>, NotReadmitted> {
    let pairs: Vec<(String, String)> = serde_json::from_str(&row.headers).unwrap_or_default();
    let list: HeaderList<'_> = pairs
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_bytes()))
        .collect();
    let url = format!("{}{}", provider.public_url, row.target);
    let raw = RawRequest {
        method: &row.method,
        url: &url,
        headers: &list,
        body,
    };
    let events = if force {
        ingest::read(provider, &raw, row.at).map_err(NotReadmitted::Unreadable)?
    } else {
        match ingest::ingest(provider, &raw, row.at) {
            Ok(Ingested::Events { events, .. }) => events,
            Ok(Ingested::Handshake { .. }) => return Err(NotReadmitted::Empty),
            Err(rejection) if rejection.status() == 400 => return Err(NotReadmitted::Unreadable(rejection)),
            Err(rejection) => {
                return Err(NotReadmitted::Refused {
                    rejection,
                    left_out: row.left_out.clone(),
                });
            }
        }
    };
    let mut stored = serde_json::Map::new();
    stored.insert(READMITTED.to_owned(), Timestamp::now().to_string().into());
    for (name, value) in &pairs {
        if headers::is_stored(name, &[]) && !value.contains('\0') {
            stored.insert(name.clone(), value.as_str().into());
        }
    }
    let stored = serde_json::Value::Object(stored).to_string();
    let content_type = pairs
        .iter()
        .find(|(name, _)| name == "content-type")
        .map(|(_, value)| value.clone());
    let events = events.into_iter().map(|event| {
        let headers = event.headers(&stored);
        let payload = Bytes::from(event.payload.into_owned());
        NewEvent {
            provider: provider.name.clone(),
            routes: router(&provider.name, &provider.adapter, event.event_type.as_deref()),
            provider_event_id: event.id,
            event_type: event.event_type,
            body_sha256: Sha256::digest(&payload).into(),
            payload,
            content_type: content_type.clone(),
            headers,
            ordering_key: event.ordering_key,
            occurred_at: event.occurred_at,
        }
    });
    Ok(events.collect())
}

/// `GET /quarantine`
pub(super) async fn list(request: HttpRequest, state: web::Data<State>) -> Answer {
    let (filter, cursor, limit) = query::refused(request.query_string())?;
    let page = state.store.quarantined(filter, cursor, limit).await.map_err(failed)?;
    let requests: Vec<RefusedJson<'_>> = page.requests.iter().map(RefusedJson::from).collect();
    Ok(ok(
        &json!({ "requests": requests, "next": page.next.map(query::write_cursor) }),
    ))
}

/// `GET /quarantine/{id}`
pub(super) async fn show(request: HttpRequest, state: web::Data<State>) -> Answer {
    query::none(request.query_string())?;
    let (row, _) = one_of(&request, &state).await?;
    Ok(ok(&RefusedJson::from(&row)))
}

/// `GET /quarantine/{id}/body`
pub(super) async fn body(request: HttpRequest, state: web::Data<State>) -> Answer {
    query::none(request.query_string())?;
    let (_, body) = one_of(&request, &state).await?;
    Ok(as_file(body))
}

/// The bytes of a stranger, which no browser may run.
pub(super) fn as_file(body: Bytes) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "application/octet-stream"))
        .insert_header((header::CONTENT_DISPOSITION, "attachment; filename=\"body\""))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((header::CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox"))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .body(body)
}

/// The body of `POST /quarantine/{id}/readmit`; may be absent.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ReadmitOne {
    force: bool,
    #[serde(deserialize_with = "query::reason")]
    reason: Option<String>,
}

/// `POST /quarantine/{id}/readmit`
pub(super) async fn one(request: HttpRequest, mut payload: web::Payload, state: web::Data<State>) -> Answer {
    let asked: ReadmitOne = read_json(&request, &mut payload).await?;
    let id = query::number(request.path())?;
    let who = by_api(asked.reason);
    Ok(ok(&readmit_one(&state, id, asked.force, who).await?))
}

/// Takes one in, for API and dashboard.
pub(super) async fn readmit_one(state: &State, id: i64, force: bool, who: Who) -> Result<Readmitted, Problem> {
    if force && who.reason.as_deref().is_none_or(|reason| reason.trim().is_empty()) {
        return Err(Problem::bad_request(
            "`force` takes in what does not verify: say the `reason`",
        ));
    }
    let (row, body) = found(state, id).await?;
    let Some(endpoint) = state.providers.get(&row.provider) else {
        return Err(not_readmitted(&NotReadmitted::NoProvider(row.provider)));
    };
    let provider = &endpoint.provider;
    let done = readmit(&*state.store, provider, &state.router, (&row, &body), force, who).await;
    done.map_err(|error| match error {
        NotReadmitted::Store(error) => failed(error),
        error => not_readmitted(&error),
    })
}

fn not_readmitted(error: &NotReadmitted) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string())
}

async fn one_of(request: &HttpRequest, state: &State) -> Result<(RefusedRow, Bytes), Problem> {
    found(state, query::number(request.path())?).await
}

pub(super) async fn found(state: &State, id: i64) -> Result<(RefusedRow, Bytes), Problem> {
    let found = state.store.quarantined_one(id).await.map_err(failed)?;
    found.ok_or_else(|| Problem::not_found("there is no such request"))
}
