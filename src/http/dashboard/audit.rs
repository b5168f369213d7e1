//! `/audit`: who did what by hand, and why.

use actix_web::{HttpRequest, web};
use askama::Template;

use super::{Frame, Page, access::Viewer, shown, text::filters, without_empty};
use crate::{
    http::{State, admin::failed, audit, query},
    store::AuditRow,
};

#[derive(Template)]
#[template(path = "audit.html")]
struct List {
    frame: Frame,
    actor: String,
    action: String,
    rows: Vec<AuditRow>,
    next: Option<String>,
}

/// `GET /audit`
pub(super) async fn list(request: HttpRequest, viewer: Viewer, state: web::Data<State>) -> Page {
    let asked = without_empty(request.query_string());
    let filter = audit::read(&asked)?;
    let limit = filter.limit;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (actor, action) = (text(&filter.actor), text(&filter.action));
    let rows = state.store.audit(filter).await.map_err(failed)?;
    let next = query::next_place(&rows, limit, |row| row.id).map(|id| super::next_page(&asked, id));
    shown(&List {
        frame: Frame::new(viewer, "/audit", "Audit"),
        actor,
        action,
        rows,
        next,
    })
}
