//! `POST /webhooks/{provider}`: read the bytes, ingest, accept, acknowledge. The 200 is sent after the commit and from
//! nowhere else.
//!
//! Nothing here touches the database: `accept` queues the events before it is awaited, so a client that goes away in
//! the middle (which drops this future) has still been stored. A sender's secret in a handshake is queued likewise.

use std::{
    borrow::Cow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Instant,
};

use actix_web::{
    HttpRequest, HttpResponse,
    http::{Method, StatusCode, header},
    web::{self, Bytes},
};
use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use secrecy::SecretString;
use sha2::{Digest as _, Sha256};
use tokio::time::timeout_at;

use crate::{
    domain::{Answer, HeaderList, NewEvent, RawRequest},
    ingest::{self, Confirm, Identified, Ingested, Rejection},
    store::{Accepted, Who},
};

use super::{
    State,
    body::{self, Share},
    error::Problem,
    gateway, headers, nowhere,
    providers::Endpoint,
    refusal::Refusal,
    secrets::Look,
};

/// What the URL of a provider takes: GET and HEAD are for the handshakes of some senders.
const METHODS: &str = "POST, GET, HEAD";

/// The route of every method on `/webhooks/{provider}`, with or without a trailing slash.
pub(super) async fn receive(request: HttpRequest, mut payload: web::Payload, state: web::Data<State>) -> HttpResponse {
    let started = Instant::now();
    let Some(name) = provider_name(request.path()) else {
        return match state.gateways.find(request.path()) {
            Some(gateway) => gateway::serve(Arc::clone(gateway), request, payload, state).await,
            None => nowhere(payload).await,
        };
    };
    let Some(endpoint) = state.providers.get(&name) else {
        let refusal = Refusal::new("unknown_provider", Problem::not_found("no provider has this URL"));
        refusal.report("unknown", &state.log_gate, &request, &state);
        return refusal.problem.respond_unread(payload);
    };
    let mut share = Share::none_of(&state.budget);
    match answer(&request, &mut payload, &mut share, &state, &endpoint, started).await {
        Ok(response) => response,
        Err(refusal) => {
            refusal.report(&endpoint.provider.name, &endpoint.log_gate, &request, &state);
            refusal.problem.respond_unread(payload)
        }
    }
}

/// The provider in `/webhooks/{provider}`, with or without a trailing slash. A name that is not UTF-8 is nobody's.
fn provider_name(path: &str) -> Option<Cow<'_, str>> {
    let rest = path.strip_prefix("/webhooks/")?;
    let name = rest.strip_suffix('/').unwrap_or(rest);
    if name.is_empty() || name.contains('/') {
        return None;
    }
    percent_decode_str(name).decode_utf8().ok()
}

async fn answer(
    request: &HttpRequest,
    payload: &mut web::Payload,
    share: &mut Share<'_>,
    state: &State,
    endpoint: &Endpoint,
    started: Instant,
) -> Result<HttpResponse, Refusal> {
    let method = request.method();
    if !matches!(*method, Method::POST | Method::GET | Method::HEAD) {
        return Err(Refusal::method(METHODS));
    }
    endpoint.admit().map_err(Refusal::rate_limited)?;
    let body = read_body(request, payload, share, state, endpoint).await?;
    let decide = |endpoint| catch_unwind(AssertUnwindSafe(|| decide(request, &body, state, endpoint)));
    let mut decision = decide(endpoint);
    let changed;
    let mut endpoint = endpoint;
    if *method == Method::POST
        && let Ok(Decision::Reject(rejection)) = &decision
        && rejection.status() == 401
        && let Some(fresh) = look_again(state, endpoint, rejection).await?
    {
        changed = fresh;
        endpoint = &changed;
        decision = decide(endpoint);
    }
    match decision {
        Ok(Decision::Store(events)) if *method == Method::POST => store(events, state, endpoint).await.inspect(|_| {
            endpoint.metrics.ack_seconds.record(started.elapsed());
        }),
        Ok(Decision::Keep { answer, secret, refuse }) => {
            let taken = state.secrets.take(&endpoint.provider, secret).await;
            taken.map_err(|why| Refusal::not_taken(why, refuse))?;
            endpoint.metrics.handshakes.increment(1);
            Ok(respond(&answer))
        }
        Ok(Decision::Busy) => Err(Refusal::unavailable("confirmations")),
        Ok(Decision::Answer(answer)) => {
            endpoint.metrics.handshakes.increment(1);
            Ok(respond(&answer))
        }
        Ok(Decision::Reject(rejection)) if *method == Method::POST => {
            state.keeper.keep(request, &body, state, endpoint, &rejection);
            Err(Refusal::rejected(&rejection).asking_for(&endpoint.provider))
        }
        Ok(Decision::Reject(rejection @ Rejection::Handshake { .. })) => Err(Refusal::rejected(&rejection)),
        // Several senders ask whether the URL lives before they use it.
        Ok(_) if *method == Method::HEAD => Ok(HttpResponse::Ok().finish()),
        Ok(_) => Err(Refusal::method(METHODS)),
        // A bug of ours must not cost the event: the sender comes again.
        Err(_) => Err(Refusal::unavailable("panic")),
    }
}

/// The endpoint with the secret that was handed over meanwhile, to another replica as a rule.
async fn look_again(
    state: &State,
    endpoint: &Endpoint,
    rejection: &Rejection,
) -> Result<Option<Arc<Endpoint>>, Refusal> {
    let provider = &endpoint.provider;
    let awaits = provider.awaits_secret();
    // A handshake is judged by `Secrets::take`, and what shows no signature will not verify with any secret.
    if matches!(rejection, Rejection::Handshake { .. }) || (matches!(rejection, Rejection::MissingSignature) && !awaits)
    {
        return Ok(None);
    }
    match state.secrets.look_again(provider).await {
        Look::Changed => Ok(state.providers.get(&provider.name)),
        Look::Unsure if awaits => Err(Refusal::unavailable("no_secret_yet")),
        Look::Same | Look::Unsure => Ok(None),
    }
}

async fn read_body(
    request: &HttpRequest,
    payload: &mut web::Payload,
    share: &mut Share<'_>,
    state: &State,
    endpoint: &Endpoint,
) -> Result<Bytes, Refusal> {
    let headers = request.headers();
    // What is signed is what was sent, and the bytes are never decompressed here.
    if let Some(encoding) = headers.get(header::CONTENT_ENCODING)
        && !encoding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity")
    {
        let problem = Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send the body without Content-Encoding",
        );
        return Err(Refusal::new("content_encoding", problem));
    }
    let declared = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.trim().parse().ok());
    body::read(
        payload,
        declared,
        endpoint.provider.max_body,
        state.settings.body_timeout,
        share,
    )
    .await
    .map_err(Refusal::from)
}

/// What to do with a request, as `ingest` read it.
enum Decision {
    Store(Vec<NewEvent>),
    Answer(Answer),
    /// Answer once the secret is on disk; with `refuse` where it is not taken.
    Keep {
        answer: Answer,
        secret: SecretString,
        refuse: u16,
    },
    Reject(Rejection),
    /// Too much waits already; the sender comes again.
    Busy,
}

fn decide(request: &HttpRequest, body: &Bytes, state: &State, endpoint: &Endpoint) -> Decision {
    let provider = &endpoint.provider;
    let headers: HeaderList<'_> = request
        .headers()
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_bytes()))
        .collect();
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let url = [&provider.public_url, target].concat();
    let raw = RawRequest {
        method: request.method().as_str(),
        url: &url,
        headers: &headers,
        body,
    };
    match ingest::ingest(provider, &raw, Timestamp::now()) {
        Ok(Ingested::Events { events, verified }) => {
            if let Some(counter) = verified.secret.and_then(|i| endpoint.metrics.secrets.get(i)) {
                counter.increment(1);
            }
            Decision::Store(new_events(events, request, body, state, endpoint))
        }
        Ok(Ingested::Handshake {
            answer,
            keep,
            refuse,
            confirm,
        }) => {
            match confirm {
                Some(Confirm { url, call: true }) if !provider.want_call(&url, Timestamp::now()) => {
                    return Decision::Busy;
                }
                Some(Confirm { url, call: false }) => tracing::warn!(
                    provider.name = &*provider.name,
                    url,
                    "the sender waits until this URL is called; open it to confirm the subscription"
                ),
                _ => {}
            }
            match keep {
                // Where nothing is verified a secret proves nothing.
                Some(secret) if provider.verifies() => Decision::Keep { answer, secret, refuse },
                _ => Decision::Answer(answer),
            }
        }
        Err(rejection) => {
            if let Rejection::CannotVerifyNow { url } = &rejection {
                provider.want_key(url);
            }
            Decision::Reject(rejection)
        }
    }
}

fn new_events(
    events: Vec<Identified<'_>>,
    request: &HttpRequest,
    body: &Bytes,
    state: &State,
    endpoint: &Endpoint,
) -> Vec<NewEvent> {
    let stored_headers = headers::to_json(request.headers(), &endpoint.proof_headers);
    let content_type = request
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned);
    let provider = &endpoint.provider;
    events
        .into_iter()
        .map(|event| {
            let headers = event.headers(&stored_headers);
            let payload = share_bytes(body, event.payload);
            NewEvent {
                provider: provider.name.clone(),
                routes: (state.router)(&provider.name, &provider.adapter, event.event_type.as_deref()),
                provider_event_id: event.id,
                event_type: event.event_type,
                body_sha256: Sha256::digest(&payload).into(),
                payload,
                content_type: content_type.clone(),
                headers,
                ordering_key: event.ordering_key,
                occurred_at: event.occurred_at,
            }
        })
        .collect()
}

/// The payload without a copy where it is a part of the body.
fn share_bytes(body: &Bytes, payload: Cow<'_, [u8]>) -> Bytes {
    match payload {
        Cow::Borrowed(slice) => {
            let whole = body.as_ptr_range();
            let part = slice.as_ptr_range();
            if whole.start <= part.start && part.end <= whole.end {
                body.slice_ref(slice)
            } else {
                Bytes::copy_from_slice(slice)
            }
        }
        Cow::Owned(bytes) => Bytes::from(bytes),
    }
}

async fn store(events: Vec<NewEvent>, state: &State, endpoint: &Endpoint) -> Result<HttpResponse, Refusal> {
    if events.is_empty() {
        return Ok(acknowledge(endpoint));
    }
    // Where an event that comes again may mean that a person wants its effects after all.
    let names: Vec<String> = match endpoint.provider.revive {
        true => events.iter().map(|event| event.provider_event_id.clone()).collect(),
        false => Vec::new(),
    };
    let routed: Vec<bool> = events.iter().map(|event| !event.routes.is_empty()).collect();
    let until = tokio::time::Instant::now() + endpoint.patience;
    let Ok(accepted) = timeout_at(until, state.store.accept(events)).await else {
        // It may be stored all the same; the sender's next try is then a duplicate.
        let problem = Problem::unavailable("the store is slow; send it again");
        return Err(Refusal::new("slow", problem));
    };
    let accepted = accepted?;
    let repeated = names.into_iter().zip(&accepted);
    let repeated = repeated.filter_map(|(id, one)| (*one == Accepted::Duplicate).then_some(id));
    revive(repeated, state, endpoint, until).await?;
    let mut conflict = false;
    for (one, routed) in accepted.iter().zip(routed) {
        match one {
            Accepted::Stored => {
                endpoint.metrics.accepted.increment(1);
                if !routed {
                    endpoint.metrics.unrouted.increment(1);
                }
            }
            Accepted::Duplicate => endpoint.metrics.duplicates.increment(1),
            Accepted::Conflict => {
                endpoint.metrics.conflicts.increment(1);
                conflict = true;
            }
        }
    }
    if conflict && endpoint.provider.on_conflict == 409 {
        let problem = Problem::new(
            StatusCode::CONFLICT,
            "this event id was stored before with another body",
        );
        return Err(Refusal::new("conflict", problem));
    }
    Ok(acknowledge(endpoint))
}

/// Gives dead deliveries of events that came again a new life. A sender that is told of success must not have to be asked
/// a second time, so what cannot be done now is answered 503.
async fn revive(
    ids: impl Iterator<Item = String>,
    state: &State,
    endpoint: &Endpoint,
    until: tokio::time::Instant,
) -> Result<(), Refusal> {
    let provider = &endpoint.provider.name;
    for id in ids {
        let who = Who {
            actor: format!("provider:{provider}"),
            reason: Some("the provider sent the event again".to_owned()),
        };
        let Ok(revived) = timeout_at(until, state.store.revive(provider, &id, who)).await else {
            let problem = Problem::unavailable("the store is slow; send it again");
            return Err(Refusal::new("slow", problem));
        };
        endpoint.metrics.revived.increment(revived?);
    }
    Ok(())
}

/// The answer after the commit.
fn acknowledge(endpoint: &Endpoint) -> HttpResponse {
    respond(endpoint.provider.response())
}

fn respond(answer: &Answer) -> HttpResponse {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    let mut builder = HttpResponse::build(status);
    for (name, value) in &answer.headers {
        builder.insert_header((name.as_str(), value.as_str()));
    }
    if !answer.content_type.is_empty() {
        builder.insert_header((header::CONTENT_TYPE, answer.content_type.as_str()));
    }
    builder
        .insert_header((
            header::X_CONTENT_TYPE_OPTIONS,
            header::HeaderValue::from_static("nosniff"),
        ))
        .body(answer.body.clone())
}
