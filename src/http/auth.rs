//! Who may use the admin listener. With a token: whoever knows it. Without one: whoever sits at this machine, and no web
//! page that a browser on this machine happens to show (DNS rebinding, cross-site requests).

use std::net::IpAddr;

use actix_web::{
    HttpMessage as _,
    body::BoxBody,
    dev::{ServiceRequest, ServiceResponse},
    http::{
        StatusCode,
        header::{self, HeaderMap},
    },
    middleware::Next,
    web,
};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::{
    State, dashboard,
    error::{Problem, hold},
};

/// The middleware around everything on the admin listener.
pub(super) async fn guard(
    state: web::Data<State>,
    mut request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
    // What the public listener tells anyone: whoever watches over a worker, which has none, needs no token for it.
    if matches!(request.path(), "/healthz" | "/readyz") {
        return next.call(request).await;
    }
    let peer = request.peer_addr().map(|peer| peer.ip());
    match check(state.settings.admin_token.as_ref(), peer, request.headers()) {
        Ok(()) => {
            dashboard::here(&state, &request);
            next.call(request).await
        }
        Err(problem) => {
            let refusal = match state.settings.admin_token {
                Some(_) => dashboard::admit(&state, &request, problem),
                None => Some(problem.respond()),
            };
            let Some(refusal) = refusal else {
                return next.call(request).await;
            };
            let mut unread = request.take_payload();
            let payload =
                <web::Payload as actix_web::FromRequest>::from_request(request.request(), &mut unread).await?;
            Ok(request.into_response(hold(refusal, payload)))
        }
    }
}

fn check(token: Option<&SecretString>, peer: Option<IpAddr>, headers: &HeaderMap) -> Result<(), Problem> {
    match token {
        Some(token) => bearer(token, headers),
        None => local(peer, headers),
    }
}

fn bearer(token: &SecretString, headers: &HeaderMap) -> Result<(), Problem> {
    let given = headers
        .get(header::AUTHORIZATION)
        .map(header::HeaderValue::as_bytes)
        .and_then(|value| value.split_at_checked(b"Bearer ".len()))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer "))
        .map(|(_, given)| given.trim_ascii())
        .unwrap_or_default();
    if is_token(token, given) {
        Ok(())
    } else {
        Err(Problem::unauthorized())
    }
}

/// Digests are compared, so that neither the place of the first difference nor the length shows in the time.
pub(super) fn is_token(token: &SecretString, given: &[u8]) -> bool {
    let expected = Sha256::digest(token.expose_secret().as_bytes());
    bool::from(Sha256::digest(given).ct_eq(&expected))
}

fn local(peer: Option<IpAddr>, headers: &HeaderMap) -> Result<(), Problem> {
    let forbidden = |detail: &'static str| Err(Problem::new(StatusCode::FORBIDDEN, detail));
    if !peer.is_some_and(|ip| ip.to_canonical().is_loopback()) {
        return forbidden("without an admin token, only this machine may call");
    }
    let host = text(headers, "host").unwrap_or_default();
    if !is_local_host(host) {
        return forbidden("without an admin token, call localhost, 127.0.0.1 or [::1]");
    }
    let foreign = headers.get(header::ORIGIN).is_some_and(|origin| {
        let origin = origin.to_str().unwrap_or_default();
        origin.strip_prefix("http://") != Some(host)
    });
    // A browser says in Sec-Fetch-Site what it thinks of the page that asks; a link that a person follows is a GET
    // that changes nothing and whose answer the other page cannot read.
    let cross_site = text(headers, "sec-fetch-site").is_some_and(|site| matches!(site, "cross-site" | "same-site"))
        && text(headers, "sec-fetch-mode") != Some("navigate");
    if foreign || cross_site {
        return forbidden("requests from other web pages are refused");
    }
    Ok(())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// `localhost`, `127.0.0.1` or `[::1]`, with or without a port.
fn is_local_host(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    name.eq_ignore_ascii_case("localhost") || name == "127.0.0.1" || name == "[::1]"
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn a_token_is_asked_for_on_every_request() {
        let token = SecretString::from("s3cret");
        let remote = Some(IpAddr::from([203, 0, 113, 7]));
        let status = |pairs: &[_]| check(Some(&token), remote, &headers(pairs)).map_err(|problem| problem.status);
        assert_eq!(status(&[("authorization", "Bearer s3cret")]), Ok(()));
        assert_eq!(status(&[("authorization", "bearer  s3cret")]), Ok(()));
        for value in [
            "",
            "s3cret",
            "Bearer",
            "Bearer ",
            "Bearer s3cre",
            "Bearer s3cret2",
            "Basic s3cret",
        ] {
            assert_eq!(
                status(&[("authorization", value)]),
                Err(StatusCode::UNAUTHORIZED),
                "{value}"
            );
        }
        assert_eq!(status(&[]), Err(StatusCode::UNAUTHORIZED));
    }

    #[test]
    fn without_a_token_only_this_machine_and_no_foreign_page() {
        let here = Some(IpAddr::from([127, 0, 0, 1]));
        let allowed = |peer, pairs: &[_]| check(None, peer, &headers(pairs)).is_ok();
        for host in ["localhost", "localhost:8081", "127.0.0.1:8081", "[::1]:8081", "[::1]"] {
            assert!(allowed(here, &[("host", host)]), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example:8081",
            "127.0.0.1.nip.io",
            "",
            "::1",
            "localhost:x",
        ] {
            assert!(!allowed(here, &[("host", host)]), "{host}");
        }
        let host = ("host", "localhost:8081");
        assert!(!allowed(Some(IpAddr::from([192, 0, 2, 1])), &[host]));
        assert!(!allowed(None, &[host]));
        assert!(allowed(here, &[host, ("origin", "http://localhost:8081")]));
        for origin in [
            "http://evil.example",
            "null",
            "http://localhost:3000",
            "https://localhost:8081",
        ] {
            assert!(!allowed(here, &[host, ("origin", origin)]), "{origin}");
        }
        assert!(!allowed(
            here,
            &[host, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")]
        ));
        assert!(allowed(
            here,
            &[host, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")]
        ));
    }
}
