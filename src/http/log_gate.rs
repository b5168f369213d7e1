//! Lets a few lines a second through, so that whoever sends nonsense cannot fill the log.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// A limit of lines per second. Small races between threads let a line more or less through, which is fine for a log.
#[derive(Debug, Default)]
pub(super) struct LogGate {
    second: AtomicU64,
    lines: AtomicU32,
    held_back: AtomicU64,
}

impl LogGate {
    /// Lines per second and gate.
    const LIMIT: u32 = 5;

    /// `Some(n)`: write the line; `n` were held back since the last one. `second` is the present unix time.
    pub(super) fn pass(&self, second: u64) -> Option<u64> {
        if self.second.swap(second, Relaxed) != second {
            self.lines.store(0, Relaxed);
        }
        if self.lines.fetch_add(1, Relaxed) < Self::LIMIT {
            Some(self.held_back.swap(0, Relaxed))
        } else {
            self.held_back.fetch_add(1, Relaxed);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_limit_are_counted_not_written() {
        let gate = LogGate::default();
        let passed = (0..100).filter(|_| gate.pass(1).is_some()).count();
        assert_eq!(passed, LogGate::LIMIT as usize);
        assert_eq!(gate.pass(2), Some(95));
        assert_eq!(gate.pass(2), Some(0));
    }
}
