//! Bytes to events: verify, then identify. Pure: the request, the provider, its secrets and `now` go in, events or a
//! rejection come out. No I/O, no clock, no async, so that every provider is tested without a server.

mod batch;
mod candidate;
mod canonical;
mod causes;
mod envelope;
mod examine;
mod explain;
mod fetched;
mod fill;
pub(crate) mod form;
mod functions;
mod handshake;
mod http_text;
mod identify;
mod jwt;
mod make_vectors;
mod multipart;
mod normalize;
mod oracle;
mod place;
mod scope;
mod sign;
mod sign_jwt;
mod spoil;
mod time;
mod url;
mod vectors;
mod verify;
mod xml;

pub use examine::{Finding, examine};
pub use explain::{Mark, Step, explain};
pub use http_text::{HttpTextError, OwnedRequest};
pub use make_vectors::{BASIS, MadeVector, MakeError, make_vectors};
pub use normalize::{Normalized, Original};
pub use sign::{Bad, SignError, sign};
pub use vectors::{VectorError, VectorEvent, VectorResult, run_vectors, try_vectors};

use std::{borrow::Cow, fmt};

use jiff::Timestamp;
use secrecy::SecretString;

use self::scope::Scope;
use crate::{
    adapters::Provider,
    domain::{Answer, RawRequest},
};

/// Verifies and reads one request.
///
/// # Errors
/// A [`Rejection`] says why the request is not taken, and with which status it is answered.
pub fn ingest<'a>(provider: &Provider, request: &RawRequest<'a>, now: Timestamp) -> Result<Ingested<'a>, Rejection> {
    let scope = Scope::new(provider, *request, now);
    if let Some(handshake) = handshake::answer(&scope, false)? {
        return Ok(handshake);
    }
    let verified = verify::verify(&scope)?;
    scope.keep_secret(verified.secret);
    verify::bound(&scope)?;
    if let Some(handshake) = handshake::answer(&scope, true)? {
        return Ok(handshake);
    }
    let events = identify::identify(&scope)?;
    Ok(Ingested::Events { events, verified })
}

/// Reads the events of a request that is vouched for in another way than by its signature: fetched from the sender's own
/// API, or let in by a person.
///
/// # Errors
/// As [`ingest`], for what cannot be read.
pub fn read<'a>(
    provider: &Provider,
    request: &RawRequest<'a>,
    now: Timestamp,
) -> Result<Vec<Identified<'a>>, Rejection> {
    identify::identify(&Scope::new(provider, *request, now))
}

/// A time as senders write it: RFC 3339, date and time in UTC, or a number of seconds or milliseconds.
#[must_use]
pub fn read_time(text: &[u8]) -> Option<Timestamp> {
    time::event(text, jiff::tz::Offset::UTC)
}

/// What a request turned out to be.
#[derive(Debug)]
pub enum Ingested<'a> {
    /// Authentic, and these are its events: one, several (a batch) or none (an empty batch).
    Events {
        events: Vec<Identified<'a>>,
        verified: Verified,
    },
    /// An ownership challenge; answered and not stored.
    Handshake {
        answer: Answer,
        /// The secret that the sender hands over. It must be on disk before the answer is given.
        keep: Option<SecretString>,
        /// The status of the answer where the secret is not taken.
        refuse: u16,
        confirm: Option<Confirm>,
    },
}

/// A URL that must be called before the sender sends events. Its host is one that the adapter names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confirm {
    pub url: String,
    /// Whether we call it; a person must, where not.
    pub call: bool,
}

/// How the request was proved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Index of the signature rule of the adapter; `None` with `verify = "none"`.
    pub signature: Option<usize>,
    /// Index of the secret that matched, so that an old one can be seen to be out of use.
    pub secret: Option<usize>,
}

/// One event as the adapter's selectors read it.
#[derive(Debug, PartialEq, Eq)]
pub struct Identified<'a> {
    /// Unique within the provider: what the sender says, or what the adapter's `key` makes of it.
    pub id: String,
    /// The sender's own id, where it alone does not tell events apart and `id` is made of more.
    pub sender_id: Option<String>,
    pub event_type: Option<String>,
    pub occurred_at: Option<Timestamp>,
    pub ordering_key: Option<String>,
    /// What of the whole request is kept with an item of a batch, by the name of the header that it is stored as.
    pub kept: Vec<(String, String)>,
    /// The whole body, or the exact bytes of the item. Borrowed from the request wherever it can be.
    pub payload: Cow<'a, [u8]>,
}

impl Identified<'_> {
    /// The stored headers of the request, a JSON object of texts, with what is kept of it in addition.
    #[must_use]
    pub fn headers(&self, stored: &str) -> String {
        if self.kept.is_empty() {
            return stored.to_owned();
        }
        let mut all: serde_json::Map<String, serde_json::Value> = serde_json::from_str(stored).unwrap_or_default();
        let kept = self.kept.iter();
        all.extend(kept.map(|(name, value)| (name.clone(), value.as_str().into())));
        serde_json::Value::Object(all).to_string()
    }
}

/// Why a request is refused. A closed list: each has one label for metrics and one status.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rejection {
    MissingSignature,
    MalformedSignature,
    WrongSignature,
    /// The signature holds, and is one that this endpoint gives to whoever asks, as the answer to a challenge.
    AnsweredChallenge,
    MissingTimestamp,
    /// The signed time is this many seconds old, which the tolerance does not allow.
    Stale {
        seconds: i64,
    },
    /// The signed time is this many seconds ahead, which the tolerance does not allow.
    Future {
        seconds: i64,
    },
    /// The request is signed with a key that is not at hand. It is neither proved nor refuted: the sender is to come
    /// again, after the key at this URL was fetched ([`Provider::want_key`]).
    CannotVerifyNow {
        url: String,
    },
    /// The request names a key that is not one of the sender's.
    UntrustedKey,
    /// The body is encrypted, and no key of ours opens it. One answer for all that can be wrong with a ciphertext.
    CannotDecrypt,
    /// A token is genuine, but what it claims is not what it must: the condition that does not hold.
    WrongClaim(String),
    /// Genuine, but for another customer of the sender: the condition that does not hold.
    WrongRecipient(String),
    /// A handshake whose conditions do not hold.
    Handshake {
        status: u16,
    },
    /// Authentic, but not what the adapter reads.
    MalformedBody(String),
    /// Authentic, but no selector found an event id.
    MissingId,
}

impl Rejection {
    /// The status of the answer: 401 when unproved, 400 when authentic but unreadable, 503 when it cannot be known.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::MalformedBody(_) | Self::MissingId => 400,
            Self::Handshake { status } => *status,
            Self::CannotVerifyNow { .. } => 503,
            _ => 401,
        }
    }

    /// Whether the sender is proved, and only what was sent cannot be read.
    #[must_use]
    pub fn is_authentic(&self) -> bool {
        matches!(self, Self::MalformedBody(_) | Self::MissingId)
    }

    /// A short constant name, for metrics and quarantine.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::MissingSignature => "missing_signature",
            Self::MalformedSignature => "malformed_signature",
            Self::WrongSignature => "wrong_signature",
            Self::AnsweredChallenge => "answered_challenge",
            Self::MissingTimestamp => "missing_timestamp",
            Self::Stale { .. } => "stale",
            Self::Future { .. } => "future",
            Self::CannotVerifyNow { .. } => "cannot_verify_now",
            Self::UntrustedKey => "untrusted_key",
            Self::CannotDecrypt => "cannot_decrypt",
            Self::WrongClaim(_) => "wrong_claim",
            Self::WrongRecipient(_) => "wrong_recipient",
            Self::Handshake { .. } => "handshake_refused",
            Self::MalformedBody(_) => "malformed_body",
            Self::MissingId => "missing_id",
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingSignature => write!(f, "the request carries no signature"),
            Self::MalformedSignature => write!(f, "the signature is not of the expected form"),
            Self::WrongSignature => write!(f, "no secret gives this signature for these bytes"),
            Self::AnsweredChallenge => {
                write!(
                    f,
                    "what is signed is what this endpoint signs for whoever asks, as a challenge"
                )
            }
            Self::MissingTimestamp => write!(f, "the signed time is missing or unreadable"),
            Self::Stale { seconds } => write!(f, "the signed time is too old: {seconds} s"),
            Self::Future { seconds } => write!(f, "the signed time is too far ahead: {seconds} s"),
            Self::CannotVerifyNow { url } => write!(f, "the sender's key is not at hand; it is at {url}"),
            Self::UntrustedKey => write!(f, "the request names a key that is not one of the sender's"),
            Self::CannotDecrypt => write!(f, "no key of this provider decrypts the body"),
            Self::WrongClaim(condition) => write!(f, "the token is genuine, but `{condition}` does not hold"),
            Self::WrongRecipient(condition) => {
                write!(
                    f,
                    "genuine, but not for this endpoint, or changed on its way: `{condition}` does not hold"
                )
            }
            Self::Handshake { .. } => {
                write!(f, "the ownership challenge was not for this endpoint")
            }
            Self::MalformedBody(what) => {
                write!(f, "the body is not what the adapter reads: {what}")
            }
            Self::MissingId => write!(f, "no selector of the adapter found an event id"),
        }
    }
}

impl std::error::Error for Rejection {}

#[cfg(test)]
mod changed_tests;
#[cfg(test)]
mod envelope_tests;
#[cfg(test)]
mod event_tests;
#[cfg(test)]
mod examine_tests;
#[cfg(test)]
mod explain_tests;
#[cfg(test)]
mod identity_tests;
#[cfg(test)]
mod jwe_tests;
#[cfg(test)]
mod language_tests;
#[cfg(test)]
mod mutation_tests;
#[cfg(test)]
mod normalize_tests;
#[cfg(test)]
mod provider_tests;
#[cfg(test)]
mod public_tests;
#[cfg(test)]
pub(crate) mod suite_tests;
#[cfg(test)]
mod tests;
