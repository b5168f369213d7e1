//! Seals secrets that lie in the database: AES-256-GCM with a random nonce, bound to the provider's name, so that a row
//! that is copied to another provider does not open. The key is the operator's and never in the database.

use std::{fmt, sync::Arc};

use base64::{
    Engine as _,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    rand::{SecureRandom as _, SystemRandom},
};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

/// The first byte of what is sealed this way; another way would have another.
const VERSION: u8 = 1;

/// Base64 with or without its padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The key that secrets are sealed with. Its `Debug` shows nothing of it.
#[derive(Clone)]
pub struct SealKey(Arc<LessSafeKey>);

/// Why something cannot be sealed or opened. No variant shows a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error("expected 32 bytes as hex or base64; `openssl rand -hex 32` makes such a key")]
    Key,
    #[error("the system gave no random bytes")]
    Random,
    /// Sealed with another key, for another provider, or damaged.
    #[error("does not open with this `seal_key`")]
    DoesNotOpen,
}

impl SealKey {
    /// Reads a key: 32 bytes as hex or base64.
    ///
    /// # Errors
    /// [`SealError::Key`].
    pub fn parse(text: &SecretString) -> Result<Self, SealError> {
        let text = text.expose_secret().trim();
        let bytes = match text.len() {
            64 => hex::decode(text).map_err(|_| SealError::Key)?,
            _ => BASE64.decode(text).map_err(|_| SealError::Key)?,
        };
        // An unset template of zeros is no key.
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(SealError::Key);
        }
        let key = UnboundKey::new(&AES_256_GCM, &bytes).map_err(|_| SealError::Key)?;
        Ok(Self(Arc::new(LessSafeKey::new(key))))
    }

    /// Seals a provider's secret: a byte of version, the nonce, the ciphertext with its tag.
    ///
    /// # Errors
    /// [`SealError::Random`].
    pub fn seal(&self, provider: &str, secret: &SecretString) -> Result<Vec<u8>, SealError> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| SealError::Random)?;
        let mut text = secret.expose_secret().as_bytes().to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        self.0
            .seal_in_place_append_tag(unique, Aad::from(provider.as_bytes()), &mut text)
            .map_err(|_| SealError::Random)?;
        Ok([&[VERSION][..], &nonce, &text].concat())
    }

    /// Opens what [`Self::seal`] made for the same provider.
    ///
    /// # Errors
    /// [`SealError::DoesNotOpen`].
    pub fn open(&self, provider: &str, sealed: &[u8]) -> Result<SecretString, SealError> {
        let opened = || {
            let (version, rest) = sealed.split_first()?;
            let (nonce, text) = rest.split_at_checked(NONCE_LEN)?;
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let mut text = text.to_vec();
            let aad = Aad::from(provider.as_bytes());
            let text = (*version == VERSION).then(|| self.0.open_in_place(nonce, aad, &mut text).ok())??;
            Some(SecretString::from(std::str::from_utf8(text).ok()?))
        };
        opened().ok_or(SealError::DoesNotOpen)
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(hidden)")
    }
}

/// Names a sealed secret in lists and logs. It is made of what is stored, so it says nothing of the secret.
#[must_use]
pub fn fingerprint(sealed: &[u8]) -> String {
    hex::encode(&Sha256::digest(sealed)[..6])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> SealKey {
        SealKey::parse(&hex::encode([byte; 32]).into()).unwrap()
    }

    #[test]
    fn what_is_sealed_opens_again_and_never_looks_the_same() {
        let secret = SecretString::from("handed-over");
        let (one, two) = (
            key(1).seal("asana", &secret).unwrap(),
            key(1).seal("asana", &secret).unwrap(),
        );
        assert_ne!(one, two);
        assert!(!one.windows(6).any(|part| part == b"handed"));
        for sealed in [&one, &two] {
            assert_eq!(key(1).open("asana", sealed).unwrap().expose_secret(), "handed-over");
        }
        assert_ne!(fingerprint(&one), fingerprint(&two));
    }

    #[test]
    fn another_key_or_provider_or_a_changed_byte_opens_nothing() {
        let sealed = key(1).seal("asana", &"handed-over".into()).unwrap();
        assert_eq!(key(2).open("asana", &sealed).unwrap_err(), SealError::DoesNotOpen);
        assert_eq!(key(1).open("notion", &sealed).unwrap_err(), SealError::DoesNotOpen);
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(key(1).open("asana", &changed).is_err(), "byte {at}");
            assert!(key(1).open("asana", &sealed[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_key_is_hex_or_base64_of_32_bytes() {
        let sealed = key(7).seal("asana", &"s".into()).unwrap();
        let padded = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
        for text in [padded, padded.trim_end_matches('='), &format!(" {padded}\n")] {
            let key = SealKey::parse(&text.into()).unwrap();
            assert_eq!(key.open("asana", &sealed).unwrap().expose_secret(), "s", "{text}");
        }
        for text in [
            "",
            "short",
            &"0".repeat(64),
            &"g".repeat(64),
            &"07".repeat(31),
            &"07".repeat(33),
        ] {
            assert_eq!(SealKey::parse(&text.into()).unwrap_err(), SealError::Key, "{text}");
        }
        assert_eq!(format!("{:?}", key(1)), "SealKey(hidden)");
    }
}
