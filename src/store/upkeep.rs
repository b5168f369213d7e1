//! What the long jobs of people and the clock ask: reprocessing at scale, backfill, export, shadow runs.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{AuditFilter, AuditRow, Effect, EventDetail, EventFilter, Received, StoreError, StoreFuture, Who};
use crate::domain::{EventStatus, OrderedHandler};

/// Long jobs. Each step is one short transaction or one bounded read.
pub trait Upkeep: Send + Sync {
    /// Which of these ids of a provider are stored, in their order.
    fn known<'a>(&'a self, provider: &'a str, ids: Vec<String>) -> StoreFuture<'a, Vec<bool>>;

    /// Events that match with their history and bytes, newest first. A chunk holds at least one event, at most
    /// `limit`, and not many more than `max_bytes` of payload.
    fn export(&self, filter: EventFilter, cursor: Option<i64>, limit: u32, max_bytes: usize)
    -> StoreFuture<'_, Export>;

    /// Runs the statement of a sql handler, and undoes what it did. The inner error is what the statement said. Numbers
    /// that a sequence gave stay taken.
    fn rehearse(&self, effect: Effect) -> StoreFuture<'_, Result<(), String>>;

    /// Begins to reprocess what matches now; `total` is how many that are. Nothing is reprocessed yet.
    fn begin_job(&self, job: NewJob, who: Who) -> StoreFuture<'_, Job>;

    /// Reprocesses the next events of a job, at most `limit`, and moves its cursor, in one transaction. Of two that do
    /// so at once, one does the work. `None`: there is no such job.
    fn step_job(&self, id: i64, limit: u32) -> StoreFuture<'_, Option<Job>>;

    fn job(&self, id: i64) -> StoreFuture<'_, Option<Job>>;

    /// The newest jobs, at most `limit`.
    fn jobs(&self, limit: u32) -> StoreFuture<'_, Vec<Job>>;

    /// Stops a running job, or lets a stopped one go on.
    fn set_job_running(&self, id: i64, running: bool, runner: Runner) -> StoreFuture<'_, Option<Job>>;

    /// What people did, newest first.
    fn audit(&self, filter: AuditFilter) -> StoreFuture<'_, Vec<AuditRow>>;

    /// Takes the turn of a provider's scheduled backfill, when it is due and nobody else has; `None` otherwise.
    fn begin_backfill<'a>(&'a self, provider: &'a str, every: Duration) -> StoreFuture<'a, Option<BackfillTurn>>;

    /// Notes that everything until then was compared.
    fn end_backfill<'a>(&'a self, provider: &'a str, until: Timestamp) -> StoreFuture<'a, ()>;
}

/// A chunk of an export.
#[derive(Debug, Clone, Default)]
pub struct Export {
    pub events: Vec<(EventDetail, Received)>,
    /// Pass as `cursor` for the next chunk; `None` at the end.
    pub next: Option<i64>,
}

/// The turn of a scheduled backfill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackfillTurn {
    pub now: Timestamp,
    /// Until when an earlier one compared everything.
    pub covered_until: Option<Timestamp>,
}

/// Who goes on with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runner {
    /// The command line, when told to.
    Cli,
    /// Any server, by itself.
    Server,
}

impl Runner {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cli => "cli",
            Self::Server => "server",
        }
    }

    pub(super) fn parse(text: &str) -> Self {
        if text == "server" { Self::Server } else { Self::Cli }
    }
}

/// A job to begin.
#[derive(Debug, Clone)]
pub struct NewJob {
    pub filter: EventFilter,
    /// As in [`super::Reprocess`].
    pub handlers: Option<Vec<Arc<str>>>,
    /// As in [`super::Reprocess`].
    pub forget_steps: bool,
    /// Events a second, at most.
    pub rate: Option<u32>,
    pub runner: Runner,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    Running,
    Done,
    Stopped,
}

impl JobState {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Stopped => "stopped",
        }
    }

    pub(super) fn parse(text: &str) -> Self {
        match text {
            "done" => Self::Done,
            "stopped" => Self::Stopped,
            _ => Self::Running,
        }
    }
}

/// Reprocessing by filter, as far as it is.
#[derive(Debug, Clone)]
pub struct Job {
    pub id: i64,
    pub created_at: Timestamp,
    /// Of its last step.
    pub updated_at: Timestamp,
    pub runner: Runner,
    pub actor: String,
    pub reason: Option<String>,
    pub filter: EventFilter,
    pub handlers: Option<Vec<Arc<str>>>,
    pub forget_steps: bool,
    pub rate: Option<u32>,
    pub state: JobState,
    /// Events that matched at its start.
    pub total: u64,
    /// Events gone through.
    pub events: u64,
    /// Deliveries made ready.
    pub deliveries: u64,
    pub(super) cursor: i64,
    pub(super) audit_id: i64,
}

impl Job {
    /// The filter in words.
    #[must_use]
    pub fn describe(&self) -> String {
        super::filter::describe(&self.filter)
    }

    /// How many events the next step may take, so that a rate is kept in steps of a fifth of a second.
    #[must_use]
    pub fn step(&self) -> u32 {
        self.rate.map_or(STEP, |rate| (rate / 5).clamp(1, STEP))
    }

    pub(super) fn task(&self, ordered: &Arc<[OrderedHandler]>) -> super::task::Task {
        super::task::Task {
            handlers: self
                .handlers
                .as_ref()
                .map(|names| names.iter().map(|name| name.to_string()).collect()),
            dry_run: false,
            forget_steps: self.forget_steps,
            actor: self.actor.clone(),
            reason: self.reason.clone(),
            target: self.describe(),
            ordered: Arc::clone(ordered),
        }
    }
}

/// Events of one step, at most.
const STEP: u32 = 500;

/// A filter as a job keeps it.
pub(super) fn write_filter(filter: &EventFilter) -> String {
    let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
    json!({
        "provider": filter.provider, "type": filter.event_type, "status": filter.status.map(EventStatus::as_str),
        "handler": filter.handler, "since": time(filter.since), "until": time(filter.until), "q": filter.q,
    })
    .to_string()
}

/// # Errors
/// It is none of ours: a filter that is not understood must not select everything.
pub(super) fn read_filter(text: &str) -> Result<EventFilter, StoreError> {
    let wrong = || StoreError::Refused("the job's filter cannot be read".to_owned());
    let value: Value = serde_json::from_str(text).map_err(|_| wrong())?;
    let object = value.as_object().ok_or_else(wrong)?;
    let word = |name: &str| match object.get(name) {
        Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        _ => Err(wrong()),
    };
    let time = |name: &str| word(name)?.map(|text| text.parse().map_err(|_| wrong())).transpose();
    Ok(EventFilter {
        provider: word("provider")?,
        event_type: word("type")?,
        status: word("status")?
            .map(|text| text.parse().map_err(|_| wrong()))
            .transpose()?,
        handler: word("handler")?,
        since: time("since")?,
        until: time("until")?,
        q: word("q")?,
    })
}

/// Handlers as a job keeps them; their names hold no comma.
pub(super) fn join(handlers: Option<&[Arc<str>]>) -> Option<String> {
    handlers.map(|names| names.join(","))
}

pub(super) fn split(text: Option<String>) -> Option<Vec<Arc<str>>> {
    text.map(|text| text.split(',').filter(|name| !name.is_empty()).map(Arc::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_comes_back_as_it_was() {
        let all = EventFilter {
            provider: Some("p".into()),
            event_type: Some("a.\"b".into()),
            status: Some(EventStatus::Failed),
            handler: Some("h".into()),
            since: "2026-01-02T03:04:05.000006Z".parse().ok(),
            until: None,
            q: Some("evt_".into()),
        };
        for filter in [all, EventFilter::default()] {
            assert_eq!(read_filter(&write_filter(&filter)).unwrap(), filter);
        }
        for wrong in ["", "{}", "[]", r#"{"provider":1}"#] {
            assert!(read_filter(wrong).is_err(), "{wrong}");
        }
    }
}
