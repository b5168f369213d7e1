//! What becomes of a request with a key: one table, and which answers are kept. Pure.

use std::{sync::Arc, time::Duration};

use crate::store::{HeldKey, KeptAnswer, KeyState, RecoveryPoint, Reserved};

/// What to do with a request.
#[derive(Debug, Clone)]
pub enum Decision {
    /// The key is ours: run it.
    Run(HeldKey),
    /// It was answered: the same again.
    Replay {
        answer: Arc<KeptAnswer>,
        expires_in: Duration,
    },
    /// The key belongs to another request: 422.
    Mismatch,
    /// Another runs it: 409, and when to come again.
    InProgress { retry_after: Duration },
    /// It was sent, and nobody knows how it ended: ask, or 409 that says so.
    Unknown { id: i64 },
    /// It was answered, and the answer was too large to keep.
    NotKept(Arc<KeptAnswer>),
}

/// The longest that a client is told to wait for one that runs.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Reads the table. A request that is not the same is refused whatever became of the first.
#[must_use]
pub fn decide(reserved: Reserved, request_hash: &[u8; 32]) -> Decision {
    let (id, first, state) = match reserved {
        Reserved::Yours(held) => return Decision::Run(held),
        Reserved::Taken {
            id,
            request_hash,
            state,
        } => (id, request_hash, state),
    };
    if first != *request_hash {
        return Decision::Mismatch;
    }
    match state {
        KeyState::Processing { left } => Decision::InProgress {
            retry_after: left.min(LONGEST_WAIT),
        },
        // Whoever asks gets such a key; another was quicker.
        KeyState::Abandoned {
            point: RecoveryPoint::Reserved,
        } => Decision::InProgress {
            retry_after: Duration::from_secs(1),
        },
        KeyState::Abandoned {
            point: RecoveryPoint::Sent,
        }
        | KeyState::Unknown => Decision::Unknown { id },
        KeyState::Answered { answer, expires_in } => match answer.body {
            Some(_) => Decision::Replay { answer, expires_in },
            None => Decision::NotKept(answer),
        },
    }
}

/// Which answers are kept, by status. What is not kept frees its key, because nothing was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    unkept: Vec<u16>,
}

impl Default for Policy {
    /// Everything once execution began. Conflicts (409), limits (429) and what the server refused to look into (400, 401,
    /// 403, 405, 406, 408, 411 to 417, 421, 422, 425, 428, 431) began nothing.
    fn default() -> Self {
        Self {
            unkept: vec![
                400, 401, 403, 405, 406, 408, 409, 411, 412, 413, 414, 415, 416, 417, 421, 422, 425, 428, 429, 431,
            ],
        }
    }
}

impl Policy {
    /// Keeps every status but these.
    #[must_use]
    pub fn all_but(unkept: Vec<u16>) -> Self {
        Self { unkept }
    }

    /// A 503 that says when to come again began nothing either, whatever the list says: to repeat it for a day would
    /// keep the client from ever getting through.
    #[must_use]
    pub fn keeps(&self, status: u16, has_retry_after: bool) -> bool {
        !(self.unkept.contains(&status) || (status == 503 && has_retry_after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: [u8; 32] = [7; 32];

    fn taken(state: KeyState) -> Reserved {
        Reserved::Taken {
            id: 1,
            request_hash: HASH,
            state,
        }
    }

    fn answered(body: Option<&'static [u8]>) -> KeyState {
        KeyState::Answered {
            answer: Arc::new(KeptAnswer {
                status: 201,
                headers: Vec::new(),
                body: body.map(bytes::Bytes::from_static),
                resource_id: None,
            }),
            expires_in: Duration::from_secs(9),
        }
    }

    fn states() -> Vec<KeyState> {
        vec![
            KeyState::Processing {
                left: Duration::from_secs(60),
            },
            KeyState::Abandoned {
                point: RecoveryPoint::Reserved,
            },
            KeyState::Abandoned {
                point: RecoveryPoint::Sent,
            },
            KeyState::Unknown,
            answered(Some(b"x")),
            answered(None),
        ]
    }

    #[test]
    fn another_request_is_refused_in_every_state() {
        for state in states() {
            assert!(matches!(decide(taken(state), &[8; 32]), Decision::Mismatch));
        }
    }

    #[test]
    fn the_same_request_gets_what_its_state_says() {
        let held = HeldKey { id: 1, token: 2 };
        assert!(matches!(decide(Reserved::Yours(held), &HASH), Decision::Run(ours) if ours == held));
        let mut decisions = states().into_iter().map(|state| decide(taken(state), &HASH));
        let mut next = || decisions.next().unwrap();
        assert!(matches!(next(), Decision::InProgress { retry_after } if retry_after == LONGEST_WAIT));
        assert!(matches!(next(), Decision::InProgress { .. }));
        assert!(matches!(next(), Decision::Unknown { id: 1 }));
        assert!(matches!(next(), Decision::Unknown { id: 1 }));
        assert!(matches!(next(), Decision::Replay { .. }));
        assert!(matches!(next(), Decision::NotKept(_)));
    }

    #[test]
    fn what_began_is_kept() {
        let policy = Policy::default();
        for status in [200, 201, 204, 302, 402, 404, 410, 500, 502, 503] {
            assert!(policy.keeps(status, false), "{status}");
        }
        for status in [400, 401, 409, 415, 422, 429] {
            assert!(!policy.keeps(status, false), "{status}");
        }
        assert!(!policy.keeps(503, true));
        assert!(Policy::all_but(vec![500]).keeps(409, false));
    }
}
