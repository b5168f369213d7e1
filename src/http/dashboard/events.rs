//! `/events`: the list, and reprocessing all that match.

use actix_web::{HttpRequest, web};
use askama::Template;

use super::{ACTOR, Frame, Page, access::Viewer, form, next_page, see, shown, text::filters, without_empty};
use crate::{
    domain::{EventStatus, per_second},
    http::{
        State,
        admin::failed,
        error::Problem,
        jobs::begin_job,
        json::EventJson,
        query::{EventsQuery, ReprocessMany},
    },
    store::EventFilter,
};

/// A filter as the form shows it again.
struct Fields {
    provider: String,
    event_type: String,
    status: &'static str,
    handler: String,
    since: String,
    until: String,
    q: String,
    /// As a query, in the words of the API; empty where nothing is asked.
    query: String,
}

impl From<&EventFilter> for Fields {
    fn from(filter: &EventFilter) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let since = filter.since.map(|at| at.to_string());
        let until = filter.until.map(|at| at.to_string());
        let pairs = [
            ("provider", filter.provider.as_deref()),
            ("type", filter.event_type.as_deref()),
            ("status", filter.status.map(EventStatus::as_str)),
            ("handler", filter.handler.as_deref()),
            ("since", since.as_deref()),
            ("until", until.as_deref()),
            ("q", filter.q.as_deref()),
        ];
        let given = pairs.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let query = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(given)
            .finish();
        let field = |at: Option<jiff::Timestamp>| {
            at.map_or_else(String::new, |at| at.strftime("%Y-%m-%dT%H:%M:%S").to_string())
        };
        Self {
            provider: text(&filter.provider),
            event_type: text(&filter.event_type),
            status: filter.status.map_or("", EventStatus::as_str),
            handler: text(&filter.handler),
            since: field(filter.since),
            until: field(filter.until),
            q: text(&filter.q),
            query,
        }
    }
}

#[derive(Template)]
#[template(path = "events.html")]
struct List<'a> {
    frame: Frame,
    fields: Fields,
    providers: Vec<String>,
    handlers: Vec<String>,
    events: Vec<EventJson<'a>>,
    /// The query of the next page.
    next: Option<String>,
    is_first: bool,
}

const STATUSES: [EventStatus; 5] = EventStatus::ALL;

/// `GET /events`
pub(super) async fn list(request: HttpRequest, viewer: Viewer, state: web::Data<State>) -> Page {
    let asked = without_empty(request.query_string());
    let query = EventsQuery::read(&asked)?;
    let fields = Fields::from(&query.filter);
    let found = state.store.events(query.filter, query.cursor, query.limit).await;
    let found = found.map_err(failed)?;
    let next = found.next.map(|next| next_page(&asked, next));
    let adapter = |provider: &str| state.providers.adapter(provider).map(|adapter| adapter.to_string());
    let rows = found.events.iter();
    shown(&List {
        frame: Frame::new(viewer, "/events", "Events"),
        providers: state.providers.names(),
        handlers: state.handlers.iter().map(ToString::to_string).collect(),
        events: rows
            .map(|event| EventJson::row(event, adapter(&event.provider).as_deref()))
            .collect(),
        next,
        is_first: query.cursor.is_none(),
        fields,
    })
}

#[derive(Template)]
#[template(path = "reprocess.html")]
struct Ask {
    frame: Frame,
    fields: Fields,
    count: u64,
    handlers: Vec<String>,
    /// The filter in words.
    pairs: Vec<(String, String)>,
}

/// `GET /events/reprocess`: how many would be, and the form.
pub(super) async fn ask(request: HttpRequest, viewer: Viewer, state: web::Data<State>) -> Page {
    let query = EventsQuery::read(&without_empty(request.query_string()))?;
    let fields = Fields::from(&query.filter);
    if fields.query.is_empty() {
        return Err(nothing_named().into());
    }
    let count = state.store.count(query.filter).await.map_err(failed)?;
    shown(&Ask {
        frame: Frame::new(viewer, "/events", "Reprocess events"),
        count,
        handlers: state.handlers.iter().map(ToString::to_string).collect(),
        pairs: form_urlencoded::parse(fields.query.as_bytes()).into_owned().collect(),
        fields,
    })
}

/// `POST /events/reprocess`: a job, which is then on the page of jobs.
pub(super) async fn begin(request: HttpRequest, body: web::Payload, viewer: Viewer, state: web::Data<State>) -> Page {
    let mut sent = form::sent(&request, body, &viewer, &state).await?;
    if !sent.is_first() {
        return see("/jobs?done=again");
    }
    let fields = &sent.fields;
    let rate = fields.one("rate").map(per_second).transpose();
    let rate = rate.map_err(Problem::bad_request)?;
    let filter = EventsQuery::read(fields.need("filter")?)?.filter;
    if filter == EventFilter::default() {
        return Err(nothing_named().into());
    }
    let asked = ReprocessMany {
        handlers: fields.list("handlers"),
        reason: fields.reason(),
        rate,
        background: true,
        ..ReprocessMany::default()
    };
    begin_job(&state, filter, asked, ACTOR).await?;
    sent.done();
    see("/jobs?done=begun")
}

fn nothing_named() -> Problem {
    Problem::bad_request("choose at least one of provider, type, status, handler, since, until or id")
}
