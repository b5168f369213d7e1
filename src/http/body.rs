//! Reads a request's body: raw, once, within a size, a time and a budget that all requests share.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use actix_web::web::{self, Bytes, BytesMut};
use futures_util::StreamExt as _;

/// Why a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the body is larger than allowed")]
    TooLarge,
    #[error("the body did not arrive in time")]
    TooSlow,
    /// The bodies in flight hold as much memory as they may.
    #[error("too many bytes are in flight")]
    NoRoom,
    #[error("the body ended early or is not well formed")]
    Broken,
}

/// Bytes of bodies that may be in memory at once, over all requests.
#[derive(Debug)]
pub(super) struct Budget {
    limit: usize,
    used: AtomicUsize,
}

impl Budget {
    #[must_use]
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            used: AtomicUsize::new(0),
        }
    }

    /// Bytes in flight now.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= self.limit;
        if !fits {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }
}

/// A share of the budget; given back when dropped.
pub(super) struct Share<'a> {
    budget: &'a Budget,
    bytes: usize,
}

impl<'a> Share<'a> {
    pub(super) fn none_of(budget: &'a Budget) -> Self {
        Self { budget, bytes: 0 }
    }

    fn grow(&mut self, bytes: usize) -> Result<(), BodyError> {
        if !self.budget.take(bytes) {
            return Err(BodyError::NoRoom);
        }
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Reads the whole body. `declared` is its Content-Length. Only bytes that have arrived count against the budget, so
/// that nobody can fill it with promises.
///
/// # Errors
/// A [`BodyError`]; the rest of the body is then unread.
pub(super) async fn read(
    payload: &mut web::Payload,
    declared: Option<usize>,
    max: usize,
    timeout: Duration,
    share: &mut Share<'_>,
) -> Result<Bytes, BodyError> {
    if declared.is_some_and(|length| length > max) {
        return Err(BodyError::TooLarge);
    }
    if declared == Some(0) {
        return Ok(Bytes::new());
    }
    tokio::time::timeout(timeout, collect(payload, declared, max, share))
        .await
        .unwrap_or(Err(BodyError::TooSlow))
}

async fn collect(
    payload: &mut web::Payload,
    declared: Option<usize>,
    max: usize,
    share: &mut Share<'_>,
) -> Result<Bytes, BodyError> {
    let mut body = BytesMut::new();
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(|_| BodyError::Broken)?;
        if body.len() + chunk.len() > max {
            return Err(BodyError::TooLarge);
        }
        share.grow(chunk.len())?;
        // A chunk is a window on the connection's read buffer and keeps all of it alive. Taking it as it is saves a
        // copy, but only pays when the body is most of that buffer.
        if body.is_empty() && declared == Some(chunk.len()) && chunk.len() >= WORTH_SHARING {
            return Ok(chunk);
        }
        if body.is_empty() {
            body.reserve(declared.unwrap_or(0).min(FIRST_RESERVE).max(chunk.len()));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

/// Half of actix-http's read buffer.
const WORTH_SHARING: usize = 16 * 1024;

/// A promised length reserves no more than this before its bytes arrive.
const FIRST_RESERVE: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_given_back_whole() {
        let budget = Budget::new(10);
        let mut first = Share::none_of(&budget);
        assert_eq!(first.grow(8), Ok(()));
        let mut second = Share::none_of(&budget);
        assert_eq!(second.grow(3), Err(BodyError::NoRoom));
        assert_eq!(budget.used(), 8);
        drop(second);
        drop(first);
        assert_eq!(budget.used(), 0);
    }
}
