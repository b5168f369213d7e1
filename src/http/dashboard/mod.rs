//! The dashboard: what the JSON API says, as pages for people. It asks the same store through the same filters, so the two
//! cannot disagree. Pages are made here and hold no script; nothing of a stranger gets into one but as text.
//!
//! Ids of events are in queries (`/event?provider=…&id=…`), because browsers and proxies rewrite paths: an id may be `..`
//! or hold `%2F`.

mod access;
mod audit;
mod bytes;
mod event;
mod events;
mod form;
mod jobs;
mod keys;
mod overview;
mod providers;
mod quarantine;
mod session;
mod text;

use std::{cell::RefCell, collections::HashMap, fmt};

use actix_web::{
    HttpResponse, Resource,
    http::{
        StatusCode,
        header::{self, HeaderValue},
    },
    web::{self, ServiceConfig},
};
use askama::Template;

use super::{
    error::{Problem, hold},
    get, reads, wrong_method,
};

pub(super) use access::{admit, here};
pub(super) use session::Desk;

use access::Viewer;
use text::filters;

/// The routes of the dashboard.
pub(super) fn routes(config: &mut ServiceConfig) {
    config
        .service(get("/", overview::show))
        .service(get("/events", events::list))
        .service(both(
            "/events/reprocess",
            web::route().guard(reads()).to(events::ask),
            web::post().to(events::begin),
        ))
        .service(get("/event", event::show))
        .service(get("/event/payload", event::payload))
        .service(act("/event/reprocess", web::post().to(event::reprocess)))
        .service(act("/event/discard", web::post().to(event::discard)))
        .service(get("/jobs", jobs::list))
        .service(act("/jobs/stop", web::post().to(jobs::stop)))
        .service(act("/jobs/resume", web::post().to(jobs::resume)))
        .service(get("/quarantine", quarantine::list))
        .service(get("/quarantine/request", quarantine::show))
        .service(get("/quarantine/body", quarantine::body))
        .service(act("/quarantine/readmit", web::post().to(quarantine::readmit)))
        .service(get("/audit", audit::list))
        .service(get("/keys", keys::list))
        .service(get("/keys/key", keys::show))
        .service(get("/providers", providers::list))
        .service(both(
            "/login",
            web::route().guard(reads()).to(access::ask),
            web::post().to(access::login),
        ))
        .service(act("/logout", web::post().to(access::logout)))
        .service(get("/assets/dashboard.css", || asset("text/css; charset=utf-8", CSS)))
        .service(get("/assets/icon.svg", || asset("image/svg+xml", ICON)));
}

/// First parts of the paths above. What is not of the dashboard takes no session.
const PAGES: [&str; 11] = [
    "",
    "audit",
    "events",
    "event",
    "jobs",
    "quarantine",
    "keys",
    "providers",
    "login",
    "logout",
    "assets",
];

fn is_page(path: &str) -> bool {
    let first = path.strip_prefix('/').and_then(|rest| rest.split('/').next());
    first.is_some_and(|first| PAGES.contains(&first))
}

/// A resource that only does something.
fn act(path: &str, post: actix_web::Route) -> Resource {
    Resource::new(path)
        .route(post)
        .default_service(web::to(|payload| wrong_method("POST", payload)))
}

fn both(path: &str, get: actix_web::Route, post: actix_web::Route) -> Resource {
    Resource::new(path)
        .route(get)
        .route(post)
        .default_service(web::to(|payload| wrong_method("GET, HEAD, POST", payload)))
}

const CSS: &str = include_str!("assets/dashboard.css");
const ICON: &str = include_str!("assets/icon.svg");

async fn asset(content_type: &'static str, text: &'static str) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, content_type))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((header::CONTENT_SECURITY_POLICY, "default-src 'none'"))
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        .body(text)
}

/// What every page has around it.
struct Frame {
    /// The only heading of the first order.
    title: String,
    /// The path of the section in the menu.
    section: &'static str,
    viewer: Viewer,
    /// What was just done, in words.
    notice: Option<String>,
}

impl Frame {
    fn new(viewer: Viewer, section: &'static str, title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            section,
            viewer,
            notice: None,
        }
    }

    fn menu(&self) -> &'static [(&'static str, &'static str)] {
        &MENU
    }

    fn notice(mut self, notice: Option<String>) -> Self {
        self.notice = notice;
        self
    }
}

/// The menu: paths and names.
const MENU: [(&str, &str); 7] = [
    ("/", "Overview"),
    ("/events", "Events"),
    ("/jobs", "Jobs"),
    ("/quarantine", "Quarantine"),
    ("/keys", "Idempotency keys"),
    ("/providers", "Providers"),
    ("/audit", "Audit"),
];

type Page = Result<HttpResponse, Failed>;

/// Pages hold what senders wrote, so a browser may load nothing for them but our style, and show them in no frame.
/// The referrer stays within: with none at all, browsers would send `Origin: null` with our own forms.
fn page(status: StatusCode, template: &impl Template) -> HttpResponse {
    let html = match template.render() {
        Ok(html) => html,
        Err(error) => {
            tracing::error!(%error, "a page could not be written");
            return Problem::unavailable("the page could not be written").respond();
        }
    };
    HttpResponse::build(status)
        .insert_header((header::CONTENT_TYPE, "text/html; charset=utf-8"))
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((header::X_FRAME_OPTIONS, "DENY"))
        .insert_header((header::REFERRER_POLICY, "same-origin"))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .insert_header(("Cross-Origin-Opener-Policy", "same-origin"))
        .insert_header(("Cross-Origin-Resource-Policy", "same-origin"))
        .body(html)
}

const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'";

fn shown(template: &impl Template) -> Page {
    Ok(page(StatusCode::OK, template))
}

/// After a form: the page to look at, fetched anew, so that a reload repeats nothing.
fn see(target: &str) -> Page {
    let location = HeaderValue::from_str(target).unwrap_or(HeaderValue::from_static("/"));
    Ok(HttpResponse::SeeOther()
        .insert_header((header::LOCATION, location))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .finish())
}

/// A problem, told as a page.
struct Failed {
    problem: Problem,
    /// What was not read of the request (see [`hold`]).
    unread: RefCell<Option<web::Payload>>,
}

impl Failed {
    fn unread(problem: Problem, payload: web::Payload) -> Self {
        Self {
            problem,
            unread: RefCell::new(Some(payload)),
        }
    }
}

impl From<Problem> for Failed {
    fn from(problem: Problem) -> Self {
        Self {
            problem,
            unread: RefCell::default(),
        }
    }
}

impl fmt::Debug for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(f)
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(f)
    }
}

#[derive(Template)]
#[template(path = "failed.html")]
struct FailedPage<'a> {
    status: u16,
    title: &'a str,
    detail: &'a str,
}

impl actix_web::ResponseError for Failed {
    fn status_code(&self) -> StatusCode {
        self.problem.status
    }

    fn error_response(&self) -> HttpResponse {
        let status = self.problem.status;
        let template = FailedPage {
            status: status.as_u16(),
            title: status.canonical_reason().unwrap_or("Error"),
            detail: &self.problem.detail,
        };
        let mut response = page(status, &template);
        if let Some(seconds) = self.problem.retry_after {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        match self.unread.take() {
            Some(payload) => hold(response, payload),
            None => response,
        }
    }
}

/// A query's parameters, of these names and each at most once. Forms send empty fields; those are as good as absent.
///
/// # Errors
/// 400 that names the parameter.
fn parameters(query: &str, names: &[&str]) -> Result<HashMap<String, String>, Problem> {
    let mut found = HashMap::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if !names.contains(&&*name) {
            return Err(super::query::unknown(&name));
        }
        if value.is_empty() {
            continue;
        }
        if found.insert(name.to_string(), value.into_owned()).is_some() {
            return Err(Problem::bad_request(format!("`{name}` is given twice")));
        }
    }
    Ok(found)
}

/// The query without its empty fields, as the API reads it. Fields for times have no zone; they are in UTC.
fn without_empty(query: &str) -> String {
    let pairs = form_urlencoded::parse(query.as_bytes()).filter(|(_, value)| !value.is_empty());
    let pairs = pairs.map(|(name, value)| {
        let is_bare = |format| jiff::civil::DateTime::strptime(format, &*value).is_ok();
        let is_time =
            matches!(&*name, "since" | "until") && (is_bare("%Y-%m-%dT%H:%M") || is_bare("%Y-%m-%dT%H:%M:%S"));
        let value = if is_time { format!("{value}Z").into() } else { value };
        (name, value)
    });
    form_urlencoded::Serializer::new(String::new())
        .extend_pairs(pairs)
        .finish()
}

/// The same query at another place of the list.
fn next_page(query: &str, cursor: i64) -> String {
    let pairs = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name != "cursor");
    form_urlencoded::Serializer::new(String::new())
        .extend_pairs(pairs)
        .append_pair("cursor", &super::query::write_cursor(cursor))
        .finish()
}

/// Who does what is asked on a page, for the audit.
const ACTOR: &str = "dashboard";

/// What was done before this page, in words of ours: whoever makes a link cannot make us say anything else.
fn notice(asked: &HashMap<String, String>) -> Option<String> {
    let count: u64 = asked.get("count").and_then(|count| count.parse().ok()).unwrap_or(0);
    let deliveries = match count {
        1 => "1 delivery".to_owned(),
        count => format!("{count} deliveries"),
    };
    let said = match asked.get("done")?.as_str() {
        "reprocessed" if count == 0 => "Nothing to reprocess: its deliveries wait or run already.".to_owned(),
        "reprocessed" => format!("Reprocessing: {deliveries} made ready."),
        "discarded" => format!("Discarded: {deliveries} given up. What is in flight ends first."),
        "readmitted" if count == 0 => "Taken in: its events were stored already.".to_owned(),
        "readmitted" => format!("Taken in: events stored: {count}."),
        "begun" => "The job has begun.".to_owned(),
        "stopped" => "The job is stopped.".to_owned(),
        "resumed" => "The job goes on.".to_owned(),
        "again" => "This was done already. A form counts once; use the one on this page to do it again.".to_owned(),
        _ => return None,
    };
    Some(said)
}
