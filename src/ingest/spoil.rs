//! What is wrong with a sample on purpose: forged, changed, or not signed.

use super::{
    OwnedRequest,
    fill::SIGNATURE,
    sign::{Bad, Draft, SignError, Signer, attempt, attempt_with, proves},
};
use crate::adapters::{Digester, Expr, Material, Scheme, Signature};
use jiff::Timestamp;

/// Of the shape that secrets have, pairs too.
const WRONG: &str = "not-the-secret:of-this-provider";
/// No signature in any encoding.
const GARBAGE: &str = "garbage";

/// The request with this wrong with it. Where the sample itself carries the secret, it carries another.
///
/// # Errors
/// As [`super::sign()`].
pub(super) fn spoil(
    draft: Draft<'_>,
    rule: &Signature,
    key: Signer<'_>,
    filled: &OwnedRequest,
    now: Timestamp,
    bad: Bad,
) -> Result<OwnedRequest, SignError> {
    let provider = draft.provider;
    let (request, carried) = match bad {
        Bad::WrongKey => (wrong_key(draft, rule, key, filled, now)?, WRONG.to_owned()),
        Bad::Malformed => {
            let garbage = |_| GARBAGE.to_owned();
            let request = attempt_with(provider, rule, key, filled, now, &garbage)?;
            (request, GARBAGE.to_owned())
        }
        Bad::Missing => (missing(rule, filled), String::new()),
        Bad::None | Bad::Stale | Bad::Tampered => {
            let mut request = attempt(provider, rule, key, filled, now)?;
            tamper(&mut request.body);
            if !proves(provider, &request, now) {
                return Ok(request);
            }
            // The body is not what this scheme signs.
            let secret = provider.secrets.first();
            let secret = secret.map_or("", |secret| secrecy::ExposeSecret::expose_secret(secret));
            let request = attempt_with(provider, rule, key, filled, now, &|signature| altered(&signature))?;
            (request, altered(secret))
        }
    };
    match proves(provider, &request, now) {
        false => Ok(request),
        true => Ok(draft.fill(now, &carried)),
    }
}

fn wrong_key(
    draft: Draft<'_>,
    rule: &Signature,
    key: Signer<'_>,
    filled: &OwnedRequest,
    now: Timestamp,
) -> Result<OwnedRequest, SignError> {
    let other = match (key.key, rule.scheme) {
        (Material::Mac(_), Scheme::Hmac(hash)) => {
            Some(Material::Mac(Box::new(Digester::keyed(hash, WRONG.as_bytes()))))
        }
        (Material::Text(_), _) => Some(Material::Text(WRONG.into())),
        _ => None,
    };
    let key = match &other {
        // There the pair's first part is a secret too.
        Some(other) if matches!(rule.scheme, Scheme::Hash(_)) && key.id.is_some() => Signer {
            key: other,
            id: Some(b"not-the-secret"),
            ..key
        },
        Some(other) => Signer { key: other, ..key },
        None => Signer { spoil: true, ..key },
    };
    attempt(draft.provider, rule, key, filled, now)
}

/// What came without a signature: a sample as it is, and no token where the body is one.
fn missing(rule: &Signature, filled: &OwnedRequest) -> OwnedRequest {
    let mut request = filled.clone();
    if let Some(Expr::Body | Expr::Decrypted) = rule.sources.first() {
        request.body.clear();
    }
    let find = |body: &[u8]| {
        body.windows(SIGNATURE.len())
            .position(|text| text == SIGNATURE.as_bytes())
    };
    while let Some(at) = find(&request.body) {
        request.body.drain(at..at + SIGNATURE.len());
    }
    request
}

/// Changes one digit, or adds a space where there is none.
pub(super) fn tamper(body: &mut Vec<u8>) {
    match body.iter().rposition(u8::is_ascii_digit) {
        Some(at) => body[at] = if body[at] == b'9' { b'0' } else { body[at] + 1 },
        None => body.push(b' '),
    }
}

/// The text with one character in its middle changed.
fn altered(text: &str) -> String {
    let middle = text.chars().count() / 2;
    let change = |(at, c)| match (at == middle, c) {
        (false, c) => c,
        (true, 'A') => 'B',
        (true, _) => 'A',
    };
    text.chars().enumerate().map(change).collect()
}
