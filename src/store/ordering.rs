//! Which deliveries are ordered, and where in the line they stand.
//!
//! A *lane* is one handler and one ordering key. Its line is every delivery of it that is ready, claimed or blocked, and
//! the dead ones that hold it, by the provider's own time, else by arrival. At most one of a lane is ready or claimed; a
//! unique index enforces it. The engines keep three rules:
//!
//! 1. What joins a lane (an insert, a new life) joins it as blocked.
//! 2. Whatever joins or leaves a lane, or stops being claimed in it, has the lane *advanced* afterwards.
//! 3. To advance: a ready delivery that is not the first of its line is blocked again; then, if none is ready or claimed and
//!    the first is blocked, the first becomes ready.

use crate::domain::{NewEvent, OrderedHandler, OrderingDead, lane};

/// Handler and lane, as the table has them.
pub(super) type Lane = (String, i64);

/// The lane of an event's delivery to this handler; `None` when it waits for no other.
pub(super) fn lane_of(ordered: &[OrderedHandler], event: &NewEvent, handler: &str) -> Option<i64> {
    // The usual case first: nothing is ordered, and nothing is computed.
    ordered.iter().find(|o| *o.name == *handler)?;
    Some(lane(&event.provider, event.ordering_key.as_deref()?))
}

/// The ordered handlers that the event goes to, with its lane.
pub(super) fn lanes<'o>(
    ordered: &'o [OrderedHandler],
    event: &NewEvent,
) -> impl Iterator<Item = (&'o OrderedHandler, i64)> {
    let key = event.ordering_key.as_deref();
    ordered
        .iter()
        .filter(|o| event.handlers().any(|name| *name == *o.name))
        .filter_map(move |o| Some((o, lane(&event.provider, key?))))
}

/// Whether a dead delivery of this handler holds its lane.
pub(super) fn holds(ordered: &[OrderedHandler], handler: &str) -> bool {
    ordered
        .iter()
        .any(|o| *o.name == *handler && o.dead == OrderingDead::Hold)
}

/// The share of fresh deliveries of a provider; see the column of this name. The lowest bit is left to those that were tried
/// before.
pub(super) fn share(provider: &str) -> i32 {
    // FNV-1a. Providers that meet in one share only take turns as one.
    let hash = provider.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    hash.cast_signed() & !1
}
