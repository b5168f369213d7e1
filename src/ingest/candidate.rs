//! A signature or token as it is written, compared in constant time.

use base64::Engine as _;
use subtle::ConstantTimeEq as _;

use crate::adapters::{BASE64, BASE64_URL, Encoding, Hash, Tag, hash};

/// Longest text of a digest: 64 bytes in hex.
const LONGEST: usize = 128;

/// Longest text of a signature with a public key: RSA of 8,192 bits in hex.
const LONGEST_PUBLIC: usize = 2048;

/// Whether a written signature is this digest. What is too long, or of another alphabet, is not.
pub(crate) fn is_digest(text: &[u8], encoding: Encoding, tag: &Tag) -> bool {
    let mut buffer = [0; LONGEST];
    decode(text, encoding, &mut buffer).is_some_and(|bytes| bytes.ct_eq(tag.bytes()).into())
}

/// Decodes a written signature.
pub(crate) fn decode<'b>(text: &[u8], encoding: Encoding, buffer: &'b mut [u8; LONGEST]) -> Option<&'b [u8]> {
    if text.len() > LONGEST {
        return None;
    }
    let len = match encoding {
        Encoding::Hex => {
            let half = text.len() / 2;
            hex::decode_to_slice(text, buffer.get_mut(..half)?).ok()?;
            half
        }
        Encoding::Base64 => BASE64.decode_slice(text, buffer).ok()?,
        Encoding::Base64Url => BASE64_URL.decode_slice(text, buffer).ok()?,
    };
    buffer.get(..len)
}

/// Decodes a written signature of any key, up to 1,024 bytes.
pub(crate) fn decode_long(text: &[u8], encoding: Encoding) -> Option<Vec<u8>> {
    if text.is_empty() || text.len() > LONGEST_PUBLIC {
        return None;
    }
    match encoding {
        Encoding::Hex => hex::decode(text).ok(),
        Encoding::Base64 => BASE64.decode(text).ok(),
        Encoding::Base64Url => BASE64_URL.decode(text).ok(),
    }
}

/// Whether two texts are equal, without telling by the time how long they are or where they differ.
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    let (a, b) = (hash(Hash::Sha256, a), hash(Hash::Sha256, b));
    a.bytes().ct_eq(b.bytes()).into()
}

/// Whether a value is `Basic` and the base64 of `user:password`.
pub(crate) fn is_basic(value: &[u8], secret: &[u8]) -> bool {
    let Some((word, rest)) = value.split_at_checked(6) else {
        return false;
    };
    if !word.eq_ignore_ascii_case(b"basic ") {
        return false;
    }
    BASE64
        .decode(rest.trim_ascii())
        .is_ok_and(|decoded| same(&decoded, secret))
}
