//! The algorithms that tokens may be signed with. There is no `none`.

use super::{public_key::Public, rules::Hash};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JwtAlgorithm {
    /// With a shared secret.
    Hmac(Hash),
    Public(Public),
}

pub(crate) const JWT_ALGORITHMS: [(&str, JwtAlgorithm); 11] = [
    ("HS256", JwtAlgorithm::Hmac(Hash::Sha256)),
    ("HS384", JwtAlgorithm::Hmac(Hash::Sha384)),
    ("HS512", JwtAlgorithm::Hmac(Hash::Sha512)),
    ("RS256", JwtAlgorithm::Public(Public::Rsa2048Sha256)),
    ("RS384", JwtAlgorithm::Public(Public::Rsa2048Sha384)),
    ("RS512", JwtAlgorithm::Public(Public::Rsa2048Sha512)),
    ("ES256", JwtAlgorithm::Public(Public::P256Sha256Raw)),
    ("ES384", JwtAlgorithm::Public(Public::P384Sha384Raw)),
    ("ES512", JwtAlgorithm::Public(Public::P521Sha512Raw)),
    ("EdDSA", JwtAlgorithm::Public(Public::Ed25519)),
    // The name of RFC 9864 for the same.
    ("Ed25519", JwtAlgorithm::Public(Public::Ed25519)),
];

impl JwtAlgorithm {
    /// The algorithm that a token's header names; `None` for `none` and all that is not known.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let known = JWT_ALGORITHMS.iter().find(|(known, _)| *known == name)?;
        Some(known.1)
    }

    /// As a token's header names it.
    pub(crate) fn name(self) -> &'static str {
        JWT_ALGORITHMS
            .iter()
            .find(|(_, known)| *known == self)
            .map_or("", |(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_algorithm_may_have_two_names() {
        assert_eq!(JwtAlgorithm::named("Ed25519"), JwtAlgorithm::named("EdDSA"));
        assert_eq!(JwtAlgorithm::named("EdDSA").unwrap().name(), "EdDSA");
        assert!(JwtAlgorithm::named("none").is_none());
    }
}
