//! Batches: the exact bytes of each item.

use std::borrow::Cow;

use super::{
    Rejection, json,
    scope::{Frame, Scope},
};
use crate::adapters::{Doc, Expr, ItemPath, Wanted};

/// The items of a batch; `None` where the request is one event: the adapter knows no batches, `when` does not hold,
/// or there is no array at any of the paths.
pub(crate) fn items<'a>(scope: &Scope<'_, 'a>) -> Result<Option<Vec<Cow<'a, [u8]>>>, Rejection> {
    let Some(batch) = &scope.provider.rules.batch else {
        return Ok(None);
    };
    if !scope.holds(&batch.when, Frame::default()) {
        return Ok(None);
    }
    let mut items = Vec::new();
    let mut is_batch = false;
    for path in &batch.items {
        is_batch |= gather(scope, path, &mut items)
            .map_err(|error| Rejection::MalformedBody(error.to_string()))?;
    }
    Ok(is_batch.then_some(items))
}

/// Appends the items of one path; false where there is no array at it.
fn gather<'a>(
    scope: &Scope<'_, 'a>,
    path: &ItemPath,
    items: &mut Vec<Cow<'a, [u8]>>,
) -> Result<bool, json::JsonError> {
    let Expr::Json { doc, slot } = path.array else {
        return Ok(false);
    };
    let document = match doc {
        Doc::Form(index) => scope.form_document(index),
        Doc::Body | Doc::Item => Some(scope.body_document()),
    };
    let Some(document) = document else {
        return Ok(false);
    };
    let range = document
        .found
        .as_ref()
        .ok()
        .and_then(|found| found.range(slot));
    match (range, &document.text) {
        (None, _) => Ok(false),
        (Some(range), Cow::Borrowed(text)) => expand(&text[range], &path.steps, &mut |item| {
            items.push(Cow::Borrowed(item))
        }),
        (Some(range), Cow::Owned(text)) => expand(&text[range], &path.steps, &mut |item| {
            items.push(Cow::Owned(item.to_vec()))
        }),
    }
}

/// Calls `take` with each item below `value`; false where it is no array.
fn expand<'t>(
    value: &'t [u8],
    steps: &[Wanted],
    take: &mut dyn FnMut(&'t [u8]),
) -> Result<bool, json::JsonError> {
    let [step, rest @ ..] = steps else {
        return Ok(false);
    };
    let Some(elements) = json::elements(value)? else {
        return Ok(false);
    };
    for range in elements {
        let element = &value[range];
        let found = json::scan(element, step)?;
        match (found.slice(element, 0), rest.is_empty()) {
            (Some(item), true) => take(item),
            (Some(inner), false) => drop(expand(inner, rest, take)?),
            (None, _) => {}
        }
    }
    Ok(true)
}
