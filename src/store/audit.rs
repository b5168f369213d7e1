//! Who did what by hand, and why.

use jiff::Timestamp;
use serde_json::{Value, json};

/// One line of the audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    pub id: i64,
    pub at: Timestamp,
    /// `cli`, `api`, `dashboard`, or a name.
    pub actor: String,
    /// `reprocess`, `discard` and the like.
    pub action: String,
    /// What it was done to.
    pub target: String,
    pub reason: Option<String>,
    /// How many deliveries it changed.
    pub deliveries: u64,
}

/// Which lines. Every field that is set must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    pub actor: Option<String>,
    pub action: Option<String>,
    /// Only lines before this one, newest first.
    pub before: Option<i64>,
    pub limit: u32,
}

impl AuditRow {
    /// As API and command line show it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "id": self.id,
            "at": self.at.to_string(),
            "actor": self.actor,
            "action": self.action,
            "target": self.target,
            "reason": self.reason,
            "deliveries": self.deliveries,
        })
    }
}
