//! `[event]` and `[body]`, compiled: where an event says what, and what its body is.

use jiff::tz::Offset;

use super::{
    choices::{Choice, Choices, TextOr, Ties},
    compile::{Compiled, conditions, each, fail},
    expr::{Doc, Expr},
    manifest::{BodyTable, EventTable, Manifest, Texts},
    parser::{Allowed, Parser},
    rules::{Bind, Selector, Selectors},
    template::{Part, Template},
};
use crate::json::parse_pointer;

/// Compiles `[event]`.
pub(crate) fn selectors(
    parser: &mut Parser,
    table: &EventTable,
    item: bool,
    bound: Allowed<'_>,
) -> Compiled<Selectors> {
    let allowed = Allowed {
        item,
        request_id: true,
        ..bound
    };
    let mut list = |key: &str, choices: &Option<Choices>| -> Compiled<Vec<Selector>> {
        let Some(choices) = choices else {
            return Ok(Vec::new());
        };
        let all = choices.get_ref().0.iter();
        all.map(|one| selector(parser, &format!("event.{key}"), choices, one, allowed))
            .collect()
    };
    let mut selectors = Selectors {
        id: list("id", &table.id)?,
        key: list("key", &table.key)?,
        id_reads_json: false,
        kind: list("type", &table.kind)?,
        time: list("time", &table.time)?,
        utc_offset: match &table.utc_offset {
            Some(text) => utc_offset(text.get_ref()).or_else(|message| fail(text, "event.utc_offset", &message))?,
            None => Offset::UTC,
        },
        ordering: list("ordering", &table.ordering)?,
    };
    selectors.id_reads_json = selectors
        .id
        .iter()
        .flat_map(|selector| selector.value.exprs())
        .any(Expr::reads_json);
    Ok(selectors)
}

fn selector(parser: &mut Parser, key: &str, at: &Choices, choice: &Choice, allowed: Allowed<'_>) -> Compiled<Selector> {
    let mut value = |text: &str| {
        parser
            .selector(text, allowed)
            .or_else(|message| fail(at, key, &message))
    };
    let conditional = match choice {
        Choice::Text(text) => {
            return Ok(Selector {
                value: value(text)?,
                when: Vec::new(),
            });
        }
        Choice::Table(conditional) => conditional,
    };
    let value = match (&conditional.value, &conditional.text) {
        (Some(text), None) => value(text)?,
        (None, Some(text)) => Template(vec![Part::Literal(text.clone())]),
        _ => return fail(at, key, "expected either `value` or `text`"),
    };
    let when = Texts::new(at.span(), conditional.when.clone());
    Ok(Selector {
        value,
        when: conditions(parser, Some(&when), key, allowed)?,
    })
}

/// Compiles `bind`.
pub(crate) fn bind(parser: &mut Parser, ties: &Ties, bound: Allowed<'_>) -> Compiled<Vec<Bind>> {
    let all = ties.get_ref().0.iter();
    all.map(|tie| {
        let (text, when) = match tie {
            TextOr::Text(text) => (text, None),
            TextOr::Table(tie) => (&tie.require, Some(Texts::new(ties.span(), tie.when.clone()))),
        };
        let condition = parser.condition(text, bound);
        Ok(Bind {
            condition: condition.or_else(|message| fail(ties, "bind", &message))?,
            when: conditions(parser, when.as_ref(), "bind", bound)?,
        })
    })
    .collect()
}

/// Compiles what carries the JSON.
pub(crate) fn body_from(parser: &mut Parser, table: &BodyTable, allowed: Allowed<'_>) -> Compiled<Option<Expr>> {
    match (&table.form_field, &table.from) {
        (None, None) => Ok(None),
        (Some(field), None) => Ok(Some(Expr::Form(field.clone()))),
        (Some(_), Some(text)) => fail(text, "body.from", "`form_field` says the same in another way"),
        (None, Some(text)) => {
            let expr = parser
                .expr(text.get_ref(), allowed)
                .or_else(|message| fail(text, "body.from", &message))?;
            let own = |expr: &Expr| {
                matches!(
                    expr,
                    Expr::Json { doc: Doc::Body, .. } | Expr::KeyOf { doc: Doc::Body, .. }
                )
            };
            match expr.any(&own) {
                true => fail(text, "body.from", "`body:` cannot be read from itself"),
                false => Ok(Some(expr)),
            }
        }
    }
}

/// Compiles what is stored in place of the bytes received.
pub(crate) fn payload(parser: &mut Parser, manifest: &Manifest, allowed: Allowed<'_>) -> Compiled<Option<Expr>> {
    let Some(text) = &manifest.body.payload else {
        return Ok(None);
    };
    if manifest.batch.is_some() || manifest.body.redact.is_some() {
        return fail(
            text,
            "body.payload",
            "what is stored is decided by `[batch]` or `redact` already",
        );
    }
    let expr = parser.expr(text.get_ref(), allowed);
    expr.map(Some).or_else(|message| fail(text, "body.payload", &message))
}

/// Compiles the places whose values are not stored: of each item where there is a batch, of the body where there is none.
pub(crate) fn redact(parser: &mut Parser, manifest: &Manifest, carried: bool) -> Compiled<Vec<usize>> {
    let texts = manifest.body.redact.as_ref();
    if let (Some(texts), true) = (texts, carried) {
        return fail(
            texts,
            "body.redact",
            "the JSON is carried inside of the body, so its bytes cannot be replaced there",
        );
    }
    let doc = if manifest.batch.is_some() { Doc::Item } else { Doc::Body };
    each(texts, "body.redact", |text| {
        let tokens = parse_pointer(text)?;
        Ok(parser.wanted(doc).add(&tokens))
    })
}

/// Reads `+05:30`.
fn utc_offset(text: &str) -> Result<Offset, String> {
    let read = || {
        let (hours, minutes) = text.get(1..)?.split_once(':')?;
        let seconds = hours.parse::<i32>().ok()? * 3600 + minutes.parse::<i32>().ok()? * 60;
        Offset::from_seconds(if text.starts_with('-') { -seconds } else { seconds }).ok()
    };
    let signed = text.starts_with(['+', '-']) && text.len() == 6;
    read()
        .filter(|_| signed)
        .ok_or_else(|| format!("expected an offset such as `-03:00`, found `{text}`"))
}
