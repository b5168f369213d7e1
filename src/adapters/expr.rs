//! Expressions: one value of a request. Read by `parser` when an adapter is loaded, evaluated by `ingest`.

use crate::json::Wanted;

/// Where one value is read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expr {
    Body,
    /// A place in a JSON document, by slot.
    Json {
        doc: Doc,
        slot: usize,
    },
    /// The first of these names that is a key, each with the slot that tells.
    KeyOf {
        doc: Doc,
        names: Vec<(String, usize)>,
    },
    Header(String),
    Query(String),
    Form(String),
    FormSorted,
    /// All form fields but these, sorted by name, as `name=value` joined by `&`.
    FormPairs(Vec<String>),
    /// The present item of a batch, its exact bytes.
    Item,
    /// A value that no other request has.
    RequestId,
    /// The values of `Name-1` to `Name-100`, each a candidate; the text before the number.
    Numbered(String),
    /// All form fields but this one, sorted by name, as PHP serialises them.
    FormPhp(String),
    /// The headers that a header names, as `name:value`, joined by `;`.
    Headers(String),
    Url,
    UrlWithPort,
    /// Without the query.
    UrlBase,
    Path,
    QueryString,
    Host,
    Method,
    /// What `format` or `timestamp` captured, by name.
    Capture(String),
    Secret,
    /// The first part of a secret that is a pair.
    SecretId,
    Config(String),
    /// The canonical request of Atlassian Connect, hashed.
    Qsh,
    /// The URL and fields as Plivo signs them.
    PlivoUrl,
    /// A place in a JSON text.
    At(Box<Wanted>, Box<Self>),
    /// The headers that a list names, each a line `Name: value`.
    HeaderLines(Box<Self>),
    /// The values of the headers that a list names, joined by `.`.
    HeaderValues(Box<Self>),
    /// Several values, one after the other.
    Join(Vec<Self>),
    /// The first that has a value which is not empty.
    First(Vec<Self>),
    /// Several values, sorted, one after the other.
    Sorted(Vec<Self>),
    /// An XML text as JSON; the names that are always lists.
    Xml(Vec<String>, Box<Self>),
    /// The text that `[decrypt]` gives, of its source or of another ciphertext.
    Decrypted,
    Decrypt(Box<Self>),
    Call(Function, Box<Self>),
}

/// The JSON documents of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doc {
    /// The body, or the form field that carries it.
    Body,
    /// The present item of a batch.
    Item,
    /// The JSON text in a form field, by index in [`Documents::forms`].
    Form(usize),
    /// The claims of the token that the request was proved by.
    Claims,
    /// The element that the present item lies in, by index in [`Documents::around`].
    Around(usize),
}

/// What is done to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    Lower,
    Upper,
    Trim,
    Sha1,
    Sha256,
    HmacSha1,
    HmacSha256,
    Base64,
    Unbase64,
    Unhex,
    UrlDecode,
    UrlEncode,
    Json,
    Crc32,
    Requery,
}

/// The pointers that an adapter wants of each document.
#[derive(Debug, Clone, Default)]
pub(crate) struct Documents {
    pub(crate) body: Wanted,
    pub(crate) item: Wanted,
    pub(crate) claims: Wanted,
    pub(crate) forms: Vec<(String, Wanted)>,
    /// By the pointer to the element, up to its `*`.
    pub(crate) around: Vec<(Vec<String>, Wanted)>,
}

impl Expr {
    /// Whether the value comes out of a JSON document.
    pub(crate) fn reads_json(&self) -> bool {
        match self {
            Self::Json { .. } | Self::KeyOf { .. } | Self::Item => true,
            other => other.inner().iter().any(Self::reads_json),
        }
    }

    /// Whether this, or what it wraps, is such an expression.
    pub(crate) fn any(&self, is: &dyn Fn(&Self) -> bool) -> bool {
        is(self) || self.inner().iter().any(|inner| inner.any(is))
    }

    /// What it wraps.
    pub(crate) fn inner(&self) -> &[Self] {
        match self {
            Self::Call(_, inner)
            | Self::At(_, inner)
            | Self::HeaderLines(inner)
            | Self::HeaderValues(inner)
            | Self::Xml(_, inner)
            | Self::Decrypt(inner) => std::slice::from_ref(inner),
            Self::Join(parts) | Self::First(parts) | Self::Sorted(parts) => parts,
            _ => &[],
        }
    }
}
