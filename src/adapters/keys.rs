//! Secrets made into keys. Nothing in here is ever printed.

use std::{fmt, sync::Arc};

use base64::{
    Engine as _,
    alphabet::{STANDARD, URL_SAFE},
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use secrecy::{ExposeSecret as _, SecretString};

use unicode_normalization::UnicodeNormalization as _;

use super::{
    digest::{Digester, hash},
    jwt::JwtAlgorithm,
    public_key::{KeySet, Public},
    rules::{Hash, KeyStep, Scheme, Signature},
};

const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
/// As keys are written: bits that are left over after the last byte are ignored.
const LENIENT_KEY: GeneralPurposeConfig = LENIENT.with_decode_allow_trailing_bits(true);
/// Base64, padding optional.
pub(crate) const BASE64: GeneralPurpose = GeneralPurpose::new(&STANDARD, LENIENT);
/// The URL-safe alphabet, padding optional.
pub(crate) const BASE64_URL: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, LENIENT);

/// A secret as one signature rule uses it.
#[derive(Clone)]
pub(crate) struct Key {
    /// Which of the provider's secrets; `None` where the key is fetched.
    pub(crate) secret: Option<usize>,
    /// The part of a pair that names the other.
    pub(crate) id: Option<Vec<u8>>,
    pub(crate) material: Material,
}

#[derive(Clone)]
pub(crate) enum Material {
    /// Initialised, to be cloned for each request. Boxed, because tokens are small and this is not.
    Mac(Box<Digester>),
    /// Compared, or put into a message.
    Text(SecretString),
    /// The same key for each hash that a token may be signed with.
    Macs(Vec<(Hash, Digester)>),
    Public(Arc<KeySet>),
    Fetched,
}

impl Key {
    /// The key of a rule whose keys are fetched.
    pub(crate) fn fetched() -> Self {
        Self {
            secret: None,
            id: None,
            material: Material::Fetched,
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", self.secret)
    }
}

/// The key of one secret for one rule. A text that is a public key never becomes a shared secret: everybody knows it,
/// so what it "proves" anybody could have made.
///
/// # Errors
/// A sentence that does not show the secret.
pub(crate) fn key(rule: &Signature, index: usize, secret: &SecretString) -> Result<Key, String> {
    let text = secret.expose_secret();
    let material = match (rule.scheme, KeySet::parse(text)) {
        (Scheme::Public(algorithm), known) => Material::Public(public(rule, algorithm, text, known)?),
        (Scheme::Jwt, Ok(set)) => token_keys(rule, set)?,
        (_, Ok(_)) => return Err("it is a public or private key, which is no shared secret".into()),
        (Scheme::Jwt, Err(_)) => Material::Macs(token_macs(rule, text)?),
        (Scheme::Hmac(hash), Err(_)) => Material::Mac(Box::new(Digester::keyed(hash, &decode(&rule.key, text)?))),
        (Scheme::Basic, Err(_)) if !text.contains(':') => {
            return Err("expected `user:password`, joined by a colon".into());
        }
        (Scheme::Hash(_), Err(_)) => {
            let text = String::from_utf8(decode(&rule.key, text)?);
            Material::Text(text.map_err(|_| "it is not text after `key`".to_owned())?.into())
        }
        (Scheme::Token | Scheme::Basic, Err(_)) => Material::Text(secret.clone()),
    };
    let pair = rule
        .key
        .contains(&KeyStep::Pair)
        .then(|| text.split_once(':'))
        .flatten();
    Ok(Key {
        secret: Some(index),
        id: pair.map(|(id, _)| id.as_bytes().to_vec()),
        material,
    })
}

fn public(
    rule: &Signature,
    algorithm: Public,
    text: &str,
    known: Result<KeySet, String>,
) -> Result<Arc<KeySet>, String> {
    let bare = algorithm == Public::Ed25519 && !rule.key.contains(&KeyStep::Whpk);
    let set = if bare { KeySet::parse_ed25519(text)? } else { known? };
    match set.suits(algorithm) {
        true => Ok(Arc::new(set)),
        false => Err("it is a public key of another kind".into()),
    }
}

fn token_keys(rule: &Signature, set: KeySet) -> Result<Material, String> {
    let suits = |algorithm: &JwtAlgorithm| matches!(algorithm, JwtAlgorithm::Public(public) if set.suits(*public));
    match rule.algorithms.iter().any(suits) {
        true => Ok(Material::Public(Arc::new(set))),
        false => Err("it is a public key, and none of `algorithms` takes one of its kind".into()),
    }
}

fn token_macs(rule: &Signature, text: &str) -> Result<Vec<(Hash, Digester)>, String> {
    let key = decode(&rule.key, text)?;
    let macs: Vec<_> = rule
        .algorithms
        .iter()
        .filter_map(|algorithm| match algorithm {
            JwtAlgorithm::Hmac(hash) => Some((*hash, Digester::keyed(*hash, &key))),
            JwtAlgorithm::Public(_) => None,
        })
        .collect();
    match macs.is_empty() {
        true => Err("it is no public key (PEM, JWK, or DER in base64)".into()),
        false => Ok(macs),
    }
}

/// The key bytes in a secret.
///
/// # Errors
/// A sentence that does not show the secret.
pub(crate) fn decode(steps: &[KeyStep], secret: &str) -> Result<Vec<u8>, String> {
    let mut bytes = secret.as_bytes().to_vec();
    for step in steps {
        bytes = take_step(step, bytes)?;
    }
    match bytes.is_empty() {
        true => Err("it decodes to nothing".into()),
        false => Ok(bytes),
    }
}

fn take_step(step: &KeyStep, bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    let text = || std::str::from_utf8(&bytes).map_err(|_| "it is not text after an earlier step of `key`".to_owned());
    Ok(match step {
        KeyStep::Raw | KeyStep::Whpk => bytes,
        KeyStep::Hex => hex::decode(&bytes).map_err(|_| "it is not hexadecimal".to_owned())?,
        KeyStep::Base64 => base64(text()?)?,
        KeyStep::Whsec => {
            let text = text()?;
            let bare = text.strip_prefix("v1,").unwrap_or(text);
            base64(bare.strip_prefix("whsec_").unwrap_or(bare))?
        }
        KeyStep::Pair => match text()?.split_once(':') {
            Some((id, secret)) if !id.is_empty() => secret.as_bytes().to_vec(),
            _ => return Err("expected two parts, joined by a colon".into()),
        },
        KeyStep::Nfkd => text()?.nfkd().collect::<String>().into_bytes(),
        KeyStep::Sha1 => hash(Hash::Sha1, &bytes).bytes().to_vec(),
        KeyStep::Sha256 => hash(Hash::Sha256, &bytes).bytes().to_vec(),
        KeyStep::Strip(prefix) => bytes.strip_prefix(prefix.as_bytes()).unwrap_or(&bytes).to_vec(),
    })
}

fn base64(text: &str) -> Result<Vec<u8>, String> {
    GeneralPurpose::new(&STANDARD, LENIENT_KEY)
        .decode(text)
        .or_else(|_| GeneralPurpose::new(&URL_SAFE, LENIENT_KEY).decode(text))
        .map_err(|_| "it is not base64".to_owned())
}

/// Whether a text could be base64, of either alphabet.
pub(crate) fn is_base64(text: &str) -> bool {
    base64(text).is_ok()
}
