//! What is wrong with an adapter's samples, found by reading them by its rules. Nothing is signed and no secret is needed,
//! so that senders whose key nobody has are looked at like all others.

use std::{borrow::Cow, collections::BTreeSet};

use jiff::Timestamp;

use super::{
    OwnedRequest, Rejection, batch,
    fill::{Filler, SIGNATURE},
    handshake, identify,
    scope::{Document, Frame, Scope},
};
use crate::adapters::{Adapter, Expr, Part, Provider, Scheme, Signature, Template};

/// Placeholders that are filled in when a request is signed.
const LATER: [&str; 2] = ["{{signature}}", "{{encrypted}}"];

/// Something wrong with a folder, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Relative to the folder, such as `samples/order.paid.http`.
    pub file: String,
    /// From 1, where a line is to blame.
    pub line: Option<usize>,
    /// The key of the manifest that the sample does not go with; empty where there is none.
    pub key: String,
    pub message: String,
}

/// Reads every sample of an adapter as the request that it will be.
#[must_use]
pub fn examine(adapter: &Adapter, now: Timestamp) -> Vec<Finding> {
    let provider = Provider::for_samples(adapter);
    let mut findings = Vec::new();
    let mut seen = Seen::default();
    for (name, text) in adapter.samples() {
        let mut look = Look {
            adapter,
            provider: &provider,
            file: format!("samples/{name}.http"),
            findings: &mut findings,
        };
        look.sample(text, now, &mut seen);
    }
    for (key, selectors, found) in [
        ("event.time", &provider.rules.event.time, seen.times),
        ("event.ordering", &provider.rules.event.ordering, seen.orderings),
    ] {
        if !selectors.is_empty() && seen.events > 0 && found == 0 {
            findings.push(Finding {
                file: "samples/".into(),
                line: None,
                key: key.into(),
                message: "finds nothing in any of the samples".into(),
            });
        }
    }
    for name in adapter.expectations() {
        if !adapter.samples().contains_key(name) {
            findings.push(Finding {
                file: format!("samples/{name}.normalized.json"),
                line: None,
                key: String::new(),
                message: format!("there is no samples/{name}.http beside it"),
            });
        }
    }
    findings
}

/// What was found in all samples together.
#[derive(Default)]
struct Seen {
    events: usize,
    times: usize,
    orderings: usize,
}

/// One sample under examination.
struct Look<'l> {
    adapter: &'l Adapter,
    provider: &'l Provider,
    file: String,
    findings: &'l mut Vec<Finding>,
}

impl Look<'_> {
    fn tell(&mut self, key: &str, message: impl Into<String>) {
        self.findings.push(Finding {
            file: self.file.clone(),
            line: None,
            key: key.to_owned(),
            message: message.into(),
        });
    }

    fn sample(&mut self, text: &[u8], now: Timestamp, seen: &mut Seen) {
        let sample = match OwnedRequest::parse_sample(text, &self.provider.public_url) {
            Ok(sample) => sample,
            Err(error) => {
                return self.findings.push(Finding {
                    file: self.file.clone(),
                    line: Some(error.line),
                    key: String::new(),
                    message: error.message.to_owned(),
                });
            }
        };
        let request = Filler::new(now, "user:secret", &self.provider.options).request(&sample);
        for name in unfilled(&request) {
            self.tell("", format!("`{name}` is no placeholder"));
        }
        if request.method != "POST" {
            self.tell("", format!("an event comes by POST, not by {}", request.method));
        }
        let headers = request.header_list();
        let scope = Scope::new(self.provider, request.raw(&headers), now);
        // What is sealed or a token on its way is written open in a sample.
        scope.take_as_open();
        match handshake::answer(&scope, false).and_then(|answer| match answer {
            None => handshake::answer(&scope, true),
            some => Ok(some),
        }) {
            Ok(None) => {}
            Ok(Some(_)) => return self.tell("handshake", "it is answered as a handshake, so nothing of it is stored"),
            Err(rejection) => return self.tell("handshake", rejection.to_string()),
        }
        // What is signed sealed cannot be looked for in the open.
        if self.provider.rules.decrypt.is_none() {
            self.signing(&scope, &request);
        }
        match identify::identify(&scope) {
            Ok(events) if events.is_empty() => self.tell("batch.items", "there is no event in it"),
            Ok(events) => {
                seen.events += events.len();
                seen.times += events.iter().filter(|event| event.occurred_at.is_some()).count();
                seen.orderings += events.iter().filter(|event| event.ordering_key.is_some()).count();
                let nameless = events.iter().any(|event| event.event_type.is_none());
                if nameless && !self.provider.rules.event.kind.is_empty() {
                    let written = self.adapter.event_types().join(", ");
                    self.tell("event.type", format!("nothing is found in it: {written}"));
                }
                self.times(&scope);
            }
            Err(Rejection::MissingId) => {
                let ids = [self.adapter.event_keys(), self.adapter.event_ids()].concat();
                let message = match ids.is_empty() {
                    true => "is missing, so every request is answered 400".to_owned(),
                    false => format!("nothing is found in it: {}", ids.join(", ")),
                };
                self.tell("event.id", message);
            }
            Err(Rejection::MalformedBody(what)) => self.tell("event.id", what),
            Err(other) => self.tell("", other.to_string()),
        }
    }

    /// A time that is there and cannot be read.
    fn times(&mut self, scope: &Scope<'_, '_>) {
        let event = &scope.provider.rules.event;
        let items = batch::items(scope).ok().flatten();
        let frames: Vec<Frame<'_>> = match &items {
            Some(items) => items.iter().map(batch::Item::frame).collect(),
            None => vec![Frame::default()],
        };
        let unread = frames.into_iter().find_map(|frame| {
            let value = scope.first(&event.time, frame)?;
            super::time::event(&value, event.utc_offset)
                .is_none()
                .then(|| value.escape_ascii().to_string())
        });
        if let Some(text) = unread {
            self.tell("event.time", format!("`{text}` is no time that can be read"));
        }
    }

    /// Whether some rule finds all in the sample that it signs.
    fn signing(&mut self, scope: &Scope<'_, '_>, request: &OwnedRequest) {
        let mut why = Vec::new();
        for (index, rule) in scope.provider.rules.signatures.iter().enumerate() {
            let written = self.adapter.message(index);
            match lacks(scope, rule, request, written) {
                None => return,
                Some((key, problem)) => why.push((format!("signature[{index}].{key}"), problem)),
            }
        }
        for (key, problem) in why {
            self.tell(&key, problem);
        }
    }
}

/// What a rule needs and does not find, with the key that asks for it.
fn lacks(
    scope: &Scope<'_, '_>,
    rule: &Signature,
    request: &OwnedRequest,
    written: &str,
) -> Option<(&'static str, String)> {
    let holds = |condition| scope.holds(std::slice::from_ref(condition), Frame::default());
    if let Some(condition) = rule.when.iter().find(|condition| !holds(condition)) {
        return Some(("when", format!("`{}` does not hold", condition.text)));
    }
    if let Some(problem) = no_place(scope, rule, request) {
        return Some(("source", problem));
    }
    if rule.scheme == Scheme::Jwt || matches!(rule.scheme, Scheme::Token | Scheme::Basic) {
        return None;
    }
    let captures = captured(rule);
    let items = rule
        .each
        .then(|| batch::items(scope).ok().flatten().unwrap_or_default());
    let frame = |frame| Frame {
        captures: &captures,
        secret: Some(b"secret"),
        secret_id: Some(b"user"),
        ..frame
    };
    let missing = match &items {
        None => missing(scope, rule, written, frame(Frame::default())),
        Some(items) if items.is_empty() => Some("there is no item to sign".to_owned()),
        Some(items) => {
            let mut frames = items.iter().map(|item| frame(item.frame()));
            frames.find_map(|frame| missing(scope, rule, written, frame))
        }
    };
    missing.map(|problem| ("message", problem))
}

/// What `format` and `timestamp` would capture.
fn captured(rule: &Signature) -> Vec<(&str, Cow<'static, [u8]>)> {
    let names = rule.format.iter().flat_map(|pattern| pattern.names());
    let names = names.filter(|name| *name != "signature").chain(["timestamp"]);
    names.map(|name| (name, Cow::Borrowed(&b"1"[..]))).collect()
}

/// The part of the message that has no value.
fn missing(scope: &Scope<'_, '_>, rule: &Signature, written: &str, frame: Frame<'_>) -> Option<String> {
    // What a header lists is written when the sample is signed.
    let later = |expr: &Expr| matches!(expr, Expr::HeaderValues(_) | Expr::HeaderLines(_));
    let timed = match &rule.timestamp {
        None | Some(Expr::Header(_)) => true,
        Some(expr) => rule.captures_time() || scope.eval(expr, frame).is_some(),
    };
    if !timed {
        return Some("the signed time is not in it".into());
    }
    let names = names(&rule.message, written);
    let mut required = rule.message.required().zip(names);
    let absent = required.find(|(expr, _)| !expr.any(&later) && scope.eval(expr, frame).is_none());
    absent.map(|(_, name)| format!("`{name}` is signed, and has no value in it"))
}

/// The expressions outside of brackets, as they are written.
fn names<'w>(template: &Template, written: &'w str) -> Vec<&'w str> {
    let count = template.0.iter().filter(|part| matches!(part, Part::Value(_))).count();
    let mut depth = 0_u32;
    let mut found = Vec::new();
    let mut rest = written;
    while let Some(at) = rest.find(['{', '[', ']']) {
        let mark = rest.as_bytes()[at];
        rest = &rest[at + 1..];
        match mark {
            _ if rest.as_bytes().first() == Some(&mark) => rest = &rest[1..],
            b'[' => depth += 1,
            b']' => depth = depth.saturating_sub(1),
            _ => {
                let end = rest.find('}').unwrap_or(rest.len());
                if depth == 0 {
                    found.push(&rest[..end]);
                }
                rest = &rest[end..];
            }
        }
    }
    // The default message is not written.
    found.resize(count, "body");
    found
}

/// Why a signature that is made has no place in the sample.
fn no_place(scope: &Scope<'_, '_>, rule: &Signature, request: &OwnedRequest) -> Option<String> {
    let source = match rule.sources.first()? {
        Expr::Call(_, inner) => inner,
        other => other,
    };
    let in_body = |expr: &Expr| matches!(expr, Expr::Json { .. } | Expr::KeyOf { .. } | Expr::Item | Expr::Body);
    let written = matches!(source, Expr::Form(_) | Expr::Body) || !source.any(&in_body);
    if written {
        return None;
    }
    let has = |text: &str| request.body.windows(text.len()).any(|window| window == text.as_bytes());
    match rule.scheme {
        Scheme::Token => {
            let items = batch::items(scope).ok().flatten().unwrap_or_default();
            let mut frames = items.iter().map(batch::Item::frame).chain([Frame::default()]);
            let found = frames.any(|frame| rule.sources.iter().any(|source| scope.eval(source, frame).is_some()));
            (!found).then(|| "the token is not in it: put `{{secret}}` where it belongs".into())
        }
        _ => (!has(SIGNATURE)).then(|| format!("put `{SIGNATURE}` where the signature belongs")),
    }
}

/// What looks like a placeholder and was not filled.
fn unfilled(request: &OwnedRequest) -> BTreeSet<String> {
    let is_name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b':';
    let texts = [request.url.as_bytes(), &request.body];
    let headers = request.headers.iter().map(|(_, value)| value.as_slice());
    let mut names = BTreeSet::new();
    for text in texts.into_iter().chain(headers) {
        let mut rest = text;
        while let Some(at) = rest.windows(2).position(|pair| pair == b"{{") {
            rest = &rest[at + 2..];
            let end = rest.iter().position(|byte| !is_name(*byte)).unwrap_or(rest.len());
            if end > 0
                && rest[end..].starts_with(b"}}")
                && let Ok(name) = std::str::from_utf8(&rest[..end])
            {
                names.insert(format!("{{{{{name}}}}}"));
            }
        }
    }
    names.retain(|name| !LATER.contains(&name.as_str()));
    names
}

impl Scope<'_, '_> {
    /// Takes a sample for what it is once it is opened and proved: the body is what is decrypted, and the claims.
    fn take_as_open(&self) {
        self.keep_secret(None);
        let body = self.request.body;
        if self.provider.rules.decrypt.is_some() {
            let _ = self.opened.set(Some(body.to_vec()));
        }
        let claims = Document::read(Cow::Owned(body.to_vec()), &self.provider.rules.documents.claims);
        self.keep_claims(claims);
    }
}
