//! The functions of expressions. A value that a function cannot read is no value.

use std::borrow::Cow;

use base64::Engine as _;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use super::{canonical, form, scope::Value};
use crate::adapters::{BASE64, BASE64_URL, Digester, Function, Hash, hash};

/// What an escape must be written for: all but letters, digits and `-_.~` (RFC 3986).
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The checksum of zip and PNG.
const CRC32: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC);

/// Applies a function. `macs` (SHA-1, SHA-256) are keyed with the newest secret.
pub(crate) fn call<'s>(function: Function, value: Cow<'s, [u8]>, macs: Option<&[Digester; 2]>) -> Value<'s> {
    Some(match function {
        Function::Lower => Cow::Owned(value.to_ascii_lowercase()),
        Function::Upper => Cow::Owned(value.to_ascii_uppercase()),
        Function::Trim => match value {
            Cow::Borrowed(text) => Cow::Borrowed(text.trim_ascii()),
            Cow::Owned(text) => Cow::Owned(text.trim_ascii().to_vec()),
        },
        Function::Sha1 => hex(hash(Hash::Sha1, &value).bytes()),
        Function::Sha256 => hex(hash(Hash::Sha256, &value).bytes()),
        Function::HmacSha1 | Function::HmacSha256 => {
            let [sha1, sha256] = macs?;
            let mut mac = if function == Function::HmacSha1 { sha1 } else { sha256 }.clone();
            mac.update(&value);
            hex(mac.finish().bytes())
        }
        Function::Base64 => Cow::Owned(base64::engine::general_purpose::STANDARD.encode(&value).into_bytes()),
        Function::Unbase64 => {
            let text = in_one_line(value.trim_ascii());
            Cow::Owned(BASE64.decode(&*text).or_else(|_| BASE64_URL.decode(&*text)).ok()?)
        }
        Function::Unhex => Cow::Owned(hex::decode(&value).ok()?),
        Function::UrlDecode => Cow::Owned(form::decode(&value).into_owned()),
        Function::UrlEncode => Cow::Owned(percent_encode(&value, UNRESERVED).to_string().into_bytes()),
        Function::Crc32 => Cow::Owned(CRC32.checksum(&value).to_string().into_bytes()),
        Function::Requery => Cow::Owned(canonical::requery(&value)),
        Function::Json => {
            let text = std::str::from_utf8(&value).ok()?;
            Cow::Owned(serde_json::to_vec(text).ok()?)
        }
    })
}

/// Without the line ends that MIME puts into base64.
fn in_one_line(text: &[u8]) -> Cow<'_, [u8]> {
    let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    match text.iter().any(is_end) {
        true => Cow::Owned(text.iter().copied().filter(|byte| !is_end(byte)).collect()),
        false => Cow::Borrowed(text),
    }
}

fn hex(bytes: &[u8]) -> Cow<'static, [u8]> {
    Cow::Owned(hex::encode(bytes).into_bytes())
}
