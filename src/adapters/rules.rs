//! The rules of an adapter, compiled: what `ingest` runs. Made once, when a provider is registered.

use std::collections::BTreeMap;

use jiff::tz::Offset;

use super::{
    decrypt::Decrypt,
    expr::{Documents, Expr},
    fetched::KeySource,
    jwt::JwtAlgorithm,
    pattern::Pattern,
    public_key::Public,
    template::{Condition, Template, Test},
};
use crate::json::Wanted;

#[derive(Debug, Clone)]
pub(crate) struct Rules {
    /// False with `verify = "none"`.
    pub(crate) verify: bool,
    pub(crate) signatures: Vec<Signature>,
    /// What makes a genuine request one for this endpoint.
    pub(crate) bind: Vec<Bind>,
    /// Where keys are fetched, for rules with `key = "fetched"`.
    pub(crate) key_source: Option<KeySource>,
    /// How bodies are encrypted.
    pub(crate) decrypt: Option<Decrypt>,
    pub(crate) event: Selectors,
    /// What carries the JSON that `body:/…` reads, where it is not the body itself.
    pub(crate) body_from: Option<Expr>,
    /// Whether the sender can send JSON in the place of a form.
    pub(crate) json_instead: bool,
    /// What is stored in place of the bytes received.
    pub(crate) payload: Option<Expr>,
    /// Places whose values are not stored.
    pub(crate) redact: Vec<usize>,
    pub(crate) batch: Option<Batch>,
    pub(crate) handshakes: Vec<Handshake>,
    pub(crate) response: crate::domain::Answer,
    pub(crate) documents: Documents,
}

/// What must hold, where `when` does.
#[derive(Debug, Clone)]
pub(crate) struct Bind {
    pub(crate) condition: Condition,
    pub(crate) when: Vec<Condition>,
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
    /// How the secret becomes a key, step by step.
    pub(crate) key: Vec<KeyStep>,
    /// Whether the key is not in the secret, but fetched.
    pub(crate) fetched: bool,
    /// Of a token: what it may be signed with, and what must hold of its claims.
    pub(crate) algorithms: Vec<JwtAlgorithm>,
    pub(crate) claims: Vec<Condition>,
    /// Whether the token comes without its payload, which is `message`.
    pub(crate) detached: bool,
    /// What separates groups of items, each with a time and signatures of its own.
    pub(crate) group: Option<String>,
    /// Whether items are told apart by their place.
    pub(crate) positional: bool,
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
    Public(Public),
    /// A compact JWS.
    Jwt,
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

/// One step from a secret to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyStep {
    Raw,
    Hex,
    Base64,
    Whsec,
    /// A public key that says of itself that it is one.
    Whpk,
    /// What follows the first colon; what stands before it is `secret_id`.
    Pair,
    Nfkd,
    Sha1,
    Sha256,
    /// Without a prefix, where it is there.
    Strip(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeFormat {
    Unix,
    UnixMs,
    Rfc3339,
    /// As in the `Date` header.
    Http,
    Auto,
}

/// Where an event says what; of each list, the first with a value counts.
#[derive(Debug, Clone)]
pub(crate) struct Selectors {
    pub(crate) id: Vec<Selector>,
    /// What tells events apart, where the sender's id does not.
    pub(crate) key: Vec<Selector>,
    /// Whether an id comes out of JSON, so that a malformed body explains why there is none.
    pub(crate) id_reads_json: bool,
    pub(crate) kind: Vec<Selector>,
    pub(crate) time: Vec<Selector>,
    /// Of times without a zone.
    pub(crate) utc_offset: Offset,
    pub(crate) ordering: Vec<Selector>,
}

/// One choice of several.
#[derive(Debug, Clone)]
pub(crate) struct Selector {
    pub(crate) value: Template,
    pub(crate) when: Vec<Condition>,
}

#[derive(Debug, Clone)]
pub(crate) struct Batch {
    pub(crate) items: Vec<ItemPath>,
    pub(crate) when: Vec<Condition>,
    /// What of the whole is kept with each item, by the name of the header that it is stored as.
    pub(crate) headers: Vec<(String, Template)>,
}

/// `body:/entry/*/changes/*`: an array, and how to go on from each element.
#[derive(Debug, Clone)]
pub(crate) struct ItemPath {
    pub(crate) array: Expr,
    /// What separates items in `array`, where it is text and no array.
    pub(crate) separator: Option<u8>,
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
    /// What an answer that nobody need sign for holds the MAC of.
    pub(crate) macs: Vec<(Hash, Expr)>,
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) body: Template,
    pub(crate) headers: Vec<(String, Template)>,
    pub(crate) refuse: u16,
    /// The secret that the sender hands over.
    pub(crate) keep: Option<Template>,
    /// The URL that is to be called, and the hosts it may have.
    pub(crate) confirm: Option<(Template, Vec<String>)>,
    /// Whether we call it, unless the provider says otherwise.
    pub(crate) call: bool,
}

impl Rules {
    /// Without the signatures that an option would bring into play which is not set.
    pub(crate) fn with_options(&self, options: &BTreeMap<String, String>) -> Self {
        let mut rules = self.clone();
        rules.signatures.retain(|rule| !rule.waits(options));
        if !rules.signatures.iter().any(|rule| rule.fetched) {
            rules.key_source = None;
        }
        rules
    }
}

impl Signature {
    /// Whether `when` names an option that is not set.
    pub(crate) fn waits(&self, options: &BTreeMap<String, String>) -> bool {
        self.when
            .iter()
            .any(|condition| match (&condition.expr, &condition.test) {
                (Expr::Config(name), Test::Present) => options.get(name).is_none_or(String::is_empty),
                _ => false,
            })
    }

    /// Whether `format` captures the time.
    pub(crate) fn captures_time(&self) -> bool {
        self.format
            .iter()
            .any(|pattern| pattern.names().any(|name| name == "timestamp"))
    }
}
