//! `format` patterns: how a signature is written where it is found.

use std::ops::Range;

use super::parser::is_name;

/// Literals and names in turn, such as `t={timestamp}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern(pub(crate) Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Literal(String),
    /// The name of an authentication scheme, in any case.
    Word(String),
    Name(String),
}

impl Pattern {
    /// The signature and nothing else.
    pub(crate) fn signature() -> Self {
        Self(vec![Piece::Name("signature".into())])
    }

    /// Reads a pattern.
    ///
    /// # Errors
    /// A sentence that says what was expected.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let (mark, after) = rest[at..].split_at(1);
            rest = after;
            if let Some(after_double) = after.strip_prefix(mark) {
                literal.push_str(mark);
                rest = after_double;
                continue;
            }
            let Some((name, after)) = rest.split_once('}').filter(|(name, _)| mark == "{" && is_name(name)) else {
                return Err(format!(
                    "expected a name in braces, such as `{{signature}}`, in `{text}`"
                ));
            };
            if literal.is_empty() && !pieces.is_empty() {
                return Err(format!("expected text between two names in `{text}`"));
            }
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            pieces.push(Piece::Name(name.to_owned()));
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        Ok(Self(pieces))
    }

    /// For `Authorization: Bearer …`: the scheme's name is in any case (RFC 9110, 11.1).
    pub(crate) fn with_scheme_name(mut self) -> Self {
        if let Some(first @ Piece::Literal(_)) = self.0.first_mut()
            && let Piece::Literal(text) = &*first
            && let Some(name) = text.strip_suffix(' ')
            && !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphabetic())
        {
            *first = Piece::Word(text.clone());
        }
        self
    }

    /// Matches the whole of `text`; calls `capture` with each name and where its value lies. A value is never empty,
    /// and ends where the text after it first occurs.
    pub(crate) fn matches<'p>(&'p self, text: &[u8], mut capture: impl FnMut(&'p str, Range<usize>)) -> bool {
        let mut at = 0;
        let mut pieces = self.0.iter().peekable();
        while let Some(piece) = pieces.next() {
            match piece {
                Piece::Literal(literal) => {
                    if !text[at..].starts_with(literal.as_bytes()) {
                        return false;
                    }
                    at += literal.len();
                }
                Piece::Word(word) => {
                    let begins = text.get(at..at + word.len());
                    if !begins.is_some_and(|begins| begins.eq_ignore_ascii_case(word.as_bytes())) {
                        return false;
                    }
                    at += word.len();
                }
                Piece::Name(name) => {
                    let end = match pieces.peek() {
                        Some(Piece::Literal(next)) => find(&text[at..], next.as_bytes()).map(|n| at + n),
                        _ => Some(text.len()),
                    };
                    match end {
                        Some(end) if end > at => capture(name, at..end),
                        _ => return false,
                    }
                    at = end.unwrap_or(at);
                }
            }
        }
        at == text.len()
    }

    /// The captured names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Name(name) => Some(name.as_str()),
            Piece::Literal(_) | Piece::Word(_) => None,
        })
    }

    /// Writes the pattern with values for its names.
    pub(crate) fn render(&self, mut value: impl FnMut(&str) -> String) -> String {
        self.0
            .iter()
            .map(|piece| match piece {
                Piece::Literal(text) | Piece::Word(text) => text.clone(),
                Piece::Name(name) => value(name),
            })
            .collect()
    }
}

fn find(text: &[u8], needle: &[u8]) -> Option<usize> {
    text.windows(needle.len()).position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captures(pattern: &str, text: &str) -> Option<Vec<(String, String)>> {
        let mut found = Vec::new();
        Pattern::parse(pattern)
            .unwrap()
            .matches(text.as_bytes(), |name, range| {
                found.push((name.to_owned(), text[range].to_owned()));
            })
            .then_some(found)
    }

    #[test]
    fn the_whole_text_must_match() {
        assert_eq!(captures("sha256={signature}", "sha256=ab").unwrap()[0].1, "ab");
        assert_eq!(captures("sha256={signature}", "sha1=ab"), None);
        assert_eq!(captures("sha256={signature}", "sha256="), None);
        assert_eq!(captures("{a}.{b}", "1.2.3").unwrap()[1].1, "2.3");
        assert_eq!(captures("({a})", "(1"), None);
        assert_eq!(captures("({a})", "(1)2"), None);
    }

    #[test]
    fn the_name_of_a_scheme_has_no_case() {
        let pattern = |text: &str| Pattern::parse(text).unwrap().with_scheme_name();
        for (text, value, fits) in [
            ("Bearer {a}", "bearer x", true),
            ("Bearer {a}", "BEARER x", true),
            ("Bearer {a}", "Bearerx", false),
            ("Bearer {a}", "Bea", false),
            ("v1= {a}", "V1= x", false),
            ("sha={a}", "SHA=x", false),
        ] {
            assert_eq!(
                pattern(text).matches(value.as_bytes(), |_, _| ()),
                fits,
                "{text} {value}"
            );
        }
    }

    #[test]
    fn mistakes_are_named() {
        assert!(Pattern::parse("{a}{b}").unwrap_err().contains("between two names"));
        assert!(Pattern::parse("{A}").unwrap_err().contains("expected a name"));
        assert!(Pattern::parse("a}").is_err());
    }
}
