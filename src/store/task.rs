//! What a person asked for, as one chunk of the work needs it.

use std::sync::Arc;

use super::{Reprocess, ReprocessScope, Who, filter::describe};
use crate::domain::OrderedHandler;

/// A delivery under this name marks an event that never had one and was given up by hand.
pub(super) const UNROUTED_MARK: &str = "*";

#[derive(Clone)]
pub(super) struct Task {
    pub(super) handlers: Option<Vec<String>>,
    pub(super) dry_run: bool,
    pub(super) forget_steps: bool,
    pub(super) actor: String,
    pub(super) reason: Option<String>,
    pub(super) target: String,
    pub(super) ordered: Arc<[OrderedHandler]>,
}

impl Task {
    pub(super) fn new(what: &Reprocess, who: &Who, ordered: &Arc<[OrderedHandler]>) -> Arc<Self> {
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
            ordered: Arc::clone(ordered),
        })
    }

    /// A new life for what is dead of one event.
    pub(super) fn revive(
        provider: &str,
        provider_event_id: &str,
        who: &Who,
        ordered: &Arc<[OrderedHandler]>,
    ) -> Arc<Self> {
        let what = Reprocess {
            filter: ReprocessScope::Event {
                provider: provider.to_owned(),
                provider_event_id: provider_event_id.to_owned(),
            },
            handlers: None,
            dry_run: false,
            forget_steps: false,
        };
        Self::new(&what, who, ordered)
    }

    /// The same for these handlers alone.
    pub(super) fn for_handlers(&self, handlers: Vec<String>) -> Self {
        Self {
            handlers: Some(handlers),
            ..self.clone()
        }
    }

    pub(super) fn is_ordered(&self, handler: &str) -> bool {
        self.ordered.iter().any(|o| *o.name == *handler)
    }
}
