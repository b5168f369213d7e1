//! Texts of a backfill with places for the values of an item.

use super::backfill::Pointer;
use crate::json::parse_pointer;

/// A text with places to fill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pieces(pub(crate) Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    /// An option of the registered provider.
    Config(String),
    /// The exact bytes of the item.
    Item,
    /// A value of the item.
    At(Pointer),
}

impl Pieces {
    /// The options of the provider that it needs.
    pub(crate) fn options(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Config(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// Braces that are none of ours stand for themselves, because bodies are JSON.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            plain.push_str(&rest[..open]);
            rest = &rest[open..];
            let inner = rest[1..].split('}').next().unwrap_or_default();
            let piece = match inner.split_once(':') {
                None if inner == "item" => Piece::Item,
                Some(("item", pointer)) => Piece::At(parse_pointer(pointer)?),
                Some(("config", name)) if !name.is_empty() => Piece::Config(name.to_owned()),
                _ => {
                    plain.push('{');
                    rest = &rest[1..];
                    continue;
                }
            };
            if rest.len() < inner.len() + 2 {
                return Err(format!("`{rest}` is not closed"));
            }
            rest = &rest[inner.len() + 2..];
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(piece);
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self(pieces))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_from_the_braces_of_json() {
        let parsed =
            Pieces::parse(r#"{"event":"X","id":"{item:/id}","payment":{item},"shop":"{config:shop}"}"#).unwrap();
        assert_eq!(
            parsed.0,
            [
                Piece::Text(r#"{"event":"X","id":""#.into()),
                Piece::At(vec!["id".into()]),
                Piece::Text(r#"","payment":"#.into()),
                Piece::Item,
                Piece::Text(r#","shop":""#.into()),
                Piece::Config("shop".into()),
                Piece::Text("\"}".into()),
            ]
        );
        assert!(Pieces::parse("{item:id}").is_err());
        assert!(Pieces::parse("x{item:/id").is_err());
    }
}
