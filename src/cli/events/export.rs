//! `cerca events export`: events with their payloads, one JSON object a line. Reads a chunk at a time, so that memory does
//! not grow with the ledger; every line says where to go on after it.

use std::{io::Write as _, process::ExitCode};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Desk, Filter};
use crate::{
    http::json::EventJson,
    store::{EventDetail, Received},
};

#[derive(Debug, Args)]
pub(in crate::cli) struct Export {
    #[command(flatten)]
    filter: Filter,
    /// How payloads are written; json writes what is no JSON as base64 all the same
    #[arg(long, value_enum, default_value_t = Form::Json)]
    payload: Form,
    /// Go on after the event with this `id`, the last that an earlier export wrote
    #[arg(long, value_name = "ID")]
    after: Option<i64>,
    /// How many at most
    #[arg(long, short = 'n', value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    Json,
    Base64,
    /// Leave them out
    None,
}

/// One line: the event as everywhere, its headers, and one of the two forms of its payload.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    event: EventJson<'a>,
    headers: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

/// Events and bytes of payload in memory at once.
const CHUNK: u32 = 200;
const CHUNK_BYTES: usize = 16 << 20;

impl Desk<'_> {
    pub(super) async fn export(&self, command: Export) -> anyhow::Result<ExitCode> {
        self.tell_unknown(&command.filter);
        let filter = command.filter.build()?;
        let mut left = command.limit.unwrap_or(u64::MAX);
        let mut cursor = command.after;
        while left > 0 {
            let size = u32::try_from(left).map_or(CHUNK, |left| left.min(CHUNK));
            let chunk = self.store.export(filter.clone(), cursor, size, CHUNK_BYTES).await?;
            left -= (chunk.events.len() as u64).min(left);
            let mut text = Vec::new();
            for (detail, received) in &chunk.events {
                self.write(&mut text, command.payload, detail, received)?;
            }
            let mut stdout = std::io::stdout().lock();
            stdout.write_all(&text)?;
            stdout.flush()?;
            cursor = chunk.next;
            if cursor.is_none() {
                break;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn write(&self, out: &mut Vec<u8>, form: Form, detail: &EventDetail, received: &Received) -> anyhow::Result<()> {
        let adapter = self.adapters.get(&detail.event.provider).map(String::as_str);
        let bytes = received.bytes.as_deref().filter(|_| form != Form::None);
        // A line break inside would end the line; what is no JSON has no other form.
        let json = bytes.filter(|_| form == Form::Json).and_then(|bytes| {
            let is_one_line = !bytes.iter().any(|byte| matches!(byte, b'\n' | b'\r'));
            is_one_line
                .then(|| serde_json::from_slice::<&RawValue>(bytes).ok())
                .flatten()
        });
        let compact;
        let json = match (json, bytes) {
            (None, Some(bytes)) if form == Form::Json => {
                compact = compacted(bytes);
                compact.as_deref()
            }
            (json, _) => json,
        };
        let line = Line {
            event: EventJson {
                normalized: None,
                ..EventJson::detail(detail, adapter, None)
            },
            headers: received
                .headers
                .as_deref()
                .and_then(|text| serde_json::from_str(text).ok()),
            payload: json,
            payload_base64: bytes
                .filter(|_| json.is_none())
                .map(|bytes| BASE64_STANDARD.encode(bytes)),
        };
        serde_json::to_writer(&mut *out, &line)?;
        out.push(b'\n');
        Ok(())
    }
}

/// JSON over several lines on one, with nothing else changed: in JSON, line breaks lie between tokens only.
fn compacted(bytes: &[u8]) -> Option<Box<RawValue>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let _: &RawValue = serde_json::from_str(text).ok()?;
    RawValue::from_string(text.replace(['\n', '\r'], "")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_and_digits_kept() {
        let joined = compacted(b"{\n  \"a\": 12345678901234567890.10,\r\n \"b\": \"\\n\"\n}").unwrap();
        assert_eq!(joined.get(), r#"{  "a": 12345678901234567890.10, "b": "\n"}"#);
        assert!(compacted(b"a\nb").is_none());
        assert!(compacted(b"\"\xff\n\"").is_none());
    }
}
