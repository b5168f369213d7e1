//! What is read out of a request in another way than as it stands: ciphertexts, and headers that a list names.

use std::borrow::Cow;

use super::scope::{Frame, Scope, Value};
use crate::adapters::{Cipher, Expr};

impl Scope<'_, '_> {
    /// The text of the request's ciphertext.
    pub(super) fn decrypted<'s>(&'s self, frame: Frame<'s>) -> Value<'s> {
        let decrypt = self.provider.rules.decrypt.as_ref()?;
        match &decrypt.cipher {
            Cipher::Cbc(_) => match self.opened.get() {
                Some(text) => text.as_deref().map(Cow::Borrowed),
                None => self.decrypt(&decrypt.source, frame),
            },
            // Once: it is read several times, and takes long.
            Cipher::Jwe(jwe) => {
                let open = || {
                    jwe.open(
                        &self.provider.decryption_keys,
                        &self.eval(&decrypt.source, Frame::default())?,
                    )
                };
                self.opened.get_or_init(open).as_deref().map(Cow::Borrowed)
            }
        }
    }

    /// The text of a ciphertext, once the request is proved, or where the frame says with which secret.
    pub(super) fn decrypt<'s>(&'s self, ciphertext: &'s Expr, frame: Frame<'s>) -> Value<'s> {
        let Cipher::Cbc(cbc) = &self.provider.rules.decrypt.as_ref()?.cipher else {
            return None;
        };
        if let Some(text) = self.opened.get() {
            return text.as_deref().map(Cow::Borrowed);
        }
        let secret = frame.opens.or_else(|| *self.proved_by.get()?)?;
        let key = self.provider.ciphers.get(secret)?.as_ref()?;
        cbc.open(key, &self.eval(ciphertext, frame)?).map(Cow::Owned)
    }

    /// Whether there is a ciphertext that should hold the signature, and none of our keys opens it.
    pub(super) fn stays_closed(&self) -> bool {
        let decrypt = self
            .provider
            .rules
            .decrypt
            .as_ref()
            .filter(|decrypt| decrypt.goes_first());
        decrypt.is_some_and(|decrypt| {
            let ciphertext = self.eval(&decrypt.source, Frame::default());
            ciphertext.is_some_and(|text| !text.is_empty()) && self.decrypted(Frame::default()).is_none()
        })
    }

    /// Keeps that the request is proved, and by which secret, for what is read after.
    pub(crate) fn keep_secret(&self, secret: Option<usize>) {
        let _ = self.proved_by.set(secret);
    }

    /// A line for each header that a list names.
    pub(super) fn header_lines(&self, names: &[u8]) -> Value<'_> {
        let mut lines = Vec::new();
        for name in names.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            let value = self.header(std::str::from_utf8(name).ok()?)?;
            lines.extend_from_slice(&[name, b": ", &value, b"\n"].concat());
        }
        Some(Cow::Owned(lines))
    }

    /// The values of the headers that a list names.
    pub(super) fn header_values(&self, names: &[u8]) -> Value<'_> {
        let names = std::str::from_utf8(names)
            .ok()?
            .split([' ', ','])
            .filter(|name| !name.is_empty());
        let values: Option<Vec<_>> = names.map(|name| self.header(name)).collect();
        Some(Cow::Owned(values?.join(&b'.')))
    }

    /// The canonical text of the headers whose names a header lists.
    pub(super) fn headers(&self, list: &str) -> Value<'_> {
        let names = self.header(list)?;
        let mut text = Vec::new();
        for name in names.split(|byte| *byte == b',') {
            let name = std::str::from_utf8(name.trim_ascii()).ok()?;
            if !text.is_empty() {
                text.push(b';');
            }
            text.extend_from_slice(name.to_ascii_lowercase().as_bytes());
            text.push(b':');
            text.extend_from_slice(&self.header(name)?);
        }
        Some(Cow::Owned(text))
    }
}
