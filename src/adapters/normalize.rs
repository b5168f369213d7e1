//! `[normalize]`: the sender's words for payments, mapped to common ones. Compiled apart from the rules of a request,
//! because it reads what is stored, long after the request is gone.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de};
use toml::Spanned;

use super::{
    compile::{Compiled, RuleError},
    expr::{Doc, Documents, Expr},
    manifest::{Manifest, OneOrMany, Text, Texts},
    parser::{Allowed, Parser},
    template::{Part, Template},
};
use crate::domain::decimals;

/// What a payment event is commonly called.
const COMMON: [&str; 5] = [
    "payment.created",
    "payment.succeeded",
    "payment.failed",
    "payment.refunded",
    "payment.disputed",
];

/// The table as it is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NormalizeTable {
    /// What the patterns of `types` are matched against; the event type where absent.
    #[serde(rename = "match")]
    subject: Option<Texts>,
    unit: Option<Text>,
    amount: Option<Texts>,
    currency: Option<Texts>,
    reference: Option<Texts>,
    customer: Option<Texts>,
    occurred_at: Option<Texts>,
    #[serde(default)]
    decimals: BTreeMap<String, u32>,
    types: BTreeMap<Spanned<String>, Target>,
}

/// A common name, or a table that sets fields for these types alone.
#[derive(Debug, Clone, Default)]
struct Target {
    common: Option<String>,
    fields: TargetFields,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetFields {
    #[serde(rename = "type")]
    common: Option<String>,
    unit: Option<String>,
    amount: Option<OneOrMany>,
    currency: Option<OneOrMany>,
    reference: Option<OneOrMany>,
    customer: Option<OneOrMany>,
    occurred_at: Option<OneOrMany>,
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Target;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a common name, or a table")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Target, E> {
                Ok(Target {
                    common: Some(text.to_owned()),
                    fields: TargetFields::default(),
                })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Target, A::Error> {
                let fields = TargetFields::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(Target {
                    common: fields.common.clone(),
                    fields,
                })
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// How the stored events of an adapter are normalised.
#[derive(Debug)]
pub struct Normalize {
    pub(crate) subject: Vec<Template>,
    /// The first whose pattern matches counts: exact names before patterns, longer patterns before shorter ones.
    pub(crate) types: Vec<TypeRule>,
    /// Decimals of the sender's minor unit, where they are not those of ISO 4217.
    pub(crate) decimals: BTreeMap<String, u32>,
    /// The form field that carries the JSON body.
    pub(crate) form_field: Option<String>,
    pub(crate) documents: Documents,
}

#[derive(Debug)]
pub(crate) struct TypeRule {
    pattern: String,
    /// `None` where the type tells that it is about a payment, but not what became of it.
    pub(crate) common: Option<&'static str>,
    pub(crate) fields: Fields,
}

/// Of each list, the first with a value counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields {
    /// Whether amounts are in the major unit, such as `10.50`.
    pub(crate) major: bool,
    pub(crate) amount: Vec<Template>,
    pub(crate) currency: Vec<Template>,
    pub(crate) reference: Vec<Template>,
    pub(crate) customer: Vec<Template>,
    pub(crate) occurred_at: Vec<Template>,
}

impl Normalize {
    /// The rule for a subject.
    pub(crate) fn rule(&self, subject: &str) -> Option<&TypeRule> {
        self.types.iter().find(|rule| matches(&rule.pattern, subject))
    }

    /// The common names that it can give.
    #[cfg(test)]
    pub(crate) fn common_names(&self) -> impl Iterator<Item = &'static str> {
        self.types.iter().filter_map(|rule| rule.common)
    }
}

/// Compiles `[normalize]`, where there is one.
pub(crate) fn normalize(manifest: &Manifest) -> Compiled<Option<Normalize>> {
    let Some(table) = &manifest.normalize else {
        return Ok(None);
    };
    let mut parser = Parser::default();
    let base = Fields {
        major: match &table.unit {
            Some(text) => major(text.get_ref()).map_err(|message| at(text, "unit", message))?,
            None => false,
        },
        amount: list(&mut parser, "amount", table.amount.as_ref())?,
        currency: list(&mut parser, "currency", table.currency.as_ref())?,
        reference: list(&mut parser, "reference", table.reference.as_ref())?,
        customer: list(&mut parser, "customer", table.customer.as_ref())?,
        occurred_at: list(&mut parser, "occurred_at", table.occurred_at.as_ref())?,
    };
    let mut subject = list(&mut parser, "match", table.subject.as_ref())?;
    if subject.is_empty() {
        subject.push(Template(vec![Part::Value(Expr::Capture("type".into()))]));
    }
    let mut types = Vec::with_capacity(table.types.len());
    for (pattern, target) in &table.types {
        let rule = type_rule(&mut parser, pattern.get_ref(), target, &base);
        types.push(rule.map_err(|message| at(pattern, &format!("types.{}", pattern.get_ref()), message))?);
    }
    types.sort_by_key(|rule| (rule.pattern.contains('*'), std::cmp::Reverse(rule.pattern.len())));
    if let Some(code) = table.decimals.keys().find(|code| decimals(code).is_none()) {
        return Err(RuleError {
            span: 0..0,
            key: format!("normalize.decimals.{code}"),
            message: "expected a currency of ISO 4217".into(),
        });
    }
    Ok(Some(Normalize {
        subject,
        types,
        decimals: table.decimals.clone(),
        form_field: manifest.body.form_field.clone(),
        documents: parser.documents,
    }))
}

fn type_rule(parser: &mut Parser, pattern: &str, target: &Target, base: &Fields) -> Result<TypeRule, String> {
    let common = match &target.common {
        Some(name) => Some(
            *COMMON
                .iter()
                .find(|known| *known == name)
                .ok_or_else(|| format!("`{name}` is no common name; one of {}", COMMON.join(", ")))?,
        ),
        None => None,
    };
    let own = &target.fields;
    let mut pick = |own: &Option<OneOrMany>, base: &[Template]| match own {
        Some(texts) if texts.0 == ["none"] => Ok(Vec::new()),
        Some(texts) => texts.0.iter().map(|text| value(parser, text)).collect(),
        None => Ok(base.to_vec()),
    };
    Ok(TypeRule {
        pattern: pattern.to_owned(),
        common,
        fields: Fields {
            major: own.unit.as_deref().map_or(Ok(base.major), major)?,
            amount: pick(&own.amount, &base.amount)?,
            currency: pick(&own.currency, &base.currency)?,
            reference: pick(&own.reference, &base.reference)?,
            customer: pick(&own.customer, &base.customer)?,
            occurred_at: pick(&own.occurred_at, &base.occurred_at)?,
        },
    })
}

fn major(unit: &str) -> Result<bool, String> {
    match unit {
        "minor" => Ok(false),
        "major" => Ok(true),
        other => Err(format!("expected `minor` (cents) or `major` (10.50), found `{other}`")),
    }
}

fn list(parser: &mut Parser, key: &str, texts: Option<&Texts>) -> Compiled<Vec<Template>> {
    let Some(texts) = texts else {
        return Ok(Vec::new());
    };
    let values = texts.get_ref().0.iter().map(|text| value(parser, text));
    values
        .collect::<Result<_, _>>()
        .map_err(|message| at(texts, key, message))
}

/// A selector that reads nothing but what is stored; or a currency, written out.
fn value(parser: &mut Parser, text: &str) -> Result<Template, String> {
    if decimals(text).is_some() {
        return Ok(Template(vec![Part::Literal(text.to_owned())]));
    }
    let captures = ["type".to_owned()];
    let template = parser.selector(
        text,
        Allowed {
            captures: &captures,
            ..Allowed::default()
        },
    )?;
    match template.exprs().into_iter().all(is_stored) {
        true => Ok(template),
        false => Err(format!(
            "`{text}` is not stored with the event; expected body:/pointer, key_of:…, header:Name, form:name or type"
        )),
    }
}

fn is_stored(expr: &Expr) -> bool {
    match expr {
        Expr::Body | Expr::Header(_) | Expr::Form(_) | Expr::Capture(_) => true,
        Expr::Json { doc, .. } | Expr::KeyOf { doc, .. } => matches!(doc, Doc::Body | Doc::Form(_)),
        Expr::Call(_, inner) => is_stored(inner),
        _ => false,
    }
}

fn at<T>(place: &Spanned<T>, key: &str, message: String) -> RuleError {
    RuleError {
        span: place.span(),
        key: format!("normalize.{key}"),
        message,
    }
}

/// Whether a text is like a pattern, in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((before, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut left) = text.strip_prefix(before) else {
        return false;
    };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match left.split_once(part) {
            Some((_, after)) => left = after,
            None => return false,
        }
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::{super::Adapter, *};

    #[test]
    fn patterns_match_as_globs_do() {
        for (pattern, text, expected) in [
            ("a.b", "a.b", true),
            ("a.b", "a.bc", false),
            ("a.*", "a.", true),
            ("*.b", "x.y.b", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("a*a", "a", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        let problem = |lines: &str| {
            let manifest = format!("title='t'\nverify='none'\n[normalize]\n{lines}");
            match Adapter::parse("p", &manifest) {
                Ok(_) => "fine".to_owned(),
                Err(error) => error.to_string(),
            }
        };
        for (lines, expected) in [
            (
                "currency=['body:/c','BRL']\ntypes={a='payment.failed','b.*'={amount='body:/x',unit='major'}}",
                "fine",
            ),
            ("types={a='payment.lost'}", "is no common name"),
            ("types={a={type='payment.failed',unit='cents'}}", "expected `minor`"),
            ("types={a={kind='payment.failed'}}", "unknown field"),
            (
                "amount='query:x'\ntypes={}",
                "`normalize.amount`: `query:x` is not stored",
            ),
            ("amount='config:x'\ntypes={}", "is not stored"),
            ("amount='item:/x'\ntypes={}", "item:"),
            ("currency='BTC'\ntypes={}", "no expression"),
            ("decimals={BTC=8}\ntypes={}", "ISO 4217"),
            ("amount='body:/x'", "types"),
        ] {
            let text = problem(lines);
            assert!(text.contains(expected), "{lines}: {text}");
        }
    }
}
