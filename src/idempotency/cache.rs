//! Answers that were given and cannot change until they expire, so that a replay costs no query. Bounded by bytes; the
//! oldest goes first.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::store::{KeptAnswer, KeyName};

/// What a row costs beside its texts, roughly.
const OVERHEAD: usize = 400;
/// A larger answer is not worth the room of many small ones.
const LARGEST: usize = 256 << 10;

pub(super) struct Cache {
    limit: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    entries: HashMap<KeyName, Entry>,
    order: VecDeque<KeyName>,
    bytes: usize,
}

struct Entry {
    request_hash: [u8; 32],
    answer: Arc<KeptAnswer>,
    until: Instant,
    bytes: usize,
}

impl Cache {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            kept: Mutex::default(),
        }
    }

    /// The answer, and the hash of the request that it was given to.
    pub(super) fn get(&self, name: &KeyName) -> Option<([u8; 32], Arc<KeptAnswer>)> {
        let kept = self.lock();
        let entry = kept.entries.get(name)?;
        (entry.until > Instant::now()).then(|| (entry.request_hash, Arc::clone(&entry.answer)))
    }

    pub(super) fn put(&self, name: &KeyName, request_hash: [u8; 32], answer: &Arc<KeptAnswer>, expires_in: Duration) {
        let Some(body) = &answer.body else { return };
        let headers: usize = answer
            .headers
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        let bytes = OVERHEAD + body.len() + headers + 2 * (name.key.len() + name.route.len());
        if bytes > LARGEST.min(self.limit) {
            return;
        }
        let Some(until) = Instant::now().checked_add(expires_in) else {
            return;
        };
        let entry = Entry {
            request_hash,
            answer: Arc::clone(answer),
            until,
            bytes,
        };
        let mut kept = self.lock();
        match kept.entries.insert(name.clone(), entry) {
            Some(old) => kept.bytes -= old.bytes,
            None => kept.order.push_back(name.clone()),
        }
        kept.bytes += bytes;
        while kept.bytes > self.limit {
            let Some(oldest) = kept.order.pop_front() else { break };
            if let Some(gone) = kept.entries.remove(&oldest) {
                kept.bytes -= gone.bytes;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(key: &str) -> KeyName {
        KeyName {
            scope: "s".into(),
            method: "POST".into(),
            route: "/".into(),
            key: key.into(),
        }
    }

    #[test]
    fn the_oldest_leaves_and_the_room_is_bounded() {
        let cache = Cache::new(10_000);
        let answer = Arc::new(KeptAnswer {
            status: 200,
            headers: Vec::new(),
            body: Some(bytes::Bytes::from(vec![0; 1000])),
            resource_id: None,
        });
        for n in 0..50 {
            cache.put(&name(&n.to_string()), [1; 32], &answer, Duration::from_secs(60));
        }
        assert!(cache.get(&name("0")).is_none());
        assert_eq!(cache.get(&name("49")).map(|(hash, _)| hash), Some([1; 32]));
        let kept = cache.lock();
        assert!(kept.bytes <= 10_000);
        assert_eq!(kept.entries.len(), kept.order.len());
    }

    #[test]
    fn an_expired_answer_is_not_given() {
        let cache = Cache::new(10_000);
        let answer = Arc::new(KeptAnswer {
            status: 200,
            headers: Vec::new(),
            body: Some(bytes::Bytes::new()),
            resource_id: None,
        });
        cache.put(&name("k"), [1; 32], &answer, Duration::ZERO);
        assert!(cache.get(&name("k")).is_none());
    }
}
