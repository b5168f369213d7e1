//! One attempt of a native handler: its own code, then what it wants done in the transaction that settles the delivery.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use jiff::Timestamp;
use tokio::time::{Instant, timeout};

use super::attempt::{Verdict, text_of, timed_out, unsaid};
use crate::{
    domain::Claim,
    handlers::{Call, Done, Failure, NativeAction, Outgoing},
    store::{Applied, Effect, Native, Store, StoreError, Work},
};

/// The transaction has what is left of the attempt's time, and not less than this.
const LEAST: Duration = Duration::from_secs(1);

pub(super) async fn run(
    store: &Arc<dyn Store>,
    action: &NativeAction,
    outgoing: &Outgoing<'_>,
    (started_at, limit): (Timestamp, Duration),
) -> Verdict {
    let begun = Instant::now();
    let claim = &sent(outgoing);
    let steps: Arc<dyn Native> = Arc::<dyn Store>::clone(store);
    let call = Call::new(claim.clone(), steps);
    let work = AssertUnwindSafe(async { action.run(call).await }).catch_unwind();
    let done = match timeout(limit, work).await {
        Ok(Ok(Ok(done))) => done,
        Ok(Ok(Err(failure))) => return Verdict::Failed(failure),
        Ok(Err(panic)) => {
            let text = format!("the handler panicked: {}", text_of(&*panic));
            return Verdict::Failed(Failure::Retry(text));
        }
        Err(_) => return Verdict::Failed(timed_out(limit)),
    };
    settle(store, done, claim, (started_at, limit.saturating_sub(begun.elapsed()))).await
}

/// The claim with the payload that the handler is to see.
fn sent(outgoing: &Outgoing<'_>) -> Claim {
    let mut claim = outgoing.claim.clone();
    if claim.event.payload != outgoing.body {
        let event = Arc::make_mut(&mut claim.event);
        event.payload = outgoing.body.clone();
        event.content_type = outgoing.content_type.map(str::to_owned);
    }
    claim
}

async fn settle(
    store: &Arc<dyn Store>,
    done: Done,
    claim: &Claim,
    (started_at, left): (Timestamp, Duration),
) -> Verdict {
    let Some((work, last)) = done.into_work() else {
        return Verdict::Done;
    };
    let effect = Effect {
        claim: claim.clone(),
        work: Work::Code(work),
        started_at,
        limit: left.max(LEAST),
    };
    // No timer here: the store keeps the limit, and answers when nothing of the effect runs any more.
    match store.apply(effect).await {
        Ok(Applied::Done) => Verdict::Applied,
        Ok(Applied::Stale) => Verdict::Stale,
        Ok(Applied::Failed(error)) => Verdict::Failed(last.take(error)),
        Err(StoreError::Refused(error)) => Verdict::Failed(Failure::Retry(error)),
        Err(error) => unsaid(&error),
    }
}
