//! The parameters of a sql statement, read from an event: `body:/pointer`, `header:Name`, `event:field` and
//! `normalized:field`.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{
    Failure, Normalizers, Outgoing, idempotency_key,
    normalized::{self, NormalizedField},
};
use crate::{
    domain::Claim,
    ingest::form,
    json,
    json::{Wanted, parse_pointer},
    store::SqlValue,
};

/// By provider: the field of a form-encoded body that carries the JSON, as its adapter says.
pub type FormFields = HashMap<String, String>;

/// The expressions of one statement, ready to read any event. The body is read once, and only if one asks for it.
pub(super) struct Params {
    sources: Vec<Source>,
    wanted: Wanted,
    headers: bool,
    form_fields: Arc<FormFields>,
    normalizers: Arc<Normalizers>,
}

enum Source {
    /// A slot of `Params::wanted`.
    Body(usize),
    Header(String),
    Event(Field),
    Normalized(NormalizedField),
}

#[derive(Clone, Copy)]
enum Field {
    Id,
    Provider,
    ProviderEventId,
    EventType,
    IdempotencyKey,
    OccurredAt,
    CreatedAt,
}

impl Params {
    pub(super) fn parse(
        expressions: &[String],
        form_fields: Arc<FormFields>,
        normalizers: Arc<Normalizers>,
    ) -> Result<Self, String> {
        let mut wanted = Wanted::default();
        let sources = expressions
            .iter()
            .map(|text| source(text, &mut wanted).map_err(|e| format!("`params`: \"{text}\": {e}")))
            .collect::<Result<Vec<_>, _>>()?;
        let headers = sources.iter().any(|source| matches!(source, Source::Header(_)));
        Ok(Self {
            sources,
            wanted,
            headers,
            form_fields,
            normalizers,
        })
    }

    /// A number that fits is an integer, any other keeps its exact digits.
    /// A string is text, an object or array its exact JSON as text; what is absent or null is null.
    ///
    /// # Errors
    /// A body that is not JSON while one of the expressions reads it. Other bytes under this id cannot come, so
    /// trying again would help only after the configuration has changed; it is tried by the policy all the same.
    pub(super) fn read(&self, outgoing: &Outgoing<'_>) -> Result<Vec<SqlValue>, Failure> {
        let claim = outgoing.claim;
        let event = &claim.event;
        let text = if self.wanted.slots() > 0 {
            self.json(outgoing)
        } else {
            Cow::Borrowed(&[][..])
        };
        let found = (self.wanted.slots() > 0)
            .then(|| json::scan(&text, &self.wanted))
            .transpose()
            .map_err(|e| Failure::Retry(format!("the body is not JSON: {e}")))?;
        let headers: BTreeMap<String, String> = if self.headers {
            serde_json::from_str(&event.headers).map_err(|e| Failure::Retry(format!("the stored headers: {e}")))?
        } else {
            BTreeMap::new()
        };
        let normalized = std::cell::LazyCell::new(|| normalized::read(&self.normalizers, claim));
        self.sources
            .iter()
            .map(|source| match source {
                Source::Body(slot) => match found.as_ref().and_then(|f| f.slice(&text, *slot)) {
                    Some(text) => json_value(text),
                    None => Ok(SqlValue::Null),
                },
                Source::Header(name) => Ok(headers
                    .iter()
                    .find(|(n, _)| n.eq_ignore_ascii_case(name))
                    .map_or(SqlValue::Null, |(_, value)| SqlValue::Text(value.clone()))),
                Source::Event(field) => Ok(field.read(claim)),
                Source::Normalized(field) => Ok(field.read(normalized.as_ref())),
            })
            .collect()
    }

    pub(super) fn len(&self) -> usize {
        self.sources.len()
    }

    /// The JSON to read: the body, or the form field that carries it.
    fn json<'a>(&self, outgoing: &'a Outgoing<'_>) -> Cow<'a, [u8]> {
        let field = self.form_fields.get(&*outgoing.claim.event.provider);
        field
            .and_then(|field| form::field(outgoing.content_type?.as_bytes(), &outgoing.body, field))
            .unwrap_or(Cow::Borrowed(&outgoing.body))
    }
}

fn source(text: &str, wanted: &mut Wanted) -> Result<Source, String> {
    match text.split_once(':') {
        Some(("body", pointer)) if pointer.starts_with('/') => Ok(Source::Body(wanted.add(&parse_pointer(pointer)?))),
        Some(("header", name)) if !name.is_empty() => Ok(Source::Header(name.into())),
        Some(("event", field)) => Field::parse(field).map(Source::Event),
        Some(("normalized", field)) => NormalizedField::parse(field).map(Source::Normalized),
        _ => Err("expected body:/pointer, header:Name, event:field or normalized:field".into()),
    }
}

impl Field {
    fn parse(name: &str) -> Result<Self, String> {
        Ok(match name {
            "id" => Self::Id,
            "provider" => Self::Provider,
            "provider_event_id" => Self::ProviderEventId,
            "event_type" => Self::EventType,
            "idempotency_key" => Self::IdempotencyKey,
            "occurred_at" => Self::OccurredAt,
            "created_at" => Self::CreatedAt,
            _ => {
                return Err(
                    "an event has id, provider, provider_event_id, event_type, idempotency_key, occurred_at \
                            and created_at"
                        .into(),
                );
            }
        })
    }

    fn read(self, claim: &Claim) -> SqlValue {
        let event = &claim.event;
        let text = |text: Option<String>| text.map_or(SqlValue::Null, SqlValue::Text);
        match self {
            Self::Id => SqlValue::Int(event.id),
            Self::Provider => text(Some(event.provider.to_string())),
            Self::ProviderEventId => text(Some(event.provider_event_id.clone())),
            Self::EventType => text(event.event_type.clone()),
            Self::IdempotencyKey => text(Some(idempotency_key(claim))),
            Self::OccurredAt => text(event.occurred_at.map(|t| t.to_string())),
            Self::CreatedAt => text(Some(event.created_at.to_string())),
        }
    }
}

/// `text` is one valid JSON value.
fn json_value(text: &[u8]) -> Result<SqlValue, Failure> {
    match text {
        b"true" => return Ok(SqlValue::Bool(true)),
        b"false" => return Ok(SqlValue::Bool(false)),
        _ => {}
    }
    let Some(value) = json::text::value(text) else {
        return Ok(SqlValue::Null);
    };
    let value = String::from_utf8(value.into_owned())
        .map_err(|_| Failure::Retry("a value of the body is not UTF-8, and a database has no text for it".into()))?;
    let number = matches!(text, [b'-' | b'0'..=b'9', ..]);
    Ok(match value.parse() {
        Ok(int) if number => SqlValue::Int(int),
        _ if number => SqlValue::Number(value),
        _ => SqlValue::Text(value),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::testing::claim;

    fn read(expressions: &[&str], body: &'static [u8]) -> Result<Vec<SqlValue>, Failure> {
        let expressions: Vec<String> = expressions.iter().map(|e| (*e).to_owned()).collect();
        Params::parse(&expressions, Arc::default(), Arc::default())
            .unwrap()
            .read(&Outgoing::raw(&claim("evt_1", body)))
    }

    #[test]
    fn json_values_become_sql_values_without_loss() {
        let text = |t: &str| SqlValue::Text(t.into());
        let digits = |t: &str| SqlValue::Number(t.into());
        for (json, expected) in [
            ("12", SqlValue::Int(12)),
            ("-9223372036854775808", SqlValue::Int(i64::MIN)),
            ("9223372036854775808", digits("9223372036854775808")),
            ("1.5", digits("1.5")),
            ("1.0", digits("1.0")),
            ("1e2", digits("1e2")),
            ("1e999", digits("1e999")),
            ("true", SqlValue::Bool(true)),
            ("null", SqlValue::Null),
            (r#""12""#, text("12")),
            (r#""a\u0041\n""#, text("aA\n")),
            (r#"{ "b": [1,  2] }"#, text(r#"{ "b": [1,  2] }"#)),
            ("[]", text("[]")),
        ] {
            let body: &'static [u8] = format!("{{\"a\": {json} }}").into_bytes().leak();
            assert_eq!(read(&["body:/a"], body).unwrap(), [expected], "{json}");
        }
        assert_eq!(
            read(&["body:/b/c", "body:/a"], b"{\"a\":1}").unwrap(),
            [SqlValue::Null, SqlValue::Int(1)]
        );
    }

    #[test]
    fn the_json_of_a_form_is_found_in_its_field() {
        let mut claim = claim("evt_1", &b"x=1&payload=%7B%22a%22%3A12%7D"[..]);
        Arc::make_mut(&mut claim.event).content_type = Some("application/x-www-form-urlencoded".into());
        let fields = Arc::new(FormFields::from([("stripe".to_owned(), "payload".to_owned())]));
        let params = Params::parse(&["body:/a".to_owned()], fields, Arc::default()).unwrap();
        assert_eq!(params.read(&Outgoing::raw(&claim)).unwrap(), [SqlValue::Int(12)]);
    }

    #[test]
    fn headers_and_fields_need_no_json() {
        let values = read(
            &[
                "header:X-Trace",
                "header:none",
                "event:id",
                "event:idempotency_key",
                "event:occurred_at",
            ],
            b"\xff not json",
        );
        let text = |t: &str| SqlValue::Text(t.into());
        assert_eq!(
            values.unwrap(),
            [
                text("a"),
                SqlValue::Null,
                SqlValue::Int(7),
                text("stripe:evt_1:h"),
                text("2026-01-02T03:04:05Z")
            ]
        );
        let error = read(&["body:/a"], b"\xff not json").unwrap_err().to_string();
        assert!(error.starts_with("the body is not JSON: "), "{error}");
    }

    #[test]
    fn unknown_expressions_are_explained() {
        for bad in [
            "",
            "body",
            "body:id",
            "header:",
            "event:",
            "event:body",
            "query:x",
            "normalized:",
            "normalized:id",
        ] {
            let parsed = Params::parse(&[bad.to_owned()], Arc::default(), Arc::default());
            assert!(parsed.is_err(), "{bad}");
        }
    }

    #[test]
    fn common_words_are_read_where_the_adapter_knows_them() {
        let manifest = "title='t'\nverify='none'\n[normalize]\namount='body:/value'\nunit='major'\ncurrency='KWD'\n\
            reference='{header:x-trace}-1'\ntypes={'invoice.*'='payment.succeeded'}";
        let adapter = crate::adapters::Adapter::parse("p", manifest).unwrap();
        let normalizers = Normalizers::from([("stripe".to_owned(), adapter.normalize().unwrap().clone())]);
        let read = |normalizers| {
            let fields = ["type", "amount", "currency", "reference", "customer", "occurred_at"];
            let expressions = fields.map(|field| format!("normalized:{field}"));
            Params::parse(&expressions, Arc::default(), Arc::new(normalizers))
                .unwrap()
                .read(&Outgoing::raw(&claim("evt_1", &br#"{"value":1.25}"#[..])))
                .unwrap()
        };
        let text = |t: &str| SqlValue::Text(t.into());
        assert_eq!(
            read(normalizers),
            [
                text("payment.succeeded"),
                SqlValue::Int(1250),
                text("KWD"),
                text("a-1"),
                SqlValue::Null,
                text("2026-01-02T03:04:05Z")
            ]
        );
        assert_eq!(read(Normalizers::default()), [const { SqlValue::Null }; 6]);
    }
}
