//! `[[backfill]]`: how past events are listed at the sender's own API, and how what is listed becomes the request that
//! the webhook would have been. What is done with it is in [`crate::backfill`].

use std::{collections::BTreeMap, time::Duration};

use jiff::tz::Offset;
use serde::Deserialize;

use super::{
    compile::{Compiled, RuleError},
    manifest::{Manifest, Text},
    pieces::{Piece, Pieces},
};
use crate::{json::parse_pointer, units::parse_duration};

/// One list as the manifest writes it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BackfillTable {
    url: Text,
    auth: Text,
    #[serde(default)]
    headers: BTreeMap<String, Text>,
    items: Text,
    since: Option<RangeTable>,
    until: Option<RangeTable>,
    paging: PagingTable,
    id: Option<Text>,
    time: Option<Text>,
    #[serde(default)]
    newest_first: bool,
    detail: Option<Text>,
    #[serde(default)]
    request: RequestTable,
    identity: Option<Text>,
    reach: Option<Text>,
    limits: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RangeTable {
    query: String,
    format: Text,
    utc_offset: Option<Text>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct PagingTable {
    style: Text,
    query: Option<String>,
    item: Option<Text>,
    next: Option<Text>,
    more: Option<Text>,
    size: Option<u64>,
    first: Option<u64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestTable {
    body: Option<Text>,
    #[serde(default)]
    headers: BTreeMap<String, Text>,
    headers_from: Option<Text>,
}

/// A JSON pointer, as tokens.
pub(crate) type Pointer = Vec<String>;

/// How one kind of past events is listed and read.
#[derive(Debug, Clone)]
pub struct Backfill {
    pub(crate) url: Pieces,
    pub(crate) auth: Auth,
    pub(crate) headers: Vec<(String, Pieces)>,
    /// The array of items in an answer.
    pub(crate) items: Pointer,
    pub(crate) since: Option<Range>,
    pub(crate) until: Option<Range>,
    pub(crate) paging: Paging,
    /// The event's id in an item, where it says the same as the webhook's.
    pub(crate) id: Option<Pointer>,
    pub(crate) time: Option<Pointer>,
    /// Items come newest first, so that the first one that is too old ends the list.
    pub(crate) newest_first: bool,
    /// Where one item is read in full.
    pub(crate) detail: Option<Pieces>,
    /// The webhook's body, made from the item.
    pub(crate) body: Pieces,
    /// Headers of the webhook, made from the item.
    pub(crate) event_headers: Vec<(String, Pieces)>,
    /// An object of the webhook's headers in the item.
    pub(crate) headers_from: Option<Pointer>,
    /// The API does not say the webhook's id: an event counts as known when one with its type and ordering key is
    /// stored.
    pub(crate) is_derived: bool,
    /// How far back the sender remembers.
    pub(crate) reach: Option<Duration>,
    limits: Option<String>,
}

impl Backfill {
    /// What the API cannot tell, in words.
    #[must_use]
    pub fn limits(&self) -> Option<&str> {
        self.limits.as_deref()
    }

    /// Whether the events get ids of ours, because the API does not say those of the webhooks.
    #[must_use]
    pub fn is_derived(&self) -> bool {
        self.is_derived
    }

    /// How far back the sender remembers, where it says so.
    #[must_use]
    pub fn reach(&self) -> Option<Duration> {
        self.reach
    }
}

/// How the API key is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Auth {
    Bearer,
    /// As the user of HTTP Basic, with an empty password.
    Basic,
    Header(String),
}

/// A bound of the period as the API takes it.
#[derive(Debug, Clone)]
pub(crate) struct Range {
    pub(crate) query: String,
    pub(crate) format: RangeFormat,
    pub(crate) offset: Offset,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RangeFormat {
    Unix,
    Rfc3339,
    /// A day; the bounds are then wider than asked.
    Date,
}

/// How the next page is found.
#[derive(Debug, Clone)]
pub(crate) enum Paging {
    /// The last item's id goes into the query, as long as a flag says that there is more.
    After {
        query: String,
        item: Pointer,
        more: Pointer,
    },
    /// `Link: <…>; rel="next"`.
    Link,
    /// A value of the answer goes into the query.
    Cursor { query: String, next: Pointer },
    /// The number of items seen goes into the query; ends at a page that is not full, or by the flag.
    Offset {
        query: String,
        size: u64,
        more: Option<Pointer>,
    },
    /// The number of the page goes into the query; ends likewise.
    Page {
        query: String,
        first: u64,
        size: u64,
        more: Option<Pointer>,
    },
}

/// Compiles every `[[backfill]]` of a manifest.
pub(crate) fn backfills(manifest: &Manifest) -> Compiled<Vec<Backfill>> {
    let tables = manifest.backfill.iter().enumerate();
    tables.map(|(index, table)| backfill(index, table)).collect()
}

fn backfill(index: usize, table: &BackfillTable) -> Compiled<Backfill> {
    let key = |name: &str| format!("backfill[{index}].{name}");
    let pieces = |name: &str, text: &Text| read(text, &key(name), Pieces::parse);
    let pointer = |name: &str, text: &Option<Text>| match text {
        Some(text) => read(text, &key(name), parse_pointer).map(Some),
        None => Ok(None),
    };
    let headers = |name: &str, table: &BTreeMap<String, Text>| {
        let one = |(header, text): (&String, &Text)| {
            Ok((header.to_ascii_lowercase(), pieces(&format!("{name}.{header}"), text)?))
        };
        table.iter().map(one).collect::<Compiled<Vec<_>>>()
    };
    let range = |name: &str, range: &Option<RangeTable>| match range {
        Some(table) => self::range(&key(name), table).map(Some),
        None => Ok(None),
    };
    let body = match &table.request.body {
        Some(text) => pieces("request.body", text)?,
        None => Pieces(vec![Piece::Item]),
    };
    let reach = match &table.reach {
        Some(text) => Some(read(text, &key("reach"), parse_duration)?),
        None => None,
    };
    Ok(Backfill {
        url: read(&table.url, &key("url"), url)?,
        auth: read(&table.auth, &key("auth"), auth)?,
        headers: headers("headers", &table.headers)?,
        items: read(&table.items, &key("items"), parse_pointer)?,
        since: range("since", &table.since)?,
        until: range("until", &table.until)?,
        paging: paging(&key("paging"), &table.paging)?,
        id: pointer("id", &table.id)?,
        time: pointer("time", &table.time)?,
        newest_first: table.newest_first,
        detail: match &table.detail {
            Some(text) => Some(read(text, &key("detail"), url)?),
            None => None,
        },
        body,
        event_headers: headers("request.headers", &table.request.headers)?,
        headers_from: pointer("request.headers_from", &table.request.headers_from)?,
        is_derived: match &table.identity {
            None => false,
            Some(text) => read(text, &key("identity"), |word| match word {
                "exact" => Ok(false),
                "derived" => Ok(true),
                _ => Err("expected `exact` or `derived`".to_owned()),
            })?,
        },
        reach,
        limits: table.limits.clone(),
    })
}

fn read<T>(text: &Text, key: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Compiled<T> {
    parse(text.get_ref()).map_err(|message| RuleError {
        span: text.span(),
        key: key.to_owned(),
        message,
    })
}

fn url(text: &str) -> Result<Pieces, String> {
    if !text.starts_with("https://") {
        return Err("expected an address that begins with https://".to_owned());
    }
    Pieces::parse(text)
}

fn auth(text: &str) -> Result<Auth, String> {
    match text.split_once(':') {
        None if text == "bearer" => Ok(Auth::Bearer),
        None if text == "basic" => Ok(Auth::Basic),
        Some(("header", name)) if !name.is_empty() => Ok(Auth::Header(name.to_ascii_lowercase())),
        _ => Err("expected `bearer`, `basic` or `header:NAME`".to_owned()),
    }
}

fn range(key: &str, table: &RangeTable) -> Compiled<Range> {
    let format = read(&table.format, &format!("{key}.format"), |word| match word {
        "unix" => Ok(RangeFormat::Unix),
        "rfc3339" => Ok(RangeFormat::Rfc3339),
        "date" => Ok(RangeFormat::Date),
        _ => Err("expected `unix`, `rfc3339` or `date`".to_owned()),
    })?;
    let offset = match &table.utc_offset {
        None => Offset::UTC,
        Some(text) => read(text, &format!("{key}.utc_offset"), offset)?,
    };
    Ok(Range {
        query: table.query.clone(),
        format,
        offset,
    })
}

/// `-03:00`
fn offset(text: &str) -> Result<Offset, String> {
    let expected = || format!("expected an offset such as `-03:00`, found `{text}`");
    let (sign, rest) = match text.split_at_checked(1) {
        Some(("+", rest)) => (1, rest),
        Some(("-", rest)) => (-1, rest),
        _ => return Err(expected()),
    };
    let (hours, minutes) = rest.split_once(':').ok_or_else(expected)?;
    let number = |part: &str| part.parse::<u8>().ok().filter(|n| *n < 60).ok_or_else(expected);
    let seconds = i32::from(number(hours)?) * 3600 + i32::from(number(minutes)?) * 60;
    Offset::from_seconds(sign * seconds).map_err(|_| expected())
}

fn paging(key: &str, table: &PagingTable) -> Compiled<Paging> {
    let fail = |message: &str| RuleError {
        span: table.style.span(),
        key: key.to_owned(),
        message: message.to_owned(),
    };
    let query = || table.query.clone().ok_or_else(|| fail("`query` is missing"));
    let size = || {
        let size = table.size.filter(|size| *size > 0);
        size.ok_or_else(|| fail("`size`, the items of a full page, is missing"))
    };
    let pointer = |name: &str, text: &Option<Text>| match text {
        Some(text) => read(text, &format!("{key}.{name}"), parse_pointer).map(Some),
        None => Ok(None),
    };
    let needed =
        |name: &str, text: &Option<Text>| pointer(name, text)?.ok_or_else(|| fail(&format!("`{name}` is missing")));
    match table.style.get_ref().as_str() {
        "after" => Ok(Paging::After {
            query: query()?,
            item: needed("item", &table.item)?,
            more: needed("more", &table.more)?,
        }),
        "link" => Ok(Paging::Link),
        "cursor" => Ok(Paging::Cursor {
            query: query()?,
            next: needed("next", &table.next)?,
        }),
        "offset" => Ok(Paging::Offset {
            query: query()?,
            size: size()?,
            more: pointer("more", &table.more)?,
        }),
        "page" => Ok(Paging::Page {
            query: query()?,
            first: table.first.unwrap_or(1),
            size: size()?,
            more: pointer("more", &table.more)?,
        }),
        _ => Err(fail("expected `after`, `link`, `cursor`, `offset` or `page`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_read() {
        assert_eq!(offset("-03:00").unwrap().seconds(), -10_800);
        assert_eq!(offset("+05:30").unwrap().seconds(), 19_800);
        for wrong in ["", "03:00", "-3", "-99:00", "+05:77"] {
            assert!(offset(wrong).is_err(), "{wrong}");
        }
    }
}
