//! Hashes and MACs behind one type, fed piece by piece.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha384, Sha512};

use super::rules::Hash;

/// A running hash or MAC. A keyed one is cloned for each request, which saves hashing the key again.
#[derive(Clone)]
pub(crate) enum Digester {
    HmacSha1(Hmac<Sha1>),
    HmacSha256(Hmac<Sha256>),
    HmacSha384(Hmac<Sha384>),
    HmacSha512(Hmac<Sha512>),
    Sha1(Sha1),
    Sha256(Sha256),
    Sha384(Sha384),
    Sha512(Sha512),
}

/// A digest: up to 64 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Tag {
    bytes: [u8; 64],
    len: usize,
}

impl Digester {
    /// A MAC with this key, of any length.
    pub(crate) fn keyed(hash: Hash, key: &[u8]) -> Self {
        const ANY: &str = "HMAC takes a key of any length";
        match hash {
            Hash::Sha1 => Self::HmacSha1(Hmac::new_from_slice(key).expect(ANY)),
            Hash::Sha256 => Self::HmacSha256(Hmac::new_from_slice(key).expect(ANY)),
            Hash::Sha384 => Self::HmacSha384(Hmac::new_from_slice(key).expect(ANY)),
            Hash::Sha512 => Self::HmacSha512(Hmac::new_from_slice(key).expect(ANY)),
        }
    }

    /// A plain hash.
    pub(crate) fn plain(hash: Hash) -> Self {
        match hash {
            Hash::Sha1 => Self::Sha1(Sha1::new()),
            Hash::Sha256 => Self::Sha256(Sha256::new()),
            Hash::Sha384 => Self::Sha384(Sha384::new()),
            Hash::Sha512 => Self::Sha512(Sha512::new()),
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::HmacSha1(mac) => mac.update(bytes),
            Self::HmacSha256(mac) => mac.update(bytes),
            Self::HmacSha384(mac) => mac.update(bytes),
            Self::HmacSha512(mac) => mac.update(bytes),
            Self::Sha1(hash) => Digest::update(hash, bytes),
            Self::Sha256(hash) => Digest::update(hash, bytes),
            Self::Sha384(hash) => Digest::update(hash, bytes),
            Self::Sha512(hash) => Digest::update(hash, bytes),
        }
    }

    pub(crate) fn finish(self) -> Tag {
        match self {
            Self::HmacSha1(mac) => Tag::new(&mac.finalize().into_bytes()),
            Self::HmacSha256(mac) => Tag::new(&mac.finalize().into_bytes()),
            Self::HmacSha384(mac) => Tag::new(&mac.finalize().into_bytes()),
            Self::HmacSha512(mac) => Tag::new(&mac.finalize().into_bytes()),
            Self::Sha1(hash) => Tag::new(&hash.finalize()),
            Self::Sha256(hash) => Tag::new(&hash.finalize()),
            Self::Sha384(hash) => Tag::new(&hash.finalize()),
            Self::Sha512(hash) => Tag::new(&hash.finalize()),
        }
    }
}

impl fmt::Debug for Digester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digester(..)")
    }
}

impl Tag {
    fn new(digest: &[u8]) -> Self {
        let mut bytes = [0; 64];
        bytes[..digest.len()].copy_from_slice(digest);
        Self {
            bytes,
            len: digest.len(),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A plain hash of one text.
pub(crate) fn hash(hash: Hash, bytes: &[u8]) -> Tag {
    let mut digester = Digester::plain(hash);
    digester.update(bytes);
    digester.finish()
}
