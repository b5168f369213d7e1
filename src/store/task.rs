//! What a person asked for, as one chunk of the work needs it.

use std::sync::Arc;

use super::{Reprocess, ReprocessScope, Who, filter::describe};

/// A delivery under this name marks an event that never had one and was given up by hand.
pub(super) const UNROUTED_MARK: &str = "*";

pub(super) struct Task {
    pub(super) handlers: Option<Vec<String>>,
    pub(super) dry_run: bool,
    pub(super) forget_steps: bool,
    pub(super) actor: String,
    pub(super) reason: Option<String>,
    pub(super) target: String,
}

impl Task {
    pub(super) fn new(what: &Reprocess, who: &Who) -> Arc<Self> {
        Arc::new(Self {
            handlers: what
                .handlers
                .as_ref()
                .map(|names| names.iter().map(|name| name.to_string()).collect()),
            dry_run: what.dry_run,
            forget_steps: what.forget_steps,
            actor: who.actor.clone(),
            reason: who.reason.clone(),
            target: match &what.filter {
                ReprocessScope::Event {
                    provider,
                    provider_event_id,
                } => format!("{provider}:{provider_event_id}"),
                ReprocessScope::Filter(filter) => describe(filter),
            },
        })
    }
}
