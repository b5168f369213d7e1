//! What a signature may leave open, in words and sentences.

use std::fmt;

/// One thing that a signature does not cover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gap {
    /// Nothing is signed: the secret itself is sent along.
    Everything,
    /// Nothing of the body is signed.
    Body,
    /// Only the fields that the message names.
    Fields,
    /// The body counts by a checksum that is no cryptographic hash.
    Checksum,
    /// The event id is read from a place that is not signed.
    Id(Place),
    /// The event type is read from a place that is not signed.
    Type(Place),
    /// No time is signed.
    NoTime,
    /// A time is judged that is not signed.
    FreeTime,
    /// A time is signed, and no tolerance is set.
    AnyTime,
}

/// A header or parameter that is read and not signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// As in a manifest: `header:X-Name`.
    pub expr: String,
    /// Whether a request may list it among the headers that it signs.
    pub listed: bool,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.listed {
            true => write!(f, "`{}`, where a request does not list it as signed", self.expr),
            false => write!(f, "`{}`", self.expr),
        }
    }
}

/// What one rule leaves open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uncovered {
    /// The names of the rules of which this holds.
    pub rules: Vec<String>,
    /// What is signed, as the manifest writes it; empty where it is the body, or nothing.
    pub message: String,
    pub gaps: Vec<Gap>,
    /// Conditions that tie what is not signed to what is.
    pub bound: Vec<String>,
}

impl Gap {
    /// In a word or two, for tables.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Everything => "everything",
            Self::Body => "body",
            Self::Fields => "most of the body",
            Self::Checksum => "body (a checksum only)",
            Self::Id(_) => "id",
            Self::Type(_) => "type",
            Self::NoTime | Self::FreeTime | Self::AnyTime => "time",
        }
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str(
                "nothing of a request is signed: the secret itself is sent along, so whoever sees one request can send any other",
            ),
            Self::Body => f.write_str(
                "the body is not signed: whoever sees one request can send it with another body. Ask the sender's API before \
                 you act on what it says",
            ),
            Self::Fields => f.write_str("of the body only the fields in what is signed are proved"),
            Self::Checksum => f.write_str(
                "the body counts by its CRC-32 only, which is no cryptographic hash: another body can be made to fit",
            ),
            Self::Id(from) => write!(
                f,
                "the event id ({from}) is not signed: whoever sees one request can send it again as a new event"
            ),
            Self::Type(from) => write!(
                f,
                "the event type ({from}) is not signed: whoever sees one request can send it again as another type"
            ),
            Self::NoTime => f.write_str(
                "no time is signed: a request that was seen stays valid for as long as the secret does. With the same id it is \
                 stored once",
            ),
            Self::FreeTime => f.write_str("the time that is judged is not signed, so a request that was seen can be given another"),
            Self::AnyTime => f.write_str(
                "the signed time is not judged (`tolerance = \"none\"`): a request that was seen stays valid for as long as the \
                 secret does. With the same id it is stored once",
            ),
        }
    }
}

impl Uncovered {
    /// Whether what is signed must be shown to say what is not.
    #[must_use]
    pub fn names_fields(&self) -> bool {
        self.gaps
            .iter()
            .any(|gap| matches!(gap, Gap::Body | Gap::Fields | Gap::Checksum))
            && !self.message.is_empty()
    }
}
