//! Answers that are dear to make and may be a little old.

use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::StoreError;

/// An answer is used again for this many times the time it took to make, so that counting a large table for each scrape
/// costs a twentieth of one connection at most, and a small table is counted anew each time.
const REUSE: u32 = 20;

/// Below this an answer is not kept at all.
const CHEAP: Duration = Duration::from_millis(50);

pub(super) struct Cached<T>(Mutex<Option<(T, Instant)>>);

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone> Cached<T> {
    pub(super) async fn get(&self, make: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let mut kept = self.0.lock().await;
        if let Some((value, until)) = &*kept
            && Instant::now() < *until
        {
            return Ok(value.clone());
        }
        let start = Instant::now();
        let value = make.await?;
        let took = start.elapsed();
        *kept = (took > CHEAP).then(|| (value.clone(), Instant::now() + took * REUSE));
        Ok(value)
    }
}
