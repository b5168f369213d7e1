//! What forms send: read within bounds, believed only from our own pages, and obeyed once.

use actix_web::{
    HttpRequest,
    http::{
        StatusCode,
        header::{self, HeaderMap},
    },
    web,
};

use super::{
    Failed,
    access::{Viewer, text},
    session::Form,
};
use crate::http::{
    State,
    admin::{JSON_TIMEOUT, MAX_JSON, unread},
    body::{self, Budget, Share},
    error::Problem,
    query,
};

/// The fields of a form, in the order they came.
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    /// The first of a name; `None` where it is absent or empty.
    pub(super) fn one(&self, name: &str) -> Option<&str> {
        let value = self.0.iter().find(|(given, _)| given == name)?.1.as_str();
        (!value.is_empty()).then_some(value)
    }

    /// All of a name that are not empty.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let named = self.0.iter().filter(move |(given, _)| given == name);
        named.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// One that must be there.
    ///
    /// # Errors
    /// 400 that names it.
    pub(super) fn need(&self, name: &str) -> Result<&str, Problem> {
        self.one(name)
            .ok_or_else(|| Problem::bad_request(format!("the form lacks `{name}`")))
    }

    /// Why, for the audit.
    pub(super) fn reason(&self) -> Option<String> {
        let reason = self.one("reason").map(str::trim);
        reason.filter(|reason| !reason.is_empty()).map(str::to_owned)
    }

    /// All of a name; `None` where there is none.
    pub(super) fn list(&self, name: &str) -> Option<Vec<String>> {
        let all: Vec<String> = self.all(name).map(str::to_owned).collect();
        (!all.is_empty()).then_some(all)
    }
}

/// A form of ours that is to be obeyed. Where that fails it may be sent again.
pub(super) struct Sent {
    pub(super) fields: Fields,
    state: web::Data<State>,
    /// `None`: it was obeyed before.
    nonce: Option<[u8; 16]>,
    is_done: bool,
}

impl Sent {
    /// Whether to do it. Where not, it was done: a second click, or a page that was sent again.
    pub(super) fn is_first(&self) -> bool {
        self.nonce.is_some()
    }

    pub(super) fn done(&mut self) {
        self.is_done = true;
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        if let Some(nonce) = self.nonce.filter(|_| !self.is_done) {
            self.state.desk.give_back(nonce);
        }
    }
}

/// Reads the form of a page of ours.
///
/// # Errors
/// 403 where another site made it, or the page is of another session; else those of [`read`].
pub(super) async fn sent(
    request: &HttpRequest,
    payload: web::Payload,
    viewer: &Viewer,
    state: &web::Data<State>,
) -> Result<Sent, Failed> {
    let fields = read(request, payload).await?;
    let token = fields.one("form").unwrap_or_default();
    let nonce = match state.desk.take(&viewer.secret, token) {
        Form::First(nonce) => Some(nonce),
        Form::Again => None,
        Form::Foreign => {
            let detail = "this form is not of your present session; open its page again";
            return Err(Problem::new(StatusCode::FORBIDDEN, detail).into());
        }
    };
    Ok(Sent {
        fields,
        state: state.clone(),
        nonce,
        is_done: false,
    })
}

/// Reads a form, of whatever page of ours.
///
/// # Errors
/// 403 where another site made it, 400, 408, 413 or 415 where it cannot be read.
pub(super) async fn read(request: &HttpRequest, mut payload: web::Payload) -> Result<Fields, Failed> {
    let read = match check(request) {
        Ok(()) => {
            let budget = Budget::new(MAX_JSON);
            let read = body::read(&mut payload, None, MAX_JSON, JSON_TIMEOUT, &mut Share::none_of(&budget)).await;
            read.map_err(|error| unread(error, MAX_JSON))
        }
        Err(problem) => Err(problem),
    };
    match read {
        Ok(bytes) => {
            let fields: Vec<(String, String)> = form_urlencoded::parse(&bytes).into_owned().collect();
            // What is typed holds none, and PostgreSQL keeps none.
            match fields.iter().find(|(_, value)| value.contains('\0')) {
                Some((name, _)) => {
                    let detail = format!("`{}` holds a NUL character", name.escape_debug());
                    Err(Failed::from(Problem::bad_request(detail)))
                }
                None => Ok(Fields(fields)),
            }
        }
        Err(problem) => Err(Failed::unread(problem, payload)),
    }
}

fn check(request: &HttpRequest) -> Result<(), Problem> {
    if !is_own(request.headers()) {
        let detail = "requests from other web pages are refused";
        return Err(Problem::new(StatusCode::FORBIDDEN, detail));
    }
    query::none(request.query_string())?;
    let content_type = text(request.headers(), "content-type").unwrap_or_default();
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        let detail = "the body is not a form (application/x-www-form-urlencoded)";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
    }
    Ok(())
}

/// Whether a page of ours made the request, as the browser says. Who says nothing is none; then the form's token decides.
/// `Sec-Fetch-Site` comes first, because a proxy may have changed the host that `Origin` is compared with.
fn is_own(headers: &HeaderMap) -> bool {
    if let Some(site) = text(headers, "sec-fetch-site") {
        return site == "same-origin";
    }
    let Some(origin) = headers.get(header::ORIGIN) else {
        return true;
    };
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    let host = text(headers, "host").unwrap_or_default();
    origin.is_some_and(|(_, origin)| !host.is_empty() && origin.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn only_our_own_pages_send_forms() {
        let own = |pairs: &[(&'static str, &'static str)]| {
            let header = |(name, value): &(&'static str, &'static str)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            };
            is_own(&pairs.iter().map(header).collect())
        };
        let host = ("host", "cerca.example:8081");
        assert!(own(&[host]), "not a browser");
        assert!(own(&[host, ("origin", "https://cerca.example:8081")]));
        assert!(own(&[
            ("host", "127.0.0.1"),
            ("origin", "https://cerca.example"),
            ("sec-fetch-site", "same-origin")
        ]));
        for origin in [
            "null",
            "https://evil.example",
            "https://cerca.example",
            "",
            "cerca.example:8081",
        ] {
            assert!(!own(&[host, ("origin", origin)]), "{origin}");
        }
        assert!(!own(&[("origin", "https://")]));
        for site in ["cross-site", "same-site", "none", "new-word"] {
            assert!(!own(&[host, ("sec-fetch-site", site)]), "{site}");
        }
    }
}
