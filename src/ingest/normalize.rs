//! What an event says in common words: read from what is stored, when someone asks, and never on the way in.

use std::{borrow::Cow, cell::OnceCell, collections::BTreeMap};

use jiff::{Timestamp, tz::Offset};
use serde::Serialize;

use super::{
    form, functions,
    scope::{Document, Value},
    time,
};
use crate::{
    adapters::{Doc, Expr, Fields, Normalize, Part, Template},
    domain::{StoredEvent, decimals, scaled},
};

/// A payment event in words that do not depend on its sender. What the event does not say is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Normalized {
    /// `payment.created`, `payment.succeeded`, `payment.failed`, `payment.refunded` or `payment.disputed`.
    #[serde(rename = "type")]
    pub event_type: Option<&'static str>,
    /// In minor units of the currency, as ISO 4217 has them. Exact, or `None`.
    pub amount: Option<i64>,
    /// Three capital letters.
    pub currency: Option<String>,
    /// The sender's id of the payment.
    pub reference: Option<String>,
    pub customer: Option<String>,
    pub occurred_at: Option<Timestamp>,
}

/// The parts of a stored event that are read.
#[derive(Debug, Clone, Copy)]
pub struct Original<'a> {
    pub event_type: Option<&'a str>,
    pub content_type: Option<&'a str>,
    /// As stored: a JSON object of names in lower case and values.
    pub headers: &'a str,
    pub payload: &'a [u8],
    pub occurred_at: Option<Timestamp>,
}

impl<'a> From<&'a StoredEvent> for Original<'a> {
    fn from(event: &'a StoredEvent) -> Self {
        Self {
            event_type: event.event_type.as_deref(),
            content_type: event.content_type.as_deref(),
            headers: &event.headers,
            payload: &event.payload,
            occurred_at: event.occurred_at,
        }
    }
}

impl Normalize {
    /// Reads one event. `None` where its type is not about a payment, as far as the adapter knows.
    #[must_use]
    pub fn read(&self, event: Original<'_>) -> Option<Normalized> {
        let reader = Reader {
            rules: self,
            event,
            headers: OnceCell::new(),
            body: OnceCell::new(),
            forms: self.documents.forms.iter().map(|_| OnceCell::new()).collect(),
        };
        let rule = self.rule(&reader.first(&self.subject)?)?;
        let currency = reader.currency(&rule.fields);
        Some(Normalized {
            event_type: rule.common,
            amount: reader.amount(&rule.fields, currency.as_deref()),
            currency,
            reference: reader.first(&rule.fields.reference),
            customer: reader.first(&rule.fields.customer),
            occurred_at: reader
                .first(&rule.fields.occurred_at)
                .and_then(|text| time::event(text.as_bytes(), Offset::UTC))
                .or(event.occurred_at),
        })
    }
}

/// One event under evaluation. Headers and documents are parsed at most once, and only when asked for.
struct Reader<'e> {
    rules: &'e Normalize,
    event: Original<'e>,
    headers: OnceCell<BTreeMap<String, String>>,
    body: OnceCell<Document<'e>>,
    forms: Vec<OnceCell<Option<Document<'e>>>>,
}

impl<'e> Reader<'e> {
    fn currency(&self, fields: &Fields) -> Option<String> {
        let code = self.first(&fields.currency)?.to_ascii_uppercase();
        (code.len() == 3 && code.bytes().all(|b| b.is_ascii_uppercase())).then_some(code)
    }

    /// In minor units of ISO 4217, whatever unit the sender counts in.
    fn amount(&self, fields: &Fields, currency: Option<&str>) -> Option<i64> {
        let text = self.first(&fields.amount)?;
        let (own, standard) = match currency {
            Some(code) => {
                let standard = decimals(code);
                let own = self.rules.decimals.get(code).copied().or(standard);
                (own.map(i64::from), standard.map(i64::from))
            }
            None => (None, None),
        };
        let shift = match fields.major {
            true => standard?,
            // Where the currency is unknown, the sender's minor unit is all there is.
            false => standard.unwrap_or_default() - own.unwrap_or_default(),
        };
        scaled(text.trim(), i32::try_from(shift).ok()?)
    }

    /// The first that has a value which is not empty; values that are no UTF-8 are none.
    fn first(&self, templates: &[Template]) -> Option<String> {
        templates
            .iter()
            .filter_map(|template| String::from_utf8(self.text(&template.0)?).ok())
            .find(|value| !value.is_empty())
    }

    fn text(&self, parts: &[Part]) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        for part in parts {
            match part {
                Part::Literal(literal) => text.extend_from_slice(literal.as_bytes()),
                Part::Value(expr) => text.extend_from_slice(&self.eval(expr)?),
                Part::Optional(inner) => text.extend(self.text(inner).unwrap_or_default()),
            }
        }
        Some(text)
    }

    fn eval<'s>(&'s self, expr: &'s Expr) -> Value<'s> {
        match expr {
            Expr::Body => Some(Cow::Borrowed(self.event.payload)),
            Expr::Json { doc, slot } => crate::json::text::value(self.document(*doc)?.slice(*slot)?),
            Expr::KeyOf { doc, names } => {
                let document = self.document(*doc)?;
                let (name, _) = names.iter().find(|(_, slot)| document.slice(*slot).is_some())?;
                Some(Cow::Borrowed(name.as_bytes()))
            }
            Expr::Header(name) => {
                let read = || serde_json::from_str(self.event.headers).unwrap_or_default();
                let mut headers = self.headers.get_or_init(read).iter();
                let (_, value) = headers.find(|(known, _)| known.eq_ignore_ascii_case(name))?;
                Some(Cow::Borrowed(value.as_bytes()))
            }
            Expr::Form(name) => self.form_field(name),
            Expr::Capture(_) => Some(Cow::Borrowed(self.event.event_type?.as_bytes())),
            Expr::Call(function, inner) => functions::call(*function, self.eval(inner)?, None),
            _ => None,
        }
    }

    fn document(&self, doc: Doc) -> Option<&Document<'e>> {
        match doc {
            Doc::Form(index) => {
                let (name, wanted) = self.rules.documents.forms.get(index)?;
                let read = || Some(Document::read(self.form_field(name)?, wanted));
                self.forms.get(index)?.get_or_init(read).as_ref()
            }
            _ => Some(self.body.get_or_init(|| {
                let field = self.rules.form_field.as_deref();
                let carried = field.and_then(|name| self.form_field(name));
                let text = carried.unwrap_or(Cow::Borrowed(self.event.payload));
                Document::read(text, &self.rules.documents.body)
            })),
        }
    }

    fn form_field(&self, name: &str) -> Option<Cow<'e, [u8]>> {
        form::field(self.event.content_type?.as_bytes(), self.event.payload, name)
    }
}
