//! `/`: what waits, what failed, and where.

use actix_web::{HttpRequest, web};
use askama::Template;

use super::{Frame, Page, access::Viewer, shown, text, text::filters};
use crate::{
    domain::EventStatus,
    http::{
        State,
        admin::failed,
        json::{EventJson, HandlerStatsJson, StatsJson, add_idle},
        query,
    },
    store::{Backlog, EventFilter, KeyStats},
};

/// Failed events on the page.
const LATEST: u32 = 5;

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview<'a> {
    frame: Frame,
    stats: StatsJson<'a>,
    keys: KeyStats,
    outbox: Backlog,
    /// Age of the oldest delivery that is due, and of the oldest row of the outbox.
    oldest: Option<String>,
    outbox_oldest: Option<String>,
    failed: Vec<EventJson<'a>>,
}

/// `GET /`
pub(super) async fn show(request: HttpRequest, viewer: Viewer, state: web::Data<State>) -> Page {
    query::none(request.query_string())?;
    let mut stats = state.store.stats().await.map_err(failed)?;
    let keys = state.store.key_stats().await.map_err(failed)?;
    let outbox = state.store.backlog().await.map_err(failed)?;
    let filter = EventFilter {
        status: Some(EventStatus::Failed),
        ..EventFilter::default()
    };
    let latest = state.store.events(filter, None, LATEST).await.map_err(failed)?;
    // Those that have nothing to do are there too.
    add_idle(&mut stats, state.handlers.iter().map(|name| &**name));
    let oldest = stats.handlers.iter().filter_map(|handler| handler.oldest_due).max();
    shown(&Overview {
        frame: Frame::new(viewer, "/", "Overview"),
        stats: StatsJson::from(&stats).with_breakers(|name| state.breaker(name)),
        keys,
        outbox,
        oldest: oldest.map(|age| text::span(age.as_secs())),
        outbox_oldest: outbox.oldest.map(|age| text::span(age.as_secs())),
        failed: latest.events.iter().map(|event| EventJson::row(event, None)).collect(),
    })
}

impl Overview<'_> {
    fn age(&self, handler: &HandlerStatsJson<'_>) -> String {
        let seconds = handler
            .oldest_due_seconds
            .map(|seconds| std::time::Duration::from_secs_f64(seconds).as_secs());
        seconds.map_or_else(|| "–".to_owned(), text::span)
    }
}
