//! What may wait for its commit: a number of events and a number of bytes. Full means an answer at once, never a wait.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use super::StoreError;

#[derive(Debug)]
pub(super) struct Budget {
    events: AtomicUsize,
    bytes: AtomicUsize,
    max_events: usize,
    max_bytes: usize,
}

impl Budget {
    pub(super) fn new(max_events: usize, max_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            events: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            max_events,
            max_bytes,
        })
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
        let full = events_before + events > self.max_events || bytes_before + bytes > self.max_bytes;
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

    #[test]
    fn full_is_said_at_once_and_room_comes_back() {
        let budget = Budget::new(2, 100);
        let first = budget.take(1, 60).unwrap();
        assert!(matches!(budget.take(1, 60), Err(StoreError::Full)));
        let second = budget.take(1, 40).unwrap();
        assert!(matches!(budget.take(1, 0), Err(StoreError::Full)));
        drop((first, second));
        assert!(budget.take(50, 5000).is_ok(), "a lone large request passes");
    }
}
