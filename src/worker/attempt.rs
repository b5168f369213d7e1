//! One attempt: run the handler, judge what came of it, settle.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use jiff::Timestamp;
use tokio::time::{Instant, timeout};

use super::{
    Shared, doubt,
    lane::{Held, Lane},
    native,
};
use crate::{
    domain::{Claim, Outcome, Settle},
    handlers::{Action, Failure, Handler, OnUnknown, Outgoing, Route, Shaped, SqlAction},
    store::{Applied, Effect, StoreError, Work},
};

/// Characters of an error that are kept.
const ERROR_CHARS: usize = 2_000;
/// No target may put a delivery off for longer, whatever it asks.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(24 * 3600);

/// What the handler's part came to.
pub(super) enum Verdict {
    Failed(Failure),
    Done,
    /// An earlier attempt had its effect.
    DoneEarlier(String),
    /// The handler's filter does not want the event.
    Filtered(String),
    /// Effect and settle are committed already.
    Applied,
    /// The claim had ended.
    Stale,
}

pub(super) async fn attempt(
    shared: Arc<Shared>,
    lane: Arc<Lane>,
    held: Held,
    started_at: Timestamp,
    begun: Instant,
    _until_the_end: impl Send,
) {
    let claim = &held.claim;
    // It waited for so long that another worker may have it: the store is away, or was busy with slow statements. If
    // nobody has, it is due again at once.
    if begun.saturating_duration_since(held.since) >= shared.settings.lease.mul_f64(0.9) {
        lane.metrics.stale.increment(1);
        return release(&shared, claim).await;
    }
    let limit = lane.route.timeout;
    let verdict = match doubt::of_earlier(&shared, &lane, claim).await {
        Some(verdict) => verdict,
        None => match shaped(&lane, claim).await {
            Ok(Shaped::Send(outgoing)) => match &lane.route.action {
                Action::Outside(handler) => outside(handler.as_ref(), &outgoing, limit).await,
                Action::InStore(action) => in_store(&shared, action, &outgoing, started_at, limit).await,
                Action::Native(action) => native::run(&shared.store, action, &outgoing, (started_at, limit)).await,
                // Never in a lane.
                Action::Pull => Verdict::Failed(Failure::Retry("it is to be pulled".to_owned())),
            },
            Ok(Shaped::Filtered(detail)) => Verdict::Filtered(detail),
            Err(failure) => Verdict::Failed(failure),
        },
    };
    let duration = begun.elapsed();
    lane.metrics.seconds.record(duration);
    let outcome = match verdict {
        Verdict::Done => Outcome::Done,
        Verdict::DoneEarlier(detail) => Outcome::DoneEarlier { detail },
        Verdict::Filtered(detail) => Outcome::Filtered { detail },
        Verdict::Failed(failure) => judge(&lane.route, claim.attempt, failure, rand::random()),
        Verdict::Applied => return lane.metrics.done.increment(1),
        Verdict::Stale => return lane.metrics.stale.increment(1),
    };
    report(&lane, claim, &outcome);
    shared
        .store
        .settle(Settle::of(claim, started_at, duration, outcome))
        .await;
}

/// Gives back what has not begun. A claim that has ended is left as it is.
pub(super) async fn release(shared: &Shared, claim: &Claim) {
    let settle = Settle::of(claim, Timestamp::now(), Duration::ZERO, Outcome::Released);
    shared.store.settle(settle).await;
}

async fn shaped<'a>(lane: &'a Lane, claim: &'a Claim) -> Result<Shaped<'a>, Failure> {
    match &lane.route.shape {
        None => Ok(Shaped::Send(Outgoing::raw(claim))),
        Some(shape) => shape.apply(claim).await,
    }
}

async fn outside(handler: &dyn Handler, outgoing: &Outgoing<'_>, limit: Duration) -> Verdict {
    let work = AssertUnwindSafe(async { handler.handle(outgoing).await }).catch_unwind();
    // Its timer is set only when the handler is not ready at once.
    match timeout(limit, work).await {
        Ok(Ok(Ok(()))) => Verdict::Done,
        Ok(Ok(Err(failure))) => Verdict::Failed(failure),
        Ok(Err(panic)) => no_answer(outgoing, format!("the handler panicked: {}", text_of(&*panic))),
        Err(_) => no_answer(
            outgoing,
            format!("no answer within {}", crate::units::format_duration(limit)),
        ),
    }
}

/// What was not sent had no effect; of what was sent nobody knows.
fn no_answer(outgoing: &Outgoing<'_>, error: String) -> Verdict {
    Verdict::Failed(match outgoing.is_sent() {
        true => Failure::Unknown(format!("{error}; whether it had its effect is unknown")),
        false => Failure::Retry(error),
    })
}

async fn in_store(
    shared: &Shared,
    action: &SqlAction,
    outgoing: &Outgoing<'_>,
    started_at: Timestamp,
    limit: Duration,
) -> Verdict {
    let params = match std::panic::catch_unwind(AssertUnwindSafe(|| (action.params)(outgoing))) {
        Ok(Ok(params)) => params,
        Ok(Err(failure)) => return Verdict::Failed(failure),
        Err(panic) => {
            let text = format!("reading the parameters panicked: {}", text_of(&*panic));
            return Verdict::Failed(Failure::Retry(text));
        }
    };
    let effect = Effect {
        claim: outgoing.claim.clone(),
        work: Work::Statement {
            sql: action.statement.clone(),
            params,
        },
        started_at,
        limit,
    };
    // No timer here: the store keeps the limit, and answers when nothing of the effect runs any more. A settle before
    // that would wait for the rows that the effect holds.
    match shared.store.apply(effect).await {
        Ok(Applied::Done) => Verdict::Applied,
        Ok(Applied::Stale) => Verdict::Stale,
        Ok(Applied::Failed(error)) | Err(StoreError::Refused(error)) => Verdict::Failed(Failure::Retry(error)),
        Err(error) => unsaid(&error),
    }
}

/// The store did not say what became of an effect. If it was committed, its delivery is gone, and this settle with it.
pub(super) fn unsaid(error: &StoreError) -> Verdict {
    Verdict::Failed(Failure::Retry(error.to_string()))
}

pub(super) fn timed_out(limit: Duration) -> Failure {
    Failure::Retry(format!("no answer within {}", crate::units::format_duration(limit)))
}

fn judge(route: &Route, attempt: u32, failure: Failure, random: f64) -> Outcome {
    let policy = &route.retry;
    let error = cut(&failure.to_string());
    match (failure, policy.delay(attempt, random)) {
        // Those that were told the same come back spread out.
        (Failure::NotNow { after, .. }, _) => Outcome::Postponed {
            after: after.mul_f64(1.0 + random / 4.0),
            error,
        },
        (Failure::Unknown(_), after) => Outcome::Unknown {
            after: after.filter(|_| route.on_unknown != OnUnknown::Hold),
            error,
        },
        (Failure::GiveUp(_), _) | (_, None) => Outcome::Dead { error },
        // What asks for no pause gets the first one of the policy, or it would use all attempts up at once. Those that
        // were told the same come back spread out.
        (Failure::RetryAfter { after, .. }, Some(_)) => Outcome::Retry {
            after: after
                .min(LONGEST_RETRY_AFTER)
                .max(policy.delay(1, random).unwrap_or_default())
                .mul_f64(1.0 + random / 10.0),
            error,
        },
        (Failure::Retry(_), Some(after)) => Outcome::Retry { after, error },
    }
}

fn report(lane: &Lane, claim: &Claim, outcome: &Outcome) {
    match outcome {
        Outcome::Done | Outcome::DoneEarlier { .. } => lane.metrics.done.increment(1),
        Outcome::Released => lane.metrics.released.increment(1),
        Outcome::Retry { .. } => lane.metrics.retry.increment(1),
        Outcome::Filtered { .. } => lane.metrics.filtered.increment(1),
        Outcome::Postponed { .. } => lane.metrics.postponed.increment(1),
        Outcome::Unknown { after: Some(_), .. } => lane.metrics.unknown.increment(1),
        Outcome::Dead { .. } | Outcome::Unknown { after: None, .. } => {
            match outcome {
                Outcome::Dead { .. } => lane.metrics.dead.increment(1),
                _ => lane.metrics.unknown.increment(1),
            }
            // Without the error: what a target answers may hold what it was sent. The history has it.
            tracing::warn!(
                handler.name = %claim.handler, event.id = claim.event.id, provider.name = %claim.event.provider,
                delivery.attempt = claim.attempt, "a delivery is dead; its history says why",
            );
        }
    }
}

/// Error texts go into text columns: bounded, and without the NUL that PostgreSQL cannot store.
fn cut(error: &str) -> String {
    error
        .chars()
        .take(ERROR_CHARS)
        .map(|c| if c == '\0' { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
}

pub(super) fn text_of(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

#[cfg(test)]
mod unit {
    use super::*;
    use crate::{domain::RetryPolicy, handlers::LogHandler};

    #[test]
    fn the_policy_and_the_target_decide_when_to_try_again() {
        let mut policy = Route {
            name: "h".into(),
            action: Action::Outside(Arc::new(LogHandler::to(std::io::sink()))),
            retry: RetryPolicy {
                attempts: 2,
                base: Duration::from_secs(2),
                cap: Duration::from_secs(60),
            },
            concurrency: 1,
            rate_limit: None,
            timeout: Duration::from_secs(30),
            shape: None,
            on_unknown: OnUnknown::Retry,
        };
        let week = Duration::from_secs(7 * 24 * 3600);
        let asks = |after| Failure::RetryAfter {
            after,
            error: "busy".into(),
        };
        let retry = |after, error: &str| Outcome::Retry {
            after,
            error: error.into(),
        };
        let dead = |error: &str| Outcome::Dead { error: error.into() };
        let plain = || Failure::Retry("no".into());
        assert_eq!(judge(&policy, 1, plain(), 1.0), retry(Duration::from_secs(2), "no"));
        assert_eq!(judge(&policy, 2, plain(), 1.0), dead("no"));
        assert_eq!(judge(&policy, 1, asks(week), 0.0), retry(LONGEST_RETRY_AFTER, "busy"));
        assert_eq!(
            judge(&policy, 1, asks(Duration::ZERO), 0.0),
            retry(Duration::from_secs(1), "busy")
        );
        assert_eq!(
            judge(&policy, 1, asks(Duration::from_secs(50)), 1.0),
            retry(Duration::from_secs(55), "busy")
        );
        assert_eq!(judge(&policy, 2, asks(week), 1.0), dead("busy"));
        assert_eq!(judge(&policy, 1, Failure::GiveUp("gone".into()), 1.0), dead("gone"));

        let not_now = Failure::NotNow {
            after: Duration::from_secs(8),
            error: "away".into(),
        };
        let postponed = Outcome::Postponed {
            after: Duration::from_secs(10),
            error: "away".into(),
        };
        assert_eq!(judge(&policy, 2, not_now, 1.0), postponed, "even on the last attempt");

        let unknown = |after: Option<u64>| Outcome::Unknown {
            after: after.map(Duration::from_secs),
            error: "cut".into(),
        };
        let cut = || Failure::Unknown("cut".into());
        assert_eq!(judge(&policy, 1, cut(), 1.0), unknown(Some(2)));
        assert_eq!(judge(&policy, 2, cut(), 1.0), unknown(None), "out of attempts");
        policy.on_unknown = OnUnknown::Hold;
        assert_eq!(judge(&policy, 1, cut(), 1.0), unknown(None), "held");
    }

    #[test]
    fn errors_are_cut_at_a_character_and_hold_no_nul() {
        assert_eq!(cut(&"é".repeat(3_000)).chars().count(), ERROR_CHARS);
        assert_eq!(cut("a\0b"), "a\u{fffd}b");
    }
}
