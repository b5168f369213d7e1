//! Whether a certificate is the sender's: it leads to a root, is valid now, and has the sender's name.

use std::time::Duration;

use jiff::Timestamp;
use rustls::pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert, ring};

use super::der;

/// `id-kp-serverAuth`: asked for only where a certificate states uses at all.
const SERVER_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];

/// Whether the first certificate is trusted as one of `subjects` at `now`. Without roots of the operator's, the public ones of
/// the web count. The name may be a subject alternative name or, in certificates without any, the common name.
pub(crate) fn is_trusted(certificates: &[Vec<u8>], roots: &[Vec<u8>], subjects: &[String], now: Timestamp) -> bool {
    let Some((first, rest)) = certificates.split_first() else {
        return false;
    };
    let roots: Vec<_> = roots.iter().map(|der| CertificateDer::from(der.as_slice())).collect();
    let pinned: Vec<TrustAnchor<'_>> = roots
        .iter()
        .filter_map(|root| anchor_from_trusted_cert(root).ok())
        .collect();
    let anchors = if roots.is_empty() {
        webpki_roots::TLS_SERVER_ROOTS
    } else {
        &pinned
    };
    let first = CertificateDer::from(first.as_slice());
    let Ok(certificate) = EndEntityCert::try_from(&first) else {
        return false;
    };
    let rest: Vec<_> = rest.iter().map(|der| CertificateDer::from(der.as_slice())).collect();
    let Ok(seconds) = u64::try_from(now.as_second()) else {
        return false;
    };
    let chained = certificate.verify_for_usage(
        &[
            ring::RSA_PKCS1_2048_8192_SHA256,
            ring::RSA_PKCS1_2048_8192_SHA384,
            ring::RSA_PKCS1_2048_8192_SHA512,
            ring::ECDSA_P256_SHA256,
            ring::ECDSA_P256_SHA384,
            ring::ECDSA_P384_SHA256,
            ring::ECDSA_P384_SHA384,
        ],
        anchors,
        &rest,
        UnixTime::since_unix_epoch(Duration::from_secs(seconds)),
        KeyUsage::required_if_present(SERVER_AUTH),
        None,
        None,
    );
    chained.is_ok() && subjects.iter().any(|subject| is_named(&certificate, &first, subject))
}

fn is_named(certificate: &EndEntityCert<'_>, der: &[u8], subject: &str) -> bool {
    let by_alternative =
        ServerName::try_from(subject).is_ok_and(|name| certificate.verify_is_valid_for_subject_name(&name).is_ok());
    let has_alternatives = certificate.valid_dns_names().next().is_some();
    let by_common_name = || {
        der::certificate(der).is_some_and(|certificate| {
            let same = |name: &&[u8]| name.eq_ignore_ascii_case(subject.as_bytes());
            certificate.common_names.iter().any(same)
        })
    };
    by_alternative || !has_alternatives && by_common_name()
}
