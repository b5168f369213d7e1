//! A page of a list in bounded time, whatever the filter: the ledger is in order of arrival and has no index for every
//! question, because each would be paid for by every event. So a page looks through windows of ids, from the newest
//! down, until it is full, the ledger ends, or its time is up. Then it is short, or empty, and says where to go on.

use std::time::Duration;

/// How long a page may look. With the read of what it shows it stays below 20 ms.
const BUDGET: Duration = Duration::from_millis(12);

/// Ids of the first window, and the fewest of a later one.
const FIRST: i64 = 8192;
const FEWEST: i64 = 512;

/// A window that took less may be followed by a larger one, one that took more by a smaller one.
const QUICK: Duration = Duration::from_millis(2);
const SLOW: Duration = Duration::from_millis(5);

/// Where a page is.
#[derive(Debug)]
pub(super) struct Walk {
    /// Ids below this were not looked at yet.
    high: i64,
    /// The lowest id that can match.
    floor: i64,
    size: i64,
    limit: usize,
    spent: Duration,
    ids: Vec<i64>,
}

impl Walk {
    /// Looks at ids from `floor` up to below `high`, for `limit` of them.
    pub(super) fn new(floor: i64, high: i64, limit: u32) -> Self {
        Self {
            high,
            floor,
            size: FIRST,
            limit: limit.max(1) as usize,
            spent: Duration::ZERO,
            ids: Vec::new(),
        }
    }

    /// The next window, from its lowest id up to below its highest, and how many of it are wanted at most.
    pub(super) fn window(&self) -> Option<(i64, i64, u32)> {
        let wanted = self.limit - self.ids.len();
        let goes_on = wanted > 0 && self.high > self.floor && self.spent < BUDGET;
        let low = self.high.saturating_sub(self.size).max(self.floor);
        goes_on.then(|| (low, self.high, u32::try_from(wanted).unwrap_or(u32::MAX)))
    }

    /// Takes what was found in the window, newest first.
    pub(super) fn learn(&mut self, found: Vec<i64>, took: Duration) {
        let Some((low, _, wanted)) = self.window() else { return };
        let is_full = found.len() >= wanted as usize;
        self.high = found.last().copied().filter(|_| is_full).unwrap_or(low);
        self.ids.extend(found);
        self.spent += took;
        if took < QUICK {
            self.size = self.size.saturating_mul(2);
        } else if took > SLOW {
            self.size = (self.size / 2).max(FEWEST);
        }
    }

    /// The ids, and the cursor for the next page where there may be one.
    pub(super) fn end(self) -> (Vec<i64>, Option<i64>) {
        let next = (self.high > self.floor).then_some(self.high);
        (self.ids, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Walks over ids of which some match, with windows that take this long.
    fn page(matching: impl Fn(i64) -> bool, high: i64, limit: u32, took: Duration) -> (Vec<i64>, Option<i64>) {
        let mut walk = Walk::new(1, high, limit);
        while let Some((low, high, wanted)) = walk.window() {
            let found = (low..high).rev().filter(|id| matching(*id)).take(wanted as usize);
            walk.learn(found.collect(), took);
        }
        walk.end()
    }

    #[test]
    fn pages_together_are_everything_once() {
        for (every, took) in [(1, 0), (7, 3), (5000, 1), (5000, 100)] {
            let (mut high, mut all) = (100_001, Vec::new());
            loop {
                let (ids, next) = page(|id| id % every == 0, high, 50, Duration::from_millis(took));
                assert!(ids.len() <= 50);
                all.extend(ids);
                let Some(next) = next else { break };
                assert!(next < high, "a page gets on");
                high = next;
            }
            let expected: Vec<i64> = (1..=100_000).rev().filter(|id| id % every == 0).collect();
            assert_eq!(all, expected, "every {every}, {took} ms");
        }
    }

    #[test]
    fn a_short_ledger_is_one_page_however_slow() {
        let (ids, next) = page(|_| true, 11, 50, Duration::from_secs(9));
        assert_eq!((ids.len(), next), (10, None));
        assert_eq!(page(|_| true, 1, 50, Duration::ZERO), (Vec::new(), None));
    }

    #[test]
    fn a_full_page_at_the_end_has_no_next() {
        assert_eq!(page(|_| true, 4, 3, Duration::ZERO), (vec![3, 2, 1], None));
        assert_eq!(page(|_| true, 5, 3, Duration::ZERO), (vec![4, 3, 2], Some(2)));
    }
}
