//! Idempotency keys of an API: who holds one, and what was answered under it. The rules are in `crate::idempotency`.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use jiff::Timestamp;

use super::{InTransaction, StoreFuture, Transaction, TransactionError, transaction::Left};

/// Whose key it is: equal keys of two principals, methods or routes have nothing to do with each other.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyName {
    /// SHA-256 of the principal, in hexadecimal.
    pub scope: Arc<str>,
    pub method: Arc<str>,
    pub route: Arc<str>,
    /// 1 to 255 printable ASCII characters.
    pub key: Arc<str>,
}

/// A request for a key.
#[derive(Debug, Clone)]
pub struct NewKey {
    pub name: KeyName,
    pub request_hash: [u8; 32],
    /// How long the key is held for the one who gets it.
    pub lease: Duration,
    /// After this the key is as good as new.
    pub expiry: Duration,
}

/// The right to run the request of a key: valid until the lease ends and another takes it over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldKey {
    pub id: i64,
    pub token: i64,
}

/// How far a request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryPoint {
    /// Nothing has happened yet.
    Reserved,
    /// It may have had its effect.
    Sent,
}

/// What is kept under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptAnswer {
    pub status: u16,
    /// Names in lower case, in the order they are sent.
    pub headers: Vec<(String, Vec<u8>)>,
    /// `None`: too large to keep.
    pub body: Option<Bytes>,
    /// What the request made, as far as the answer says it.
    pub resource_id: Option<String>,
}

/// What a key stands for now.
#[derive(Debug, Clone)]
pub enum KeyState {
    /// Somebody runs it, for this much longer at most.
    Processing { left: Duration },
    /// The lease of whoever ran it is over.
    Abandoned { point: RecoveryPoint },
    Answered {
        answer: Arc<KeptAnswer>,
        /// When the key is as good as new.
        expires_in: Duration,
    },
    /// It was sent, and nobody knows how it ended.
    Unknown,
}

/// What came of a request for a key.
#[derive(Debug, Clone)]
pub enum Reserved {
    /// The key is yours: it was new, or expired, or was left by somebody who had sent nothing.
    Yours(HeldKey),
    Taken {
        id: i64,
        request_hash: [u8; 32],
        state: KeyState,
    },
}

/// How a held key ends, or goes on.
#[derive(Debug, Clone)]
pub enum KeyStep {
    /// The request is about to be sent; what comes after may have had its effect.
    Sent,
    /// It was answered.
    Complete(Arc<KeptAnswer>),
    /// Nothing happened: the key is as good as new.
    Release,
    /// Nothing happened: whoever brings the same request again may run it. The key stays bound to it.
    Return,
    /// Nobody will find out: the key is `failed`, without an answer.
    GiveUp,
    /// Nobody runs it any more, and it is not known how it ended: the lease ends now.
    Abandon,
}

/// A row, as lists show it.
#[derive(Debug, Clone)]
pub struct KeyRow {
    pub id: i64,
    pub name: KeyName,
    /// `processing`, `completed` or `failed`.
    pub status: String,
    pub recovery_point: RecoveryPoint,
    pub locked_until: Timestamp,
    pub response_status: Option<u16>,
    /// Bytes of the body that is kept.
    pub response_size: Option<u64>,
    pub resource_id: Option<String>,
    pub created_at: Timestamp,
    pub completed_at: Option<Timestamp>,
    pub expires_at: Timestamp,
}

/// Which keys. Every field that is set must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyFilter {
    pub status: Option<String>,
    pub route: Option<String>,
    pub key: Option<String>,
    /// Only rows before this one, newest first.
    pub before: Option<i64>,
    pub limit: u32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyStats {
    pub processing: u64,
    /// Of those, how many nobody runs any more.
    pub abandoned: u64,
    pub completed: u64,
    /// Answered with 5xx.
    pub failed: u64,
    /// Sent, and nobody knows how it ended.
    pub unknown: u64,
}

/// What a handler of an API does in the transaction that completes its key; it gives the answer to keep. It may run more
/// than once, as every [`InTransaction`](super::InTransaction), and its error must hold no secret.
pub type Answering = Arc<dyn Fn(&mut Transaction) -> Result<KeptAnswer, String> + Send + Sync>;

/// The key that a transaction completes.
pub(super) struct Completes {
    pub(super) held: HeldKey,
    pub(super) answer: Left<KeptAnswer>,
}

impl Completes {
    /// The code as every transaction takes it.
    pub(super) fn new(held: HeldKey, work: Answering) -> (Self, InTransaction) {
        let answer = Left::default();
        let left = answer.clone();
        let work = move |transaction: &mut Transaction| {
            let kept = work(transaction)?;
            // Code that went on after a failure leaves nothing: another run of it may be under way.
            transaction.sound().map_err(|error| error.to_string())?;
            left.put(Some(kept));
            Ok(())
        };
        (Self { held, answer }, Arc::new(work))
    }
}

/// Keeps the keys.
pub trait Keys: Send + Sync {
    /// Asks for a key; decided by the unique index, together with others that wait (group commit). Answers after the
    /// commit.
    fn reserve(&self, new: NewKey) -> StoreFuture<'static, Reserved>;

    /// Takes over a key whose lease is over, or that is `failed` without an answer, to find out how it ended; `None`
    /// where another was first.
    fn take_over(&self, id: i64, lease: Duration) -> StoreFuture<'static, Option<HeldKey>>;

    /// Takes the next step with a held key, together with others that wait. `false`: it is held by another now, and
    /// nothing changed. It is queued before this returns, and taken even if the future is dropped.
    fn step(&self, held: HeldKey, step: KeyStep) -> StoreFuture<'static, bool>;

    /// Runs code and completes the key with the answer that it gives, in one transaction, of 5 s at most.
    fn answer(&self, held: HeldKey, work: Answering) -> BoxFuture<'static, Result<Arc<KeptAnswer>, TransactionError>>;

    /// Keys that were sent and whose lease is over, oldest first.
    fn abandoned(&self, limit: u32) -> StoreFuture<'_, Vec<KeyRow>>;

    /// Keys, newest first.
    fn keys(&self, filter: KeyFilter) -> StoreFuture<'_, Vec<KeyRow>>;

    /// One key with what is kept under it.
    fn key(&self, id: i64) -> StoreFuture<'_, Option<(KeyRow, Option<KeptAnswer>)>>;

    fn key_stats(&self) -> StoreFuture<'_, KeyStats>;

    /// How many keys `reap` would remove in all.
    fn reapable(&self, age: Duration) -> StoreFuture<'_, u64>;

    /// Removes at most `limit` expired keys that were made longer ago than `age`; gives how many.
    fn reap(&self, age: Duration, limit: u32) -> StoreFuture<'_, u64>;
}

/// Headers as the database holds them: JSON, a byte of a value as the character of that number.
pub(super) fn write_headers(headers: &[(String, Vec<u8>)]) -> String {
    let pairs: Vec<(&str, String)> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.iter().map(|byte| char::from(*byte)).collect()))
        .collect();
    serde_json::to_string(&pairs).unwrap_or_default()
}

/// A damaged row has no headers.
pub(super) fn read_headers(json: &str) -> Vec<(String, Vec<u8>)> {
    let pairs: Vec<(String, String)> = serde_json::from_str(json).unwrap_or_default();
    let bytes = |text: String| {
        text.chars()
            .map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?'))
            .collect()
    };
    pairs.into_iter().map(|(name, value)| (name, bytes(value))).collect()
}

/// The columns of an answer; none where it was never answered.
pub(super) fn answer(
    status: Option<i64>,
    headers: Option<&str>,
    body: Option<Vec<u8>>,
    resource_id: Option<String>,
) -> Option<KeptAnswer> {
    Some(KeptAnswer {
        status: u16::try_from(status?).unwrap_or(500),
        headers: headers.map(read_headers).unwrap_or_default(),
        body: body.map(Bytes::from),
        resource_id,
    })
}

/// What a row's columns say.
pub(super) fn state(
    status: &str,
    point: &str,
    left_micros: i64,
    expires_in_micros: i64,
    answer: Option<KeptAnswer>,
) -> KeyState {
    let micros = |n: i64| Duration::from_micros(u64::try_from(n).unwrap_or(0));
    match (status, answer) {
        ("processing", _) if left_micros > 0 => KeyState::Processing {
            left: micros(left_micros),
        },
        ("processing", _) => KeyState::Abandoned {
            point: recovery_point(point),
        },
        (_, Some(answer)) => KeyState::Answered {
            answer: Arc::new(answer),
            expires_in: micros(expires_in_micros),
        },
        (_, None) => KeyState::Unknown,
    }
}

pub(super) fn recovery_point(text: &str) -> RecoveryPoint {
    match text {
        "reserved" => RecoveryPoint::Reserved,
        _ => RecoveryPoint::Sent,
    }
}

impl RecoveryPoint {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Sent => "sent",
        }
    }
}

impl KeptAnswer {
    /// `completed`, or `failed` for a server error.
    pub(super) fn key_status(&self) -> &'static str {
        if self.status >= 500 { "failed" } else { "completed" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_bytes_survive_the_database() {
        let headers = vec![
            ("x-odd".to_owned(), (1..=255).collect()),
            ("etag".to_owned(), b"\"1\"".to_vec()),
        ];
        assert_eq!(read_headers(&write_headers(&headers)), headers);
    }
}
