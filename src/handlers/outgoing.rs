//! What one attempt gives its handler, and what the handler says back while it works.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use bytes::Bytes;

use crate::domain::Claim;

/// A claim with the payload as it is to be sent: every handler sends `body`, never `claim.event.payload`.
pub struct Outgoing<'a> {
    pub claim: &'a Claim,
    /// The bytes received, or what the handler's `transform` and `format` made of them.
    pub body: Bytes,
    pub content_type: Option<&'a str>,
    sent: OnceLock<SentMark>,
}

impl<'a> Outgoing<'a> {
    /// The bytes as they were received.
    #[must_use]
    pub fn raw(claim: &'a Claim) -> Self {
        let event = &claim.event;
        Self::new(claim, event.payload.clone(), event.content_type.as_deref())
    }

    #[must_use]
    pub fn new(claim: &'a Claim, body: Bytes, content_type: Option<&'a str>) -> Self {
        Self {
            claim,
            body,
            content_type,
            sent: OnceLock::new(),
        }
    }

    /// Says that the effect may have begun. If the attempt then ends without an answer (timeout, panic, shutdown), its
    /// outcome is unknown; before this call it is known that nothing happened.
    pub fn mark_sent(&self) {
        self.sent_mark().set();
    }

    /// The same mark, for whoever does the sending.
    #[must_use]
    pub fn sent_mark(&self) -> SentMark {
        self.sent.get_or_init(SentMark::default).clone()
    }

    #[must_use]
    pub fn is_sent(&self) -> bool {
        self.sent.get().is_some_and(SentMark::is_set)
    }
}

/// Whether the effect of an attempt may have begun.
#[derive(Debug, Clone, Default)]
pub struct SentMark(Arc<AtomicBool>);

impl SentMark {
    pub fn set(&self) {
        self.0.store(true, Relaxed);
    }

    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }
}
