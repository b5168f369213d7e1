//! Secrets made into keys. Nothing in here is ever printed.

use std::fmt;

use base64::{
    Engine as _,
    alphabet::{STANDARD, URL_SAFE},
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use secrecy::{ExposeSecret as _, SecretString};

use super::{
    digest::Digester,
    rules::{KeyKind, Scheme, Signature},
};

const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
/// Base64, padding optional.
pub(crate) const BASE64: GeneralPurpose = GeneralPurpose::new(&STANDARD, LENIENT);
/// The URL-safe alphabet, padding optional.
pub(crate) const BASE64_URL: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, LENIENT);

/// A secret as one signature rule uses it.
#[derive(Clone)]
pub(crate) struct Key {
    /// Which of the provider's secrets.
    pub(crate) secret: usize,
    pub(crate) material: Material,
}

#[derive(Clone)]
pub(crate) enum Material {
    /// Initialised, to be cloned for each request. Boxed, because tokens are small and this is not.
    Mac(Box<Digester>),
    /// Compared, or put into a message.
    Text(SecretString),
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.secret)
    }
}

/// The key of one secret for one rule.
///
/// # Errors
/// A sentence that does not show the secret.
pub(crate) fn key(rule: &Signature, index: usize, secret: &SecretString) -> Result<Key, String> {
    let text = secret.expose_secret();
    let material = match rule.scheme {
        Scheme::Hmac(hash) => {
            Material::Mac(Box::new(Digester::keyed(hash, &decode(rule.key, text)?)))
        }
        Scheme::Basic if !text.contains(':') => {
            return Err("expected `user:password`, joined by a colon".into());
        }
        Scheme::Hash(_) | Scheme::Token | Scheme::Basic => Material::Text(secret.clone()),
    };
    Ok(Key {
        secret: index,
        material,
    })
}

/// The key bytes in a secret.
///
/// # Errors
/// A sentence that does not show the secret.
pub(crate) fn decode(kind: KeyKind, secret: &str) -> Result<Vec<u8>, String> {
    let bytes = match kind {
        KeyKind::Raw => secret.as_bytes().to_vec(),
        KeyKind::Hex => hex::decode(secret).map_err(|_| "it is not hexadecimal".to_owned())?,
        KeyKind::Base64 => base64(secret)?,
        KeyKind::Whsec => {
            let bare = secret.strip_prefix("v1,").unwrap_or(secret);
            base64(bare.strip_prefix("whsec_").unwrap_or(bare))?
        }
    };
    match bytes.is_empty() {
        true => Err("it decodes to nothing".into()),
        false => Ok(bytes),
    }
}

fn base64(text: &str) -> Result<Vec<u8>, String> {
    BASE64
        .decode(text)
        .or_else(|_| BASE64_URL.decode(text))
        .map_err(|_| "it is not base64".to_owned())
}

/// Whether a text could be base64, of either alphabet.
pub(crate) fn is_base64(text: &str) -> bool {
    base64(text).is_ok()
}
