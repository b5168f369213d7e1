//! Which events of a chunk of the ledger lose their payload, and which go whole. The ledger is in order of arrival, so a
//! walk from the oldest ends at the first event that is too young for any rule.

use std::{
    sync::atomic::{AtomicI64, Ordering::Relaxed},
    time::Duration,
};

use super::{PurgePolicy, Purged};

/// Where the walks of this process are; a walk that came to its end begins anew.
#[derive(Debug, Default)]
pub(super) struct Cursors {
    real: AtomicI64,
    dry: AtomicI64,
}

impl Cursors {
    pub(super) fn start(&self, dry_run: bool) -> i64 {
        self.of(dry_run).load(Relaxed)
    }

    pub(super) fn advance(&self, dry_run: bool, next: i64) {
        self.of(dry_run).store(next, Relaxed);
    }

    fn of(&self, dry_run: bool) -> &AtomicI64 {
        if dry_run { &self.dry } else { &self.real }
    }
}

/// An event on the walk. Times in microseconds.
pub(super) struct Aged {
    pub(super) id: i64,
    pub(super) created_at: i64,
    pub(super) has_payload: bool,
    pub(super) is_pending: bool,
    pub(super) is_dead: bool,
}

#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// Lose payload, headers and attempts. Dead deliveries are discarded, for nobody can deliver them any more.
    pub(super) strip: Vec<i64>,
    /// Go whole.
    pub(super) forget: Vec<i64>,
    /// The id after which the next chunk begins; zero at the end.
    pub(super) next: i64,
    pub(super) purged: Purged,
}

/// Judges the rows of one chunk, oldest first. `is_full`: there may be more rows after them.
pub(super) fn judge(rows: &[Aged], policy: PurgePolicy, now: i64, is_full: bool) -> Verdict {
    let before = |age: Duration| now.saturating_sub(i64::try_from(age.as_micros()).unwrap_or(i64::MAX));
    let youngest = before(policy.done.min(policy.failed));
    let mut verdict = Verdict::default();
    for row in rows {
        if row.created_at >= youngest {
            verdict.next = 0;
            break;
        }
        verdict.next = if is_full { row.id } else { 0 };
        let age = if row.is_dead { policy.failed } else { policy.done };
        if row.is_pending || row.created_at >= before(age) {
            continue;
        }
        if row.created_at < before(policy.dedupe) {
            verdict.forget.push(row.id);
            verdict.purged.events += 1;
            verdict.purged.payloads += u64::from(row.has_payload);
        } else if row.has_payload {
            verdict.strip.push(row.id);
            verdict.purged.payloads += 1;
        }
    }
    verdict.purged.more = verdict.next != 0;
    verdict
}
