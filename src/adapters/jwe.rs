//! JSON Web Encryption (RFC 7516), the compact form: a key of ours opens what the sender encrypted for it. Anybody can
//! encrypt to a public key, so an opened text proves nothing; it is what the signature is found in.
//!
//! Whatever is wrong with a ciphertext, the outcome is the same, after the same work: a key that does not come out of
//! the RSA part is replaced by a random one (RFC 7516, section 11.5), so that only the tag decides. The private
//! operation is constant-time and blinded.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, Nonce, UnboundKey};
use rsa::{PrivateKey, pkcs1::DecodeRsaPrivateKey as _, pkcs8::DecodePrivateKey as _, traits::PublicKeyParts as _};
use secrecy::{ExposeSecret as _, ExposeSecretMut as _, SecretBox, SecretString};
use serde::Deserialize;

use super::{
    compile::{Compiled, each, fail},
    manifest::DecryptTable,
    public_key::pem,
};

/// Longest protected header, as it is written.
const LONGEST_HEADER: usize = 4096;
const NONCE: usize = 12;
const TAG: usize = 16;
/// Longest key that encrypts the content.
const LONGEST_KEY: usize = 32;
/// Shortest RSA key, in bits.
const SHORTEST_RSA: u32 = 2048;

/// What a ciphertext may be made with. Its header chooses among these, and nothing else.
#[derive(Debug, Clone)]
pub(crate) struct Jwe {
    algorithms: Vec<KeyAlgorithm>,
    encryption: Vec<Encryption>,
}

/// How the key of the content is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyAlgorithm {
    RsaOaep256,
    RsaOaep,
}

/// How the content is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encryption {
    A256Gcm,
    A128Gcm,
}

const ALGORITHMS: [(&str, KeyAlgorithm); 2] = [
    ("RSA-OAEP-256", KeyAlgorithm::RsaOaep256),
    ("RSA-OAEP", KeyAlgorithm::RsaOaep),
];

const ENCRYPTIONS: [(&str, Encryption); 2] = [("A256GCM", Encryption::A256Gcm), ("A128GCM", Encryption::A128Gcm)];

/// A private key that senders encrypt to.
pub(crate) struct DecryptionKey(PrivateKey);

#[derive(Deserialize)]
struct Header {
    alg: String,
    enc: String,
    /// Compressed texts are not taken: their length tells what is in them, and they can be bombs.
    zip: Option<serde::de::IgnoredAny>,
    crit: Option<serde::de::IgnoredAny>,
}

/// A ciphertext, taken apart.
struct Sealed<'t> {
    algorithm: KeyAlgorithm,
    encryption: Encryption,
    /// The header as it is written, which the tag covers.
    header: &'t str,
    key: Vec<u8>,
    nonce: [u8; NONCE],
    /// Ciphertext and tag.
    content: Vec<u8>,
}

/// Compiles `cipher = "jwe"`.
pub(crate) fn jwe(table: &DecryptTable) -> Compiled<Jwe> {
    for (key, text) in [("iv", &table.iv)] {
        if let Some(text) = text {
            return fail(text, &format!("decrypt.{key}"), "`jwe` brings its own");
        }
    }
    if let Some(texts) = &table.key {
        return fail(
            texts,
            "decrypt.key",
            "the key of `jwe` is the provider's `decryption_keys`",
        );
    }
    if table.frame.is_some() {
        return fail(&table.cipher, "decrypt.frame", "`jwe` has no frame");
    }
    let known = |text: &str, names: &[&str]| format!("`{text}` is not known; one of {}", names.join(", "));
    let jwe = Jwe {
        algorithms: each(table.algorithms.as_ref(), "decrypt.algorithms", |text| {
            let found = ALGORITHMS.iter().find(|(name, _)| *name == text);
            found
                .map(|(_, algorithm)| *algorithm)
                .ok_or_else(|| known(text, &ALGORITHMS.map(|(name, _)| name)))
        })?,
        encryption: each(table.encryption.as_ref(), "decrypt.encryption", |text| {
            let found = ENCRYPTIONS.iter().find(|(name, _)| *name == text);
            found
                .map(|(_, encryption)| *encryption)
                .ok_or_else(|| known(text, &ENCRYPTIONS.map(|(name, _)| name)))
        })?,
    };
    match (jwe.algorithms.is_empty(), jwe.encryption.is_empty()) {
        (true, _) => fail(
            &table.cipher,
            "decrypt.algorithms",
            "expected what the sender may encrypt with, such as `\"RSA-OAEP-256\"`",
        ),
        (_, true) => fail(
            &table.cipher,
            "decrypt.encryption",
            "expected what the sender may encrypt with, such as `\"A256GCM\"`",
        ),
        _ => Ok(jwe),
    }
}

impl DecryptionKey {
    /// Reads a private RSA key: PEM, PKCS #8 or PKCS #1.
    ///
    /// # Errors
    /// A sentence that does not show the text.
    pub(crate) fn parse(text: &SecretString) -> Result<Self, String> {
        let text = text.expose_secret();
        let blocks = pem(text);
        let encrypted = text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED");
        if encrypted {
            return Err("is encrypted with a passphrase; give it without: `openssl pkey -in KEY -out PLAIN`".into());
        }
        let private = blocks.iter().find(|(label, _)| label.ends_with("PRIVATE KEY"));
        let key = match (private, blocks.first()) {
            (Some(("PRIVATE KEY", der)), _) => PrivateKey::from_pkcs8_der(der).ok(),
            (Some(("RSA PRIVATE KEY", der)), _) => PrivateKey::from_pkcs1_der(der).ok(),
            (Some(_), _) => None,
            (None, Some((label, _))) if label.ends_with("PUBLIC KEY") || *label == "CERTIFICATE" => {
                return Err(
                    "is public: the sender has that half, and the private key that belongs to it is \
                            expected here"
                        .into(),
                );
            }
            (None, _) => return Err("is no private RSA key as PEM (PKCS #8 or PKCS #1)".into()),
        };
        let key = key.ok_or("is no private RSA key that can be used (two primes, 2,048 to 8,192 bits)")?;
        let bits = key.n().bit_width();
        match bits < SHORTEST_RSA {
            true => Err(format!("has {bits} bits only; at least 2,048 are expected")),
            false => Ok(Self(key)),
        }
    }

    /// The key of a content. Where it cannot be decrypted, `key` keeps what is in it.
    fn decrypt(&self, algorithm: KeyAlgorithm, encrypted: &[u8], key: &mut [u8]) {
        let mut random = rand::rng();
        let opened = match algorithm {
            KeyAlgorithm::RsaOaep256 => self.0.oaep_decrypt_with_rng::<sha2::Sha256, _>(&mut random, encrypted),
            KeyAlgorithm::RsaOaep => self.0.oaep_decrypt_with_rng::<sha1::Sha1, _>(&mut random, encrypted),
        };
        if let Ok(opened) = opened
            && opened.len() == key.len()
        {
            key.copy_from_slice(&opened);
        }
    }

    fn encrypt(&self, algorithm: KeyAlgorithm, key: &[u8]) -> Option<Vec<u8>> {
        let public = self.0.to_public_key();
        let mut random = rand::rng();
        match algorithm {
            KeyAlgorithm::RsaOaep256 => public.oaep_encrypt_with_rng::<sha2::Sha256, _>(&mut random, key),
            KeyAlgorithm::RsaOaep => public.oaep_encrypt_with_rng::<sha1::Sha1, _>(&mut random, key),
        }
        .ok()
    }
}

impl Jwe {
    /// The text that one of the keys opens.
    pub(crate) fn open(&self, keys: &[DecryptionKey], text: &[u8]) -> Option<Vec<u8>> {
        let sealed = self.read(text)?;
        keys.iter().find_map(|key| sealed.open(key))
    }

    fn read<'t>(&self, text: &'t [u8]) -> Option<Sealed<'t>> {
        let text = std::str::from_utf8(text).ok()?.trim();
        let mut parts = text.split('.');
        let [header, key, nonce, content, tag] = [(); 5].map(|()| parts.next().unwrap_or_default());
        if parts.next().is_some() || header.len() > LONGEST_HEADER {
            return None;
        }
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        let known: Header = serde_json::from_slice(&decode(header)?).ok()?;
        if known.zip.is_some() || known.crit.is_some() {
            return None;
        }
        let algorithm = ALGORITHMS.iter().find(|(name, _)| *name == known.alg)?.1;
        let encryption = ENCRYPTIONS.iter().find(|(name, _)| *name == known.enc)?.1;
        if !self.algorithms.contains(&algorithm) || !self.encryption.contains(&encryption) {
            return None;
        }
        let tag: [u8; TAG] = decode(tag)?.try_into().ok()?;
        let mut content = decode(content)?;
        content.extend_from_slice(&tag);
        Some(Sealed {
            algorithm,
            encryption,
            header,
            key: decode(key)?,
            nonce: decode(nonce)?.try_into().ok()?,
            content,
        })
    }

    /// Encrypts a text to the public half of a key, for samples and tests.
    pub(crate) fn seal(&self, key: &DecryptionKey, text: &[u8]) -> Option<String> {
        let (algorithm, encryption) = (*self.algorithms.first()?, *self.encryption.first()?);
        let name = |known: KeyAlgorithm| ALGORITHMS.iter().find(|(_, one)| *one == known).map(|(name, _)| *name);
        let cipher = ENCRYPTIONS.iter().find(|(_, one)| *one == encryption)?.0;
        let header = serde_json::json!({ "alg": name(algorithm)?, "enc": cipher, "cty": "JWT" });
        let header = URL_SAFE_NO_PAD.encode(header.to_string());
        let content_key = random_key();
        let content_key = content_key.expose_secret().get(..encryption.algorithm().key_len())?;
        let nonce: [u8; NONCE] = rand::random();
        let mut content = text.to_vec();
        encryption
            .key(content_key)?
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(header.as_bytes()),
                &mut content,
            )
            .ok()?;
        let (content, tag) = content.split_last_chunk::<TAG>()?;
        let parts = [&key.encrypt(algorithm, content_key)?, &nonce[..], content, tag];
        Some(format!(
            "{header}.{}",
            parts.map(|part| URL_SAFE_NO_PAD.encode(part)).join(".")
        ))
    }
}

impl Sealed<'_> {
    fn open(&self, key: &DecryptionKey) -> Option<Vec<u8>> {
        let mut content_key = random_key();
        let content_key = content_key
            .expose_secret_mut()
            .get_mut(..self.encryption.algorithm().key_len())?;
        key.decrypt(self.algorithm, &self.key, content_key);
        let mut content = self.content.clone();
        let nonce = Nonce::assume_unique_for_key(self.nonce);
        let opened =
            self.encryption
                .key(content_key)?
                .open_in_place(nonce, Aad::from(self.header.as_bytes()), &mut content);
        let length = opened.ok()?.len();
        content.truncate(length);
        Some(content)
    }
}

impl Encryption {
    fn algorithm(self) -> &'static Algorithm {
        match self {
            Self::A256Gcm => &AES_256_GCM,
            Self::A128Gcm => &AES_128_GCM,
        }
    }

    fn key(self, bytes: &[u8]) -> Option<LessSafeKey> {
        UnboundKey::new(self.algorithm(), bytes).ok().map(LessSafeKey::new)
    }
}

fn random_key() -> SecretBox<[u8; LONGEST_KEY]> {
    SecretBox::new(Box::new(rand::random()))
}

impl fmt::Debug for DecryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DecryptionKey(hidden)")
    }
}
