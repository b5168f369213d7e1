//! Why a request verifies or not, step by step, for people. Secrets and right signatures are never shown whole.

use std::fmt;

use base64::Engine as _;
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use serde::Serialize;

use super::{
    Ingested, Rejection, candidate, causes, ingest,
    scope::{Frame, Scope},
    verify::{self, Reading},
};
use crate::{
    adapters::{Digester, Encoding, Expr, Key, Material, Provider, Scheme, Signature, Tag},
    domain::RawRequest,
};

/// Most of a signed message that is shown.
const SHOWN_MESSAGE: usize = 64;
/// Most of a signature that is shown: enough to compare, too little to use.
const SHOWN_SIGNATURE: usize = 8;
/// Most values of one kind that are shown.
const SHOWN_VALUES: usize = 4;

/// One step of an explanation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    pub mark: Mark,
    pub text: String,
}

/// What a step means for the outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// As it should be.
    Good,
    /// Why it fails.
    Bad,
    /// A fact.
    Note,
    /// What may be the cause, and what to do.
    Hint,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.mark {
            Mark::Good => "+",
            Mark::Bad => "x",
            Mark::Note => " ",
            Mark::Hint => "?",
        };
        write!(f, "{mark} {}", self.text)
    }
}

/// The steps, in order.
#[derive(Default)]
pub(super) struct Steps(pub(super) Vec<Step>);

impl Steps {
    pub(super) fn good(&mut self, text: impl Into<String>) {
        self.push(Mark::Good, text.into());
    }

    pub(super) fn bad(&mut self, text: impl Into<String>) {
        self.push(Mark::Bad, text.into());
    }

    pub(super) fn note(&mut self, text: impl Into<String>) {
        self.push(Mark::Note, text.into());
    }

    pub(super) fn hint(&mut self, text: impl Into<String>) {
        self.push(Mark::Hint, text.into());
    }

    fn push(&mut self, mark: Mark, text: String) {
        self.0.push(Step { mark, text });
    }
}

/// Explains what [`ingest`] makes of a request.
#[must_use]
pub fn explain(provider: &Provider, request: &RawRequest<'_>, now: Timestamp) -> Vec<Step> {
    let mut steps = Steps::default();
    let scope = Scope::new(provider, *request, now);
    steps.note(format!(
        "provider `{}`, adapter `{}`, {} secret(s), body of {} bytes",
        provider.name,
        provider.adapter,
        provider.secrets.len(),
        request.body.len()
    ));
    if let (Some(Expr::Form(field)), true) = (&provider.rules.body_from, scope.form_body().is_some()) {
        let text =
            format!("the body is form-encoded: its field `{field}` is read, and the whole form is what is stored");
        match provider.rules.json_instead {
            true => steps.hint(format!("{text}; choose JSON (application/json) at the sender")),
            false => steps.note(text),
        }
    }
    if provider.rules.verify {
        for (index, rule) in provider.rules.signatures.iter().enumerate() {
            explain_rule(&mut steps, &scope, index, rule);
        }
    } else {
        steps.hint("verification is off: anyone who knows the URL can send");
    }
    outcome(&mut steps, ingest(provider, request, now));
    steps.0
}

fn explain_rule(steps: &mut Steps, scope: &Scope<'_, '_>, index: usize, rule: &Signature) {
    let keys = &scope.provider.keys[index];
    if keys.is_empty() {
        steps.note(format!(
            "signature `{}`: does not count (`accept`, an option that is not set, or no secret of its kind)",
            rule.name
        ));
        return;
    }
    if let Some(condition) = rule
        .when
        .iter()
        .find(|condition| !scope.holds(std::slice::from_ref(condition), Frame::default()))
    {
        steps.note(format!(
            "signature `{}`: not considered, because `{}` does not hold",
            rule.name, condition.text
        ));
        return;
    }
    steps.note(format!("signature `{}`:", rule.name));
    if rule.each {
        steps.note("each item of the batch carries its own; all must hold");
        return;
    }
    let values = verify::source_values(scope, rule, Frame::default());
    if rule.group.is_some() || matches!(rule.scheme, Scheme::Public(_) | Scheme::Jwt) {
        explain_whole(steps, scope, index, rule);
        return;
    }
    let reading = match verify::read(scope, rule, &values, Frame::default()) {
        Ok(reading) => reading,
        Err(Rejection::MissingSignature) => {
            steps.bad("no signature where the adapter looks for it");
            causes::missing(steps, scope, rule);
            return;
        }
        Err(_) => {
            let shows = !matches!(rule.scheme, Scheme::Token | Scheme::Basic);
            let values: Vec<_> = values
                .iter()
                .map(|value| match shows {
                    true => shown(value, SHOWN_MESSAGE),
                    false => format!("{} bytes", value.len()),
                })
                .collect();
            steps.bad(format!(
                "the signature is not written as `format` says: {}",
                values.join(" and ")
            ));
            return;
        }
    };
    for (name, value) in &reading.captures {
        steps.note(format!("{name}: {}", shown(value, SHOWN_MESSAGE)));
    }
    if matches!(rule.scheme, Scheme::Token | Scheme::Basic) {
        steps.note("the value is compared with the secret");
        return;
    }
    show_candidates(steps, rule, &reading);
    if show_message(steps, scope, rule, &reading) {
        let right = keys
            .iter()
            .filter_map(|key| Some((key, tag(scope, rule, &reading, key)?)));
        let matched = right.into_iter().find(|(_, tag)| {
            let is = |value: &&[u8]| candidate::is_digest(value, rule.encoding, tag);
            reading.candidates.iter().any(is)
        });
        match matched {
            Some((key, _)) => {
                steps.good(format!("secret {} gives this signature", number(key)));
                show_time(steps, scope, rule, &reading);
            }
            None => {
                for key in keys {
                    if let Some(tag) = tag(scope, rule, &reading, key) {
                        steps.bad(format!(
                            "secret {} gives {}",
                            number(key),
                            beginning(&written(&tag, rule.encoding))
                        ));
                    }
                }
                causes::wrong(steps, scope, rule, &reading);
            }
        }
    }
}

/// What comes of a rule whose right signature cannot be computed here, only checked.
fn explain_whole(steps: &mut Steps, scope: &Scope<'_, '_>, index: usize, rule: &Signature) {
    match verify::try_rule(scope, index, rule) {
        Ok(Some(secret)) => steps.good(format!("secret {} verifies it", secret + 1)),
        Ok(None) => steps.good("the sender's fetched key verifies it"),
        Err(Rejection::MissingSignature) => {
            steps.bad("no signature where the adapter looks for it");
            causes::missing(steps, scope, rule);
        }
        Err(rejection) => {
            steps.bad(rejection.to_string());
            match rejection {
                Rejection::CannotVerifyNow { .. } => {
                    steps.hint("a running server fetches it, and the sender comes again")
                }
                Rejection::WrongSignature => {
                    steps.hint("most often the key is that of another application or environment of the sender");
                    steps.hint("or the body was changed on its way here, or when it was saved");
                }
                _ => {}
            }
        }
    }
}

/// The number of a secret, from 1.
fn number(key: &Key) -> usize {
    key.secret.map_or(0, |index| index + 1)
}

fn show_candidates(steps: &mut Steps, rule: &Signature, reading: &Reading<'_>) {
    for value in reading.candidates.iter().take(SHOWN_VALUES) {
        let readable = candidate::decode(value, rule.encoding, &mut [0; 128]).map(<[u8]>::len);
        let text = format!(
            "received {} ({} characters)",
            beginning(&String::from_utf8_lossy(value)),
            value.len()
        );
        match readable {
            Some(bytes) => steps.note(format!("{text}, {bytes} bytes")),
            None => steps.bad(format!("{text}, which is not {}", encoding_name(rule.encoding))),
        }
    }
    if reading.candidates.len() > SHOWN_VALUES {
        steps.note(format!("and {} more", reading.candidates.len() - SHOWN_VALUES));
    }
}

/// Shows what is signed; false where a part of it is missing.
fn show_message(steps: &mut Steps, scope: &Scope<'_, '_>, rule: &Signature, reading: &Reading<'_>) -> bool {
    let frame = Frame {
        captures: &reading.captures,
        secret: Some(b"(secret)"),
        ..Frame::default()
    };
    let mut start = Vec::new();
    let mut length = 0;
    let written = scope.write(&rule.message, frame, &mut |piece| {
        let room = SHOWN_MESSAGE.saturating_sub(start.len());
        start.extend_from_slice(&piece[..piece.len().min(room)]);
        length += piece.len();
    });
    match written {
        Some(()) => steps.note(format!(
            "signed message: {length} bytes, beginning {}",
            shown(&start, SHOWN_MESSAGE)
        )),
        None => steps.bad("a part of the signed message is missing from the request"),
    }
    written.is_some()
}

fn show_time(steps: &mut Steps, scope: &Scope<'_, '_>, rule: &Signature, reading: &Reading<'_>) {
    let Some(tolerance) = rule.tolerance else {
        return;
    };
    match verify::judge_time(rule, reading.timestamp(), scope.now) {
        Ok(()) => steps.good(format!("the signed time is within {tolerance} s")),
        Err(Rejection::Stale { seconds }) => {
            steps.bad(format!("signed {seconds} s ago; {tolerance} s are allowed"));
            steps.hint("a replayed request, a retry that keeps its first time, or a clock here that runs ahead");
        }
        Err(Rejection::Future { seconds }) => {
            steps.bad(format!("signed {seconds} s in the future; {tolerance} s are allowed"));
            steps.hint("the clock here may be slow; check its synchronisation");
        }
        Err(_) => steps.bad("the signed time is missing or unreadable"),
    }
}

fn outcome(steps: &mut Steps, result: Result<Ingested<'_>, Rejection>) {
    match result {
        Ok(Ingested::Handshake {
            answer, keep, confirm, ..
        }) => {
            steps.good(format!("an ownership challenge, answered with {}", answer.status));
            if keep.is_some() {
                steps.hint("the sender hands over its secret in it; a server takes it where the provider has none and `seal_key` is set");
            }
            match confirm {
                Some(confirm) if confirm.call => {
                    steps.note("a server calls the URL in it, which confirms the subscription")
                }
                Some(confirm) => steps.hint(format!("the sender waits until this URL is called: {}", confirm.url)),
                None => {}
            }
        }
        Ok(Ingested::Events { events, .. }) => {
            steps.good(format!("authentic: {} event(s)", events.len()));
            for event in events.iter().take(SHOWN_VALUES) {
                let kind = event.event_type.as_deref().unwrap_or("(no type)");
                steps.note(format!("{kind} {}", event.id));
            }
        }
        Err(rejection) => {
            steps.bad(format!("{} ({}): {rejection}", rejection.status(), rejection.reason()));
            if rejection == Rejection::CannotDecrypt {
                steps
                    .hint("has the sender the public half of one of `decryption_keys`, and is the body as it arrived?");
            }
        }
    }
}

/// What a key makes of the message as it is.
pub(super) fn tag(scope: &Scope<'_, '_>, rule: &Signature, reading: &Reading<'_>, key: &Key) -> Option<Tag> {
    let (mut digester, secret) = match (&key.material, rule.scheme) {
        (Material::Mac(mac), _) => ((**mac).clone(), None),
        (Material::Text(secret), Scheme::Hash(hash)) => {
            (Digester::plain(hash), Some(secret.expose_secret().as_bytes()))
        }
        _ => return None,
    };
    let frame = Frame {
        captures: &reading.captures,
        secret,
        ..Frame::default()
    };
    scope.write(&rule.message, frame, &mut |piece| digester.update(piece))?;
    Some(digester.finish())
}

fn written(tag: &Tag, encoding: Encoding) -> String {
    match encoding {
        Encoding::Hex => hex::encode(tag.bytes()),
        Encoding::Base64 => base64::engine::general_purpose::STANDARD.encode(tag.bytes()),
        Encoding::Base64Url => base64::engine::general_purpose::URL_SAFE.encode(tag.bytes()),
    }
}

pub(super) fn encoding_name(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Hex => "hexadecimal",
        Encoding::Base64 => "base64",
        Encoding::Base64Url => "base64url",
    }
}

fn beginning(text: &str) -> String {
    let start: String = text.chars().take(SHOWN_SIGNATURE).collect();
    format!("`{}…`", start.escape_debug())
}

fn shown(value: &[u8], most: usize) -> String {
    let cut = &value[..value.len().min(most)];
    let more = if value.len() > most { "…" } else { "" };
    format!("`{}{more}`", cut.escape_ascii())
}
