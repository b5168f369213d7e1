//! The filters of `events`, with the names that the API gives them.

use anyhow::Context as _;
use clap::Args;
use jiff::{SignedDuration, Timestamp};

use crate::{domain::EventStatus, store::EventFilter, units::parse_duration};

#[derive(Debug, Default, Args)]
pub(super) struct Filter {
    /// Of this registered provider
    #[arg(long)]
    pub(super) provider: Option<String>,
    /// Of this event type
    #[arg(long = "type", value_name = "TYPE")]
    pub(super) event_type: Option<String>,
    /// pending, done, failed, unrouted or discarded
    #[arg(long)]
    pub(super) status: Option<EventStatus>,
    /// With an unfinished delivery to this handler
    #[arg(long = "with-handler", value_name = "HANDLER")]
    pub(super) handler: Option<String>,
    /// Arrived since: 2026-01-31T12:00:00Z, or an age such as 2h
    #[arg(long, value_name = "TIME")]
    pub(super) since: Option<String>,
    /// Arrived before: 2026-01-31T12:00:00Z, or an age such as 2h
    #[arg(long, value_name = "TIME")]
    pub(super) until: Option<String>,
    /// Whose id or ordering key begins with this
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) q: Option<String>,
}

impl Filter {
    pub(super) fn is_empty(&self) -> bool {
        self.provider.is_none()
            && self.event_type.is_none()
            && self.status.is_none()
            && self.handler.is_none()
            && self.since.is_none()
            && self.until.is_none()
            && self.q.is_none()
    }

    pub(super) fn build(self) -> anyhow::Result<EventFilter> {
        Ok(EventFilter {
            provider: self.provider,
            event_type: self.event_type,
            status: self.status,
            handler: self.handler,
            since: self.since.as_deref().map(time).transpose().context("--since")?,
            until: self.until.as_deref().map(time).transpose().context("--until")?,
            q: self.q,
        })
    }
}

/// A time, or an age before now.
pub(in crate::cli) fn time(text: &str) -> anyhow::Result<Timestamp> {
    if let Ok(age) = parse_duration(text) {
        let age = SignedDuration::try_from(age)?;
        return Ok(Timestamp::now().checked_sub(age)?);
    }
    text.parse()
        .map_err(|_| anyhow::anyhow!("`{text}` is neither a time such as 2026-01-31T12:00:00Z nor an age such as 2h"))
}
