//! Private keys, for signing samples only: where a person gives one in the place of the sender's public key. What a
//! sender signs with SHA-1 can be verified, but is not signed here.

use std::{fmt, sync::Arc};

use ring::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
        RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RsaEncoding, RsaKeyPair,
    },
};

use super::{
    der::KeyType,
    public_key::{Public, PublicKey},
};

/// A key pair.
#[derive(Clone)]
pub(crate) enum PrivateKey {
    Ed25519(Arc<Ed25519KeyPair>),
    /// As DER and as two numbers.
    P256(Arc<EcdsaKeyPair>, Arc<EcdsaKeyPair>),
    Rsa(Arc<RsaKeyPair>),
}

impl PrivateKey {
    pub(crate) fn from_pkcs8(der: &[u8]) -> Option<Self> {
        if let Ok(pair) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der) {
            return Some(Self::Ed25519(Arc::new(pair)));
        }
        let random = SystemRandom::new();
        let p256 = |algorithm| EcdsaKeyPair::from_pkcs8(algorithm, der, &random).ok().map(Arc::new);
        if let (Some(asn1), Some(fixed)) = (
            p256(&ECDSA_P256_SHA256_ASN1_SIGNING),
            p256(&ECDSA_P256_SHA256_FIXED_SIGNING),
        ) {
            return Some(Self::P256(asn1, fixed));
        }
        RsaKeyPair::from_pkcs8(der).ok().map(|pair| Self::Rsa(Arc::new(pair)))
    }

    pub(crate) fn public(&self) -> PublicKey {
        let (kind, bytes) = match self {
            Self::Ed25519(pair) => (KeyType::Ed25519, pair.public_key().as_ref()),
            Self::P256(pair, _) => (KeyType::P256, pair.public_key().as_ref()),
            Self::Rsa(pair) => (KeyType::Rsa, pair.public_key().as_ref()),
        };
        PublicKey {
            kind,
            bytes: bytes.to_vec(),
        }
    }

    /// Signs; `None` where the algorithm is not one of this key, or uses SHA-1.
    pub(crate) fn sign(&self, algorithm: Public, message: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match (self, algorithm) {
            (Self::Ed25519(pair), Public::Ed25519) => Some(pair.sign(message).as_ref().to_vec()),
            (Self::P256(asn1, _), Public::P256Sha256) => Some(asn1.sign(&random, message).ok()?.as_ref().to_vec()),
            (Self::P256(_, fixed), Public::P256Sha256Raw) => Some(fixed.sign(&random, message).ok()?.as_ref().to_vec()),
            (Self::Rsa(pair), _) => {
                let encoding: &'static dyn RsaEncoding = match algorithm {
                    Public::RsaSha256 | Public::Rsa2048Sha256 => &RSA_PKCS1_SHA256,
                    Public::Rsa2048Sha384 => &RSA_PKCS1_SHA384,
                    Public::Rsa2048Sha512 => &RSA_PKCS1_SHA512,
                    _ => return None,
                };
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(encoding, &random, message, &mut signature).ok()?;
                Some(signature)
            }
            _ => None,
        }
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(..)")
    }
}
