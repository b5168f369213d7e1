//! The inverse of verification, for `trigger`, `demo` and tests: a sample becomes the request its sender would send.

use std::borrow::Cow;

use base64::Engine as _;
use jiff::Timestamp;
use secrecy::ExposeSecret as _;

use super::{
    OwnedRequest, batch,
    fill::Filler,
    place::place,
    scope::{Frame, Scope},
    sign_jwt, spoil, time, verify,
};
use crate::adapters::{Cipher, Digester, Encoding, Expr, Key, Material, Provider, Scheme, Signature};

/// How far past the tolerance a stale request lies.
const STALE_BY: i64 = 3600;

/// What is wrong with the request on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bad {
    /// Nothing.
    #[default]
    None,
    /// Signed rightly, longer ago than the tolerance allows.
    Stale,
    /// Changed after it was signed.
    Tampered,
    /// Signed with another secret.
    WrongKey,
    /// A text that is no signature where it belongs.
    Malformed,
    /// No signature at all.
    Missing,
}

/// Why a sample cannot be signed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignError {
    #[error("verification is off, so there is nothing to do wrong")]
    NothingToBreak,
    #[error("this sender signs no time, or no tolerance is set, so no request is stale")]
    NotTimed,
    #[error(
        "this sender signs with a private key that only it has: what is registered here (a public key, or the place \
         where it is fetched) can verify, but not sign. In a configuration for tests, put a private key of your own into \
         `secrets`: its public half is pinned"
    )]
    NoPrivateKey,
    #[error("no signature rule of the adapter fits this request: {0}")]
    NoRule(String),
}

/// What a request is signed with.
#[derive(Clone, Copy)]
pub(crate) struct Signer<'k> {
    pub(crate) key: &'k Material,
    /// The part of a pair that names the key.
    pub(crate) id: Option<&'k [u8]>,
    /// Whether to change a bit of the signature, which is what that of another private key looks like.
    pub(crate) spoil: bool,
}

impl<'k> Signer<'k> {
    pub(crate) fn new(key: &'k Key) -> Self {
        Self {
            key: &key.material,
            id: key.id.as_deref(),
            spoil: false,
        }
    }

    /// The bytes as they are sent.
    pub(crate) fn finish(&self, mut signature: Vec<u8>) -> Vec<u8> {
        if let (true, Some(byte)) = (self.spoil, signature.last_mut()) {
            *byte ^= 1;
        }
        signature
    }
}

/// A sample, and what it is a sample for.
#[derive(Clone, Copy)]
pub(super) struct Draft<'a> {
    pub(super) provider: &'a Provider,
    pub(super) sample: &'a OwnedRequest,
    /// Where the values of placeholders must be the same each time.
    pub(super) seed: Option<&'a str>,
}

impl Draft<'_> {
    /// The request before it is signed.
    pub(super) fn fill(&self, now: Timestamp, secret: &str) -> OwnedRequest {
        let mut filler = Filler::new(now, secret, &self.provider.options).seeded(self.seed);
        let mut filled = filler.request(self.sample);
        encrypt(self.provider, &mut filled);
        filled
    }

    /// Signs it, by the first rule that then verifies.
    ///
    /// # Errors
    /// As [`sign`].
    pub(super) fn sign(&self, now: Timestamp, bad: Bad) -> Result<OwnedRequest, SignError> {
        let provider = self.provider;
        let secret = provider.secrets.first().map_or("", |secret| secret.expose_secret());
        let filled = self.fill(now, secret);
        if !provider.rules.verify {
            return match bad {
                Bad::None => Ok(filled),
                _ => Err(SignError::NothingToBreak),
            };
        }
        let (rule, key) = choose(provider, &filled, now)?;
        let key = Signer::new(key);
        match bad {
            Bad::None => attempt(provider, rule, key, &filled, now),
            Bad::Stale => {
                let tolerance = rule.tolerance.ok_or(SignError::NotTimed)?;
                let then =
                    Timestamp::from_second(now.as_second() - tolerance - STALE_BY).map_err(|_| SignError::NotTimed)?;
                attempt(provider, rule, key, &self.fill(then, secret), then)
            }
            bad => spoil::spoil(*self, rule, key, &filled, now, bad),
        }
        .map_err(|error| match error {
            SignError::NoRule(why) => SignError::NoRule(format!("{}: {why}", rule.name)),
            other => other,
        })
    }
}

/// Fills the placeholders of a sample and signs it, by the first rule that then verifies.
///
/// # Errors
/// [`SignError`], where no rule fits the sample, or there is no such way to be wrong.
pub fn sign(provider: &Provider, sample: &OwnedRequest, now: Timestamp, bad: Bad) -> Result<OwnedRequest, SignError> {
    let draft = Draft {
        provider,
        sample,
        seed: None,
    };
    draft.sign(now, bad)
}

/// The first rule by which the request, signed, verifies.
fn choose<'p>(
    provider: &'p Provider,
    filled: &OwnedRequest,
    now: Timestamp,
) -> Result<(&'p Signature, &'p Key), SignError> {
    let mut why = Vec::new();
    let mut no_private_key = false;
    for (rule, keys) in provider.rules.signatures.iter().zip(&provider.keys) {
        let Some(key) = keys.first() else {
            continue;
        };
        match attempt(provider, rule, Signer::new(key), filled, now) {
            Ok(request) if proves(provider, &request, now) => return Ok((rule, key)),
            Err(SignError::NoPrivateKey) => no_private_key = true,
            Ok(_) => why.push(format!("`{}` does not apply to it", rule.name)),
            Err(SignError::NoRule(reason)) => why.push(format!("`{}`: {reason}", rule.name)),
            Err(other) => return Err(other),
        }
    }
    match no_private_key {
        true => Err(SignError::NoPrivateKey),
        false => Err(SignError::NoRule(why.join("; "))),
    }
}

/// Encrypts the body of a sample, as its sender does who signs the ciphertext.
fn encrypt(provider: &Provider, request: &mut OwnedRequest) {
    if let (Some(decrypt), Some(Some(key))) = (&provider.rules.decrypt, provider.ciphers.first())
        && let Cipher::Cbc(cbc) = &decrypt.cipher
        && let Some(ciphertext) = cbc.seal(key, &request.body)
        && let Some(body) = decrypt.wrap(&ciphertext)
    {
        request.body = body;
    }
}

/// Encrypts what was signed, as its sender does who signs first.
fn encrypt_signed(provider: &Provider, request: &mut OwnedRequest, signed: &str) -> Result<(), SignError> {
    let wrapped = provider
        .rules
        .decrypt
        .as_ref()
        .and_then(|decrypt| match &decrypt.cipher {
            Cipher::Cbc(_) => None,
            Cipher::Jwe(jwe) => decrypt.wrap(&jwe.seal(provider.decryption_keys.first()?, signed.as_bytes())?),
        });
    request.body = wrapped.ok_or_else(|| SignError::NoRule("expected `decrypt.envelope`".into()))?;
    Ok(())
}

/// Whether its signature holds.
pub(super) fn proves(provider: &Provider, request: &OwnedRequest, now: Timestamp) -> bool {
    let headers = request.header_list();
    verify::verify(&Scope::new(provider, request.raw(&headers), now)).is_ok()
}

/// Signs a request by one rule, as of a time.
pub(super) fn attempt(
    provider: &Provider,
    rule: &Signature,
    key: Signer<'_>,
    filled: &OwnedRequest,
    now: Timestamp,
) -> Result<OwnedRequest, SignError> {
    attempt_with(provider, rule, key, filled, now, &|signature| signature)
}

/// The same, with another text in the place of each signature.
pub(super) fn attempt_with(
    provider: &Provider,
    rule: &Signature,
    key: Signer<'_>,
    filled: &OwnedRequest,
    now: Timestamp,
    written: &dyn Fn(String) -> String,
) -> Result<OwnedRequest, SignError> {
    let mut request = filled.clone();
    let time = time::write(now, rule.timestamp_format);
    if let Some(Expr::Header(name)) = &rule.timestamp {
        request.set_header(name, time.clone());
    }
    let values = {
        let headers = request.header_list();
        let scope = Scope::new(provider, request.raw(&headers), now);
        match rule.each {
            false => vec![value(&scope, rule, key, &time, Frame::default())?],
            true => {
                let items = batch::items(&scope).ok().flatten().unwrap_or_default();
                let values = items.iter().map(|item| value(&scope, rule, key, &time, item.frame()));
                values.collect::<Result<Vec<_>, _>>()?
            }
        }
    };
    let values: Vec<String> = values.into_iter().map(written).collect();
    match (rule.sources.first(), values.first()) {
        (Some(Expr::Decrypted), Some(signed)) => encrypt_signed(provider, &mut request, signed)?,
        _ => place(&mut request, rule, values)?,
    }
    Ok(request)
}

/// The signature as it is written where it is found.
fn value(
    scope: &Scope<'_, '_>,
    rule: &Signature,
    key: Signer<'_>,
    time: &str,
    frame: Frame<'_>,
) -> Result<String, SignError> {
    let signed_time = match &rule.timestamp {
        Some(expr) if !rule.captures_time() => scope.eval(expr, frame),
        _ => Some(Cow::Borrowed(time.as_bytes())),
    };
    let mut captures: Vec<(&str, Cow<'_, [u8]>)> = Vec::new();
    captures.extend(signed_time.map(|time| ("timestamp", time)));
    for name in rule.format.iter().flat_map(|pattern| pattern.names()) {
        if name != "signature" && !captures.iter().any(|(known, _)| *known == name) {
            let names_headers = Expr::HeaderValues(Box::new(Expr::Capture(name.to_owned())));
            let value = if name == "secret_id" {
                Cow::Borrowed(key.id.unwrap_or_default())
            } else if rule.message.uses(&names_headers) {
                let names: Vec<_> = scope
                    .request
                    .headers
                    .iter()
                    .map(|(name, _)| name.to_ascii_lowercase())
                    .collect();
                Cow::Owned(names.join(" ").into_bytes())
            } else {
                Cow::Borrowed(&b"1"[..])
            };
            captures.push((name, value));
        }
    }
    let signature = signature(
        scope,
        rule,
        key,
        Frame {
            captures: &captures,
            secret_id: key.id,
            ..frame
        },
    )?;
    let render = |pattern: &crate::adapters::Pattern| {
        pattern.render(|name| match name {
            "signature" => signature.clone(),
            name => captures
                .iter()
                .find(|(known, _)| *known == name)
                .map_or_else(String::new, |(_, value)| String::from_utf8_lossy(value).into_owned()),
        })
    };
    let Some(separator) = &rule.list else {
        return Ok(rule.format.first().map_or_else(|| signature.clone(), render));
    };
    let mut signed = false;
    let items: Vec<String> = rule
        .format
        .iter()
        .filter(|pattern| {
            let signs = pattern.names().any(|name| name == "signature");
            let first = !signs || !signed;
            signed |= signs;
            first
        })
        .map(render)
        .collect();
    Ok(items.join(separator))
}

fn signature(scope: &Scope<'_, '_>, rule: &Signature, key: Signer<'_>, frame: Frame<'_>) -> Result<String, SignError> {
    if rule.scheme == Scheme::Jwt {
        return sign_jwt::token(scope, rule, key, frame);
    }
    let (mut digester, secret) = match (key.key, rule.scheme) {
        (Material::Mac(mac), _) => ((**mac).clone(), None),
        (Material::Text(secret), Scheme::Hash(hash)) => (Digester::plain(hash), Some(secret.expose_secret())),
        (Material::Text(secret), Scheme::Basic) => {
            let encoded = base64::engine::general_purpose::STANDARD.encode(secret.expose_secret());
            return Ok(format!("Basic {encoded}"));
        }
        (Material::Text(secret), _) => return Ok(secret.expose_secret().to_owned()),
        (Material::Public(set), Scheme::Public(algorithm)) => {
            let message = message(scope, rule, frame)?;
            let private = set.private.as_ref().ok_or(SignError::NoPrivateKey)?;
            let signature = private.sign(algorithm, &message).ok_or(SignError::NoPrivateKey)?;
            return Ok(written(rule.encoding, &key.finish(signature)));
        }
        _ => return Err(SignError::NoPrivateKey),
    };
    let frame = Frame {
        secret: secret.map(str::as_bytes),
        ..frame
    };
    digester.update(&message(scope, rule, frame)?);
    Ok(written(rule.encoding, digester.finish().bytes()))
}

/// What is signed.
pub(crate) fn message(scope: &Scope<'_, '_>, rule: &Signature, frame: Frame<'_>) -> Result<Vec<u8>, SignError> {
    let message = scope.text(&rule.message, frame).map(Cow::into_owned);
    message.ok_or_else(|| SignError::NoRule("the request lacks a part of the signed message".into()))
}

fn written(encoding: Encoding, bytes: &[u8]) -> String {
    match encoding {
        Encoding::Hex => hex::encode(bytes),
        Encoding::Base64 => base64::engine::general_purpose::STANDARD.encode(bytes),
        Encoding::Base64Url => base64::engine::general_purpose::URL_SAFE.encode(bytes),
    }
}
