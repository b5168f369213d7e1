//! Keys in JSON, the same in API and command line. Never the body that was answered, nor whose key it is in clear.

use serde_json::{Value, json};

use crate::store::{KeptAnswer, KeyRow, KeyStats};

/// A row.
#[must_use]
pub fn key_json(row: &KeyRow) -> Value {
    json!({
        "id": row.id,
        "key": &*row.name.key,
        "method": &*row.name.method,
        "route": &*row.name.route,
        "scope": &*row.name.scope,
        "status": row.status,
        "recovery_point": row.recovery_point.as_str(),
        "locked_until": (row.status == "processing").then(|| row.locked_until.to_string()),
        "response_status": row.response_status,
        "response_size": row.response_size,
        "resource_id": row.resource_id,
        "created_at": row.created_at.to_string(),
        "completed_at": row.completed_at.map(|at| at.to_string()),
        "expires_at": row.expires_at.to_string(),
    })
}

/// What was answered, without the body.
#[must_use]
pub fn answer_json(answer: &KeptAnswer) -> Value {
    let header = |(name, value): &(String, Vec<u8>)| json!([name, String::from_utf8_lossy(value)]);
    json!({
        "status": answer.status,
        "headers": answer.headers.iter().map(header).collect::<Vec<_>>(),
        "size": answer.body.as_ref().map(bytes::Bytes::len),
    })
}

#[must_use]
pub fn stats_json(stats: &KeyStats) -> Value {
    json!({
        "processing": stats.processing,
        "abandoned": stats.abandoned,
        "completed": stats.completed,
        "failed": stats.failed,
        "unknown": stats.unknown,
    })
}
