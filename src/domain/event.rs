//! Events: what a verified request says, before and after it is stored.

use std::{fmt, str::FromStr, sync::Arc};

use bytes::Bytes;
use jiff::Timestamp;

/// One event, verified and identified, not yet stored.
#[derive(Debug, Clone)]
pub struct NewEvent {
    /// The registered sender.
    pub provider: Arc<str>,
    /// The sender's own id of the event: opaque text, never cut. Unique within the provider.
    pub provider_event_id: String,
    pub event_type: Option<String>,
    /// The exact bytes received (or the exact bytes of the item, in a batch).
    pub payload: Bytes,
    pub content_type: Option<String>,
    /// Allow-listed request headers as a JSON object of strings; never credentials or signatures.
    pub headers: String,
    /// SHA-256 of `payload`; tells a duplicate from a conflict.
    pub body_sha256: [u8; 32],
    pub ordering_key: Option<String>,
    /// The provider's own time of the event.
    pub occurred_at: Option<Timestamp>,
    /// Names of the handlers that want this event, joined by commas; empty when none does.
    pub routes: Arc<str>,
}

/// The stored header of an event that did not come as a webhook: when it was fetched from the sender's API. It is always
/// the first.
pub const BACKFILLED: &str = "cerca-backfilled";

impl NewEvent {
    /// Whether it was fetched from the sender's API, which says the same in other bytes than the webhook.
    #[must_use]
    pub fn is_backfilled(&self) -> bool {
        let name = self.headers.strip_prefix("{\"");
        name.and_then(|rest| rest.strip_prefix(BACKFILLED))
            .is_some_and(|rest| rest.starts_with('"'))
    }

    /// Names of the handlers that want this event.
    pub fn handlers(&self) -> impl Iterator<Item = &str> {
        self.routes.split(',').filter(|name| !name.is_empty())
    }

    /// Bytes that this event holds in memory, about: the measure of every byte budget.
    #[must_use]
    pub fn size(&self) -> usize {
        self.payload.len() + self.headers.len() + self.provider_event_id.len() + 256
    }
}

/// A row of `webhook_events` with its bytes, as handlers get it.
#[derive(Debug, Clone)]
pub struct StoredEvent {
    /// Order of arrival.
    pub id: i64,
    pub provider: Arc<str>,
    pub provider_event_id: String,
    pub event_type: Option<String>,
    pub payload: Bytes,
    pub content_type: Option<String>,
    /// A JSON object of strings.
    pub headers: String,
    pub body_sha256: [u8; 32],
    pub ordering_key: Option<String>,
    pub occurred_at: Option<Timestamp>,
    pub created_at: Timestamp,
}

impl StoredEvent {
    /// The same measure as [`NewEvent::size`].
    #[must_use]
    pub fn size(&self) -> usize {
        self.payload.len() + self.headers.len() + self.provider_event_id.len() + 256
    }
}

/// What has become of an event; derived from its deliveries, never stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventStatus {
    /// A delivery is ready, claimed or blocked.
    Pending,
    /// Every delivery had its effect.
    Done,
    /// A delivery is dead.
    Failed,
    /// No handler wanted it; stored and replayable.
    Unrouted,
    /// A person gave it up.
    Discarded,
}

impl EventStatus {
    pub const ALL: [Self; 5] = [Self::Pending, Self::Done, Self::Failed, Self::Unrouted, Self::Discarded];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Unrouted => "unrouted",
            Self::Discarded => "discarded",
        }
    }
}

impl fmt::Display for EventStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for EventStatus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|status| status.as_str() == text)
            .ok_or_else(|| format!("`{text}` is not a status; one of pending, done, failed, unrouted, discarded"))
    }
}
