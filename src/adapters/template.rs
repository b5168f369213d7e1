//! Templates (text with expressions in it) and conditions.

use std::collections::BTreeMap;

use super::{
    expr::Expr,
    parser::{Allowed, Parser},
};

/// Text with expressions in braces, and parts in brackets that drop out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Template(pub(crate) Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Literal(String),
    Value(Expr),
    /// Dropped when an expression in it has no value.
    Optional(Vec<Self>),
}

/// A condition on a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) expr: Expr,
    pub(crate) test: Test,
    /// As it was written, for people.
    pub(crate) text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Test {
    Present,
    Absent,
    Equals(Operand),
    Differs(Operand),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operand {
    Text(String),
    Config(String),
    Template(Template),
}

impl Parser {
    /// Reads a template.
    ///
    /// # Errors
    /// A sentence that says what was expected.
    pub(crate) fn template(&mut self, text: &str, allowed: Allowed<'_>) -> Result<Template, String> {
        let mut parts = Vec::new();
        let mut outer: Option<Vec<Part>> = None;
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}', '[', ']']) {
            push_literal(&mut parts, &rest[..at]);
            let (mark, after) = rest[at..].split_at(1);
            if let Some(after_double) = after.strip_prefix(mark) {
                push_literal(&mut parts, mark);
                rest = after_double;
                continue;
            }
            rest = after;
            match mark {
                "{" => {
                    let Some((inner, after)) = rest.split_once('}') else {
                        return Err(format!("expected `}}` after `{{{rest}` (a literal brace is doubled)"));
                    };
                    parts.push(Part::Value(self.expr(inner, allowed)?));
                    rest = after;
                }
                "[" if outer.is_none() => outer = Some(std::mem::take(&mut parts)),
                "]" if outer.is_some() => {
                    let inner = std::mem::replace(&mut parts, outer.take().unwrap_or_default());
                    parts.push(Part::Optional(inner));
                }
                "[" => {
                    return Err("a part in brackets cannot hold another (a literal bracket is doubled)".into());
                }
                other => {
                    return Err(format!("`{other}` without its beginning (a literal one is doubled)"));
                }
            }
        }
        if outer.is_some() {
            return Err("expected `]` (a literal bracket is doubled)".into());
        }
        push_literal(&mut parts, rest);
        Ok(Template(parts))
    }

    /// Reads what a key of `[event]` takes: a template where there is a brace, else an expression.
    ///
    /// # Errors
    /// A sentence that says what was expected.
    pub(crate) fn selector(&mut self, text: &str, allowed: Allowed<'_>) -> Result<Template, String> {
        match text.contains('{') {
            true => self.template(text, allowed),
            false => Ok(Template(vec![Part::Value(self.expr(text, allowed)?)])),
        }
    }

    /// Reads a condition.
    ///
    /// # Errors
    /// A sentence that says what was expected.
    pub(crate) fn condition(&mut self, text: &str, allowed: Allowed<'_>) -> Result<Condition, String> {
        let (expr, test) = if let Some((expr, operand)) = text.split_once(" == ") {
            (expr, Test::Equals(self.operand(operand, allowed)?))
        } else if let Some((expr, operand)) = text.split_once(" != ") {
            (expr, Test::Differs(self.operand(operand, allowed)?))
        } else if let Some(expr) = text.strip_prefix('!') {
            (expr, Test::Absent)
        } else {
            (text, Test::Present)
        };
        // No name of a place has these; a pointer that nothing answers to would never hold, or always.
        if ["==", "!=", "=!", " = "].iter().any(|sign| expr.contains(sign)) {
            return Err(format!(
                "`{text}`: expected `expression == value` or `expression != value`, with one space on each side"
            ));
        }
        Ok(Condition {
            expr: self.expr(expr, allowed)?,
            test,
            text: text.to_owned(),
        })
    }

    fn operand(&mut self, text: &str, allowed: Allowed<'_>) -> Result<Operand, String> {
        let text = text.trim();
        Ok(match text.strip_prefix("config:") {
            Some(name) => Operand::Config(name.to_owned()),
            None if text.contains('{') => Operand::Template(self.template(text, allowed)?),
            None => Operand::Text(text.to_owned()),
        })
    }
}

fn push_literal(parts: &mut Vec<Part>, text: &str) {
    match parts.last_mut() {
        _ if text.is_empty() => {}
        Some(Part::Literal(last)) => last.push_str(text),
        _ => parts.push(Part::Literal(text.to_owned())),
    }
}

impl Template {
    /// The text, where only literals and options are in it. A part in brackets drops out where its option is not set.
    pub(crate) fn over_options(&self, options: &BTreeMap<String, String>) -> Option<String> {
        fn write(parts: &[Part], options: &BTreeMap<String, String>, text: &mut String) -> Option<()> {
            for part in parts {
                match part {
                    Part::Literal(literal) => text.push_str(literal),
                    Part::Value(Expr::Config(name)) => {
                        text.push_str(options.get(name).filter(|value| !value.is_empty())?);
                    }
                    Part::Value(_) => return None,
                    Part::Optional(inner) => {
                        if inner
                            .iter()
                            .any(|part| matches!(part, Part::Value(expr) if !matches!(expr, Expr::Config(_))))
                        {
                            return None;
                        }
                        let mut optional = String::new();
                        if write(inner, options, &mut optional).is_some() {
                            text.push_str(&optional);
                        }
                    }
                }
            }
            Some(())
        }
        let mut text = String::new();
        write(&self.0, options, &mut text)?;
        Some(text)
    }

    /// The expressions without which there is no text.
    pub(crate) fn required(&self) -> impl Iterator<Item = &Expr> {
        self.0.iter().filter_map(|part| match part {
            Part::Value(expr) => Some(expr),
            Part::Literal(_) | Part::Optional(_) => None,
        })
    }

    /// All expressions in it.
    pub(crate) fn exprs(&self) -> Vec<&Expr> {
        fn gather<'a>(parts: &'a [Part], into: &mut Vec<&'a Expr>) {
            for part in parts {
                match part {
                    Part::Literal(_) => {}
                    Part::Value(expr) => into.push(expr),
                    Part::Optional(inner) => gather(inner, into),
                }
            }
        }
        let mut exprs = Vec::new();
        gather(&self.0, &mut exprs);
        exprs
    }

    /// Whether an expression, or what it wraps, is this one.
    pub(crate) fn uses(&self, wanted: &Expr) -> bool {
        self.exprs().into_iter().any(|expr| expr.any(&|expr| expr == wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> Result<Template, String> {
        let captures = ["timestamp".to_owned()];
        Parser::default().template(
            text,
            Allowed {
                captures: &captures,
                ..Allowed::default()
            },
        )
    }

    #[test]
    fn templates_have_literals_values_and_optional_parts() {
        let parts = template("{{[id:{query:data.id};]ts:{timestamp}[[").unwrap().0;
        assert_eq!(
            parts,
            [
                Part::Literal("{".into()),
                Part::Optional(vec![
                    Part::Literal("id:".into()),
                    Part::Value(Expr::Query("data.id".into())),
                    Part::Literal(";".into())
                ]),
                Part::Literal("ts:".into()),
                Part::Value(Expr::Capture("timestamp".into())),
                Part::Literal("[".into()),
            ]
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (text, word) in [
            ("{body", "expected `}`"),
            ("a}", "without its beginning"),
            ("[a[b]]", "cannot hold another"),
            ("[a", "expected `]`"),
            ("{nonce}", "no expression"),
            ("{secret}", "`secret` is only"),
            ("{lower(body}", "expected `)`"),
            ("{nope(body)}", "no function"),
            ("{hmac_sha256(body)}", "only for answers"),
            ("{item:/a}", "where there is a `[batch]`"),
            ("{header:a b}", "no header name"),
            ("{body:id}", "JSON pointer"),
            ("{key_of:/a}", "expected names"),
        ] {
            let error = template(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
