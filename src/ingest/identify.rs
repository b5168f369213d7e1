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

/// Longest id, type and ordering key in bytes.
pub(crate) const MAX_KEY: usize = 1024;

/// All events of a request.
pub(crate) fn identify<'a>(scope: &Scope<'_, 'a>) -> Result<Vec<Identified<'a>>, Rejection> {
    let Some(items) = batch::items(scope)? else {
        let payload = Cow::Borrowed(scope.request.body);
        return Ok(vec![event(scope, Frame::default(), payload)?]);
    };
    let wanted = &scope.provider.rules.documents.item;
    items
        .into_iter()
        .map(|item| {
            let document = Document::read(Cow::Borrowed(&*item), wanted);
            let frame = Frame {
                item: Some(&document),
                ..Frame::default()
            };
            let mut found = event(scope, frame, Cow::Borrowed(b""))?;
            found.payload = item.clone();
            Ok(found)
        })
        .collect()
}

fn event<'a>(
    scope: &Scope<'_, '_>,
    frame: Frame<'_>,
    payload: Cow<'a, [u8]>,
) -> Result<Identified<'a>, Rejection> {
    let selectors = &scope.provider.rules.event;
    let id = match scope.first(&selectors.id, frame) {
        Some(id) => checked_id(&id)?,
        None => match scope.json_error().filter(|_| selectors.id_reads_json) {
            Some(error) => return Err(Rejection::MalformedBody(error.to_string())),
            None => return Err(Rejection::MissingId),
        },
    };
    Ok(Identified {
        id,
        event_type: scope
            .first(&selectors.kind, frame)
            .and_then(|value| key(&value)),
        occurred_at: scope
            .first(&selectors.time, frame)
            .and_then(|value| time::event(&value)),
        ordering_key: scope
            .first(&selectors.ordering, frame)
            .and_then(|value| key(&value)),
        payload,
    })
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
