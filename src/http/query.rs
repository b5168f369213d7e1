//! What the admin API reads from URLs and JSON bodies: filters, cursors, paths. Unknown names are errors that say so,
//! because a filter that is misspelt and ignored selects too much.

use std::{collections::HashSet, num::NonZero, str::FromStr};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Deserializer};

use crate::{
    domain::{EventStatus, per_second},
    store::{EventFilter, RefusedFilter},
};

use super::error::Problem;

/// The query of `GET /events`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct EventsQuery {
    pub filter: EventFilter,
    pub cursor: Option<i64>,
    pub limit: u32,
}

const DEFAULT_LIMIT: u32 = 50;
const MAX_LIMIT: u32 = 500;

impl EventsQuery {
    /// # Errors
    /// 400 for a name that is unknown or given twice, or a value that cannot be read.
    pub(super) fn read(query: &str) -> Result<Self, Problem> {
        let mut read = Self {
            limit: DEFAULT_LIMIT,
            ..Self::default()
        };
        let mut seen = HashSet::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            if !seen.insert(name.clone()) {
                return Err(Problem::bad_request(format!("`{}` is given twice", shown(&name))));
            }
            match &*name {
                "cursor" => read.cursor = Some(read_cursor(&value)?),
                "limit" => read.limit = read_limit(&value)?,
                _ => set(&mut read.filter, &name, &value)?,
            }
        }
        Ok(read)
    }
}

/// The query of a resource that takes no parameters.
///
/// # Errors
/// 400 that names the first parameter.
pub(super) fn none(query: &str) -> Result<(), Problem> {
    match form_urlencoded::parse(query.as_bytes()).next() {
        Some((name, _)) => Err(unknown(&name)),
        None => Ok(()),
    }
}

fn set(filter: &mut EventFilter, name: &str, value: &str) -> Result<(), Problem> {
    let text = || {
        if value.is_empty() {
            return Err(Problem::bad_request(format!("`{name}` is empty")));
        }
        without_nul(name, value)?;
        Ok(Some(value.to_owned()))
    };
    match name {
        "provider" => filter.provider = text()?,
        "type" => filter.event_type = text()?,
        "handler" => filter.handler = text()?,
        "q" => filter.q = text()?,
        "status" => {
            filter.status = Some(EventStatus::from_str(value).map_err(|error| Problem::bad_request(cut(&error)))?)
        }
        "since" => filter.since = Some(time(name, value)?),
        "until" => filter.until = Some(time(name, value)?),
        _ => return Err(unknown(name)),
    }
    Ok(())
}

/// The number in `/api/v1/{list}/{number}…`.
///
/// # Errors
/// 404 when it is none.
pub(super) fn number(path: &str) -> Result<i64, Problem> {
    let part = path.split('/').nth(4).unwrap_or_default();
    part.parse()
        .map_err(|_| Problem::not_found("there is nothing of this number"))
}

/// The query of `GET /quarantine`.
///
/// # Errors
/// 400 for a name that is unknown or given twice, or a value that cannot be read.
pub(super) fn refused(query: &str) -> Result<(RefusedFilter, Option<i64>, u32), Problem> {
    let (mut filter, mut cursor, mut limit) = (RefusedFilter::default(), None, DEFAULT_LIMIT);
    let mut seen = HashSet::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if !seen.insert(name.clone()) {
            return Err(Problem::bad_request(format!("`{}` is given twice", shown(&name))));
        }
        without_nul(&name, &value)?;
        match &*name {
            "provider" => filter.provider = Some(value.into_owned()),
            "reason" => filter.reason = Some(value.into_owned()),
            "cursor" => cursor = Some(read_cursor(&value)?),
            "limit" => limit = read_limit(&value)?,
            _ => return Err(unknown(&name)),
        }
    }
    Ok((filter, cursor, limit))
}

/// PostgreSQL's text holds none, so nothing that is stored does.
pub(super) fn without_nul(name: &str, value: &str) -> Result<(), Problem> {
    if value.contains('\0') {
        return Err(Problem::bad_request(format!("`{}` holds a NUL character", shown(name))));
    }
    Ok(())
}

pub(super) fn read_limit(value: &str) -> Result<u32, Problem> {
    let limit = value.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
    limit.ok_or_else(|| Problem::bad_request(format!("`limit` is a number from 1 to {MAX_LIMIT}")))
}

fn time(name: &str, value: &str) -> Result<Timestamp, Problem> {
    value
        .parse()
        .map_err(|_| Problem::bad_request(format!("`{name}` is not a time such as 2026-01-31T12:00:00Z")))
}

/// 400 that names a parameter which the resource does not have.
pub(super) fn unknown(name: &str) -> Problem {
    Problem::bad_request(format!("`{}` is not a parameter of this resource", shown(name)))
}

/// A name that came from outside, short enough to be repeated.
fn shown(name: &str) -> String {
    name.chars().take(64).collect()
}

fn cut(text: &str) -> String {
    text.chars().take(300).collect()
}

/// A place in a list, opaque to clients.
#[must_use]
pub(super) fn write_cursor(place: i64) -> String {
    URL_SAFE_NO_PAD.encode(place.to_be_bytes())
}

/// The place where the next page begins: after the last row, where there may be more.
pub(super) fn next_place<T>(rows: &[T], limit: u32, place: impl Fn(&T) -> i64) -> Option<i64> {
    rows.last().filter(|_| rows.len() == limit as usize).map(place)
}

/// # Errors
/// 400 when it is none of ours.
pub(super) fn read_cursor(text: &str) -> Result<i64, Problem> {
    URL_SAFE_NO_PAD
        .decode(text)
        .ok()
        .and_then(|bytes| bytes.try_into().ok())
        .map(i64::from_be_bytes)
        .ok_or_else(|| Problem::bad_request("`cursor` is not one that this list gave"))
}

/// The provider and the event id of `/api/v1/events/{provider}/{id}…`, from the path as it was sent: the router decodes
/// before it matches and leaves `%2F` and `%25` as they are, so that it cannot tell `a%2Fb` from `a%252Fb`.
///
/// # Errors
/// 400 when they are not UTF-8.
pub(super) fn event_path(path: &str) -> Result<(String, String), Problem> {
    let mut parts = path.strip_prefix("/api/v1/events/").unwrap_or_default().split('/');
    let mut next = || {
        let part = parts.next().unwrap_or_default();
        percent_decode_str(part)
            .decode_utf8()
            .map(std::borrow::Cow::into_owned)
            .map_err(|_| Problem::bad_request("the path is not UTF-8"))
            .and_then(|text| match text.contains('\0') {
                // No name and no id holds one, and one of the databases would not even look.
                true => Err(Problem::not_found("there is no such event")),
                false => Ok(text),
            })
    };
    Ok((next()?, next()?))
}

/// The body of `POST /events/{provider}/{id}/reprocess`; may be absent.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ReprocessOne {
    pub handlers: Option<Vec<String>>,
    #[serde(deserialize_with = "reason")]
    pub reason: Option<String>,
    pub forget_steps: bool,
}

/// Why, for the audit. PostgreSQL keeps no NUL, so nothing does.
pub(super) fn reason<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let reason = Option::<String>::deserialize(deserializer)?;
    match reason.as_deref().is_some_and(|reason| reason.contains('\0')) {
        true => Err(serde::de::Error::custom("`reason` holds a NUL character")),
        false => Ok(reason),
    }
}

/// The body of `POST /events/{provider}/{id}/discard`; may be absent.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DiscardOne {
    #[serde(deserialize_with = "reason")]
    pub reason: Option<String>,
}

/// The body of `POST /events/reprocess`: a filter with the names of the query of `GET /events`, and what to do.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ReprocessMany {
    pub provider: Option<String>,
    #[serde(rename = "type")]
    pub event_type: Option<String>,
    pub status: Option<String>,
    pub handler: Option<String>,
    pub since: Option<String>,
    pub until: Option<String>,
    pub q: Option<String>,
    pub handlers: Option<Vec<String>>,
    #[serde(deserialize_with = "reason")]
    pub reason: Option<String>,
    pub dry_run: bool,
    pub forget_steps: bool,
    /// Answer at once with a job, and go on behind.
    pub background: bool,
    /// Events a second, as `100/s` or a number; makes it a job.
    #[serde(deserialize_with = "by_the_second")]
    pub rate: Option<NonZero<u32>>,
}

fn by_the_second<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<NonZero<u32>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "`rate` is a text such as \"100/s\", or a number from 1")]
    enum Said {
        Text(String),
        Number(NonZero<u32>),
    }
    Ok(match Option::<Said>::deserialize(deserializer)? {
        None => None,
        Some(Said::Text(text)) => Some(per_second(&text).map_err(serde::de::Error::custom)?),
        Some(Said::Number(number)) => Some(number),
    })
}

impl ReprocessMany {
    /// # Errors
    /// 400 for a value that cannot be read.
    pub(super) fn filter(&self) -> Result<EventFilter, Problem> {
        let mut filter = EventFilter::default();
        for (name, value) in [
            ("provider", &self.provider),
            ("type", &self.event_type),
            ("status", &self.status),
            ("handler", &self.handler),
            ("since", &self.since),
            ("until", &self.until),
            ("q", &self.q),
        ] {
            if let Some(value) = value {
                set(&mut filter, name, value)?;
            }
        }
        Ok(filter)
    }
}

/// Reads a JSON body; an empty one is all defaults.
///
/// # Errors
/// 400 that says what is wrong and, where a key is unknown, names it.
pub(super) fn json<T: for<'de> Deserialize<'de> + Default>(body: &[u8]) -> Result<T, Problem> {
    if body.trim_ascii().is_empty() {
        return Ok(T::default());
    }
    // serde would take an array as well, field by field.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(Problem::bad_request("the body is not a JSON object"));
    }
    serde_json::from_slice(body).map_err(|error| Problem::bad_request(cut(&error.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_or_refused_by_name() {
        let read = EventsQuery::read("provider=a&type=x.y&status=failed&since=2026-01-01T00:00:00Z&q=ev%26t&limit=500");
        let read = read.unwrap();
        assert_eq!(read.filter.q.as_deref(), Some("ev&t"));
        assert_eq!(read.filter.status, Some(EventStatus::Failed));
        assert_eq!(read.limit, 500);
        assert_eq!(EventsQuery::read("").unwrap().limit, 50);
        for (query, named) in [
            ("statuses=failed", "statuses"),
            ("status=broken", "broken"),
            ("limit=501", "limit"),
            ("limit=0", "limit"),
            ("cursor=abc", "cursor"),
            ("since=yesterday", "since"),
            ("provider=", "provider"),
            ("q=a&q=b", "q"),
        ] {
            let problem = EventsQuery::read(query).unwrap_err();
            assert!(problem.detail.contains(named), "{query}: {problem:?}");
        }
    }

    #[test]
    fn cursors_come_back() {
        for place in [0, 1, i64::MAX, i64::MIN] {
            assert_eq!(read_cursor(&write_cursor(place)), Ok(place));
        }
    }

    #[test]
    fn ids_in_paths_are_opaque() {
        let id = |encoded: &str| event_path(&format!("/api/v1/events/p/{encoded}/payload")).map(|(_, id)| id);
        assert_eq!(id("evt%2Fa%26b").as_deref(), Ok("evt/a&b"));
        assert_eq!(id("a%252Fb").as_deref(), Ok("a%2Fb"));
        assert_eq!(id("a+b%09").as_deref(), Ok("a+b\t"));
        assert!(id("a%00").is_err(), "no stored id holds a NUL");
        assert!(id("%ff").is_err());
    }
}
