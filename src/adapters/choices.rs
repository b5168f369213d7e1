//! What a key of `[event]` takes, as it is written: a text, a table, or a list of these.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, value::MapAccessDeserializer},
};
use toml::Spanned;

use super::manifest::OneOrMany;

/// One choice or a list of them, and where it stands.
pub(crate) type Choices = Spanned<ChoiceList>;

/// A list of choices; one alone is a list of one.
#[derive(Debug, Clone)]
pub(crate) struct ChoiceList(pub(crate) Vec<Choice>);

/// A value, or one that only counts where conditions hold.
#[derive(Debug, Clone)]
pub(crate) enum Choice {
    Value(String),
    Conditional(Conditional),
}

/// Either `value` (an expression or a template) or `text` (as it is), where `when` holds.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Conditional {
    pub(crate) value: Option<String>,
    pub(crate) text: Option<String>,
    pub(crate) when: OneOrMany,
}

impl Choice {
    /// The expression, template or text, without its conditions.
    pub(crate) fn written(&self) -> &str {
        match self {
            Self::Value(text) => text,
            Self::Conditional(table) => table.value.as_deref().or(table.text.as_deref()).unwrap_or_default(),
        }
    }
}

impl<'de> Deserialize<'de> for Choice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Choice;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, or a table with `value` or `text`, and `when`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Choice, E> {
                Ok(Choice::Value(text.to_owned()))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Choice, A::Error> {
                Conditional::deserialize(MapAccessDeserializer::new(map)).map(Choice::Conditional)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl<'de> Deserialize<'de> for ChoiceList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = ChoiceList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a table, or a list of these")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ChoiceList, E> {
                Ok(ChoiceList(vec![Choice::Value(text.to_owned())]))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<ChoiceList, A::Error> {
                let one = Conditional::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ChoiceList(vec![Choice::Conditional(one)]))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<ChoiceList, A::Error> {
                let mut choices = Vec::new();
                while let Some(choice) = list.next_element()? {
                    choices.push(choice);
                }
                match choices.is_empty() {
                    true => Err(de::Error::custom("the list is empty")),
                    false => Ok(ChoiceList(choices)),
                }
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}
