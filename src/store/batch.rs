//! Group commit: what both engines do around the insert of a batch. Sorts the events of the waiting requests, drops the
//! repeats, reserves room at the local worker, and afterwards answers each request and hands the fresh deliveries over.

use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, OnceLock},
    time::Duration,
};

use jiff::Timestamp;

use super::{
    Accepted, Handoff, StoreError,
    answers::{self, Waiter},
    budget::Permit,
    ordering::{self, Lane},
};
use crate::domain::{Claim, NewEvent, OrderedHandler, StoredEvent};

/// The worker that takes fresh deliveries, once it is known.
pub(super) type HandoffSlot = Arc<OnceLock<Arc<dyn Handoff>>>;

/// One request on its way to the commit.
pub(super) struct Pending {
    pub(super) events: Vec<NewEvent>,
    pub(super) waiter: Waiter,
    /// None where what waits is bounded by other means.
    pub(super) permit: Option<Permit>,
}

impl Pending {
    pub(super) fn bytes(&self) -> usize {
        self.events.iter().map(NewEvent::size).sum()
    }

    /// Answers with an error.
    pub(super) fn fail(self, error: StoreError) {
        drop(self.permit);
        self.waiter.answer(Err(error));
    }
}

/// Takes requests off the queue up to the caps; at least one.
pub(super) fn take_capped(queue: &mut VecDeque<Pending>, max_events: usize, max_bytes: usize) -> Vec<Pending> {
    let (mut events, mut bytes, mut taken) = (0, 0, Vec::new());
    while let Some(next) = queue.front() {
        events += next.events.len();
        bytes += next.bytes();
        if !taken.is_empty() && (events > max_events || bytes > max_bytes) {
            break;
        }
        taken.extend(queue.pop_front());
    }
    taken
}

/// What the insert said of one distinct event.
#[derive(Debug, Clone, Copy)]
pub(super) enum RowOutcome {
    Inserted {
        id: i64,
        created_at: Timestamp,
    },
    Existing {
        id: i64,
        /// `None`: fetched from the sender's API, whose bytes say the same as any webhook of this id.
        body_sha256: Option<[u8; 32]>,
    },
    /// Not inserted, and the database could not be asked what is there.
    Unknown,
}

impl RowOutcome {
    fn is_new(&self) -> bool {
        matches!(self, Self::Inserted { .. })
    }
}

/// Another body under the id of a stored event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Conflict {
    pub(super) event_id: i64,
    pub(super) body_sha256: [u8; 32],
    pub(super) seen: i64,
}

/// Where an event is: request, index in it.
type At = (usize, usize);

struct Reservation {
    handler: Arc<str>,
    count: usize,
    bytes: usize,
}

/// Requests that are inserted together.
pub(super) struct Batch {
    requests: Vec<Pending>,
    /// One entry for each distinct event, sorted by key so that replicas lock in the same order: all places where it
    /// occurs, in order of arrival.
    rows: Vec<Vec<At>>,
    reserved: Vec<Reservation>,
    handoff: Option<Arc<dyn Handoff>>,
    ordered: Arc<[OrderedHandler]>,
    /// Token and lease of the deliveries that are handed over.
    pub(super) token: i64,
    pub(super) lease: Duration,
}

impl Batch {
    pub(super) fn new(requests: Vec<Pending>, handoff: &HandoffSlot, ordered: &Arc<[OrderedHandler]>) -> Self {
        let handoff = handoff.get().cloned();
        let mut batch = Self {
            rows: distinct(&requests),
            requests,
            reserved: Vec::new(),
            token: rand::random(),
            lease: handoff.as_ref().map_or(Duration::ZERO, |handoff| handoff.lease()),
            handoff,
            ordered: Arc::clone(ordered),
        };
        batch.reserve();
        batch
    }

    /// The distinct events, in the order of the outcomes that the engine gives.
    pub(super) fn events(&self) -> impl ExactSizeIterator<Item = &NewEvent> {
        self.rows.iter().map(|places| self.at(places[0]))
    }

    /// Whether an event occurs more than once.
    pub(super) fn has_repeats(&self) -> bool {
        self.rows.iter().any(|places| places.len() > 1)
    }

    /// Whether the deliveries of this handler are inserted as claimed.
    pub(super) fn is_handed(&self, handler: &str) -> bool {
        self.reserved.iter().any(|r| &*r.handler == handler)
    }

    pub(super) fn handed(&self) -> Vec<String> {
        self.reserved.iter().map(|r| r.handler.to_string()).collect()
    }

    /// Whether a delivery of the batch is ordered.
    pub(super) fn is_ordered(&self) -> bool {
        let mut events = self.events();
        !self.ordered.is_empty() && events.any(|event| ordering::lanes(&self.ordered, event).next().is_some())
    }

    /// The lanes of the new deliveries that are ordered.
    pub(super) fn lanes(&self, outcomes: &[RowOutcome]) -> Vec<Lane> {
        if self.ordered.is_empty() {
            return Vec::new();
        }
        let new = self.events().zip(outcomes).filter(|(_, outcome)| outcome.is_new());
        new.flat_map(|(event, _)| ordering::lanes(&self.ordered, event))
            .map(|(handler, lane)| (handler.name.to_string(), lane))
            .collect()
    }

    /// The conflicts that the outcomes reveal, inside the batch and with what was stored.
    pub(super) fn conflicts(&self, outcomes: &[RowOutcome]) -> Vec<Conflict> {
        let mut conflicts: Vec<Conflict> = Vec::new();
        for (places, outcome) in self.rows.iter().zip(outcomes) {
            let Some((id, kept)) = self.kept(places, outcome) else {
                continue;
            };
            for &place in places {
                let other = self.at(place).body_sha256;
                if self.is_same(place, kept) {
                    continue;
                }
                match conflicts
                    .iter_mut()
                    .rev()
                    .find(|c| c.event_id == id && c.body_sha256 == other)
                {
                    Some(known) => known.seen += 1,
                    None => conflicts.push(Conflict {
                        event_id: id,
                        body_sha256: other,
                        seen: 1,
                    }),
                }
            }
        }
        conflicts.sort_by_key(|c| (c.event_id, c.body_sha256));
        conflicts
    }

    /// After the commit: hands over, gives back, wakes and answers. A request with an event of unknown outcome is
    /// answered as unavailable, and so is a conflict that is not written down. Says whether deliveries wait in the table.
    pub(super) fn finish(mut self, outcomes: &[RowOutcome], are_conflicts_written: bool) -> bool {
        let answers = self.answers(outcomes, are_conflicts_written);
        let is_any_left = self.hand_over(outcomes);
        answers::deliver(self.requests.into_iter().zip(answers).map(|(request, answer)| {
            drop(request.permit);
            let answer = answer.ok_or_else(|| {
                StoreError::Unavailable("could not compare with what is stored under a repeated id".to_owned())
            });
            (request.waiter, answer)
        }));
        is_any_left
    }

    /// After a failure: gives the reservations back and the requests to the caller.
    pub(super) fn dissolve(mut self) -> Vec<Pending> {
        if let Some(handoff) = &self.handoff {
            for r in self.reserved.drain(..) {
                handoff.give_back(&r.handler, r.count, r.bytes);
            }
        }
        mem::take(&mut self.requests)
    }

    pub(super) fn fail(self, error: &StoreError) {
        for request in self.dissolve() {
            request.fail(error.clone());
        }
    }

    fn at(&self, (request, index): At) -> &NewEvent {
        &self.requests[request].events[index]
    }

    /// Whether an event says the same as what the ledger holds; what was fetched says it in other bytes.
    fn is_same(&self, place: At, kept: Option<[u8; 32]>) -> bool {
        let event = self.at(place);
        kept.is_none_or(|kept| kept == event.body_sha256 || event.is_backfilled())
    }

    /// Id and hash of what the ledger holds for a row; no hash where it was fetched.
    fn kept(&self, places: &[At], outcome: &RowOutcome) -> Option<(i64, Option<[u8; 32]>)> {
        match *outcome {
            RowOutcome::Inserted { id, .. } => {
                let event = self.at(places[0]);
                Some((id, Some(event.body_sha256).filter(|_| !event.is_backfilled())))
            }
            RowOutcome::Existing { id, body_sha256 } => Some((id, body_sha256)),
            RowOutcome::Unknown => None,
        }
    }

    fn reserve(&mut self) {
        let Some(handoff) = self.handoff.clone() else {
            return;
        };
        let mut wanted: Vec<Reservation> = Vec::new();
        for event in self.events() {
            let bytes = event.size();
            for handler in event.handlers() {
                if ordering::lane_of(&self.ordered, event, handler).is_some() {
                    continue;
                }
                match wanted.iter_mut().find(|r| &*r.handler == handler) {
                    Some(r) => {
                        r.count += 1;
                        r.bytes += bytes;
                    }
                    None => wanted.push(Reservation {
                        handler: Arc::from(handler),
                        count: 1,
                        bytes,
                    }),
                }
            }
        }
        wanted.retain(|r| handoff.reserve(&r.handler, r.count, r.bytes));
        self.reserved = wanted;
    }

    fn answers(&self, outcomes: &[RowOutcome], are_conflicts_written: bool) -> Vec<Option<Vec<Accepted>>> {
        let mut answers: Vec<_> = self
            .requests
            .iter()
            .map(|request| Some(vec![Accepted::Duplicate; request.events.len()]))
            .collect();
        for (places, outcome) in self.rows.iter().zip(outcomes) {
            let kept = self.kept(places, outcome);
            for (nth, &(request, index)) in places.iter().enumerate() {
                let Some((_, kept)) = kept else {
                    answers[request] = None;
                    continue;
                };
                let Some(answer) = &mut answers[request] else { continue };
                answer[index] = match outcome {
                    RowOutcome::Inserted { .. } if nth == 0 => Accepted::Stored,
                    _ if self.is_same((request, index), kept) => Accepted::Duplicate,
                    _ if are_conflicts_written => Accepted::Conflict,
                    _ => {
                        answers[request] = None;
                        continue;
                    }
                };
            }
        }
        answers
    }

    /// Whether a new delivery is in the table that nobody was given.
    fn hand_over(&mut self, outcomes: &[RowOutcome]) -> bool {
        let Some(handoff) = self.handoff.take() else {
            let mut new = self.events().zip(outcomes).filter(|(_, outcome)| outcome.is_new());
            return new.any(|(event, _)| !event.routes.is_empty());
        };
        let mut claims = Vec::new();
        let mut wake = false;
        for (places, outcome) in self.rows.iter().zip(outcomes) {
            let RowOutcome::Inserted { id, created_at } = *outcome else {
                continue;
            };
            let (request, index) = places[0];
            let event = &mut self.requests[request].events[index];
            if event.routes.is_empty() {
                continue;
            }
            let bytes = event.size();
            let ordered: Vec<Arc<str>> = ordering::lanes(&self.ordered, event)
                .map(|(handler, _)| Arc::clone(&handler.name))
                .collect();
            let routes = Arc::clone(&event.routes);
            let stored = Arc::new(stored(event, id, created_at));
            for handler in routes.split(',').filter(|name| !name.is_empty()) {
                let is_ordered = ordered.iter().any(|name| **name == *handler);
                let reserved = self.reserved.iter_mut().find(|r| &*r.handler == handler);
                let Some(r) = reserved.filter(|_| !is_ordered) else {
                    wake = true;
                    continue;
                };
                r.count -= 1;
                r.bytes -= bytes;
                claims.push(Claim {
                    event: Arc::clone(&stored),
                    handler: Arc::clone(&r.handler),
                    attempt: 1,
                    token: self.token,
                });
            }
        }
        // What is left of a reservation was meant for duplicates.
        for r in self.reserved.drain(..).filter(|r| r.count > 0) {
            handoff.give_back(&r.handler, r.count, r.bytes);
        }
        if !claims.is_empty() {
            handoff.hand_over(claims);
        }
        if wake {
            handoff.wake();
        }
        wake
    }
}

fn distinct(requests: &[Pending]) -> Vec<Vec<At>> {
    let key = |&(request, index): &At| {
        let event: &NewEvent = &requests[request].events[index];
        (&*event.provider, event.provider_event_id.as_str())
    };
    let mut places: Vec<At> = Vec::with_capacity(requests.len());
    for (r, request) in requests.iter().enumerate() {
        places.extend((0..request.events.len()).map(|i| (r, i)));
    }
    places.sort_by(|a, b| key(a).cmp(&key(b)));
    places.chunk_by(|a, b| key(a) == key(b)).map(<[At]>::to_vec).collect()
}

fn stored(event: &mut NewEvent, id: i64, created_at: Timestamp) -> StoredEvent {
    StoredEvent {
        id,
        provider: Arc::clone(&event.provider),
        provider_event_id: mem::take(&mut event.provider_event_id),
        event_type: event.event_type.take(),
        payload: mem::take(&mut event.payload),
        content_type: event.content_type.take(),
        headers: mem::take(&mut event.headers),
        body_sha256: event.body_sha256,
        ordering_key: event.ordering_key.take(),
        occurred_at: event.occurred_at,
        created_at,
    }
}
