//! Tokens: a compact JWS (RFC 7515) whose algorithm the adapter allows, whose key is the provider's, and whose claims
//! are what they must be. The header of a token chooses among what is allowed, and nothing else.

use std::{borrow::Cow, collections::BTreeMap};

use base64::Engine as _;
use jiff::Timestamp;
use serde::Deserialize;
use subtle::ConstantTimeEq as _;

use super::{
    Rejection, fetched, oracle,
    scope::{Document, Frame, Scope},
    time,
    verify::{Reading, judge_time, progress},
};
use crate::adapters::{BASE64_URL, JwtAlgorithm, Key, KeySet, Material, Signature, TimeFormat};

/// How far clocks may differ for `exp` and `nbf`, in seconds.
const LEEWAY: i64 = 60;
/// Slots of the claims that are always looked at.
const EXPIRES: usize = 0;
const NOT_BEFORE: usize = 1;

/// The head of a token. Of what must be understood (`crit`), `b64` is, in tokens without their payload (RFC 7797).
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Vec<String>>,
    b64: Option<bool>,
    /// For `jose:name`.
    #[serde(flatten)]
    others: BTreeMap<String, serde_json::Value>,
}

/// A token, taken apart.
struct Token<'t> {
    header: Header,
    /// Still encoded.
    payload: &'t str,
    /// What is signed: header and payload, encoded.
    signed: Cow<'t, [u8]>,
    signature: Vec<u8>,
    /// Whether the payload is signed as it is, and not in base64.
    plain: bool,
}

/// Verifies the tokens found, and keeps the claims of the one that holds.
pub(crate) fn prove(
    scope: &Scope<'_, '_>,
    index: usize,
    rule: &Signature,
    reading: &Reading<'_>,
    frame: Frame<'_>,
) -> Result<Option<usize>, Rejection> {
    let mut worst = Rejection::MalformedSignature;
    for text in &reading.candidates {
        match try_token(scope, index, rule, text, reading, frame) {
            Ok((secret, claims)) => {
                scope.keep_claims(claims);
                return Ok(secret);
            }
            Err(rejection) if progress(&rejection) > progress(&worst) => worst = rejection,
            Err(_) => {}
        }
    }
    Err(worst)
}

fn try_token<'d>(
    scope: &Scope<'_, '_>,
    index: usize,
    rule: &Signature,
    text: &[u8],
    reading: &Reading<'_>,
    frame: Frame<'_>,
) -> Result<(Option<usize>, Document<'d>), Rejection> {
    let mut token = Token::read(text, rule.detached).ok_or(Rejection::MalformedSignature)?;
    let allowed = rule.algorithms.iter().find(|known| known.name() == token.header.alg);
    let algorithm = *allowed.ok_or(Rejection::WrongSignature)?;
    let payload = if rule.detached {
        token.attach(scope, rule, reading, frame)?
    } else {
        let payload = BASE64_URL.decode(token.payload);
        payload.map_err(|_| Rejection::MalformedSignature)?
    };
    let claims = Document::read(Cow::Owned(payload), &scope.provider.rules.documents.claims);
    let mut worst = Rejection::WrongSignature;
    for key in &scope.provider.keys[index] {
        if !token.is_signed(scope, key, algorithm, frame)? {
            continue;
        }
        match judge(scope, rule, key, &claims, reading, frame) {
            Ok(()) => return Ok((key.secret, claims)),
            Err(rejection) => worst = rejection,
        }
    }
    Err(worst)
}

impl<'t> Token<'t> {
    fn read(text: &'t [u8], detached: bool) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let (signed, signature) = text.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        if payload.contains('.') {
            return None;
        }
        let header: Header = serde_json::from_slice(&BASE64_URL.decode(header).ok()?).ok()?;
        let understood = match &header.crit {
            None => true,
            Some(names) => detached && *names == ["b64"] && header.b64.is_some(),
        };
        // Some say `b64` without `crit` (older PyJWT, which Saleor has used). It is signed, so nobody else said it.
        let plain = header.b64 == Some(false);
        if !understood || plain && !detached {
            return None;
        }
        Some(Self {
            header,
            payload,
            signed: Cow::Borrowed(signed.as_bytes()),
            signature: BASE64_URL.decode(signature).ok()?,
            plain,
        })
    }

    /// Puts the payload in that the token came without.
    fn attach(
        &mut self,
        scope: &Scope<'_, '_>,
        rule: &Signature,
        reading: &Reading<'_>,
        frame: Frame<'_>,
    ) -> Result<Vec<u8>, Rejection> {
        if !self.payload.is_empty() {
            return Err(Rejection::MalformedSignature);
        }
        let others = self.header.others.iter();
        let named: Vec<_> = others.map(|(name, value)| (format!("jose:{name}"), value)).collect();
        let mut captures: Vec<(&str, Cow<'_, [u8]>)> = Vec::with_capacity(reading.captures.len() + named.len());
        captures.extend(
            reading
                .captures
                .iter()
                .map(|(name, value)| (*name, Cow::Borrowed(&**value))),
        );
        for (name, value) in &named {
            captures.extend(
                value
                    .as_str()
                    .map(|text| (name.as_str(), Cow::Borrowed(text.as_bytes()))),
            );
        }
        let frame = Frame {
            captures: &captures,
            ..frame
        };
        let message = scope.text(&rule.message, frame).map(Cow::into_owned);
        let message = message.ok_or(Rejection::MalformedSignature)?;
        let signed = self.signed.to_mut();
        match self.plain {
            true => signed.extend_from_slice(&message),
            false => {
                let encoded = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(&message);
                signed.extend_from_slice(encoded.as_bytes());
            }
        }
        Ok(message)
    }

    /// Whether this key made it. A shared secret only answers for a MAC, and a public key only for a signature.
    fn is_signed(
        &self,
        scope: &Scope<'_, '_>,
        key: &Key,
        algorithm: JwtAlgorithm,
        frame: Frame<'_>,
    ) -> Result<bool, Rejection> {
        Ok(match (&key.material, algorithm) {
            (Material::Macs(macs), JwtAlgorithm::Hmac(hash)) => {
                let Some((_, mac)) = macs.iter().find(|(known, _)| *known == hash) else {
                    return Ok(false);
                };
                let mut mac = mac.clone();
                mac.update(&self.signed);
                let holds: bool = mac.finish().bytes().ct_eq(&self.signature).into();
                if holds {
                    oracle::refuse(scope, hash, || Some(Cow::Borrowed(&self.signed)))?;
                }
                holds
            }
            (Material::Public(set), JwtAlgorithm::Public(_)) => self.is_signed_by(set, algorithm, scope.now),
            (Material::Fetched, JwtAlgorithm::Public(_)) => {
                let kid = self.header.kid.as_deref();
                let named = kid.map(|kid| ("jose:kid", Cow::Borrowed(kid.as_bytes())));
                let frame = Frame {
                    captures: named.as_slice(),
                    ..frame
                };
                let fetched = fetched::keys_with(scope, frame, kid)?;
                self.is_signed_by(&fetched.keys, algorithm, scope.now)
            }
            _ => false,
        })
    }

    fn is_signed_by(&self, set: &KeySet, algorithm: JwtAlgorithm, now: Timestamp) -> bool {
        let JwtAlgorithm::Public(public) = algorithm else {
            return false;
        };
        let fits = |kid: &Option<String>| match (kid, &self.header.kid) {
            (Some(known), Some(named)) => known == named,
            _ => true,
        };
        set.keys
            .iter()
            .filter(|named| fits(&named.kid))
            .filter(|named| named.algorithm.as_deref().is_none_or(|name| name == algorithm.name()))
            .filter(|named| named.expires.is_none_or(|end| now.as_second() < end))
            .any(|named| named.key.verifies(public, &self.signed, &self.signature))
    }
}

/// Whether the claims of a genuine token are what they must be, and of this time.
fn judge(
    scope: &Scope<'_, '_>,
    rule: &Signature,
    key: &Key,
    claims: &Document<'_>,
    reading: &Reading<'_>,
    frame: Frame<'_>,
) -> Result<(), Rejection> {
    if claims.found.is_err() && !rule.detached {
        return Err(Rejection::MalformedSignature);
    }
    let frame = Frame {
        captures: &reading.captures,
        secret_id: key.id.as_deref(),
        claims: Some(claims),
        ..frame
    };
    for condition in &rule.claims {
        if !scope.holds(std::slice::from_ref(condition), frame) {
            return Err(Rejection::WrongClaim(condition.text.clone()));
        }
    }
    // What is detached is a message, and no claims.
    let claim = |slot: usize| claims.slice(slot).filter(|_| !rule.detached);
    let age = |slot: usize| match claim(slot).and_then(crate::json::text::value) {
        None => Ok(None),
        Some(text) => match time::signed(&text, TimeFormat::Unix) {
            Some(at) => Ok(Some(scope.now.duration_since(at).as_secs())),
            None => Err(Rejection::MissingTimestamp),
        },
    };
    if let Some(seconds) = age(EXPIRES)?.filter(|seconds| *seconds > LEEWAY) {
        return Err(Rejection::Stale { seconds });
    }
    if let Some(seconds) = age(NOT_BEFORE)?.filter(|seconds| -*seconds > LEEWAY) {
        return Err(Rejection::Future { seconds: -seconds });
    }
    let signed = rule.timestamp.as_ref().and_then(|expr| scope.eval(expr, frame));
    judge_time(rule, signed.as_deref().or_else(|| reading.timestamp()), scope.now)
}
