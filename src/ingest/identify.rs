//! From a proved request to its events, by the adapter's selectors.
//!
//! An authentic event with a readable id is never lost: whatever else cannot be read (type, time, ordering key) is
//! absent. An id that cannot be kept as it is makes the request malformed, because cutting it would merge events.

use std::borrow::Cow;

use super::{
    Identified, Rejection, batch,
    scope::{Document, Frame, Scope},
    time,
};
use crate::{
    adapters::{Expr, Function, Selector, Template},
    json,
};

/// Longest id, type and ordering key in bytes.
pub(crate) const MAX_KEY: usize = 1024;

/// What stands for a value that is not stored.
const REDACTED: &[u8] = b"\"[redacted]\"";

/// All events of a request.
pub(crate) fn identify<'a>(scope: &Scope<'_, 'a>) -> Result<Vec<Identified<'a>>, Rejection> {
    let Some(items) = batch::items(scope)? else {
        let payload = Cow::Borrowed(scope.request.body);
        let mut one = event(scope, Frame::default(), payload)?;
        if let Some(expr) = &scope.provider.rules.payload {
            let Some(text) = scope.eval(expr, Frame::default()) else {
                return Err(Rejection::MalformedBody("there is no payload in it".into()));
            };
            one.payload = Cow::Owned(text.into_owned());
        }
        if !scope.provider.rules.redact.is_empty()
            && let Some(document) = scope.body_document()
        {
            one.payload = redacted(scope, document, one.payload);
        }
        return Ok(vec![one]);
    };
    items
        .iter()
        .map(|item| {
            let payload = redacted(scope, &item.document, batch::payload(scope, &item.document.text));
            event(scope, item.frame(), payload)
        })
        .collect()
}

/// The payload without the values that must not be stored. What is hashed and compared later is this.
fn redacted<'a>(scope: &Scope<'_, '_>, document: &Document<'_>, payload: Cow<'a, [u8]>) -> Cow<'a, [u8]> {
    let Ok(found) = &document.found else {
        return payload;
    };
    let slots = scope.provider.rules.redact.iter();
    let mut ranges: Vec<_> = slots.filter_map(|slot| found.range(*slot)).collect();
    if ranges.is_empty() {
        return payload;
    }
    ranges.sort_by_key(|range| range.start);
    let mut out = Vec::with_capacity(payload.len());
    let mut at = 0;
    for range in ranges {
        // One place may lie inside of another.
        if range.start >= at {
            out.extend_from_slice(&payload[at..range.start]);
            out.extend_from_slice(REDACTED);
            at = range.end;
        }
    }
    out.extend_from_slice(&payload[at..]);
    Cow::Owned(out)
}

fn event<'a>(scope: &Scope<'_, '_>, frame: Frame<'_>, payload: Cow<'a, [u8]>) -> Result<Identified<'a>, Rejection> {
    let selectors = &scope.provider.rules.event;
    let (id, sender_id) = ids(scope, frame)?;
    let text = |templates| scope.first(templates, frame).and_then(|value| key(&value));
    Ok(Identified {
        id,
        sender_id,
        event_type: text(&selectors.kind),
        occurred_at: scope
            .first(&selectors.time, frame)
            .and_then(|value| time::event(&value, selectors.utc_offset)),
        ordering_key: text(&selectors.ordering),
        kept: kept(scope, frame),
        payload,
    })
}

/// What an item of a batch takes along of the whole. A value that cannot be stored as a key is left out.
fn kept(scope: &Scope<'_, '_>, frame: Frame<'_>) -> Vec<(String, String)> {
    let batch = scope.provider.rules.batch.as_ref();
    let Some(batch) = batch.filter(|_| frame.item.is_some()) else {
        return Vec::new();
    };
    let value = |(name, template): &(String, Template)| Some((name.clone(), key(&scope.text(template, frame)?)?));
    batch.headers.iter().filter_map(value).collect()
}

/// What makes the event unique, and the sender's own id where that is another.
fn ids(scope: &Scope<'_, '_>, frame: Frame<'_>) -> Result<(String, Option<String>), Rejection> {
    let selectors = &scope.provider.rules.event;
    let id = one_id(scope, &selectors.id, frame)?;
    let key = one_id(scope, &selectors.key, frame)?;
    match (key, id) {
        (Some(key), id) => Ok((key, id)),
        (None, Some(id)) => Ok((id, None)),
        (None, None) => match scope.json_error().filter(|_| selectors.id_reads_json) {
            Some(error) => Err(Rejection::MalformedBody(error.to_string())),
            None => Err(Rejection::MissingId),
        },
    }
}

/// The id of the first selector that counts and has one.
fn one_id(scope: &Scope<'_, '_>, selectors: &[Selector], frame: Frame<'_>) -> Result<Option<String>, Rejection> {
    for selector in selectors {
        let one = std::slice::from_ref(selector);
        if let Some(id) = scope.first(one, frame) {
            let exprs = selector.value.exprs();
            let alone = exprs.len() == 1;
            if exprs.into_iter().any(|expr| is_no_name(scope, expr, frame, alone)) {
                let what = "the event id is an object, an array or a boolean, and no name";
                return Err(Rejection::MalformedBody(what.into()));
            }
            return checked_id(&id).map(Some);
        }
    }
    Ok(None)
}

/// Whether an expression gives the text of an object or array, or, as an id that is `alone`, a boolean: what many events
/// have in common. To hash such a value is to know what it is.
fn is_no_name(scope: &Scope<'_, '_>, expr: &Expr, frame: Frame<'_>, alone: bool) -> bool {
    let begins = |text: Option<&[u8]>| match text.and_then(<[u8]>::first) {
        Some(b'{' | b'[') => true,
        Some(b't' | b'f') => alone,
        _ => false,
    };
    match expr {
        Expr::Json { doc, slot } => begins(scope.slice(*doc, *slot, frame)),
        Expr::At(wanted, text) => scope.eval(text, frame).is_some_and(|text| {
            let found = json::scan(&text, wanted).ok();
            begins(found.as_ref().and_then(|found| found.slice(&text, 0)))
        }),
        Expr::Call(Function::Lower | Function::Upper | Function::Trim, inner) => is_no_name(scope, inner, frame, alone),
        Expr::First(parts) => {
            let has = |part: &&Expr| scope.eval(part, frame).is_some_and(|value| !value.is_empty());
            parts
                .iter()
                .find(has)
                .is_some_and(|part| is_no_name(scope, part, frame, alone))
        }
        _ => false,
    }
}

fn checked_id(id: &[u8]) -> Result<String, Rejection> {
    let malformed = |what: &str| Err(Rejection::MalformedBody(what.to_owned()));
    match std::str::from_utf8(id) {
        _ if id.len() > MAX_KEY => malformed("the event id is longer than 1,024 bytes"),
        Err(_) => malformed("the event id is not UTF-8"),
        Ok(text) if text.contains('\0') => malformed("the event id holds a NUL"),
        Ok(text) => Ok(text.to_owned()),
    }
}

/// A type or ordering key, where it can be stored as it is.
fn key(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?;
    (value.len() <= MAX_KEY && !text.contains('\0')).then(|| text.to_owned())
}
