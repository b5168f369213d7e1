//! Batches: the exact bytes of each item, and the elements it lies in.

use std::{borrow::Cow, rc::Rc};

use super::{
    Rejection,
    scope::{Around, Document, Frame, Scope},
};
use crate::{
    adapters::{Doc, Expr, ItemPath},
    json::{self, JsonError, Wanted},
};

/// One item of a batch.
pub(crate) struct Item<'s> {
    pub(crate) document: Document<'s>,
    pub(crate) around: Vec<Around<'s>>,
}

impl Item<'_> {
    /// What expressions read of it.
    pub(crate) fn frame(&self) -> Frame<'_> {
        Frame {
            item: Some(&self.document),
            around: &self.around,
            ..Frame::default()
        }
    }
}

/// The items of a batch; `None` where the request is one event: the adapter knows no batches, `when` does not hold,
/// or there is no array at any of the paths.
pub(crate) fn items<'s>(scope: &'s Scope<'_, '_>) -> Result<Option<Vec<Item<'s>>>, Rejection> {
    let Some(batch) = &scope.provider.rules.batch else {
        return Ok(None);
    };
    if !scope.holds(&batch.when, Frame::default()) {
        return Ok(None);
    }
    let mut items = Vec::new();
    let mut is_batch = false;
    for path in &batch.items {
        // Beside arrays, lines are what is no JSON document as a whole.
        if path.separator == Some(b'\n') && batch.items.len() > 1 && is_json(scope) {
            continue;
        }
        if let Some(separator) = path.separator {
            is_batch |= split(scope, path, separator, &mut items);
            continue;
        }
        let Some(array) = array(scope, path) else {
            continue;
        };
        let mut gather = Gather {
            scope,
            path,
            around: Vec::new(),
            items: &mut items,
        };
        is_batch |= gather
            .expand(array, 0)
            .map_err(|error| Rejection::MalformedBody(error.to_string()))?;
    }
    Ok(is_batch.then_some(items))
}

/// The bytes of an item, borrowed from the request where they lie in it.
pub(crate) fn payload<'a>(scope: &Scope<'_, 'a>, item: &[u8]) -> Cow<'a, [u8]> {
    let body = scope.request.body;
    let start = (item.as_ptr() as usize).wrapping_sub(body.as_ptr() as usize);
    match body.get(start..start.saturating_add(item.len())) {
        Some(same) if std::ptr::eq(same, item) => Cow::Borrowed(same),
        _ => Cow::Owned(item.to_vec()),
    }
}

/// Whether the body is one JSON document.
fn is_json(scope: &Scope<'_, '_>) -> bool {
    scope.body_document().is_some_and(|document| document.found.is_ok())
}

fn array<'s>(scope: &'s Scope<'_, '_>, path: &ItemPath) -> Option<&'s [u8]> {
    let Expr::Json { doc, slot } = path.array else {
        return None;
    };
    match doc {
        Doc::Form(index) => scope.form_document(index)?.slice(slot),
        _ => scope.body_document()?.slice(slot),
    }
}

/// Takes each part of a text that is not empty; false where there is no text.
fn split<'s>(scope: &'s Scope<'_, '_>, path: &'s ItemPath, separator: u8, items: &mut Vec<Item<'s>>) -> bool {
    let wanted = &scope.provider.rules.documents.item;
    let mut take = |part: Cow<'s, [u8]>| {
        items.push(Item {
            document: Document::read(part, wanted),
            around: Vec::new(),
        });
    };
    match scope.eval(&path.array, Frame::default()) {
        None => return false,
        Some(Cow::Borrowed(text)) => {
            let parts = text.split(|byte| *byte == separator).map(<[u8]>::trim_ascii);
            parts
                .filter(|part| !part.is_empty())
                .for_each(|part| take(Cow::Borrowed(part)));
        }
        Some(Cow::Owned(text)) => {
            let parts = text.split(|byte| *byte == separator).map(<[u8]>::trim_ascii);
            parts
                .filter(|part| !part.is_empty())
                .for_each(|part| take(Cow::Owned(part.to_vec())));
        }
    }
    true
}

/// Walks down one path.
struct Gather<'s, 'g, 'p, 'a> {
    scope: &'s Scope<'p, 'a>,
    path: &'g ItemPath,
    around: Vec<(usize, Rc<Document<'s>>)>,
    items: &'g mut Vec<Item<'s>>,
}

impl<'s> Gather<'s, '_, '_, '_> {
    /// Takes each item below `value`; false where it is no array.
    fn expand(&mut self, value: &'s [u8], depth: usize) -> Result<bool, JsonError> {
        let Some(elements) = json::elements(value)? else {
            return Ok(false);
        };
        for range in elements {
            self.element(&value[range], depth)?;
        }
        Ok(true)
    }

    fn element(&mut self, element: &'s [u8], depth: usize) -> Result<(), JsonError> {
        let Some(step) = self.path.steps.get(depth) else {
            return Ok(());
        };
        let outer = self.around.len();
        if let Some(index) = self.path.around.get(depth).copied().flatten() {
            let wanted = &self.scope.provider.rules.documents.around[index].1;
            self.around.push((index, Rc::new(read(element, wanted))));
        }
        if let Some(below) = json::scan(element, step)?.slice(element, 0) {
            if depth + 1 < self.path.steps.len() {
                self.expand(below, depth + 1)?;
            } else {
                let around = self.around.iter();
                self.items.push(Item {
                    document: read(below, &self.scope.provider.rules.documents.item),
                    around: around
                        .map(|(index, document)| Around {
                            index: *index,
                            document: Rc::clone(document),
                        })
                        .collect(),
                });
            }
        }
        self.around.truncate(outer);
        Ok(())
    }
}

fn read<'s>(text: &'s [u8], wanted: &Wanted) -> Document<'s> {
    Document::read(Cow::Borrowed(text), wanted)
}
