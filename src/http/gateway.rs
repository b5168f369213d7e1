//! The gateway on the public listener: requests with a key go through `idempotency::Engine`, all others are passed on as
//! they come.

use std::sync::Arc;

use actix_web::{
    HttpRequest, HttpResponse,
    body::{BodyStream, SizedStream},
    http::{
        StatusCode,
        header::{self, HeaderMap},
    },
    web::{self, Bytes},
};
use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use reqwest::{
    Method,
    header::{HeaderMap as UpstreamHeaders, HeaderName, HeaderValue},
};

use crate::{
    idempotency::{
        Ask, Caller, Entry, Exchanged, Gateway, Outgoing, Refusal, is_one_hop, named_by_connection, parse_key,
        request_hash, respond,
    },
    store::KeyName,
};

use super::{
    State,
    body::{self, BodyError, Share},
    error::Problem,
    proxies,
};

/// A request on a route of the gateway.
pub(super) async fn serve(
    gateway: Arc<Gateway>,
    request: HttpRequest,
    mut payload: web::Payload,
    state: web::Data<State>,
) -> HttpResponse {
    // It would ask the upstream for a tunnel.
    if request.method() == actix_web::http::Method::CONNECT {
        let problem = Problem::new(StatusCode::NOT_IMPLEMENTED, "the gateway makes no tunnels");
        return problem.respond_unread(payload);
    }
    match answer(&gateway, &request, &mut payload, &state).await {
        Ok(Served::Done(response)) => response,
        Ok(Served::Pass { url }) => pass(&gateway, &request, payload, url, &state).await,
        Err(refusal) => {
            gateway.count_refusal(&refusal);
            refusal.respond_unread(payload)
        }
    }
}

enum Served {
    Done(HttpResponse),
    /// No key protects this one.
    Pass {
        url: reqwest::Url,
    },
}

async fn answer(
    gateway: &Arc<Gateway>,
    request: &HttpRequest,
    payload: &mut web::Payload,
    state: &State,
) -> Result<Served, Refusal> {
    let url = gateway.target(request.path(), request.uri().query())?;
    let method = request.method().as_str();
    let headers = request.headers();
    if !gateway.protects(method) {
        return Ok(Served::Pass { url });
    }
    let values = headers.get_all("idempotency-key").map(header::HeaderValue::as_bytes);
    let Some(key) = parse_key(values).map_err(Refusal::BadKey)? else {
        return match gateway.required {
            true => Err(Refusal::Missing),
            false => Ok(Served::Pass { url }),
        };
    };
    let peer = request.peer_addr().map(|peer| peer.ip().to_canonical());
    let trusted = &state.settings.trusted_proxies;
    let scope = gateway.principal.scope_of(&Caller {
        header: &|name| headers.get_all(name).map(|value| value.as_bytes().to_vec()).collect(),
        is_trusted: peer.is_some_and(|peer| trusted.iter().any(|net| net.contains(&peer))),
        now: Timestamp::now().as_second(),
    })?;
    let mut share = Share::none_of(&state.budget);
    let limit = gateway.max_body.unwrap_or(state.settings.gateway_body);
    let body = body::read(
        payload,
        declared(headers),
        limit,
        state.settings.body_timeout,
        &mut share,
    )
    .await;
    let body = body.map_err(|error| match error {
        BodyError::TooLarge => Refusal::TooLarge { limit },
        BodyError::TooSlow => Refusal::Body { too_slow: true },
        BodyError::Broken => Refusal::Body { too_slow: false },
        BodyError::NoRoom => Refusal::Store(crate::store::StoreError::Full),
    })?;
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let content_type = headers.get(header::CONTENT_TYPE).map(header::HeaderValue::as_bytes);
    let ask = Ask {
        request_hash: request_hash(target, content_type, &body),
        name: KeyName {
            scope,
            method: method.into(),
            route: Arc::clone(&gateway.path),
            key,
        },
        lease: gateway.lease,
        expiry: gateway.expiry,
    };
    let exchanged = match state.engine.layer().recall(&ask) {
        Some(Entry::Replay(answer)) => {
            gateway.count_replay();
            return Ok(Served::Done(respond(&answer, true)));
        }
        Some(Entry::Refuse(refusal)) => return Err(refusal),
        _ => {
            let mut headers = outgoing_headers(request, state);
            // What is kept must be readable to whoever comes again.
            headers.remove(header::ACCEPT_ENCODING.as_str());
            let outgoing = Outgoing {
                method: upstream_method(method),
                url,
                headers,
                body,
            };
            state.engine.begin(Arc::clone(gateway), ask, outgoing).await
        }
    };
    Ok(Served::Done(match exchanged {
        Ok(Exchanged::First {
            status,
            headers,
            body,
            rest,
        }) => {
            let mut builder = answer_head(status, &headers);
            match rest {
                None => builder.body(body),
                Some(rest) => builder.body(BodyStream::new(stream::iter([Ok(body)]).chain(rest.bytes_stream()))),
            }
        }
        Ok(Exchanged::Replayed(answer)) => respond(&answer, true),
        // Counted by the engine.
        Ok(Exchanged::Refused(refusal)) => refusal.respond(),
        // The task panicked or the process ends; its lease will end.
        Err(_) => Refusal::Unknown.respond(),
    }))
}

fn declared(headers: &HeaderMap) -> Option<usize> {
    let length = headers.get(header::CONTENT_LENGTH)?;
    length.to_str().ok()?.trim().parse().ok()
}

fn upstream_method(method: &str) -> Method {
    Method::from_bytes(method.as_bytes()).unwrap_or(Method::POST)
}

/// What the upstream is told: the headers of the client without those of one hop, and who the client is.
fn outgoing_headers(request: &HttpRequest, state: &State) -> UpstreamHeaders {
    let headers = request.headers();
    let named = named_by_connection(headers.get_all(header::CONNECTION).map(header::HeaderValue::as_bytes));
    let mut out = UpstreamHeaders::with_capacity(headers.len() + 4);
    for (name, value) in headers {
        let name = name.as_str();
        if is_one_hop(name, &named) || name == "host" {
            continue;
        }
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_bytes(value.as_bytes())) {
            out.append(name, value);
        }
    }
    let trusted = &state.settings.trusted_proxies;
    let peer = request.peer_addr().map(|peer| peer.ip().to_canonical());
    let is_trusted = peer.is_some_and(|peer| trusted.iter().any(|net| net.contains(&peer)));
    // What a stranger says of these is not passed on.
    if !is_trusted {
        for name in [
            "x-forwarded-for",
            "x-forwarded-proto",
            "x-forwarded-host",
            "x-real-ip",
            "forwarded",
        ] {
            out.remove(name);
        }
    }
    let mut set = |name: &'static str, text: &str| {
        if let Ok(value) = HeaderValue::from_str(text) {
            out.insert(HeaderName::from_static(name), value);
        }
    };
    if let Some(peer) = peer {
        let before: Vec<&str> = match is_trusted {
            true => headers
                .get_all("x-forwarded-for")
                .filter_map(|value| value.to_str().ok())
                .collect(),
            false => Vec::new(),
        };
        match before.is_empty() {
            true => set("x-forwarded-for", &peer.to_string()),
            false => set("x-forwarded-for", &format!("{}, {peer}", before.join(", "))),
        }
    }
    let said = |name: &str| is_trusted && headers.contains_key(name);
    if !said("x-forwarded-proto") {
        set("x-forwarded-proto", "http");
    }
    if !said("x-forwarded-host")
        && let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok())
    {
        set("x-forwarded-host", host);
    }
    out
}

fn answer_head(status: u16, headers: &UpstreamHeaders) -> actix_web::HttpResponseBuilder {
    let mut builder = HttpResponse::build(StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY));
    let named = named_by_connection(headers.get_all("connection").iter().map(HeaderValue::as_bytes));
    for (name, value) in headers {
        if !is_one_hop(name.as_str(), &named) {
            builder.append_header((name.as_str(), value.as_bytes()));
        }
    }
    builder
}

/// Chunks of a request on their way to the upstream.
const CHUNKS: usize = 8;

/// Passes a request on as it comes, and the answer as it comes.
async fn pass(
    gateway: &Gateway,
    request: &HttpRequest,
    mut payload: web::Payload,
    url: reqwest::Url,
    state: &State,
) -> HttpResponse {
    let headers = request.headers();
    let limit = gateway.max_body.unwrap_or(state.settings.gateway_body);
    let declared = declared(headers);
    if declared.is_some_and(|length| length > limit) {
        return Refusal::TooLarge { limit }.respond_unread(payload);
    }
    let has_body = declared.is_some_and(|length| length > 0) || headers.contains_key(header::TRANSFER_ENCODING);
    let mut upstream = gateway
        .client()
        .request(upstream_method(request.method().as_str()), url)
        .headers(outgoing_headers(request, state));
    if has_body {
        let (chunks, arrived) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(CHUNKS);
        let timeout = state.settings.body_timeout.max(gateway.timeout);
        // The payload belongs to this thread; its chunks may leave it.
        actix_web::rt::spawn(async move {
            let _ = tokio::time::timeout(timeout, forward(&mut payload, limit, &chunks)).await;
        });
        let body = stream::unfold(arrived, |mut arrived| async move {
            let chunk = arrived.recv().await?;
            Some((chunk, arrived))
        });
        if let Some(length) = declared {
            upstream = upstream.header(reqwest::header::CONTENT_LENGTH, length);
        }
        upstream = upstream.body(reqwest::Body::wrap_stream(body));
    }
    match upstream.send().await {
        Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS.as_u16() => {
            tracing::warn!(gateway.path = &*gateway.path, "the upstream switched protocols unasked");
            gateway.count_refusal(&Refusal::UpstreamBroke);
            Refusal::UpstreamBroke.respond()
        }
        Ok(response) => passed(request, response),
        Err(error) => {
            let refusal = if error.is_connect() {
                Refusal::UpstreamDown
            } else if error.is_timeout() {
                Refusal::UpstreamSlow
            } else {
                Refusal::UpstreamBroke
            };
            let client = proxies::client(request, &state.settings.trusted_proxies);
            let error = error.without_url();
            tracing::warn!(gateway.path = &*gateway.path, ?client, %error, "a request could not be passed on");
            gateway.count_refusal(&refusal);
            refusal.respond()
        }
    }
}

/// The answer of the upstream as it comes.
fn passed(request: &HttpRequest, response: reqwest::Response) -> HttpResponse {
    let status = response.status().as_u16();
    let mut builder = answer_head(status, response.headers());
    let length = response
        .headers()
        .get("content-length")
        .and_then(|length| length.to_str().ok()?.parse().ok());
    // These end with their heads, whatever length they name: a byte more would begin the next answer.
    if matches!(status, 204 | 304) {
        return builder.finish();
    }
    let is_head = request.method() == actix_web::http::Method::HEAD;
    match length {
        // actix forgets that it was HEAD when another request came behind it.
        Some(length) if is_head => builder
            .no_chunking(length)
            .body(BodyStream::new(stream::empty::<Result<Bytes, reqwest::Error>>())),
        None if is_head => builder.body(actix_web::body::None::new()),
        Some(length) => builder.body(SizedStream::new(length, response.bytes_stream())),
        None => builder.body(BodyStream::new(response.bytes_stream())),
    }
}

/// Ends with an error where the body is too large or breaks, so that the upstream does not take the part for the whole.
async fn forward(
    payload: &mut web::Payload,
    limit: usize,
    chunks: &tokio::sync::mpsc::Sender<Result<Bytes, std::io::Error>>,
) {
    let mut left = limit;
    while let Some(chunk) = payload.next().await {
        let chunk = match chunk {
            Ok(chunk) if chunk.len() <= left => chunk,
            Ok(_) => {
                let _ = chunks.send(Err(std::io::Error::other("the body is too large"))).await;
                return;
            }
            Err(error) => {
                let _ = chunks.send(Err(std::io::Error::other(error.to_string()))).await;
                return;
            }
        };
        left -= chunk.len();
        if chunks.send(Ok(chunk)).await.is_err() {
            return;
        }
    }
}
