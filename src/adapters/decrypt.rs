//! `[decrypt]`: bodies that are encrypted. With a part of the secret, and signed as they are: AES-CBC proves nothing by
//! itself, so nothing is decrypted before the signature holds. Or to a key of ours, and signed inside (see [`super::jwe`]).

use std::fmt;

use aes::Aes256;
use base64::Engine as _;
use cbc::cipher::{BlockModeDecrypt as _, BlockModeEncrypt as _, KeyIvInit as _, block_padding::NoPadding};
use secrecy::{ExposeSecret as _, SecretBox, SecretString};

use super::{
    compile::{Compiled, fail},
    compile_signature::key_steps,
    expr::Expr,
    jwe::{Jwe, jwe},
    keys::{BASE64, decode},
    manifest::DecryptTable,
    parser::{Allowed, Parser},
    rules::KeyStep,
};

const KEY: usize = 32;
const BLOCK: usize = 16;
/// Longest padding: that of blocks of 32 bytes, which some senders pad to.
const LONGEST_PADDING: usize = 32;
/// Bytes of the length before a framed text.
const LENGTH: usize = 4;

/// How a body is encrypted.
#[derive(Debug, Clone)]
pub(crate) struct Decrypt {
    /// Where the ciphertext is.
    pub(crate) source: Expr,
    pub(crate) cipher: Cipher,
    /// How the sender writes a ciphertext, for samples.
    envelope: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) enum Cipher {
    /// Opened once the signature of the ciphertext holds, with the secret that it holds for.
    Cbc(Cbc),
    /// Opened first, with the provider's `decryption_keys`: the signature lies in it.
    Jwe(Jwe),
}

/// AES-256-CBC, in base64.
#[derive(Debug, Clone)]
pub(crate) struct Cbc {
    key: Vec<KeyStep>,
    iv: Iv,
    /// The text lies behind so many random bytes and its length.
    frame: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Iv {
    /// The first bytes of the key.
    Key,
    /// The first bytes of the ciphertext.
    Front,
}

/// The key that one secret gives.
pub(crate) struct CipherKey(SecretBox<[u8; KEY]>);

/// Compiles `[decrypt]`.
pub(crate) fn decrypt(parser: &mut Parser, table: &DecryptTable) -> Compiled<Decrypt> {
    let source = parser
        .expr(table.source.get_ref(), Allowed::default())
        .or_else(|message| fail(&table.source, "decrypt.source", &message))?;
    let cipher = match table.cipher.get_ref().as_str() {
        "aes-256-cbc" => Cipher::Cbc(cbc(table)?),
        "jwe" => Cipher::Jwe(jwe(table)?),
        _ => return fail(&table.cipher, "decrypt.cipher", "expected `aes-256-cbc` or `jwe`"),
    };
    let mark = |text: &&String| text.matches(ENCRYPTED).count() == 1;
    match &table.envelope {
        Some(text) if !mark(&text.get_ref()) => fail(text, "decrypt.envelope", "expected `{{encrypted}}` once in it"),
        envelope => Ok(Decrypt {
            source,
            cipher,
            envelope: envelope.as_ref().map(|text| text.get_ref().clone()),
        }),
    }
}

fn cbc(table: &DecryptTable) -> Compiled<Cbc> {
    for (name, texts) in [("algorithms", &table.algorithms), ("encryption", &table.encryption)] {
        if let Some(texts) = texts {
            return fail(texts, &format!("decrypt.{name}"), "only `jwe` has such a key");
        }
    }
    let (key, fetched) = key_steps(table.key.as_ref(), "decrypt.key")?;
    if let (Some(texts), true) = (&table.key, fetched) {
        return fail(texts, "decrypt.key", "a key that decrypts is never fetched");
    }
    const EXPECTED: &str = "expected `key` (the key's first 16 bytes) or `front` (the ciphertext's)";
    let iv = match table.iv.as_ref().map(|text| (text, text.get_ref().as_str())) {
        Some((_, "key")) => Iv::Key,
        Some((_, "front")) => Iv::Front,
        Some((text, _)) => return fail(text, "decrypt.iv", EXPECTED),
        None => return fail(&table.cipher, "decrypt.iv", EXPECTED),
    };
    Ok(Cbc {
        key,
        iv,
        frame: table.frame,
    })
}

/// What stands for the ciphertext in an envelope.
const ENCRYPTED: &str = "{{encrypted}}";

impl Decrypt {
    /// Whether it is decrypted before anything is proved, because the proof lies in it.
    pub(crate) fn goes_first(&self) -> bool {
        matches!(self.cipher, Cipher::Jwe(_))
    }

    /// A ciphertext as the sender writes it, where that is known.
    pub(crate) fn wrap(&self, ciphertext: &str) -> Option<Vec<u8>> {
        let envelope = self.envelope.as_ref()?;
        Some(envelope.replacen(ENCRYPTED, ciphertext, 1).into_bytes())
    }
}

impl Cbc {
    /// The key of a secret; none where it should be a pair and is not, so that nothing is decrypted with it.
    ///
    /// # Errors
    /// A sentence that does not show the secret.
    pub(crate) fn cipher_key(&self, secret: &SecretString) -> Result<Option<CipherKey>, String> {
        let secret = secret.expose_secret();
        if self.key.first() == Some(&KeyStep::Pair) && !secret.contains(':') {
            return Ok(None);
        }
        let bytes = decode(&self.key, secret)?;
        let key = <[u8; KEY]>::try_from(bytes).map_err(|_| "the part that decrypts is not 32 bytes long".to_owned())?;
        Ok(Some(CipherKey(SecretBox::new(Box::new(key)))))
    }

    /// The text of a ciphertext; `None` where it is none.
    pub(crate) fn open(&self, key: &CipherKey, ciphertext: &[u8]) -> Option<Vec<u8>> {
        let bytes = BASE64.decode(ciphertext.trim_ascii()).ok()?;
        let (iv, mut text) = match self.iv {
            Iv::Key => (*key.0.expose_secret().first_chunk::<BLOCK>()?, bytes),
            Iv::Front => {
                let (iv, text) = bytes.split_first_chunk::<BLOCK>()?;
                (*iv, text.to_vec())
            }
        };
        let cipher = cbc::Decryptor::<Aes256>::new(key.0.expose_secret().into(), &iv.into());
        let len = cipher.decrypt_padded::<NoPadding>(&mut text).ok()?.len();
        text.truncate(len);
        let padding = usize::from(*text.last()?);
        let end = text.len().checked_sub(padding)?;
        let padded = text[end..].iter().all(|byte| usize::from(*byte) == padding);
        if !padded || !(1..=LONGEST_PADDING).contains(&padding) {
            return None;
        }
        text.truncate(end);
        match self.frame {
            None => Some(text),
            Some(skip) => {
                let (length, rest) = text.get(skip..)?.split_first_chunk::<LENGTH>()?;
                let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
                Some(rest.get(..length)?.to_vec())
            }
        }
    }

    /// The ciphertext of a text, for samples and tests.
    pub(crate) fn seal(&self, key: &CipherKey, text: &[u8]) -> Option<String> {
        let mut bytes = Vec::new();
        if let Some(skip) = self.frame {
            bytes.resize_with(skip, rand::random);
            bytes.extend_from_slice(&u32::try_from(text.len()).ok()?.to_be_bytes());
        }
        bytes.extend_from_slice(text);
        let padding = BLOCK - bytes.len() % BLOCK;
        bytes.resize(bytes.len() + padding, u8::try_from(padding).ok()?);
        let random: [u8; BLOCK] = rand::random();
        let iv = match self.iv {
            Iv::Key => *key.0.expose_secret().first_chunk::<BLOCK>()?,
            Iv::Front => random,
        };
        let cipher = cbc::Encryptor::<Aes256>::new(key.0.expose_secret().into(), &iv.into());
        let len = bytes.len();
        cipher.encrypt_padded::<NoPadding>(&mut bytes, len).ok()?;
        if self.iv == Iv::Front {
            bytes.splice(..0, random);
        }
        Some(base64::engine::general_purpose::STANDARD.encode(bytes))
    }
}

impl fmt::Debug for CipherKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CipherKey(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule(iv: Iv, frame: Option<usize>) -> Cbc {
        Cbc {
            key: vec![KeyStep::Sha256],
            iv,
            frame,
        }
    }

    #[test]
    fn what_is_sealed_opens_and_nothing_else_does() {
        for (iv, frame) in [
            (Iv::Key, Some(16)),
            (Iv::Front, None),
            (Iv::Key, None),
            (Iv::Front, Some(0)),
        ] {
            let rule = rule(iv, frame);
            let key = rule.cipher_key(&"secret".into()).unwrap().unwrap();
            for len in [0, 1, 15, 16, 17, 1000] {
                let text = vec![b'x'; len];
                let sealed = rule.seal(&key, &text).unwrap();
                assert_eq!(rule.open(&key, sealed.as_bytes()).unwrap(), text);
                let other = rule.cipher_key(&"other".into()).unwrap().unwrap();
                assert_ne!(rule.open(&other, sealed.as_bytes()), Some(text));
                for end in 0..sealed.len().min(60) {
                    let _ = rule.open(&key, &sealed.as_bytes()[..end]);
                }
            }
        }
        assert!(rule(Iv::Key, None).cipher_key(&"".into()).is_ok());
        let short = Cbc {
            key: vec![KeyStep::Raw],
            ..rule(Iv::Key, None)
        };
        assert!(
            short
                .cipher_key(&"short".into())
                .is_err_and(|problem| problem.contains("32 bytes"))
        );
    }

    proptest! {
        #[test]
        fn any_ciphertext_is_a_text_or_none(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            for (iv, frame) in [(Iv::Key, Some(16)), (Iv::Front, None)] {
                let rule = rule(iv, frame);
                let key = rule.cipher_key(&"secret".into()).unwrap().unwrap();
                let _ = rule.open(&key, &bytes);
                let _ = rule.open(&key, base64::engine::general_purpose::STANDARD.encode(&bytes).as_bytes());
            }
        }
    }
}
