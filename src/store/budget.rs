//! What may wait for its commit: a number of events, a number of bytes, and a time. Full means an answer at once, never a
//! wait.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use super::{Options, StoreError};

#[derive(Debug)]
pub(super) struct Budget {
    events: AtomicUsize,
    bytes: AtomicUsize,
    max_events: usize,
    max_bytes: usize,
    max_wait: Duration,
    /// Most of one flush, and flushes at a time.
    flush_events: usize,
    flush_bytes: usize,
    flushes: usize,
    /// How long one takes, in microseconds: half the last one, a quarter the one before it, and so on.
    flush_micros: AtomicU64,
}

impl Budget {
    pub(super) fn new(options: &Options, flushes: usize) -> Arc<Self> {
        Arc::new(Self {
            events: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            max_events: options.queue_events,
            max_bytes: options.queue_bytes,
            max_wait: options.max_wait,
            flush_events: options.batch_events.max(1),
            flush_bytes: options.batch_bytes.max(1),
            flushes: flushes.max(1),
            flush_micros: AtomicU64::new(0),
        })
    }

    /// How long a flush took that ended well.
    pub(super) fn flushed(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let before = self.flush_micros.load(Relaxed);
        self.flush_micros.store((before / 2).saturating_add(took / 2), Relaxed);
    }

    /// How long full flushes will keep the store busy before one that takes what comes now: those beyond what is being
    /// written already.
    fn foreseen(&self, events: usize, bytes: usize) -> Duration {
        let full = (events / self.flush_events).max(bytes / self.flush_bytes);
        let ahead = full.saturating_sub(self.flushes).div_ceil(self.flushes);
        let ahead = u64::try_from(ahead).unwrap_or(u64::MAX);
        Duration::from_micros(self.flush_micros.load(Relaxed).saturating_mul(ahead))
    }

    /// Takes room for one request. A request that alone is larger than the budget passes when nothing else waits.
    pub(super) fn take(self: &Arc<Self>, events: usize, bytes: usize) -> Result<Permit, StoreError> {
        let permit = Permit {
            budget: Arc::clone(self),
            events,
            bytes,
        };
        let events_before = self.events.fetch_add(events, Relaxed);
        let bytes_before = self.bytes.fetch_add(bytes, Relaxed);
        let full = events_before + events > self.max_events
            || bytes_before + bytes > self.max_bytes
            || self.foreseen(events_before, bytes_before) > self.max_wait;
        if full && events_before > 0 {
            return Err(StoreError::Full);
        }
        Ok(permit)
    }
}

/// Room in the budget until dropped.
#[derive(Debug)]
pub(super) struct Permit {
    budget: Arc<Budget>,
    events: usize,
    bytes: usize,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.events.fetch_sub(self.events, Relaxed);
        self.budget.bytes.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLUSH: Duration = Duration::from_millis(100);

    /// Two events or ten bytes in a flush.
    fn budget(queue_events: usize, flushes: usize) -> Arc<Budget> {
        let options = Options {
            queue_events,
            queue_bytes: 100,
            batch_events: 2,
            batch_bytes: 10,
            max_wait: FLUSH * 6 / 10,
            ..Options::default()
        };
        Budget::new(&options, flushes)
    }

    fn fill(budget: &Arc<Budget>, bytes: usize) -> Vec<Permit> {
        std::iter::from_fn(|| budget.take(1, bytes).ok()).collect()
    }

    #[test]
    fn full_is_said_at_once_and_room_comes_back() {
        let budget = budget(2, 1);
        let first = budget.take(1, 60).unwrap();
        assert!(matches!(budget.take(1, 60), Err(StoreError::Full)));
        let second = budget.take(1, 40).unwrap();
        assert!(matches!(budget.take(1, 0), Err(StoreError::Full)));
        drop((first, second));
        assert!(budget.take(50, 5000).is_ok(), "a lone large request passes");
    }

    #[test]
    fn a_wait_that_would_be_too_long_is_not_begun() {
        for (flushes, doubted, room) in [(1, 6, 4), (2, 10, 6)] {
            let budget = budget(20, flushes);
            assert_eq!(fill(&budget, 0).len(), 20, "nothing is known yet");
            budget.flushed(FLUSH);
            assert_eq!(fill(&budget, 0).len(), doubted, "one says little");
            budget.flushed(FLUSH);
            assert_eq!(
                fill(&budget, 0).len(),
                room,
                "what is being written, and the next flush"
            );
            assert_eq!(fill(&budget, 10).len(), room / 2, "bytes fill flushes too");
            (0..10).for_each(|_| budget.flushed(Duration::ZERO));
            assert_eq!(fill(&budget, 0).len(), 20, "it was a moment");
        }
    }

    #[test]
    fn no_flush_is_too_long_to_count() {
        let budget = budget(20, 1);
        (0..3).for_each(|_| budget.flushed(Duration::MAX));
        assert_eq!(fill(&budget, 0).len(), 4);
    }
}
