//! `GET /api/v1/audit`: who did what by hand, and why.

use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::json;

use crate::store::{AuditFilter, AuditRow};

use super::{
    State,
    admin::{failed, ok},
    error::Problem,
    query,
};

/// The filters, and `limit` and `cursor`.
pub(super) async fn list(request: HttpRequest, state: web::Data<State>) -> Result<HttpResponse, Problem> {
    let filter = read(request.query_string())?;
    let limit = filter.limit;
    let rows = state.store.audit(filter).await.map_err(failed)?;
    let next = query::next_place(&rows, limit, |row| row.id).map(query::write_cursor);
    let list: Vec<_> = rows.iter().map(AuditRow::to_json).collect();
    Ok(ok(&json!({"audit": list, "next": next})))
}

pub(super) fn read(text: &str) -> Result<AuditFilter, Problem> {
    let mut filter = AuditFilter {
        limit: 50,
        ..AuditFilter::default()
    };
    for (name, value) in form_urlencoded::parse(text.as_bytes()) {
        query::without_nul(&name, &value)?;
        match &*name {
            "actor" => filter.actor = Some(value.into_owned()),
            "action" => filter.action = Some(value.into_owned()),
            "cursor" => filter.before = Some(query::read_cursor(&value)?),
            "limit" => filter.limit = query::read_limit(&value)?,
            _ => return Err(query::unknown(&name)),
        }
    }
    Ok(filter)
}
