//! Idempotency keys by the clock: those that nobody runs any more are pushed forward, and old ones go.

use std::time::{Duration, Instant};

use super::Desk;
use crate::store::StoreError;

/// Keys in one batch: the first, and between what they may grow and shrink. A batch that takes longer than `SLOW` is
/// halved, a full one that does not is doubled, so that the reaper keeps up with any rate and holds nobody up.
const FIRST: u32 = 500;
const SMALLEST: u32 = 50;
const LARGEST: u32 = 10_000;
const SLOW: Duration = Duration::from_millis(50);

/// The writer is left alone for as long as a batch took, within these bounds.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(2));

pub(super) async fn complete(desk: Desk) -> Result<(), StoreError> {
    let pushed = desk.completer.push().await?;
    if pushed != Default::default() {
        tracing::info!(
            answered = pushed.answered,
            released = pushed.released,
            given_up = pushed.given_up,
            undecided = pushed.undecided,
            "idempotency keys that nobody ran any more"
        );
    }
    Ok(())
}

pub(super) async fn reap(desk: Desk) -> Result<(), StoreError> {
    let (mut size, mut total) = (FIRST, 0);
    loop {
        let started = Instant::now();
        let gone = desk.store.reap(desk.idempotency_keys, size).await?;
        let took = started.elapsed();
        total += gone;
        if gone < u64::from(size) || desk.stop.is_cancelled() {
            break;
        }
        size = next_size(size, took);
        tokio::select! {
            () = tokio::time::sleep(took.clamp(PAUSE.0, PAUSE.1)) => {}
            () = desk.stop.cancelled() => break,
        }
    }
    if total > 0 {
        tracing::info!(keys = total, "old idempotency keys removed");
    }
    Ok(())
}

fn next_size(size: u32, took: Duration) -> u32 {
    let next = if took > SLOW { size / 2 } else { size * 2 };
    next.clamp(SMALLEST, LARGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_grow_while_they_are_quick_and_shrink_when_they_are_not() {
        assert_eq!(next_size(500, Duration::ZERO), 1000);
        assert_eq!(next_size(500, SLOW * 2), 250);
        assert_eq!(
            (next_size(SMALLEST, SLOW * 2), next_size(LARGEST, Duration::ZERO)),
            (SMALLEST, LARGEST)
        );
    }
}
