//! The rules of an adapter, compiled: what `ingest` runs. Made once, when a provider is registered.

use jiff::tz::Offset;

use super::{
    expr::{Documents, Expr},
    pattern::Pattern,
    pointers::Wanted,
    template::{Condition, Template},
};

#[derive(Debug, Clone)]
pub(crate) struct Rules {
    /// False with `verify = "none"`.
    pub(crate) verify: bool,
    pub(crate) signatures: Vec<Signature>,
    pub(crate) event: Selectors,
    /// The form field that carries the JSON body.
    pub(crate) form_field: Option<String>,
    pub(crate) batch: Option<Batch>,
    pub(crate) handshakes: Vec<Handshake>,
    pub(crate) response: crate::ingest::Answer,
    pub(crate) documents: Documents,
}

/// One way to prove a request.
#[derive(Debug, Clone)]
pub(crate) struct Signature {
    pub(crate) name: String,
    pub(crate) scheme: Scheme,
    pub(crate) sources: Vec<Expr>,
    pub(crate) format: Vec<Pattern>,
    pub(crate) list: Option<String>,
    pub(crate) encoding: Encoding,
    pub(crate) message: Template,
    pub(crate) key: KeyKind,
    pub(crate) timestamp: Option<Expr>,
    pub(crate) timestamp_format: TimeFormat,
    /// Seconds; `None` does not look at the time.
    pub(crate) tolerance: Option<i64>,
    pub(crate) when: Vec<Condition>,
    /// Whether every item of a batch carries its own, and all must hold.
    pub(crate) each: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Hmac(Hash),
    /// A plain hash over a message that contains the secret.
    Hash(Hash),
    Token,
    Basic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hash {
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Hex,
    Base64,
    Base64Url,
}

/// How the key lies in the secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyKind {
    Raw,
    Hex,
    Base64,
    Whsec,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeFormat {
    Unix,
    UnixMs,
    Rfc3339,
    Auto,
}

/// Where an event says what; of each list, the first with a value counts.
#[derive(Debug, Clone)]
pub(crate) struct Selectors {
    pub(crate) id: Vec<Template>,
    /// What tells events apart, where the sender's id does not.
    pub(crate) key: Vec<Template>,
    /// Whether an id comes out of JSON, so that a malformed body explains why there is none.
    pub(crate) id_reads_json: bool,
    pub(crate) kind: Vec<Template>,
    pub(crate) time: Vec<Template>,
    /// Of times without a zone.
    pub(crate) utc_offset: Offset,
    pub(crate) ordering: Vec<Template>,
}

#[derive(Debug, Clone)]
pub(crate) struct Batch {
    pub(crate) items: Vec<ItemPath>,
    pub(crate) when: Vec<Condition>,
}

/// `body:/entry/*/changes/*`: an array, and how to go on from each element.
#[derive(Debug, Clone)]
pub(crate) struct ItemPath {
    pub(crate) array: Expr,
    /// The pointer from each element to the next array; the last one to the item itself.
    pub(crate) steps: Vec<Wanted>,
    /// For each step, the index in `Documents::around` of the elements it starts from, where selectors read them.
    pub(crate) around: Vec<Option<usize>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Handshake {
    pub(crate) method: String,
    pub(crate) when: Vec<Condition>,
    pub(crate) require: Vec<Condition>,
    pub(crate) signed: bool,
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) body: Template,
    pub(crate) headers: Vec<(String, Template)>,
    pub(crate) refuse: u16,
}

impl Signature {
    /// Whether `format` captures the time.
    pub(crate) fn captures_time(&self) -> bool {
        self.format
            .iter()
            .any(|pattern| pattern.names().any(|name| name == "timestamp"))
    }
}
