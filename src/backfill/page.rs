//! From page to page of a list, and never round in a circle.

use std::{collections::HashSet, ops::Range as Span};

use jiff::Timestamp;
use reqwest::Url;

use super::{
    BackfillError, Backfiller, Order,
    fetch::{Answer, shown},
    shape::{at, fill_url, text},
};
use crate::{
    adapters::{Backfill, Paging, Pointer, Range, RangeFormat},
    json::{self, Wanted},
};

/// The places of the items in an answer.
pub(super) fn items(body: &[u8], pointer: &Pointer) -> Result<Vec<Span<usize>>, String> {
    let found = json::scan(body, &Wanted::only(pointer)).map_err(|error| format!("the answer is not JSON: {error}"))?;
    let place = || format!("the answer has no list at `/{}`", pointer.join("/"));
    let array = found.range(0).ok_or_else(place)?;
    let inside = json::elements(&body[array.clone()]).map_err(|error| error.to_string())?;
    let inside = inside.ok_or_else(place)?;
    Ok(inside
        .into_iter()
        .map(|item| item.start + array.start..item.end + array.start)
        .collect())
}

pub(super) struct Pages<'a> {
    list: &'a Backfill,
    first: Url,
    next: Option<Url>,
    seen: HashSet<String>,
    items: u64,
    pages: u64,
}

impl<'a> Pages<'a> {
    pub(super) fn new(of: &Backfiller, list: &'a Backfill, order: &Order) -> Result<Self, BackfillError> {
        let mut first = fill_url(of, &list.url, None)?;
        for (range, time) in [(&list.since, order.since), (&list.until, order.until)] {
            if let Some(range) = range {
                set(&mut first, &range.query, &bound(range, time));
            }
        }
        if let Paging::Offset { query, .. } = &list.paging {
            set(&mut first, query, "0");
        }
        if let Paging::Page {
            query, first: number, ..
        } = &list.paging
        {
            set(&mut first, query, &number.to_string());
        }
        Ok(Self {
            list,
            next: Some(first.clone()),
            first,
            seen: HashSet::new(),
            items: 0,
            pages: 0,
        })
    }

    /// The page to ask for; `None` at the end.
    pub(super) fn next_url(&mut self) -> Result<Option<Url>, BackfillError> {
        let Some(url) = self.next.take() else {
            return Ok(None);
        };
        if !self.seen.insert(url.to_string()) {
            return Err(BackfillError::Endless(
                shown(&url),
                "a page names one before it as the next",
            ));
        }
        Ok(Some(url))
    }

    /// Finds the next page in an answer.
    pub(super) fn learn(&mut self, answer: &Answer, items: &[Span<usize>]) -> Result<(), BackfillError> {
        self.items += items.len() as u64;
        self.pages += 1;
        let wrong = |problem: &str| BackfillError::Api {
            host: shown(&answer.url),
            problem: problem.to_owned(),
        };
        let body = &answer.body;
        let says = |pointer: &Pointer| at(body, pointer).map(|value| value == b"true");
        let is_full = |size: u64| items.len() as u64 >= size;
        let goes_on = |size: u64, more: &Option<Pointer>| {
            let said = more.as_ref().and_then(says);
            !items.is_empty() && said.unwrap_or_else(|| is_full(size))
        };
        let query = match &self.list.paging {
            Paging::After { query, item, more } => {
                if !says(more).unwrap_or(false) {
                    return Ok(());
                }
                let last = items.last().and_then(|last| text(at(&body[last.clone()], item)?));
                let last = last.ok_or_else(|| wrong("it says that there is more, and gives no item to go on from"))?;
                (query, last)
            }
            Paging::Cursor { query, next } => match at(body, next).and_then(text).filter(|next| !next.is_empty()) {
                Some(next) => (query, next),
                None => return Ok(()),
            },
            Paging::Offset { query, size, more } if goes_on(*size, more) => (query, self.items.to_string()),
            Paging::Page {
                query,
                first,
                size,
                more,
            } if goes_on(*size, more) => (query, (first + self.pages).to_string()),
            Paging::Offset { .. } | Paging::Page { .. } => return Ok(()),
            Paging::Link => {
                let Some(link) = &answer.link else { return Ok(()) };
                let next = answer
                    .url
                    .join(link)
                    .map_err(|_| wrong("its link to the next page is no address"))?;
                if next.origin() != answer.url.origin() {
                    return Err(wrong("its next page is at another host, which must not get the key"));
                }
                self.next = Some(next);
                return Ok(());
            }
        };
        let mut next = self.first.clone();
        set(&mut next, query.0, &query.1);
        self.next = Some(next);
        Ok(())
    }
}

/// Puts a parameter in the place of one of the same name.
fn set(url: &mut Url, name: &str, value: &str) {
    let others: Vec<(String, String)> = url
        .query_pairs()
        .filter(|(other, _)| other != name)
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect();
    url.query_pairs_mut()
        .clear()
        .extend_pairs(others)
        .append_pair(name, value);
}

fn bound(range: &Range, time: Timestamp) -> String {
    match range.format {
        RangeFormat::Unix => time.as_second().to_string(),
        RangeFormat::Rfc3339 => Timestamp::from_second(time.as_second()).unwrap_or(time).to_string(),
        RangeFormat::Date => range.offset.to_datetime(time).date().to_string(),
    }
}
