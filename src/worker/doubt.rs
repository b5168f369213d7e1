//! What an earlier attempt left open. One that was sent and not answered, or whose process ended, may have had its effect:
//! the history says so, and it is settled before another is sent, if the handler is configured so.

use tokio::time::timeout;

use super::{Shared, attempt::Verdict, lane::Lane};
use crate::{
    domain::{AttemptOutcome, Claim},
    handlers::{Action, Failure, OnUnknown, Probed},
};

/// `None`: nothing is in doubt, go on. Costs nothing unless the handler has a probe or holds.
pub(super) async fn of_earlier(shared: &Shared, lane: &Lane, claim: &Claim) -> Option<Verdict> {
    match lane.route.on_unknown {
        OnUnknown::Retry => None,
        // A first attempt after an earlier life is a person's decision.
        OnUnknown::Hold if claim.attempt == 1 => None,
        policy => Box::pin(settle(shared, lane, claim, policy)).await,
    }
}

async fn settle(shared: &Shared, lane: &Lane, claim: &Claim, policy: OnUnknown) -> Option<Verdict> {
    let event = &claim.event;
    let detail = match shared.store.event(&event.provider, &event.provider_event_id).await {
        Ok(detail) => detail?,
        Err(error) => {
            let error = format!("whether an earlier try is in doubt cannot be read: {error}");
            return Some(Verdict::Failed(Failure::NotNow {
                after: lane.route.retry.base,
                error,
            }));
        }
    };
    let mut of_handler = detail.attempts.iter().rev().filter(|a| a.handler == *claim.handler);
    if !matches!(
        of_handler.next()?.outcome,
        AttemptOutcome::Unknown | AttemptOutcome::Lost
    ) {
        return None;
    }
    if policy == OnUnknown::Hold {
        let error = "an earlier try was cut off, and whether it had its effect is unknown; held for a person";
        return Some(Verdict::Failed(Failure::Unknown(error.into())));
    }
    let Action::Outside(handler) = &lane.route.action else {
        return None;
    };
    let limit = lane.route.timeout;
    match timeout(limit, handler.probe(claim)).await {
        Ok(Ok(Probed::Effect)) => Some(Verdict::DoneEarlier(
            "the probe found that an earlier try had its effect; nothing was sent again".into(),
        )),
        Ok(Ok(Probed::Nothing)) => None,
        Ok(Err(failure)) => Some(Verdict::Failed(failure)),
        Err(_) => Some(Verdict::Failed(Failure::Unknown(format!(
            "the probe had no answer within {}; whether an earlier try had its effect is unknown",
            crate::units::format_duration(limit)
        )))),
    }
}
