//! `adapter.toml` as it is written. Nothing is understood here yet, beyond which keys there are.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Deserializer, de};
use toml::Spanned;

use super::backfill::BackfillTable;
use super::choices::{Choices, Ties};
use super::normalize::NormalizeTable;
use super::sender::Sender;

/// A text that remembers where it stands, for messages.
pub(crate) type Text = Spanned<String>;
/// One text or a list of them.
pub(crate) type Texts = Spanned<OneOrMany>;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    pub(crate) title: String,
    pub(crate) docs: Option<String>,
    pub(crate) verify: Option<Text>,
    pub(crate) bind: Option<Ties>,
    #[serde(default)]
    pub(crate) signature: Vec<SignatureTable>,
    #[serde(default)]
    pub(crate) event: EventTable,
    pub(crate) keys: Option<KeysTable>,
    pub(crate) decrypt: Option<DecryptTable>,
    #[serde(default)]
    pub(crate) body: BodyTable,
    pub(crate) batch: Option<BatchTable>,
    pub(crate) normalize: Option<NormalizeTable>,
    #[serde(default)]
    pub(crate) backfill: Vec<BackfillTable>,
    #[serde(default)]
    pub(crate) handshake: Vec<HandshakeTable>,
    #[serde(default)]
    pub(crate) response: ResponseTable,
    #[serde(default)]
    pub(crate) secret: SecretTable,
    #[serde(default)]
    pub(crate) sender: Sender,
    #[serde(default)]
    pub(crate) setup: SetupTable,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignatureTable {
    pub(crate) name: Option<String>,
    pub(crate) scheme: Text,
    /// Short for `source = "header:…"`.
    pub(crate) header: Option<Text>,
    pub(crate) source: Option<Texts>,
    pub(crate) format: Option<Texts>,
    pub(crate) list: Option<Text>,
    #[serde(default)]
    pub(crate) positional: bool,
    pub(crate) group: Option<Text>,
    pub(crate) encoding: Option<Text>,
    pub(crate) message: Option<Text>,
    pub(crate) key: Option<Texts>,
    pub(crate) algorithms: Option<Texts>,
    pub(crate) claims: Option<Texts>,
    #[serde(default)]
    pub(crate) detached: bool,
    pub(crate) timestamp: Option<Text>,
    pub(crate) timestamp_format: Option<Text>,
    pub(crate) tolerance: Option<Text>,
    pub(crate) when: Option<Texts>,
    #[serde(default)]
    pub(crate) each: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventTable {
    pub(crate) id: Option<Choices>,
    pub(crate) key: Option<Choices>,
    #[serde(rename = "type")]
    pub(crate) kind: Option<Choices>,
    pub(crate) time: Option<Choices>,
    pub(crate) utc_offset: Option<Text>,
    pub(crate) ordering: Option<Choices>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BodyTable {
    pub(crate) form_field: Option<String>,
    /// Whether the sender can send the JSON itself instead.
    #[serde(default)]
    pub(crate) json_instead: bool,
    pub(crate) from: Option<Text>,
    pub(crate) redact: Option<Texts>,
    /// What is stored in place of the bytes received.
    pub(crate) payload: Option<Text>,
}

/// How bodies are encrypted.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DecryptTable {
    pub(crate) source: Text,
    pub(crate) cipher: Text,
    pub(crate) key: Option<Texts>,
    pub(crate) iv: Option<Text>,
    pub(crate) algorithms: Option<Texts>,
    pub(crate) encryption: Option<Texts>,
    pub(crate) frame: Option<usize>,
    pub(crate) envelope: Option<Text>,
}

/// Where keys are fetched.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeysTable {
    pub(crate) url: Text,
    pub(crate) hosts: Option<Texts>,
    pub(crate) format: Text,
    pub(crate) pointer: Option<Text>,
    pub(crate) cache: Option<Text>,
    pub(crate) subject: Option<OneOrMany>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BatchTable {
    pub(crate) items: Texts,
    pub(crate) when: Option<Texts>,
    /// What of the whole is kept with each item, by name.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Text>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HandshakeTable {
    pub(crate) method: Option<Text>,
    pub(crate) when: Option<Texts>,
    pub(crate) require: Option<Texts>,
    pub(crate) signed: Option<bool>,
    pub(crate) keep: Option<Text>,
    pub(crate) confirm: Option<Text>,
    pub(crate) call: Option<Spanned<bool>>,
    pub(crate) hosts: Option<Texts>,
    pub(crate) status: Option<Spanned<u16>>,
    pub(crate) content_type: Option<Text>,
    pub(crate) body: Option<Text>,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Text>,
    pub(crate) refuse: Option<Spanned<u16>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResponseTable {
    pub(crate) status: Option<Spanned<u16>>,
    pub(crate) content_type: Option<Text>,
    pub(crate) body: Option<Text>,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Text>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecretTable {
    pub(crate) hint: Option<String>,
    pub(crate) pattern: Option<Texts>,
    /// Prefixes of what is often registered instead, each with what it is.
    #[serde(default)]
    pub(crate) mistaken: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetupTable {
    #[serde(default)]
    pub(crate) steps: Vec<String>,
}

/// One text, or a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct OneOrMany(pub(crate) Vec<String>);

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = OneOrMany;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of strings")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<OneOrMany, E> {
                Ok(OneOrMany(vec![text.to_owned()]))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<OneOrMany, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = list.next_element()? {
                    texts.push(text);
                }
                if texts.is_empty() {
                    return Err(de::Error::custom("the list is empty"));
                }
                Ok(OneOrMany(texts))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}
