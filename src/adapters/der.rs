//! As much of DER as keys and certificates need: nested values, read without copying. Whether a certificate is to be
//! trusted is not decided here.

/// Tags that are looked for.
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const INTEGER: u8 = 0x02;
const SET: u8 = 0x31;
const OCTET_STRING: u8 = 0x04;
const OID: u8 = 0x06;
const BIT_STRING: u8 = 0x03;
const VERSION: u8 = 0xa0;

const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const P521: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x23];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// What kind of key a `SubjectPublicKeyInfo` holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyType {
    Ed25519,
    P256,
    P384,
    P521,
    Rsa,
}

/// Reads values one after the other.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    /// The next value: its tag, its content, and all of it.
    fn next(&mut self) -> Option<(u8, &'a [u8], &'a [u8])> {
        let all = self.0;
        let (&tag, rest) = all.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let mut len = usize::from(first);
        if first >= 0x80 {
            let (bytes, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
            if bytes.is_empty() || bytes.len() > 3 {
                return None;
            }
            len = bytes.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
            rest = after;
        }
        let (content, after) = rest.split_at_checked(len)?;
        self.0 = after;
        Some((tag, content, &all[..all.len() - after.len()]))
    }

    /// The content of the next value, where it has this tag.
    pub(crate) fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (found, content, _) = self.next()?;
        (found == tag).then_some(content)
    }
}

/// The key in a `SubjectPublicKeyInfo`: its kind, and the bits.
pub(crate) fn public_key(spki: &[u8]) -> Option<(KeyType, &[u8])> {
    let mut outer = Reader(spki);
    let mut info = Reader(outer.expect(SEQUENCE)?);
    let mut algorithm = Reader(info.expect(SEQUENCE)?);
    let bits = info.expect(BIT_STRING)?.strip_prefix(&[0])?;
    let kind = match algorithm.expect(OID)? {
        RSA => KeyType::Rsa,
        ED25519 => KeyType::Ed25519,
        EC => curve(&mut algorithm)?,
        _ => return None,
    };
    (outer.0.is_empty() && info.0.is_empty()).then_some((kind, bits))
}

fn curve(algorithm: &mut Reader<'_>) -> Option<KeyType> {
    match algorithm.expect(OID)? {
        P256 => Some(KeyType::P256),
        P384 => Some(KeyType::P384),
        P521 => Some(KeyType::P521),
        _ => None,
    }
}

/// The number in a private key of an elliptic curve (PKCS #8, RFC 5915), and the curve.
pub(crate) fn ec_private_key(pkcs8: &[u8]) -> Option<(KeyType, &[u8])> {
    let mut info = Reader(Reader(pkcs8).expect(SEQUENCE)?);
    info.expect(INTEGER)?;
    let mut algorithm = Reader(info.expect(SEQUENCE)?);
    let kind = match algorithm.expect(OID)? {
        EC => curve(&mut algorithm)?,
        _ => return None,
    };
    let mut key = Reader(Reader(info.expect(OCTET_STRING)?).expect(SEQUENCE)?);
    key.expect(INTEGER)?;
    Some((kind, key.expect(OCTET_STRING)?))
}

/// What is read of a certificate.
pub(crate) struct Certificate<'a> {
    pub(crate) spki: &'a [u8],
    /// The common names of its subject.
    pub(crate) common_names: Vec<&'a [u8]>,
}

/// Reads a certificate.
pub(crate) fn certificate(der: &[u8]) -> Option<Certificate<'_>> {
    let mut outer = Reader(Reader(der).expect(SEQUENCE)?);
    let mut fields = Reader(outer.expect(SEQUENCE)?);
    if fields.0.first() == Some(&VERSION) {
        fields.next()?;
    }
    fields.expect(INTEGER)?;
    for _ in 0..3 {
        // The algorithm, the issuer, the validity.
        fields.expect(SEQUENCE)?;
    }
    let mut names = Reader(fields.expect(SEQUENCE)?);
    let (_, _, spki) = fields.next()?;
    let mut common_names = Vec::new();
    while let Some(set) = names.expect(SET) {
        let mut attribute = Reader(Reader(set).expect(SEQUENCE)?);
        if attribute.expect(OID)? == COMMON_NAME {
            common_names.push(attribute.next()?.1);
        }
    }
    Some(Certificate { spki, common_names })
}

/// A value with this tag.
pub(crate) fn write(tag: u8, content: &[u8]) -> Vec<u8> {
    let len = content.len().to_be_bytes();
    let len = &len[len.iter().position(|byte| *byte != 0).unwrap_or(len.len() - 1)..];
    let mut out = vec![tag];
    if content.len() >= 0x80 {
        // At most eight bytes of length.
        out.push(0x80 | u8::try_from(len.len()).unwrap_or(8));
    }
    out.extend_from_slice(len);
    out.extend_from_slice(content);
    out
}

/// A positive integer, from its bytes.
pub(crate) fn write_integer(bytes: &[u8]) -> Vec<u8> {
    let start = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
    let bare = &bytes[start..];
    let mut content = Vec::with_capacity(bare.len() + 1);
    if bare.first().is_none_or(|byte| *byte >= 0x80) {
        content.push(0);
    }
    content.extend_from_slice(bare);
    write(INTEGER, &content)
}
