//! Private keys, for signing samples only: where a person gives one in the place of the sender's public key.

use std::{fmt, sync::Arc};

use p256::ecdsa::signature::hazmat::PrehashSigner as _;
use ring::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
        EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512,
        RsaEncoding, RsaKeyPair,
    },
};
use rsa::pkcs8::DecodePrivateKey as _;

use super::{
    der::{self, KeyType},
    digest::hash,
    public_key::{Public, PublicKey},
    rules::Hash,
};

/// A key pair.
#[derive(Clone)]
pub(crate) enum PrivateKey {
    Ed25519(Arc<Ed25519KeyPair>),
    P256(Arc<P256>),
    P384(Arc<EcdsaKeyPair>),
    P521(Arc<p521::ecdsa::SigningKey>),
    /// The second is for SHA-1, which `ring` does not sign with.
    Rsa(Arc<RsaKeyPair>, Arc<rsa::PrivateKey>),
}

/// One key in the forms that its algorithms want.
pub(crate) struct P256 {
    /// Signs as DER.
    asn1: EcdsaKeyPair,
    /// Signs as two numbers.
    fixed: EcdsaKeyPair,
    /// Signs with SHA-1, which `ring` does not.
    sha1: p256::ecdsa::SigningKey,
}

impl PrivateKey {
    pub(crate) fn from_pkcs8(pkcs8: &[u8]) -> Option<Self> {
        if let Ok(pair) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8) {
            return Some(Self::Ed25519(Arc::new(pair)));
        }
        let random = SystemRandom::new();
        let ecdsa =
            |algorithm: &'static EcdsaSigningAlgorithm| EcdsaKeyPair::from_pkcs8(algorithm, pkcs8, &random).ok();
        match der::ec_private_key(pkcs8) {
            Some((KeyType::P256, number)) => {
                let pair = P256 {
                    asn1: ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING)?,
                    fixed: ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING)?,
                    sha1: p256::ecdsa::SigningKey::from_slice(number).ok()?,
                };
                Some(Self::P256(Arc::new(pair)))
            }
            Some((KeyType::P384, _)) => Some(Self::P384(Arc::new(ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING)?))),
            Some((KeyType::P521, number)) => {
                let pair = p521::ecdsa::SigningKey::from_slice(number).ok()?;
                Some(Self::P521(Arc::new(pair)))
            }
            _ => {
                let pair = RsaKeyPair::from_pkcs8(pkcs8).ok()?;
                let sha1 = rsa::PrivateKey::from_pkcs8_der(pkcs8).ok()?;
                Some(Self::Rsa(Arc::new(pair), Arc::new(sha1)))
            }
        }
    }

    pub(crate) fn public(&self) -> PublicKey {
        let (kind, bytes) = match self {
            Self::Ed25519(pair) => (KeyType::Ed25519, pair.public_key().as_ref().to_vec()),
            Self::P256(pair) => (KeyType::P256, pair.asn1.public_key().as_ref().to_vec()),
            Self::P384(pair) => (KeyType::P384, pair.public_key().as_ref().to_vec()),
            Self::P521(pair) => {
                let point = pair.verifying_key().to_sec1_point(false);
                (KeyType::P521, point.as_bytes().to_vec())
            }
            Self::Rsa(pair, _) => (KeyType::Rsa, pair.public_key().as_ref().to_vec()),
        };
        PublicKey { kind, bytes }
    }

    /// Signs; `None` where the algorithm is not one of this key.
    pub(crate) fn sign(&self, algorithm: Public, message: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        let ecdsa = |pair: &EcdsaKeyPair| Some(pair.sign(&random, message).ok()?.as_ref().to_vec());
        match (self, algorithm) {
            (Self::Ed25519(pair), Public::Ed25519) => Some(pair.sign(message).as_ref().to_vec()),
            (Self::P256(pair), Public::P256Sha256) => ecdsa(&pair.asn1),
            (Self::P256(pair), Public::P256Sha256Raw) => ecdsa(&pair.fixed),
            (Self::P256(pair), Public::P256Sha1) => {
                let signature: p256::ecdsa::Signature =
                    pair.sha1.sign_prehash(hash(Hash::Sha1, message).bytes()).ok()?;
                Some(signature.to_der().as_bytes().to_vec())
            }
            (Self::P384(pair), Public::P384Sha384Raw) => ecdsa(pair),
            (Self::P521(pair), Public::P521Sha512Raw) => {
                let signature: p521::ecdsa::Signature = pair.sign_prehash(hash(Hash::Sha512, message).bytes()).ok()?;
                Some(signature.to_bytes().to_vec())
            }
            (Self::Rsa(_, pair), Public::RsaSha1) => pair
                .pkcs1v15_sign_with_rng::<sha1::Sha1, _>(&mut rand::rng(), message)
                .ok(),
            (Self::Rsa(pair, _), _) => {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::KeySet;

    #[test]
    fn every_algorithm_signs_what_it_verifies_and_nothing_else() {
        let read = |text: &str| KeySet::parse(text).unwrap();
        let keys = [
            read(include_str!("../../tests/vectors/keys/ed25519-1.pem")),
            read(include_str!("../../tests/vectors/keys/p256-1.pem")),
            read(include_str!("../../tests/vectors/keys/p384-1.pem")),
            read(include_str!("../../tests/vectors/keys/p521-1.pem")),
            read(include_str!("../../tests/vectors/keys/rsa-1.pem")),
        ];
        for algorithm in [
            Public::Ed25519,
            Public::P256Sha256,
            Public::P256Sha256Raw,
            Public::P256Sha1,
            Public::P384Sha384Raw,
            Public::P521Sha512Raw,
            Public::RsaSha1,
            Public::RsaSha256,
            Public::Rsa2048Sha256,
            Public::Rsa2048Sha384,
            Public::Rsa2048Sha512,
        ] {
            for set in &keys {
                let signature = set.private.as_ref().unwrap().sign(algorithm, b"message");
                assert_eq!(signature.is_some(), set.suits(algorithm), "{algorithm:?} {set:?}");
                let Some(signature) = signature else { continue };
                assert!(set.verifies(algorithm, b"message", &signature), "{algorithm:?}");
                assert!(!set.verifies(algorithm, b"another", &signature), "{algorithm:?}");
            }
        }
    }
}
