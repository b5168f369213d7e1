//! Compact JWE (RFC 7516), of the one kind that senders use: RSA-OAEP-256 and A256GCM.

use base64::Engine as _;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rsa::{PrivateKey, pkcs1::DecodeRsaPrivateKey as _, pkcs8::DecodePrivateKey as _, traits::PublicKeyParts as _};
use serde::Deserialize;
use sha2::Sha256;

use super::keys::BASE64_URL;

/// Sizes of keys, in bytes: 2,048 to 4,096 bits. To decrypt with a longer one would be work that strangers can ask for.
const SIZES: std::ops::RangeInclusive<usize> = 256..=512;

#[derive(Deserialize)]
struct Header {
    alg: String,
    enc: String,
    zip: Option<serde::de::IgnoredAny>,
    crit: Option<serde::de::IgnoredAny>,
}

/// Reads a private key: PEM, PKCS #8 or PKCS #1.
///
/// # Errors
/// A sentence that does not show the key.
pub(crate) fn key(text: &str) -> Result<PrivateKey, String> {
    let text = text.replace("\\n", "\n");
    let text = text.trim();
    let key = PrivateKey::from_pkcs8_pem(text).or_else(|_| PrivateKey::from_pkcs1_pem(text));
    let key = key.map_err(|_| "it is no private RSA key (PEM)".to_owned())?;
    match SIZES.contains(&key.size()) {
        true => Ok(key),
        false => Err("it is no RSA key of 2,048 to 4,096 bits".into()),
    }
}

/// The text of a token; `None` where it is none, of another kind, or not for this key.
pub(crate) fn open(key: &PrivateKey, token: &[u8]) -> Option<Vec<u8>> {
    let parts: Vec<&str> = std::str::from_utf8(token).ok()?.trim().split('.').take(6).collect();
    let [head, wrapped, nonce, text, tag] = parts.as_slice() else {
        return None;
    };
    let read = |part: &str| BASE64_URL.decode(part).ok();
    let header: Header = serde_json::from_slice(&read(head)?).ok()?;
    let known = header.alg == "RSA-OAEP-256" && header.enc == "A256GCM";
    if !known || header.zip.is_some() || header.crit.is_some() {
        return None;
    }
    let content_key = key.oaep_decrypt::<Sha256>(&read(wrapped)?).ok()?;
    let cipher = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &content_key).ok()?);
    let nonce = Nonce::try_assume_unique_for_key(&read(nonce)?).ok()?;
    let mut sealed = read(text)?;
    sealed.extend_from_slice(&read(tag).filter(|tag| tag.len() == AES_256_GCM.tag_len())?);
    let opened = cipher
        .open_in_place(nonce, Aad::from(head.as_bytes()), &mut sealed)
        .ok()?;
    Some(opened.to_vec())
}

#[cfg(test)]
mod tests {
    use rsa::PublicKey;

    use super::*;

    const PEM: &str = include_str!("../../tests/vectors/keys/rsa-1.pem");
    const OTHER: &str = include_str!("../../tests/vectors/keys/rsa-2.pem");

    fn seal(key: &PrivateKey, header: &str, text: &[u8]) -> String {
        let encode = |bytes: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
        let head = encode(header.as_bytes());
        let public = PublicKey::from(key);
        let wrapped = public.oaep_encrypt::<Sha256>(&[7; 32]).unwrap();
        let cipher = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &[7; 32]).unwrap());
        let mut bytes = text.to_vec();
        let nonce = Nonce::assume_unique_for_key([9; 12]);
        cipher
            .seal_in_place_append_tag(nonce, Aad::from(head.as_bytes()), &mut bytes)
            .unwrap();
        let (text, tag) = bytes.split_at(bytes.len() - 16);
        [head, encode(&wrapped), encode(&[9; 12]), encode(text), encode(tag)].join(".")
    }

    #[test]
    fn a_token_opens_with_its_key_and_unchanged() {
        let (mine, other) = (key(PEM).unwrap(), key(OTHER).unwrap());
        let header = r#"{"alg":"RSA-OAEP-256","enc":"A256GCM"}"#;
        let token = seal(&mine, header, b"text");
        assert_eq!(open(&mine, token.as_bytes()).unwrap(), b"text");
        assert_eq!(open(&other, token.as_bytes()), None);
        for at in (0..token.len()).step_by(token.len() / 40) {
            let mut changed = token.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(open(&mine, &changed), None, "{at}");
            assert_eq!(open(&mine, &token.as_bytes()[..at]), None, "cut at {at}");
        }
        assert_eq!(open(&mine, format!("{token}.x").as_bytes()), None);
        for header in [
            r#"{"alg":"RSA-OAEP","enc":"A256GCM"}"#,
            r#"{"alg":"RSA-OAEP-256","enc":"A128GCM"}"#,
            r#"{"alg":"RSA-OAEP-256","enc":"A256GCM","zip":"DEF"}"#,
            r#"{"alg":"RSA-OAEP-256","enc":"A256GCM","crit":["x"]}"#,
        ] {
            assert_eq!(open(&mine, seal(&mine, header, b"text").as_bytes()), None, "{header}");
        }
    }

    #[test]
    fn only_a_private_key_is_one() {
        for text in [
            "",
            "secret",
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----",
        ] {
            assert!(key(text).is_err(), "{text}");
        }
    }
}
