//! From an item of a list to the events that its webhook would have been.

use std::{borrow::Cow, collections::BTreeMap};

use bytes::Bytes;
use jiff::Timestamp;
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;
use sha2::{Digest as _, Sha256};

use super::{BackfillError, Backfiller, fetch::Fetcher};
use crate::{
    adapters::{Backfill, Piece, Pieces, Pointer},
    domain::{BACKFILLED, HeaderList, NewEvent, RawRequest},
    ingest,
    json::{self, Wanted},
};

/// What an option may not bring into a path: it may have slashes.
const OPTION: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'%')
    .add(b'@')
    .add(b'\\');

type Options = BTreeMap<String, String>;

pub(super) struct Shaper<'a> {
    of: &'a Backfiller,
    pub(super) list: &'a Backfill,
}

impl<'a> Shaper<'a> {
    pub(super) fn new(of: &'a Backfiller, list: &'a Backfill) -> Result<Self, BackfillError> {
        let headers = list.headers.iter().chain(&list.event_headers).map(|(_, pieces)| pieces);
        let urls = [Some(&list.url), list.detail.as_ref(), Some(&list.body)];
        let mut needed = headers.chain(urls.into_iter().flatten()).flat_map(Pieces::options);
        match needed.find(|name| !of.provider.options.contains_key(*name)) {
            Some(name) => Err(BackfillError::MissingOption(name.to_owned())),
            None => Ok(Self { of, list }),
        }
    }

    /// The webhook's id, where the list says it.
    pub(super) fn id(&self, item: &[u8]) -> Option<String> {
        text(at(item, self.list.id.as_ref()?)?)
    }

    pub(super) fn time(&self, item: &[u8]) -> Option<Timestamp> {
        let value = text(at(item, self.list.time.as_ref()?)?)?;
        ingest::read_time(value.as_bytes())
    }

    /// The events of an item; the inner error is that it cannot be read.
    pub(super) async fn events(
        &self,
        fetcher: &Fetcher<'_>,
        item: &[u8],
    ) -> Result<Result<Vec<NewEvent>, String>, BackfillError> {
        let fetched;
        let whole = match &self.list.detail {
            None => item,
            Some(detail) => {
                let url = fill_url(self.of, detail, Some(item))?;
                fetched = fetcher.get(self.list, &url).await?;
                &fetched.body
            }
        };
        self.shape(whole)
    }

    fn shape(&self, item: &[u8]) -> Result<Result<Vec<NewEvent>, String>, BackfillError> {
        let provider = &self.of.provider;
        let options = &provider.options;
        let body = match &self.list.body.0[..] {
            [Piece::Item] => item.to_vec(),
            [Piece::At(pointer)] => match at(item, pointer) {
                Some(value) => value.to_vec(),
                None => return Ok(Err(format!("it has no `/{}`", pointer.join("/")))),
            },
            _ => match fill_json(&self.list.body, item, options)? {
                Some(body) => body,
                None => return Ok(Err("it lacks what the webhook's body is made of".to_owned())),
            },
        };
        let headers = self.headers(item)?;
        let list: HeaderList<'_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect();
        let url = format!("{}/webhooks/{}", provider.public_url, provider.name);
        let raw = RawRequest {
            method: "POST",
            url: &url,
            headers: &list,
            body: &body,
        };
        let now = Timestamp::now();
        let events = match ingest::read(provider, &raw, now) {
            Ok(events) => events,
            Err(rejection) => return Ok(Err(rejection.to_string())),
        };
        let stored = self.stored_headers(&headers, now);
        let content_type = headers.get("content-type").cloned();
        Ok(Ok(events
            .into_iter()
            .map(|event| {
                let headers = event.headers(&stored);
                let payload = Bytes::from(event.payload.into_owned());
                NewEvent {
                    provider: provider.name.clone(),
                    routes: (self.of.router)(&provider.name, &provider.adapter, event.event_type.as_deref()),
                    provider_event_id: event.id,
                    event_type: event.event_type,
                    body_sha256: Sha256::digest(&payload).into(),
                    payload,
                    content_type: content_type.clone(),
                    headers,
                    ordering_key: event.ordering_key,
                    occurred_at: event.occurred_at,
                }
            })
            .collect()))
    }

    /// The webhook's headers by name in lower case: those that the API tells, then those of the adapter.
    fn headers(&self, item: &[u8]) -> Result<BTreeMap<String, String>, BackfillError> {
        let mut headers = BTreeMap::from([("content-type".to_owned(), "application/json".to_owned())]);
        let told = self.list.headers_from.as_ref().and_then(|pointer| at(item, pointer));
        if let Some(object) = told {
            let object: BTreeMap<String, serde_json::Value> = serde_json::from_slice(object).unwrap_or_default();
            let texts = object
                .into_iter()
                .filter_map(|(name, value)| Some((name, value.as_str()?.to_owned())));
            headers.extend(texts.map(|(name, value)| (name.to_ascii_lowercase(), value)));
        }
        for (name, pieces) in &self.list.event_headers {
            let value = fill_text(pieces, Some(item), &self.of.provider.options)?;
            headers.insert(name.clone(), String::from_utf8_lossy(&value).into_owned());
        }
        Ok(headers)
    }

    /// As JSON, the mark of a backfill first.
    fn stored_headers(&self, headers: &BTreeMap<String, String>, now: Timestamp) -> String {
        let mut stored = serde_json::Map::new();
        stored.insert(BACKFILLED.to_owned(), now.to_string().into());
        for (name, value) in headers {
            if (self.of.keeps_header)(name) && !value.contains('\0') {
                stored.insert(name.clone(), value.as_str().into());
            }
        }
        serde_json::Value::Object(stored).to_string()
    }
}

/// The exact text of a value.
pub(super) fn at<'t>(document: &'t [u8], pointer: &Pointer) -> Option<&'t [u8]> {
    let found = json::scan(document, &Wanted::only(pointer)).ok()?;
    found.slice(document, 0)
}

/// A string or a number as text; nothing else has one.
pub(super) fn text(value: &[u8]) -> Option<String> {
    let value: Cow<'_, [u8]> = match value {
        [b'"' | b'-' | b'0'..=b'9', ..] => json::text::value(value)?,
        _ => return None,
    };
    String::from_utf8(value.into_owned()).ok()
}

fn option<'o>(options: &'o Options, name: &str) -> Result<&'o str, BackfillError> {
    let value = options.get(name).map(String::as_str);
    value.ok_or_else(|| BackfillError::MissingOption(name.to_owned()))
}

/// An address with everything from outside percent-encoded, at the provider's own host where it has one.
pub(super) fn fill_url(of: &Backfiller, pieces: &Pieces, item: Option<&[u8]>) -> Result<Url, BackfillError> {
    let mut url = String::new();
    for piece in &pieces.0 {
        match piece {
            Piece::Text(text) => url.push_str(text),
            Piece::Config(name) => url.extend(utf8_percent_encode(option(&of.provider.options, name)?, OPTION)),
            Piece::Item => {}
            Piece::At(pointer) => {
                let value = item.and_then(|item| text(at(item, pointer)?)).unwrap_or_default();
                url.extend(utf8_percent_encode(&value, NON_ALPHANUMERIC));
            }
        }
    }
    let wrong = |problem: String| BackfillError::Api {
        host: of.provider.name.to_string(),
        problem,
    };
    let mut parsed = Url::parse(&url).map_err(|error| wrong(format!("the address of its list is none: {error}")))?;
    if let Some(base) = &of.api_url {
        let fail = || wrong("`api_url` cannot take the place of the API's host".to_owned());
        parsed.set_scheme(base.scheme()).map_err(|()| fail())?;
        parsed.set_host(base.host_str()).map_err(|_| fail())?;
        parsed.set_port(base.port()).map_err(|()| fail())?;
        let path = format!("{}{}", base.path().trim_end_matches('/'), parsed.path());
        parsed.set_path(&path);
    }
    Ok(parsed)
}

/// A header's value.
pub(super) fn fill_text(pieces: &Pieces, item: Option<&[u8]>, options: &Options) -> Result<Vec<u8>, BackfillError> {
    let mut out = Vec::new();
    for piece in &pieces.0 {
        match piece {
            Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
            Piece::Config(name) => out.extend_from_slice(option(options, name)?.as_bytes()),
            Piece::Item => out.extend_from_slice(item.unwrap_or_default()),
            Piece::At(pointer) => {
                let value = item.and_then(|item| text(at(item, pointer)?));
                out.extend_from_slice(value.unwrap_or_default().as_bytes());
            }
        }
    }
    Ok(out)
}

/// A body of JSON: values go inside of strings, escaped. `None` where the item has no such value.
fn fill_json(pieces: &Pieces, item: &[u8], options: &Options) -> Result<Option<Vec<u8>>, BackfillError> {
    let inside = |text: &str| {
        let quoted = serde_json::Value::from(text).to_string();
        quoted[1..quoted.len() - 1].to_owned()
    };
    let mut out = Vec::new();
    for piece in &pieces.0 {
        match piece {
            Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
            Piece::Config(name) => out.extend_from_slice(inside(option(options, name)?).as_bytes()),
            Piece::Item => out.extend_from_slice(item),
            Piece::At(pointer) => match at(item, pointer).and_then(text) {
                Some(value) => out.extend_from_slice(inside(&value).as_bytes()),
                None => return Ok(None),
            },
        }
    }
    Ok(Some(out))
}
