//! Subjects and routing keys with placeholders. What fills a placeholder comes from outside: it can neither add a
//! wildcard nor an empty token, nor leave the place that the template gives it.

use std::fmt::Write as _;

use crate::domain::Claim;

/// Text with `{provider}`, `{type}` and `{handler}` in it, ready to be filled in for any event.
///
/// Dots of a type stay, so that `events.{type}` is one token for each part of `invoice.paid`. Letters, digits, `-` and `_`
/// stay, everything else is percent-encoded; an empty token, or a missing type, becomes `_`.
pub(super) struct Template {
    parts: Vec<Part>,
}

enum Part {
    Text(String),
    Provider,
    Type,
    Handler,
}

impl Template {
    /// Without placeholders a text stands for itself. `key` names the setting in errors.
    ///
    /// # Errors
    /// An unknown placeholder, a brace without its partner, or characters that no broker takes in a name.
    pub(super) fn parse(key: &str, text: &str) -> Result<Self, String> {
        if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(format!("`{key}` must have no spaces or control characters"));
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            let (name, after) = from
                .strip_prefix('{')
                .and_then(|inner| inner.split_once('}'))
                .ok_or_else(|| format!("`{key}` has a brace without its partner"))?;
            parts.push(match name {
                "provider" => Part::Provider,
                "type" => Part::Type,
                "handler" => Part::Handler,
                _ => {
                    return Err(format!(
                        "`{key}`: {{{name}}} is unknown; there are {{provider}}, {{type}} and {{handler}}"
                    ));
                }
            });
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self { parts })
    }

    /// What the template says itself, without what will fill it.
    pub(super) fn literals(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// The text for one event.
    pub(super) fn fill(&self, claim: &Claim) -> String {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Provider => tokens(&claim.event.provider, &mut out),
                Part::Type => tokens(claim.event.event_type.as_deref().unwrap_or_default(), &mut out),
                Part::Handler => tokens(&claim.handler, &mut out),
            }
        }
        out
    }
}

fn tokens(value: &str, out: &mut String) {
    for (index, token) in value.split('.').enumerate() {
        if index > 0 {
            out.push('.');
        }
        if token.is_empty() {
            out.push('_');
        }
        for byte in token.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => out.push(byte.into()),
                _ => {
                    let _ = write!(out, "%{byte:02X}");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::handlers::testing::claim;

    fn fill(template: &str, event_type: Option<&str>) -> String {
        let mut claim = claim("evt_1", &b""[..]);
        Arc::make_mut(&mut claim.event).event_type = event_type.map(Into::into);
        Template::parse("subject", template).unwrap().fill(&claim)
    }

    #[test]
    fn what_comes_from_outside_stays_in_its_place() {
        let all = "in.{provider}.{type}.{handler}";
        for (event_type, expected) in [
            (Some("invoice.paid"), "in.stripe.invoice.paid.h"),
            (None, "in.stripe._.h"),
            (Some(""), "in.stripe._.h"),
            (Some("..a."), "in.stripe._._.a._.h"),
            (Some("*.>"), "in.stripe.%2A.%3E.h"),
            (Some("#"), "in.stripe.%23.h"),
            (Some("a b\r\nPUB x 1"), "in.stripe.a%20b%0D%0APUB%20x%201.h"),
            (Some("$JS/ação%"), "in.stripe.%24JS%2Fa%C3%A7%C3%A3o%25.h"),
        ] {
            assert_eq!(fill(all, event_type), expected, "{event_type:?}");
        }
        assert_eq!(fill("plain", Some("x")), "plain");
        assert_eq!(fill("", Some("x")), "");
    }

    #[test]
    fn mistakes_are_explained() {
        for (bad, expected) in [
            ("a b", "no spaces"),
            ("a\u{0}", "no spaces or control"),
            ("{id}", "{id} is unknown"),
            ("{provider", "without its partner"),
            ("provider}", "without its partner"),
        ] {
            let error = Template::parse("subject", bad).err().unwrap();
            assert!(
                error.starts_with("`subject`") && error.contains(expected),
                "{bad}: {error}"
            );
        }
    }
}
