//! Proof of origin. Fails closed: whatever is missing, unreadable or of the wrong length is a rejection.

use std::borrow::Cow;

use jiff::Timestamp;
use secrecy::ExposeSecret as _;

use super::{
    Rejection, Verified, batch, candidate, fetched, jwt, oracle,
    scope::{Frame, Scope},
    time,
};
use crate::adapters::{Bind, Condition, Digester, Expr, Material, Pattern, Scheme, Signature};

/// What one rule finds in a request.
pub(crate) struct Reading<'s> {
    /// Signatures as they are written, one by one.
    pub(crate) candidates: Vec<&'s [u8]>,
    /// Which secret each is made with, where the pattern captures that.
    pub(crate) owners: Vec<(usize, &'s [u8])>,
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
                    secret,
                });
            }
            Err(rejection) if progress(&rejection) > progress(&worst) => worst = rejection,
            Err(_) => {}
        }
    }
    Err(worst)
}

/// Whether a genuine request is one for this endpoint.
pub(crate) fn bound(scope: &Scope<'_, '_>) -> Result<(), Rejection> {
    let holds = |conditions: &[Condition]| scope.holds(conditions, Frame::default());
    let fails = |bind: &&Bind| holds(&bind.when) && !holds(std::slice::from_ref(&bind.condition));
    match scope.provider.rules.bind.iter().find(fails) {
        Some(bind) => Err(Rejection::WrongRecipient(bind.condition.text.clone())),
        None => Ok(()),
    }
}

pub(crate) fn try_rule(scope: &Scope<'_, '_>, index: usize, rule: &Signature) -> Result<Option<usize>, Rejection> {
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
) -> Result<Option<usize>, Rejection> {
    let values = source_values(scope, rule, frame);
    if values.is_empty() && scope.stays_closed() {
        return Err(Rejection::CannotDecrypt);
    }
    let Some(separator) = &rule.group else {
        return try_values(scope, index, rule, &values, frame);
    };
    let mut worst = Rejection::MissingSignature;
    let groups = values.iter().flat_map(|value| split(value, separator.as_bytes()));
    for group in groups {
        match try_values(scope, index, rule, &[Cow::Borrowed(group.trim_ascii())], frame) {
            Err(rejection) if progress(&rejection) > progress(&worst) => worst = rejection,
            Err(_) => {}
            proved => return proved,
        }
    }
    Err(worst)
}

fn try_values(
    scope: &Scope<'_, '_>,
    index: usize,
    rule: &Signature,
    values: &[Cow<'_, [u8]>],
    frame: Frame<'_>,
) -> Result<Option<usize>, Rejection> {
    let reading = read(scope, rule, values, frame)?;
    if rule.scheme == Scheme::Jwt {
        return jwt::prove(scope, index, rule, &reading, frame);
    }
    let secret = matching_secret(scope, index, rule, &reading, frame)?;
    judge_time(rule, reading.timestamp(), scope.now)?;
    Ok(secret)
}

/// What the sources hold.
pub(crate) fn source_values<'s>(scope: &'s Scope<'_, '_>, rule: &'s Signature, frame: Frame<'s>) -> Vec<Cow<'s, [u8]>> {
    let mut values = Vec::with_capacity(rule.sources.len());
    for source in &rule.sources {
        scope.candidates(source, frame, &mut values);
    }
    values
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
        owners: Vec::new(),
        captures: Vec::new(),
    };
    for value in values {
        match rule.list.as_deref().filter(|separator| !separator.is_empty()) {
            None => reading.take(&rule.format, value),
            Some(separator) => {
                for (place, item) in split(value, separator.as_bytes()).enumerate() {
                    let last = rule.format.len().saturating_sub(1);
                    let patterns = match rule.positional {
                        true => &rule.format[place.min(last)..=place.min(last)],
                        false => &rule.format[..],
                    };
                    reading.take(patterns, item.trim_ascii());
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
    fn take(&mut self, patterns: &'s [Pattern], item: &'s [u8]) {
        for pattern in patterns {
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
                let own = self.captures[captures..].iter().find(|(name, _)| *name == "secret_id");
                if let (Some((_, Cow::Borrowed(owner))), true) = (own, self.candidates.len() > candidates) {
                    self.owners.push((candidates, owner));
                }
                return;
            }
            self.candidates.truncate(candidates);
            self.captures.truncate(captures);
        }
    }

    fn has(&self, wanted: &str) -> bool {
        self.captures.iter().any(|(name, _)| *name == wanted)
    }

    /// The candidates that may be made with the secret of this id, each with its index.
    fn of<'r>(&'r self, id: Option<&'r [u8]>) -> impl Iterator<Item = (usize, &'r &'s [u8])> + 'r {
        let fits = move |index: usize| {
            let owner = self.owners.iter().find(|(at, _)| *at == index);
            owner.is_none_or(|(_, owner)| id == Some(*owner))
        };
        self.candidates
            .iter()
            .enumerate()
            .filter(move |(index, _)| fits(*index))
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
) -> Result<Option<usize>, Rejection> {
    for key in &scope.provider.keys[index] {
        let frame = Frame {
            captures: &reading.captures,
            secret_id: key.id.as_deref(),
            ..frame
        };
        let matches = match (&key.material, rule.scheme) {
            (Material::Text(secret), Scheme::Token) => {
                let secret = secret.expose_secret().as_bytes();
                reading.candidates.iter().any(|value| candidate::same(value, secret))
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
                let frame = Frame {
                    secret: Some(secret),
                    ..frame
                };
                is_signed(scope, rule, reading, frame, Digester::plain(hash))?
            }
            (Material::Public(set), Scheme::Public(algorithm)) => {
                let (message, signatures) = public_parts(scope, rule, reading, frame)?;
                signatures.iter().any(|value| set.verifies(algorithm, &message, value))
            }
            (Material::Fetched, Scheme::Public(algorithm)) => {
                let (message, signatures) = public_parts(scope, rule, reading, frame)?;
                let fetched = fetched::keys(scope, frame)?;
                signatures
                    .iter()
                    .any(|value| fetched.keys.verifies(algorithm, &message, value))
            }
            _ => false,
        };
        if matches {
            if let Scheme::Hmac(hash) = rule.scheme {
                oracle::refuse(scope, hash, || scope.text(&rule.message, frame))?;
            }
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
    let written = scope.write(&rule.message, frame, &mut |piece| digester.update(piece));
    written.ok_or_else(|| lacks(rule, reading))?;
    let tag = digester.finish();
    let is = |(_, value): (usize, &&[u8])| candidate::is_digest(value, rule.encoding, &tag);
    Ok(reading.of(frame.secret_id).any(is))
}

/// The message and the signatures that can be read at all; at least one, so that no key is asked for without.
fn public_parts(
    scope: &Scope<'_, '_>,
    rule: &Signature,
    reading: &Reading<'_>,
    frame: Frame<'_>,
) -> Result<(Vec<u8>, Vec<Vec<u8>>), Rejection> {
    let signatures: Vec<_> = reading
        .of(frame.secret_id)
        .filter_map(|(_, value)| candidate::decode_long(value, rule.encoding))
        .collect();
    if signatures.is_empty() {
        return Err(Rejection::MalformedSignature);
    }
    let mut message = Vec::with_capacity(scope.request.body.len() + 64);
    let written = scope.write(&rule.message, frame, &mut |piece| message.extend_from_slice(piece));
    written.ok_or_else(|| lacks(rule, reading))?;
    Ok((message, signatures))
}

/// Why a message cannot be written.
fn lacks(rule: &Signature, reading: &Reading<'_>) -> Rejection {
    let needs_time = rule.message.uses(&Expr::Capture("timestamp".into()));
    match needs_time && reading.timestamp().is_none() {
        true => Rejection::MissingTimestamp,
        false => Rejection::MalformedSignature,
    }
}

/// Judges the signed time, which only means something once the signature holds.
pub(crate) fn judge_time(rule: &Signature, signed: Option<&[u8]>, now: Timestamp) -> Result<(), Rejection> {
    let Some(tolerance) = rule.tolerance else {
        return Ok(());
    };
    let signed = signed
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
pub(crate) fn progress(rejection: &Rejection) -> u8 {
    match rejection {
        Rejection::MissingSignature => 0,
        Rejection::MalformedSignature => 1,
        Rejection::MissingTimestamp => 2,
        Rejection::WrongSignature | Rejection::UntrustedKey | Rejection::CannotDecrypt => 3,
        // Not known to be wrong.
        Rejection::CannotVerifyNow { .. } => 5,
        _ => 4,
    }
}

fn split<'t>(text: &'t [u8], separator: &'t [u8]) -> impl Iterator<Item = &'t [u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        match text.windows(separator.len()).position(|window| window == separator) {
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
