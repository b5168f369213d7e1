//! Requests that were refused: kept within bounds, for people.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use super::{StoreFuture, Who};

/// The quarantine.
pub trait Quarantine: Send + Sync {
    /// Keeps refused requests, and lets the oldest go where there is no room.
    fn quarantine(&self, requests: Vec<Refused>, room: Room) -> StoreFuture<'_, ()>;

    /// One page, newest first, without bodies; `provider` and `reason` narrow it.
    fn quarantined(&self, filter: RefusedFilter, cursor: Option<i64>, limit: u32) -> StoreFuture<'_, RefusedPage>;

    /// One with its body.
    fn quarantined_one(&self, id: i64) -> StoreFuture<'_, Option<(RefusedRow, Bytes)>>;

    /// Notes that the events of one are stored, and who did it.
    fn readmitted(&self, id: i64, who: Who) -> StoreFuture<'_, bool>;

    /// Removes what is older; gives how many.
    fn purge_quarantine(&self, older: Duration) -> StoreFuture<'_, u64>;
}

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    pub rows: u64,
    pub bytes: u64,
}

/// A request to keep. It holds no credential.
#[derive(Debug, Clone)]
pub struct Refused {
    pub at: Timestamp,
    pub provider: String,
    /// A constant name.
    pub reason: String,
    pub detail: Option<String>,
    /// Whether its sender was proved.
    pub authentic: bool,
    pub method: String,
    /// Path and query as called.
    pub target: String,
    pub client: Option<String>,
    /// A JSON list of pairs of texts.
    pub headers: String,
    /// What was not kept, in words.
    pub left_out: Option<String>,
    pub body_sha256: [u8; 32],
    pub body: Bytes,
}

impl Refused {
    /// Bytes that it takes, about.
    #[must_use]
    pub fn size(&self) -> u64 {
        (self.body.len() + self.headers.len() + self.target.len() + 256) as u64
    }
}

/// One that is kept, without its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRow {
    pub id: i64,
    pub at: Timestamp,
    pub provider: String,
    pub reason: String,
    pub detail: Option<String>,
    pub authentic: bool,
    pub method: String,
    pub target: String,
    pub client: Option<String>,
    pub headers: String,
    pub left_out: Option<String>,
    pub size: u64,
    pub body_sha256: [u8; 32],
    pub readmitted_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RefusedFilter {
    pub provider: Option<String>,
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub struct RefusedPage {
    pub requests: Vec<RefusedRow>,
    /// Pass as `cursor` for the next page; `None` on the last.
    pub next: Option<i64>,
}
