//! Proof of origin. Fails closed: whatever is missing, unreadable or of the wrong length is a rejection.

use std::borrow::Cow;

use jiff::Timestamp;
use secrecy::ExposeSecret as _;

use super::{
    Rejection, Verified, batch, candidate,
    scope::{Frame, Scope},
    time,
};
use crate::adapters::{Digester, Expr, Material, Scheme, Signature};

/// What one rule finds in a request.
pub(crate) struct Reading<'s> {
    /// Signatures as they are written, one by one.
    pub(crate) candidates: Vec<&'s [u8]>,
    /// Captured names, each once, the signed time among them.
    pub(crate) captures: Vec<(&'s str, Cow<'s, [u8]>)>,
}

/// Tries the rules that count, in order. Where all fail, the rejection that came furthest is given.
pub(crate) fn verify(scope: &Scope<'_, '_>) -> Result<Verified, Rejection> {
    let provider = scope.provider;
    if !provider.rules.verify {
        return Ok(Verified {
            signature: None,
            secret: None,
        });
    }
    let mut worst = Rejection::MissingSignature;
    for (index, rule) in provider.rules.signatures.iter().enumerate() {
        if provider.keys[index].is_empty() || !scope.holds(&rule.when, Frame::default()) {
            continue;
        }
        match try_rule(scope, index, rule) {
            Ok(secret) => {
                return Ok(Verified {
                    signature: Some(index),
                    secret: Some(secret),
                });
            }
            Err(rejection) if progress(&rejection) > progress(&worst) => worst = rejection,
            Err(_) => {}
        }
    }
    Err(worst)
}

fn try_rule(scope: &Scope<'_, '_>, index: usize, rule: &Signature) -> Result<usize, Rejection> {
    if !rule.each {
        return try_frame(scope, index, rule, Frame::default());
    }
    let items = batch::items(scope).ok().flatten().unwrap_or_default();
    let mut proved = Err(Rejection::MissingSignature);
    for item in &items {
        proved = Ok(try_frame(scope, index, rule, item.frame())?);
    }
    proved
}

/// Tries a rule on the request, or on one item of it.
fn try_frame(
    scope: &Scope<'_, '_>,
    index: usize,
    rule: &Signature,
    frame: Frame<'_>,
) -> Result<usize, Rejection> {
    let values = source_values(scope, rule, frame);
    let reading = read(scope, rule, &values, frame)?;
    let secret = matching_secret(scope, index, rule, &reading, frame)?;
    judge_time(rule, &reading, scope.now)?;
    Ok(secret)
}

/// What the sources hold.
pub(crate) fn source_values<'s>(
    scope: &'s Scope<'_, '_>,
    rule: &'s Signature,
    frame: Frame<'s>,
) -> Vec<Cow<'s, [u8]>> {
    rule.sources
        .iter()
        .filter_map(|source| scope.eval(source, frame))
        .collect()
}

/// Matches the values against the patterns.
pub(crate) fn read<'s>(
    scope: &'s Scope<'_, '_>,
    rule: &'s Signature,
    values: &'s [Cow<'s, [u8]>],
    frame: Frame<'s>,
) -> Result<Reading<'s>, Rejection> {
    if values.iter().all(|value| value.is_empty()) {
        return Err(Rejection::MissingSignature);
    }
    let mut reading = Reading {
        candidates: Vec::with_capacity(2),
        captures: Vec::new(),
    };
    for value in values {
        match rule
            .list
            .as_deref()
            .filter(|separator| !separator.is_empty())
        {
            None => reading.take(rule, value),
            Some(separator) => {
                for item in split(value, separator.as_bytes()) {
                    reading.take(rule, item.trim_ascii());
                }
            }
        }
    }
    if reading.candidates.is_empty() {
        return Err(Rejection::MalformedSignature);
    }
    if let Some(expr) = &rule.timestamp
        && !reading.has("timestamp")
        && let Some(value) = scope.eval(expr, frame)
    {
        reading.captures.push(("timestamp", value));
    }
    Ok(reading)
}

impl<'s> Reading<'s> {
    /// Takes one item, by the first pattern that matches it.
    fn take(&mut self, rule: &'s Signature, item: &'s [u8]) {
        for pattern in &rule.format {
            let (candidates, captures) = (self.candidates.len(), self.captures.len());
            let matched = pattern.matches(item, |name, range| {
                let value = &item[range];
                if name == "signature" {
                    self.candidates.push(value);
                } else {
                    self.captures.push((name, Cow::Borrowed(value)));
                }
            });
            if matched {
                return;
            }
            self.candidates.truncate(candidates);
            self.captures.truncate(captures);
        }
    }

    fn has(&self, wanted: &str) -> bool {
        self.captures.iter().any(|(name, _)| *name == wanted)
    }

    /// The text of the signed time.
    pub(crate) fn timestamp(&self) -> Option<&[u8]> {
        let found = self.captures.iter().find(|(name, _)| *name == "timestamp");
        found.map(|(_, value)| &**value)
    }
}

/// The index of the secret that makes one of the candidates. The message is hashed once for each secret, however
/// many candidates there are.
fn matching_secret(
    scope: &Scope<'_, '_>,
    index: usize,
    rule: &Signature,
    reading: &Reading<'_>,
    frame: Frame<'_>,
) -> Result<usize, Rejection> {
    for key in &scope.provider.keys[index] {
        let matches = match (&key.material, rule.scheme) {
            (Material::Text(secret), Scheme::Token) => {
                let secret = secret.expose_secret().as_bytes();
                reading
                    .candidates
                    .iter()
                    .any(|value| candidate::same(value, secret))
            }
            (Material::Text(secret), Scheme::Basic) => {
                let secret = secret.expose_secret().as_bytes();
                reading
                    .candidates
                    .iter()
                    .any(|value| candidate::is_basic(value, secret))
            }
            (Material::Mac(mac), _) => is_signed(scope, rule, reading, frame, (**mac).clone())?,
            (Material::Text(secret), Scheme::Hash(hash)) => {
                let secret = secret.expose_secret().as_bytes();
                is_signed(
                    scope,
                    rule,
                    reading,
                    Frame {
                        secret: Some(secret),
                        ..frame
                    },
                    Digester::plain(hash),
                )?
            }
            (Material::Text(_), Scheme::Hmac(_)) => false,
        };
        if matches {
            return Ok(key.secret);
        }
    }
    Err(Rejection::WrongSignature)
}

fn is_signed(
    scope: &Scope<'_, '_>,
    rule: &Signature,
    reading: &Reading<'_>,
    frame: Frame<'_>,
    mut digester: Digester,
) -> Result<bool, Rejection> {
    let frame = Frame {
        captures: &reading.captures,
        ..frame
    };
    let written = scope.write(&rule.message, frame, &mut |piece| digester.update(piece));
    if written.is_none() {
        let needs_time = rule.message.uses(&Expr::Capture("timestamp".into()));
        return Err(match needs_time && reading.timestamp().is_none() {
            true => Rejection::MissingTimestamp,
            false => Rejection::MalformedSignature,
        });
    }
    let tag = digester.finish();
    let is = |value: &&[u8]| candidate::is_digest(value, rule.encoding, &tag);
    Ok(reading.candidates.iter().any(is))
}

/// Judges the signed time, which only means something once the signature holds.
pub(crate) fn judge_time(
    rule: &Signature,
    reading: &Reading<'_>,
    now: Timestamp,
) -> Result<(), Rejection> {
    let Some(tolerance) = rule.tolerance else {
        return Ok(());
    };
    let signed = reading
        .timestamp()
        .and_then(|text| time::signed(text, rule.timestamp_format))
        .ok_or(Rejection::MissingTimestamp)?;
    let age = now.duration_since(signed);
    match (age.as_secs(), age.subsec_nanos()) {
        (seconds, nanos) if seconds > tolerance || seconds == tolerance && nanos > 0 => {
            Err(Rejection::Stale { seconds })
        }
        (seconds, nanos) if -seconds > tolerance || -seconds == tolerance && nanos < 0 => {
            Err(Rejection::Future { seconds: -seconds })
        }
        _ => Ok(()),
    }
}

/// How far a request came, so that of several rules the most telling rejection is given.
fn progress(rejection: &Rejection) -> u8 {
    match rejection {
        Rejection::MissingSignature => 0,
        Rejection::MalformedSignature => 1,
        Rejection::MissingTimestamp => 2,
        Rejection::WrongSignature => 3,
        _ => 4,
    }
}

fn split<'t>(text: &'t [u8], separator: &'t [u8]) -> impl Iterator<Item = &'t [u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        match text
            .windows(separator.len())
            .position(|window| window == separator)
        {
            Some(at) => {
                rest = Some(&text[at + separator.len()..]);
                Some(&text[..at])
            }
            None => {
                rest = None;
                Some(text)
            }
        }
    })
}
