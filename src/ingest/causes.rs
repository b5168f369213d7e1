//! Guesses at why a signature does not fit, each tried before it is told.

use secrecy::ExposeSecret as _;

use super::{
    candidate,
    explain::{Steps, encoding_name, tag},
    scope::Scope,
    verify::Reading,
};
use crate::{
    adapters::{Encoding, Expr, Hash, Key, KeyStep, Scheme, Signature, key},
    domain::RawRequest,
};

/// Why there may be no signature.
pub(super) fn missing(steps: &mut Steps, scope: &Scope<'_, '_>, rule: &Signature) {
    let looked: Vec<_> = rule
        .sources
        .iter()
        .filter_map(|source| match source {
            Expr::Header(name) => Some(name.as_str()),
            _ => None,
        })
        .collect();
    if !looked.is_empty() {
        steps.note(format!("looked for the header {}", looked.join(", ")));
    }
    let similar = |name: &str| {
        let name = name.to_ascii_lowercase();
        ["signature", "hmac", "token", "authorization"]
            .iter()
            .any(|word| name.contains(word))
    };
    let others: Vec<_> = scope
        .request
        .headers
        .iter()
        .map(|(name, _)| name)
        .filter(|name| similar(name))
        .collect();
    match others.is_empty() {
        true => steps.hint("a proxy may remove it, or the sender has no secret set"),
        false => steps.hint(format!("there is {}; is this the right adapter?", others.join(", "))),
    }
}

/// Why the signature may be wrong.
pub(super) fn wrong(steps: &mut Steps, scope: &Scope<'_, '_>, rule: &Signature, reading: &Reading<'_>) {
    let mut found = false;
    let mut tell = |steps: &mut Steps, text: String| {
        found = true;
        steps.hint(text);
    };
    for (name, body) in changed_bodies(scope.request.body) {
        if holds_for(scope, rule, &body) {
            tell(
                steps,
                format!("it fits {name}: the body was changed on its way here, or when it was saved"),
            );
        }
    }
    for (kind, name) in [
        (KeyStep::Raw, "used as it is"),
        (KeyStep::Base64, "base64"),
        (KeyStep::Hex, "hexadecimal"),
        (KeyStep::Whsec, "`whsec_` and base64"),
    ] {
        let other = Signature {
            key: vec![kind],
            ..rule.clone()
        };
        if other.key != rule.key && matches(scope, &other, reading, |text| text.to_owned()) {
            tell(
                steps,
                format!("it fits if the secret is read as {name}: set `signature.key`"),
            );
        }
    }
    if matches(scope, rule, reading, |text| text.trim().to_owned()) && has_space(scope) {
        tell(steps, "it fits if white space around the secret is removed".into());
    }
    for hash in [Hash::Sha1, Hash::Sha256, Hash::Sha384, Hash::Sha512] {
        let other = Signature {
            scheme: Scheme::Hmac(hash),
            ..rule.clone()
        };
        if matches!(rule.scheme, Scheme::Hmac(used) if used != hash)
            && matches(scope, &other, reading, |text| text.to_owned())
        {
            tell(
                steps,
                format!("it fits with HMAC of another hash ({hash:?}): set `signature.scheme`"),
            );
        }
    }
    for encoding in [Encoding::Hex, Encoding::Base64, Encoding::Base64Url] {
        let other = Signature {
            encoding,
            ..rule.clone()
        };
        if encoding != rule.encoding && matches(scope, &other, reading, |text| text.to_owned()) {
            tell(
                steps,
                format!(
                    "it fits if the signature is read as {}: set `signature.encoding`",
                    encoding_name(encoding)
                ),
            );
        }
    }
    if found {
        return;
    }
    steps.hint("most often the secret is that of another endpoint, or was rotated at the sender");
    if rule.message.uses(&Expr::Url) {
        steps.hint(format!(
            "the URL is signed: is `{}` exactly what the sender calls? (`public_url`)",
            scope.request.url
        ));
    }
    if rule.message.uses(&Expr::Body) {
        steps.hint("a proxy, or a tool that saved the request, may have re-encoded the body");
    }
}

fn has_space(scope: &Scope<'_, '_>) -> bool {
    scope
        .provider
        .secrets
        .iter()
        .any(|secret| secret.expose_secret().trim() != secret.expose_secret())
}

/// Bodies that this one may have been.
fn changed_bodies(body: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let mut bodies = Vec::new();
    let trimmed = body.trim_ascii_end();
    if trimmed.len() < body.len() {
        bodies.push(("the body without its trailing newline", trimmed.to_vec()));
    }
    bodies.push(("the body with a trailing newline", [body, b"\n"].concat()));
    if let Ok(value) = serde_json::from_slice::<serde_json::Value>(body) {
        bodies.extend(
            serde_json::to_vec(&value)
                .ok()
                .map(|body| ("the JSON without white space", body)),
        );
        bodies.extend(
            serde_json::to_vec_pretty(&value)
                .ok()
                .map(|body| ("the JSON indented", body)),
        );
    }
    if body.windows(2).any(|pair| pair == b"\r\n") {
        let text: Vec<u8> = body.iter().copied().filter(|byte| *byte != b'\r').collect();
        bodies.push(("the body with LF for CRLF", text));
    }
    bodies.retain(|(_, changed)| changed != body);
    bodies
}

/// Whether the rule holds for another body.
fn holds_for(scope: &Scope<'_, '_>, rule: &Signature, body: &[u8]) -> bool {
    let request = RawRequest { body, ..scope.request };
    let scope = Scope::new(scope.provider, request, scope.now);
    let frame = super::scope::Frame::default();
    let values = super::verify::source_values(&scope, rule, frame);
    super::verify::read(&scope, rule, &values, frame)
        .is_ok_and(|reading| matches(&scope, rule, &reading, |text| text.to_owned()))
}

/// Whether a changed rule, or changed secrets, give one of the signatures.
fn matches(scope: &Scope<'_, '_>, rule: &Signature, reading: &Reading<'_>, change: impl Fn(&str) -> String) -> bool {
    scope.provider.secrets.iter().any(|secret| {
        let secret = change(secret.expose_secret()).into();
        let made: Option<Key> = key(rule, 0, &secret).ok();
        let tag = made.and_then(|key| tag(scope, rule, reading, &key));
        tag.is_some_and(|tag| {
            let is = |value: &&[u8]| candidate::is_digest(value, rule.encoding, &tag);
            reading.candidates.iter().any(is)
        })
    })
}
