//! Public keys: read from what senders publish (PEM, DER in base64, certificates, JWK), and used to verify.

use std::fmt;

use base64::Engine as _;
use p256::ecdsa::signature::hazmat::PrehashVerifier as _;
use ring::signature::{self, VerificationAlgorithm};

use super::{
    der::{self, KeyType},
    digest::hash,
    jwk,
    keys::{BASE64, BASE64_URL},
    private_key::PrivateKey,
    rules::Hash,
};

/// How a public key verifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Public {
    Ed25519,
    /// The signature is ASN.1 DER.
    P256Sha256,
    /// The signature is `r` and `s`, 32 bytes each.
    P256Sha256Raw,
    P256Sha1,
    P384Sha384Raw,
    P521Sha512Raw,
    RsaSha1,
    /// Keys from 1,024 bits, because senders pin such.
    RsaSha256,
    /// Keys from 2,048 bits: of tokens.
    Rsa2048Sha256,
    Rsa2048Sha384,
    Rsa2048Sha512,
}

/// One key.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PublicKey {
    pub(crate) kind: KeyType,
    /// The point, the 32 bytes, or the `RSAPublicKey`.
    pub(crate) bytes: Vec<u8>,
}

/// A key of a set.
#[derive(Debug, Clone)]
pub(crate) struct NamedKey {
    pub(crate) kid: Option<String>,
    /// The one algorithm it is for, where it says so.
    pub(crate) algorithm: Option<String>,
    /// When it ends, in Unix seconds, where it says so.
    pub(crate) expires: Option<i64>,
    pub(crate) key: PublicKey,
}

/// All keys that one text holds.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeySet {
    pub(crate) keys: Vec<NamedKey>,
    /// Where the text is a private key: only for signing samples.
    pub(crate) private: Option<PrivateKey>,
}

impl KeySet {
    /// Reads a text that says of itself what it is: PEM, a JWK or a set of them, DER in base64, or `whpk_`.
    ///
    /// # Errors
    /// A sentence that does not show the text.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.starts_with('{') {
            return jwk::parse(text);
        }
        if text.contains("-----BEGIN ") {
            return Self::from_pem(text);
        }
        if let Some(rest) = text.strip_prefix("whpk_") {
            let bytes = decode_base64(rest).filter(|bytes| bytes.len() == 32);
            let bytes = bytes.ok_or("it is not `whpk_` and the base64 of 32 bytes")?;
            return Ok(Self::one(KeyType::Ed25519, bytes));
        }
        let der = decode_base64(text).ok_or("it is no public key")?;
        Self::from_der(&der).ok_or_else(|| "it is no public key".into())
    }

    /// Reads 32 bytes, in hexadecimal or base64, or what [`KeySet::parse`] reads.
    ///
    /// # Errors
    /// A sentence that does not show the text.
    pub(crate) fn parse_ed25519(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let bare = hex::decode(text).ok().or_else(|| decode_base64(text));
        match bare {
            Some(bytes) if bytes.len() == 32 => Ok(Self::one(KeyType::Ed25519, bytes)),
            _ => Self::parse(text),
        }
    }

    fn from_pem(text: &str) -> Result<Self, String> {
        let mut set = Self::default();
        for (label, der) in pem(text) {
            match label {
                "PUBLIC KEY" | "CERTIFICATE" => {
                    let found = Self::from_der(&der).ok_or("the PEM block holds no key of a known kind")?;
                    set.keys.extend(found.keys);
                }
                "RSA PUBLIC KEY" => set.keys.extend(Self::one(KeyType::Rsa, der).keys),
                "PRIVATE KEY" => {
                    let private = PrivateKey::from_pkcs8(&der).ok_or("the PEM block holds no key of a known kind")?;
                    let public = private.public();
                    set.keys.extend(Self::one(public.kind, public.bytes).keys);
                    set.private = Some(private);
                }
                _ => return Err("the PEM block is neither a public key nor a certificate".into()),
            }
        }
        match set.keys.is_empty() {
            true => Err("it is no complete PEM block".into()),
            false => Ok(set),
        }
    }

    /// A `SubjectPublicKeyInfo`, or a certificate.
    fn from_der(der: &[u8]) -> Option<Self> {
        let spki = der::certificate(der).map_or(der, |certificate| certificate.spki);
        let (kind, bits) = der::public_key(spki)?;
        Some(Self::one(kind, bits.to_vec()))
    }

    pub(crate) fn one(kind: KeyType, bytes: Vec<u8>) -> Self {
        Self {
            keys: vec![NamedKey {
                kid: None,
                algorithm: None,
                expires: None,
                key: PublicKey { kind, bytes },
            }],
            private: None,
        }
    }

    /// Whether one of the keys verifies.
    pub(crate) fn verifies(&self, algorithm: Public, message: &[u8], signature: &[u8]) -> bool {
        self.keys
            .iter()
            .any(|named| named.key.verifies(algorithm, message, signature))
    }

    /// Whether one of the keys is of the kind that an algorithm takes.
    pub(crate) fn suits(&self, algorithm: Public) -> bool {
        self.keys.iter().any(|named| named.key.kind == algorithm.key_type())
    }

    /// The length of the shortest RSA key, in bits.
    pub(crate) fn shortest_rsa(&self) -> Option<usize> {
        let rsa = self.keys.iter().filter(|named| named.key.kind == KeyType::Rsa);
        let bits = rsa.filter_map(|named| {
            let mut fields = der::Reader(der::Reader(&named.key.bytes).expect(der::SEQUENCE)?);
            let modulus = fields.expect(der::INTEGER)?;
            Some(modulus.iter().skip_while(|byte| **byte == 0).count() * 8)
        });
        bits.min()
    }
}

impl Public {
    pub(crate) fn key_type(self) -> KeyType {
        match self {
            Self::Ed25519 => KeyType::Ed25519,
            Self::P256Sha256 | Self::P256Sha256Raw | Self::P256Sha1 => KeyType::P256,
            Self::P384Sha384Raw => KeyType::P384,
            Self::P521Sha512Raw => KeyType::P521,
            _ => KeyType::Rsa,
        }
    }

    fn of_ring(self) -> Option<&'static dyn VerificationAlgorithm> {
        Some(match self {
            Self::Ed25519 => &signature::ED25519,
            Self::P256Sha256 => &signature::ECDSA_P256_SHA256_ASN1,
            Self::P256Sha256Raw => &signature::ECDSA_P256_SHA256_FIXED,
            Self::P384Sha384Raw => &signature::ECDSA_P384_SHA384_FIXED,
            Self::RsaSha1 => &signature::RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY,
            Self::RsaSha256 => &signature::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
            Self::Rsa2048Sha256 => &signature::RSA_PKCS1_2048_8192_SHA256,
            Self::Rsa2048Sha384 => &signature::RSA_PKCS1_2048_8192_SHA384,
            Self::Rsa2048Sha512 => &signature::RSA_PKCS1_2048_8192_SHA512,
            // Not in `ring`; see `verifies_otherwise`.
            Self::P256Sha1 | Self::P521Sha512Raw => return None,
        })
    }
}

impl PublicKey {
    /// Whether this key made the signature of the message.
    pub(crate) fn verifies(&self, algorithm: Public, message: &[u8], signature: &[u8]) -> bool {
        if self.kind != algorithm.key_type() {
            return false;
        }
        match algorithm.of_ring() {
            Some(ring) => signature::UnparsedPublicKey::new(ring, &self.bytes)
                .verify(message, signature)
                .is_ok(),
            None => self.verifies_otherwise(algorithm, message, signature),
        }
    }

    /// What single senders use and `ring` has not: SHA-1 with ECDSA, and P-521.
    fn verifies_otherwise(&self, algorithm: Public, message: &[u8], signature: &[u8]) -> bool {
        let verified = if algorithm == Public::P256Sha1 {
            p256::ecdsa::VerifyingKey::from_sec1_bytes(&self.bytes).and_then(|key| {
                let signature = p256::ecdsa::Signature::from_der(signature)?;
                key.verify_prehash(hash(Hash::Sha1, message).bytes(), &signature)
            })
        } else {
            p521::ecdsa::VerifyingKey::from_sec1_bytes(&self.bytes).and_then(|key| {
                let signature = p521::ecdsa::Signature::from_slice(signature)?;
                key.verify_prehash(hash(Hash::Sha512, message).bytes(), &signature)
            })
        };
        verified.is_ok()
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({:?})", self.kind)
    }
}

/// The blocks of a PEM text: label and content. Line breaks may be written as `\n`, as they are in environments.
pub(crate) fn pem(text: &str) -> Vec<(&str, Vec<u8>)> {
    let mut blocks = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("-----BEGIN ") {
        let Some((label, after)) = after.split_once("-----") else {
            break;
        };
        let Some((content, after)) = after.split_once("-----END ") else {
            break;
        };
        let content = content.replace("\\n", "").replace("\\r", "");
        let bare: String = content.split_ascii_whitespace().collect();
        if let Ok(der) = BASE64.decode(bare) {
            blocks.push((label, der));
        }
        rest = after;
    }
    blocks
}

fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let bare: String = text.split_ascii_whitespace().collect();
    BASE64.decode(&bare).or_else(|_| BASE64_URL.decode(&bare)).ok()
}
