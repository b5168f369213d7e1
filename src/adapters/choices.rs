//! What a key takes that may depend on conditions, as it is written: a text, a table, or a list of these.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{self, value::MapAccessDeserializer},
};
use toml::Spanned;

use super::manifest::OneOrMany;

/// One choice or a list of them, and where it stands.
pub(crate) type Choices = Spanned<ListOf<Conditional>>;
/// A value, or one that only counts where conditions hold.
pub(crate) type Choice = TextOr<Conditional>;
/// Conditions of `bind`, and where they stand.
pub(crate) type Ties = Spanned<ListOf<Tie>>;

/// A list of texts and tables; one alone is a list of one.
#[derive(Debug, Clone)]
pub(crate) struct ListOf<T>(pub(crate) Vec<TextOr<T>>);

#[derive(Debug, Clone)]
pub(crate) enum TextOr<T> {
    Text(String),
    Table(T),
}

/// A table beside texts.
pub(crate) trait Table: for<'de> Deserialize<'de> {
    /// What may be written, for messages.
    const EXPECTED: &str;
}

/// Either `value` (an expression or a template) or `text` (as it is), where `when` holds.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Conditional {
    pub(crate) value: Option<String>,
    pub(crate) text: Option<String>,
    pub(crate) when: OneOrMany,
}

/// What must hold where `when` does.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tie {
    pub(crate) require: String,
    pub(crate) when: OneOrMany,
}

impl Table for Conditional {
    const EXPECTED: &str = "a string, or a table with `value` or `text`, and `when`";
}

impl Table for Tie {
    const EXPECTED: &str = "a condition, or a table with `require` and `when`";
}

impl Choice {
    /// The expression, template or text, without its conditions.
    pub(crate) fn written(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Table(table) => table.value.as_deref().or(table.text.as_deref()).unwrap_or_default(),
        }
    }
}

impl<'de, T: Table> Deserialize<'de> for TextOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<T>(PhantomData<T>);

        impl<'de, T: Table> de::Visitor<'de> for Visitor<T> {
            type Value = TextOr<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::EXPECTED)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(TextOr::Text(text.to_owned()))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(TextOr::Table)
            }
        }

        deserializer.deserialize_any(Visitor(PhantomData))
    }
}

impl<'de, T: Table> Deserialize<'de> for ListOf<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<T>(PhantomData<T>);

        impl<'de, T: Table> de::Visitor<'de> for Visitor<T> {
            type Value = ListOf<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}, or a list of these", T::EXPECTED)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(ListOf(vec![TextOr::Text(text.to_owned())]))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let one = T::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ListOf(vec![TextOr::Table(one)]))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = list.next_element()? {
                    texts.push(text);
                }
                match texts.is_empty() {
                    true => Err(de::Error::custom("the list is empty")),
                    false => Ok(ListOf(texts)),
                }
            }
        }

        deserializer.deserialize_any(Visitor(PhantomData))
    }
}
