//! The outbox, as both engines see it: what a row becomes, and how a batch of rows goes the way of all events.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering::Relaxed},
};

use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::oneshot;

use super::{Accepted, Relayed, StoreError, TopicRoutes, answers, batch::Pending};
use crate::domain::{Intent, NewEvent};

/// Rows in one batch.
pub(super) const ROWS: usize = 500;
/// Bytes of payload in one batch; a row with more goes alone.
pub(super) const BYTES: usize = 2 << 20;

/// A row of the table.
pub(super) struct Row {
    pub(super) id: i64,
    pub(super) intent: Intent,
}

/// Rows of one instant follow each other by a microsecond, so that the events of an ordering key keep the order of their
/// rows where the clock of the database is coarse. Remembers the last instant from batch to batch.
#[derive(Default)]
pub(super) struct Order(AtomicI64);

impl Order {
    /// How far a clock may have been coarse, in microseconds.
    const GRAIN: i64 = 1_000;

    /// Call in the order of the rows' ids.
    pub(super) fn instant(&self, written: Timestamp) -> Timestamp {
        let written = written.as_microsecond();
        let last = self.0.load(Relaxed);
        let instant = if written <= last && written / Self::GRAIN == last / Self::GRAIN {
            last + 1
        } else {
            written
        };
        self.0.store(instant, Relaxed);
        Timestamp::from_microsecond(instant).unwrap_or_default()
    }
}

/// Rows on their way through a commit.
#[derive(Default)]
pub(super) struct Sorted {
    /// Rows whose events go on, one request each.
    pub(super) taken: Vec<i64>,
    pub(super) requests: Vec<Pending>,
    pub(super) answers: Vec<oneshot::Receiver<Result<Vec<Accepted>, StoreError>>>,
    /// Rows that no event can hold, and why.
    pub(super) refused: Vec<(i64, String)>,
}

/// Makes the events of some rows, which are in the order of their ids.
pub(super) fn sort(rows: Vec<Row>, order: &Order, routes: &TopicRoutes) -> Sorted {
    let mut sorted = Sorted::default();
    for Row { id, mut intent } in rows {
        intent.created_at = order.instant(intent.created_at);
        let routes = routes(&intent.topic);
        let event = intent.event(routes).and_then(|event: NewEvent| {
            super::validate::validate(std::slice::from_ref(&event)).map_err(|error| error.to_string())?;
            Ok(event)
        });
        match event {
            Ok(event) => {
                let (waiter, answer) = answers::channel();
                sorted.taken.push(id);
                sorted.answers.push(answer);
                sorted.requests.push(Pending {
                    events: vec![event],
                    waiter,
                    permit: None,
                });
            }
            Err(why) => sorted.refused.push((id, why)),
        }
    }
    sorted
}

/// Counts what the requests were answered, once their commit is over.
pub(super) fn count(
    answers: Vec<oneshot::Receiver<Result<Vec<Accepted>, StoreError>>>,
    mut relayed: Relayed,
) -> Result<Relayed, StoreError> {
    for mut answer in answers {
        let accepted = answer.try_recv().map_err(|_| StoreError::Closed)??;
        for one in accepted {
            match one {
                Accepted::Stored => relayed.stored += 1,
                Accepted::Duplicate => relayed.duplicates += 1,
                Accepted::Conflict => relayed.conflicts += 1,
            }
        }
    }
    Ok(relayed)
}

/// Says what was refused, once it is written down.
pub(super) fn report(refused: &[(i64, String)]) {
    for (id, why) in refused {
        tracing::error!(
            outbox.id = id,
            reason = why,
            "a row of the outbox is refused; correct it and set its `error` to NULL"
        );
    }
}

/// The bytes of a text in which PostgreSQL says a `bytea`: `\x` and pairs of hexadecimal digits. Others are as they are.
pub(super) fn payload(text: String) -> Bytes {
    let hex = text.strip_prefix("\\x").map(hex::decode);
    match hex {
        Some(Ok(bytes)) => bytes.into(),
        _ => text.into(),
    }
}

pub(super) type Routes = Arc<TopicRoutes>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_one_instant_keep_their_order() {
        let order = Order::default();
        let at = |micros| {
            order
                .instant(Timestamp::from_microsecond(micros).unwrap())
                .as_microsecond()
        };
        assert_eq!([at(5_000), at(5_000), at(5_000)], [5_000, 5_001, 5_002]);
        assert_eq!(at(6_000), 6_000);
        // A row that was committed late says when it was written.
        assert_eq!(at(2_000), 2_000);
        assert_eq!([at(7_100), at(7_050)], [7_100, 7_101]);
    }

    #[test]
    fn bytes_that_became_a_text_become_bytes_again() {
        assert_eq!(payload("{\"a\":\"\\\\x41\"}".into()), "{\"a\":\"\\\\x41\"}");
        assert_eq!(payload("\\x00ff".into()), &b"\x00\xff"[..]);
        assert_eq!(payload("\\x".into()), "");
        for text in ["\\xa", "\\xzz", "\\X41", "x41", "\\x41 "] {
            assert_eq!(payload(text.into()), *text);
        }
    }
}
