//! Who sees the dashboard: whoever may use the API, and in a browser whoever has logged in with the admin token. The
//! browser then holds a random value that this process knows, in a cookie, and never the token itself.

use std::future::{Ready, ready};

use actix_web::{
    FromRequest, HttpMessage as _, HttpRequest, HttpResponse,
    dev::{Payload, ServiceRequest},
    http::{
        Method, StatusCode,
        header::{self, HeaderMap},
    },
    web,
};
use askama::Template;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{
    Failed, Page, form, is_page, page, parameters,
    session::{SESSION, form_token},
};
use crate::http::{State, auth, error::Problem};

/// Who looks at a page.
#[derive(Clone)]
pub(super) struct Viewer {
    /// What the forms are proved with.
    pub(super) secret: [u8; 32],
    pub(super) has_session: bool,
}

impl Viewer {
    /// For the forms of one page.
    pub(super) fn form_token(&self) -> String {
        form_token(&self.secret)
    }
}

impl FromRequest for Viewer {
    type Error = Failed;
    type Future = Ready<Result<Self, Failed>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let viewer = request.extensions().get::<Self>().cloned();
        ready(viewer.ok_or_else(|| Problem::unauthorized().into()))
    }
}

/// Notes that a request may do what it asks, by its token or because it is of this machine.
pub(in crate::http) fn here(state: &State, request: &ServiceRequest) {
    request.extensions_mut().insert(Viewer {
        secret: state.desk.own_secret(),
        has_session: false,
    });
}

/// What becomes of a request to the dashboard that brings no token: `None` lets it pass. Others than the dashboard's own
/// pages know no session, so that no cookie ever stands for the token in the API.
pub(in crate::http) fn admit(state: &State, request: &ServiceRequest, refused: Problem) -> Option<HttpResponse> {
    let path = request.path();
    if !is_page(path) {
        return Some(refused.respond());
    }
    let secret = held(request.headers()).and_then(|held| state.desk.find(held));
    if let Some(secret) = secret {
        let viewer = Viewer {
            secret,
            has_session: true,
        };
        request.extensions_mut().insert(viewer);
        return None;
    }
    if path == "/login" || path.starts_with("/assets/") {
        return None;
    }
    let is_browser = text(request.headers(), "accept").is_some_and(|accept| accept.contains("text/html"));
    if !is_browser {
        return Some(refused.respond());
    }
    if *request.method() != Method::GET {
        let late = Problem::new(StatusCode::UNAUTHORIZED, "your login has ended; nothing was done");
        return Some(actix_web::ResponseError::error_response(&Failed::from(late)));
    }
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let location = match target {
        "/" => "/login".to_owned(),
        target => format!("/login?next={}", utf8_percent_encode(target, NON_ALPHANUMERIC)),
    };
    super::see(&location).ok()
}

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage {
    next: String,
    problem: Option<&'static str>,
}

/// `GET /login`
pub(super) async fn ask(request: HttpRequest, state: web::Data<State>) -> Page {
    let next = next(parameters(request.query_string(), &["next"])?.remove("next"));
    if state.settings.admin_token.is_none() {
        return super::see(&next);
    }
    super::shown(&LoginPage { next, problem: None })
}

/// `POST /login`
pub(super) async fn login(request: HttpRequest, body: web::Payload, state: web::Data<State>) -> Page {
    let fields = form::read(&request, body).await?;
    let next = next(fields.one("next").map(str::to_owned));
    let Some(token) = &state.settings.admin_token else {
        return super::see(&next);
    };
    let peer = request.peer_addr().map(|peer| peer.ip());
    let peer = peer.ok_or_else(|| Problem::bad_request("the connection has no address"))?;
    if let Err(wait) = state.desk.try_login(peer) {
        let mut problem = Problem::too_many_requests(wait);
        problem.detail = "too many logins were tried from your address; wait a minute".into();
        return Err(problem.into());
    }
    if !auth::is_token(token, fields.one("token").unwrap_or_default().trim().as_bytes()) {
        tracing::warn!(client = %peer, "a login to the dashboard was refused");
        let problem = Some("This is not the admin token.");
        return Ok(page(StatusCode::FORBIDDEN, &LoginPage { next, problem }));
    }
    tracing::info!(client = %peer, "a login to the dashboard");
    let held = state.desk.begin();
    let mut answer = super::see(&next)?;
    set_cookie(&mut answer, &request, &held, SESSION.as_secs());
    Ok(answer)
}

/// `POST /logout`
pub(super) async fn logout(request: HttpRequest, body: web::Payload, viewer: Viewer, state: web::Data<State>) -> Page {
    let _sent = form::sent(&request, body, &viewer, &state).await?;
    if let Some(held) = held(request.headers()) {
        state.desk.end(held);
    }
    let mut answer = super::see("/login")?;
    set_cookie(&mut answer, &request, "", 0);
    Ok(answer)
}

/// Where to go after a login: a page of ours, never another site.
fn next(asked: Option<String>) -> String {
    let is_ours = |target: &String| {
        let path = target.split('?').next().unwrap_or_default();
        target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
            && !target.starts_with("//")
            && is_page(path)
            && !matches!(path, "/login" | "/logout")
    };
    asked.filter(is_ours).unwrap_or_else(|| "/".to_owned())
}

/// The name says to browsers that no other host can have set it, where that can be said.
const COOKIES: [&str; 2] = ["__Host-cerca", "cerca"];

fn set_cookie(answer: &mut HttpResponse, request: &HttpRequest, value: &str, seconds: u64) {
    // Who says this falsely keeps the cookie from itself.
    let is_secure = text(request.headers(), "x-forwarded-proto")
        .and_then(|protocols| protocols.split(',').next())
        .is_some_and(|protocol| protocol.trim().eq_ignore_ascii_case("https"))
        || text(request.headers(), "forwarded").is_some_and(|all| all.to_ascii_lowercase().contains("proto=https"));
    let (name, secure) = match is_secure {
        true => (COOKIES[0], "; Secure"),
        false => (COOKIES[1], ""),
    };
    let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}");
    if let Ok(cookie) = header::HeaderValue::from_str(&cookie) {
        answer.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

/// What the browser holds of a session.
fn held(headers: &HeaderMap) -> Option<&str> {
    let pairs = || {
        let all = headers.get_all(header::COOKIE).filter_map(|value| value.to_str().ok());
        all.flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
    };
    let named = |name: &str| pairs().find(|(given, _)| *given == name).map(|(_, value)| value);
    COOKIES.into_iter().find_map(named)
}

pub(super) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_our_own_pages_only() {
        for ours in ["/", "/events?status=failed", "/event?provider=a&id=%2F%2Fb"] {
            assert_eq!(next(Some(ours.to_owned())), ours);
        }
        for foreign in [
            "",
            "https://evil.example/",
            "//evil.example",
            "/\\evil.example",
            "/\t/evil.example",
            "/login",
            "/logout",
            "/api/v1/events",
            "/metrics",
            "/events\r\nX: y",
            "events",
            "javascript:alert(1)",
            "/é",
        ] {
            assert_eq!(next(Some(foreign.to_owned())), "/", "{foreign}");
        }
        assert_eq!(next(None), "/");
    }
}
