//! `POST /events`: an event of the operator's own. It goes the way of the outbox: provider `outbox`, the key its id.

use actix_web::{
    HttpRequest, HttpResponse,
    http::{StatusCode, header},
    web,
};
use jiff::Timestamp;
use serde_json::json;

use super::{
    State,
    admin::{Answer, failed},
    body::{self, BodyError, Share},
    error::Problem,
    metrics, query,
};
use crate::{
    domain::{Intent, OUTBOX},
    store::Accepted,
};

/// Longest `Idempotency-Key`.
const MAX_KEY: usize = 255;

/// The body is the payload, `Idempotency-Key` names the event, `type` in the query says what it is; `ordering_key` may be
/// given beside it. 201 when it is stored, 200 when it was there already, 422 when its key is taken by
/// another body, type or ordering key.
pub(super) async fn publish(request: HttpRequest, mut payload: web::Payload, state: web::Data<State>) -> Answer {
    let key = key(&request)?;
    let (topic, ordering_key) = read(request.query_string())?;
    let content_type = request
        .headers()
        .get(header::CONTENT_TYPE)
        .map(|value| value.to_str().map(str::to_owned))
        .transpose()
        .map_err(|_| Problem::bad_request("the Content-Type is not plain text"))?;
    let mut share = Share::none_of(&state.budget);
    let max = state.settings.max_body;
    let read = body::read(&mut payload, None, max, state.settings.body_timeout, &mut share).await;
    let payload = read.map_err(|error| match error {
        BodyError::TooLarge => Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the body is larger than [server] max_body",
        ),
        BodyError::NoRoom => Problem::unavailable("too many bytes are in flight"),
        BodyError::TooSlow => Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"),
        BodyError::Broken => Problem::bad_request("the body is not well formed"),
    })?;
    let routes = (state.router)(OUTBOX, OUTBOX, Some(&topic));
    let is_routed = !routes.is_empty();
    let intent = Intent {
        idempotency_key: key.clone(),
        topic: topic.clone(),
        payload,
        content_type,
        headers: None,
        ordering_key: ordering_key.clone(),
        created_at: Timestamp::now(),
    };
    let event = intent.event(routes).map_err(Problem::bad_request)?;
    let accepted = state.store.accept(vec![event]).await.map_err(failed)?;
    let accepted = accepted.first().copied().unwrap_or(Accepted::Stored);
    metrics::count_published(accepted, is_routed);
    let status = match accepted {
        Accepted::Stored => StatusCode::CREATED,
        Accepted::Duplicate => {
            same_event(&state, &key, &topic, ordering_key.as_deref()).await?;
            StatusCode::OK
        }
        Accepted::Conflict => {
            return Err(Problem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "this Idempotency-Key belongs to an event with another body",
            ));
        }
    };
    let path = percent_encoding::utf8_percent_encode(&key, percent_encoding::NON_ALPHANUMERIC);
    let answer = json!({
        "provider": OUTBOX, "provider_event_id": key, "duplicate": accepted == Accepted::Duplicate,
    });
    Ok(HttpResponse::build(status)
        .insert_header((header::CONTENT_TYPE, "application/json"))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .insert_header((header::LOCATION, format!("/api/v1/events/{OUTBOX}/{path}")))
        .body(answer.to_string()))
}

/// The store compares bodies. What else the request says is compared here, only where the key was there already.
async fn same_event(state: &State, key: &str, topic: &str, ordering_key: Option<&str>) -> Result<(), Problem> {
    let Some(first) = state.store.event(OUTBOX, key).await.map_err(failed)? else {
        return Ok(());
    };
    let other = if first.event.event_type.as_deref() != Some(topic) {
        "type"
    } else if first.event.ordering_key.as_deref() != ordering_key {
        "ordering_key"
    } else {
        return Ok(());
    };
    Err(Problem::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        format!("this Idempotency-Key belongs to an event with another `{other}`"),
    ))
}

/// The key, bare or as a quoted string.
fn key(request: &HttpRequest) -> Result<String, Problem> {
    let wrong = || Problem::bad_request(format!("the Idempotency-Key is 1 to {MAX_KEY} printable characters"));
    let mut all = request.headers().get_all("idempotency-key");
    let first = all.next().ok_or_else(|| {
        Problem::bad_request("an Idempotency-Key is required: it names the event, so that it can be sent again")
    })?;
    if all.next().is_some() {
        return Err(Problem::bad_request("the Idempotency-Key is given twice"));
    }
    let text = first.to_str().map_err(|_| wrong())?.trim();
    let key = match text.strip_prefix('"').map(|rest| rest.strip_suffix('"')) {
        Some(Some(inner)) => inner.replace("\\\"", "\"").replace("\\\\", "\\"),
        Some(None) => return Err(wrong()),
        None => text.to_owned(),
    };
    let is_fine = (1..=MAX_KEY).contains(&key.len()) && key.bytes().all(|b| (0x20..0x7f).contains(&b));
    is_fine.then_some(key).ok_or_else(wrong)
}

fn read(text: &str) -> Result<(String, Option<String>), Problem> {
    let (mut topic, mut ordering_key) = (None, None);
    for (name, value) in form_urlencoded::parse(text.as_bytes()) {
        let slot = match &*name {
            "type" => &mut topic,
            "ordering_key" => &mut ordering_key,
            _ => return Err(query::unknown(&name)),
        };
        if slot.replace(value.into_owned()).is_some() {
            return Err(Problem::bad_request(format!("`{name}` is given twice")));
        }
    }
    let topic = topic.ok_or_else(|| Problem::bad_request("`type` is required, such as ?type=order.paid"))?;
    Ok((topic, ordering_key))
}
