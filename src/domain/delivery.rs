//! Deliveries: one event on its way to one handler. The states, and what an attempt may do to them.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;

use super::StoredEvent;

/// The state of a delivery. `Done` is not stored: a row leaves the work list when it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeliveryState {
    /// Waits until `run_at`.
    Ready,
    /// A worker holds a lease on it.
    Claimed,
    /// Waits for an earlier event of its ordering key.
    Blocked,
    Done,
    /// Out of attempts, or told to give up.
    Dead,
    /// A person gave it up.
    Discarded,
}

impl DeliveryState {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Claimed => "claimed",
            Self::Blocked => "blocked",
            Self::Done => "done",
            Self::Dead => "dead",
            Self::Discarded => "discarded",
        }
    }

    /// Reads what the database holds.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [
            Self::Ready,
            Self::Claimed,
            Self::Blocked,
            Self::Done,
            Self::Dead,
            Self::Discarded,
        ]
        .into_iter()
        .find(|state| state.as_str() == text)
    }
}

/// The right of one worker to try one delivery, until its lease ends.
#[derive(Debug, Clone)]
pub struct Claim {
    pub event: Arc<StoredEvent>,
    pub handler: Arc<str>,
    /// Number of this attempt, from 1. Counted when claimed, so that an event which kills the process
    /// runs out of attempts.
    pub attempt: u32,
    /// Random 64 bits, new for each claim. A settle is accepted only with the token of the present claim.
    pub token: i64,
}

/// What a handler, or the worker on its behalf, says of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// Done by an earlier try, as its target says: nothing was sent now.
    DoneEarlier {
        detail: String,
    },
    /// The handler's filter does not want the event: the delivery goes without an effect.
    Filtered {
        detail: String,
    },
    /// Try again after this long.
    Retry {
        after: Duration,
        error: String,
    },
    /// Out of attempts, or told to give up.
    Dead {
        error: String,
    },
    /// Sent, but no answer came: the effect may have happened. Tried again after this long, or held for a person as a
    /// dead delivery when there is none.
    Unknown {
        after: Option<Duration>,
        error: String,
    },
    /// Nothing was tried, because the target is known to be away: due again after this long. The attempt does not count
    /// and leaves no history.
    Postponed {
        after: Duration,
        error: String,
    },
    /// Given back untouched, at shutdown: the attempt does not count and leaves no history.
    Released,
}

impl Outcome {
    /// How the history names it; `None` for what leaves no history.
    #[must_use]
    pub fn recorded(&self) -> Option<AttemptOutcome> {
        match self {
            Self::Done | Self::DoneEarlier { .. } => Some(AttemptOutcome::Done),
            Self::Retry { .. } => Some(AttemptOutcome::Retry),
            Self::Dead { .. } => Some(AttemptOutcome::Dead),
            Self::Unknown { .. } => Some(AttemptOutcome::Unknown),
            Self::Filtered { .. } => Some(AttemptOutcome::Filtered),
            Self::Postponed { .. } | Self::Released => None,
        }
    }
}

/// The report of one attempt, for the store to write.
#[derive(Debug, Clone)]
pub struct Settle {
    pub event_id: i64,
    pub handler: Arc<str>,
    pub token: i64,
    pub attempt: u32,
    pub started_at: Timestamp,
    pub duration: Duration,
    pub outcome: Outcome,
}

impl Settle {
    /// The report of an attempt that was made under a claim.
    #[must_use]
    pub fn of(claim: &Claim, started_at: Timestamp, duration: Duration, outcome: Outcome) -> Self {
        Self {
            event_id: claim.event.id,
            handler: Arc::clone(&claim.handler),
            token: claim.token,
            attempt: claim.attempt,
            started_at,
            duration,
            outcome,
        }
    }
}

/// A delivery as people see it.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub handler: String,
    pub state: DeliveryState,
    pub attempts: u32,
    /// When a ready delivery is due.
    pub run_at: Option<Timestamp>,
    pub last_error: Option<String>,
}

/// One try of one delivery, as the history keeps it.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub handler: String,
    pub attempt: u32,
    pub started_at: Timestamp,
    pub duration_ms: u64,
    pub outcome: AttemptOutcome,
    pub detail: Option<String>,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttemptOutcome {
    Done,
    Retry,
    Dead,
    /// The lease ended without a word: the worker crashed or stalled.
    Lost,
    /// Sent, but no answer came: the effect may have happened.
    Unknown,
    /// The handler's filter did not want the event.
    Filtered,
}

impl AttemptOutcome {
    pub const ALL: [Self; 6] = [
        Self::Done,
        Self::Retry,
        Self::Dead,
        Self::Lost,
        Self::Unknown,
        Self::Filtered,
    ];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Retry => "retry",
            Self::Dead => "dead",
            Self::Lost => "lost",
            Self::Unknown => "unknown",
            Self::Filtered => "filtered",
        }
    }

    /// Reads what the database holds.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == text)
    }
}
