//! `GET /api/v1/idempotency`: the keys that are kept, without the bodies that were answered.

use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::json;

use crate::{
    idempotency::{answer_json, key_json},
    store::KeyFilter,
};

use super::{
    State,
    admin::{failed, ok},
    error::Problem,
    query,
};

/// The filters, and `limit` and `cursor`.
pub(super) async fn keys(request: HttpRequest, state: web::Data<State>) -> Result<HttpResponse, Problem> {
    let filter = read(request.query_string())?;
    let limit = filter.limit;
    let rows = state.store.keys(filter).await.map_err(failed)?;
    let next = query::next_place(&rows, limit, |row| row.id).map(query::write_cursor);
    let list: Vec<_> = rows.iter().map(key_json).collect();
    Ok(ok(&json!({"keys": list, "next": next})))
}

/// One of them, with the headers that were answered.
pub(super) async fn key(request: HttpRequest, state: web::Data<State>) -> Result<HttpResponse, Problem> {
    query::none(request.query_string())?;
    let none = || Problem::not_found("there is no such key");
    let id = request
        .match_info()
        .get("id")
        .and_then(|id| id.parse().ok())
        .ok_or_else(none)?;
    let (row, kept) = state.store.key(id).await.map_err(failed)?.ok_or_else(none)?;
    let mut value = key_json(&row);
    value["answer"] = json!(kept.as_ref().map(answer_json));
    Ok(ok(&value))
}

pub(super) fn read(text: &str) -> Result<KeyFilter, Problem> {
    let mut filter = KeyFilter {
        limit: 50,
        ..KeyFilter::default()
    };
    for (name, value) in form_urlencoded::parse(text.as_bytes()) {
        query::without_nul(&name, &value)?;
        match &*name {
            "status" if matches!(&*value, "processing" | "completed" | "failed") => {
                filter.status = Some(value.into_owned());
            }
            "status" => return Err(Problem::bad_request("`status` is processing, completed or failed")),
            "route" => filter.route = Some(value.into_owned()),
            "key" => filter.key = Some(value.into_owned()),
            "cursor" => filter.before = Some(query::read_cursor(&value)?),
            "limit" => filter.limit = query::read_limit(&value)?,
            _ => return Err(query::unknown(&name)),
        }
    }
    Ok(filter)
}
