//! TLS towards brokers: the system's roots, or Mozilla's where the system has none, or exactly the authority that `tls.ca`
//! names; and a client certificate where one is configured.

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use secrecy::{ExposeSecret as _, SecretString};

use crate::handlers::spec::TlsSpec;

/// `tls` of a handler with its references fetched: PEM texts.
#[derive(Default)]
pub(super) struct Pem {
    pub(super) ca: Option<SecretString>,
    /// Certificate chain and private key.
    pub(super) client: Option<(SecretString, SecretString)>,
}

impl Pem {
    /// Fetches what `spec` refers to and checks that it can be read.
    ///
    /// # Errors
    /// Names the key, without the value.
    pub(super) fn fetch(
        spec: &TlsSpec,
        resolve: impl Fn(&str, &str) -> Result<SecretString, String>,
    ) -> Result<Self, String> {
        let fetch = |key: &str, reference: &Option<String>| reference.as_deref().map(|r| resolve(key, r)).transpose();
        let ca = fetch("tls.ca", &spec.ca)?;
        let client = match (
            fetch("tls.certificate", &spec.certificate)?,
            fetch("tls.key", &spec.key)?,
        ) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err("`tls.certificate` and `tls.key` belong together".into()),
        };
        let pem = Self { ca, client };
        if pem.is_some() {
            pem.config()?;
        }
        Ok(pem)
    }

    pub(super) fn is_some(&self) -> bool {
        self.ca.is_some() || self.client.is_some()
    }

    /// # Errors
    /// A text that is no PEM of its kind, named by its key.
    pub(super) fn config(&self) -> Result<ClientConfig, String> {
        let roots = match &self.ca {
            Some(ca) => RootCertStore::from_iter(
                certificates("tls.ca", ca)?
                    .iter()
                    .filter_map(|der| webpki::anchor_from_trusted_cert(der).ok())
                    .map(|anchor| anchor.to_owned()),
            ),
            None => system_roots(),
        };
        if roots.is_empty() {
            return Err("`tls.ca` holds no certificate of an authority".into());
        }
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| format!("no TLS can be made: {e}"))?
            .with_root_certificates(roots);
        let Some((certificate, key)) = &self.client else {
            return Ok(builder.with_no_client_auth());
        };
        let key = PrivateKeyDer::from_pem_slice(key.expose_secret().as_bytes())
            .map_err(|_| "`tls.key` must be a private key as PEM, such as \"file:key.pem\"".to_owned())?;
        builder
            .with_client_auth_cert(certificates("tls.certificate", certificate)?, key)
            .map_err(|e| format!("`tls.certificate` and `tls.key`: {e}"))
    }
}

fn certificates(key: &str, pem: &SecretString) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.expose_secret().as_bytes()).collect();
    found
        .ok()
        .filter(|certificates| !certificates.is_empty())
        .ok_or_else(|| format!("`{key}` must be certificates as PEM, such as \"file:ca.pem\""))
}

fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetch(toml: &str) -> Result<Pem, String> {
        Pem::fetch(&toml::from_str(toml).unwrap(), |_, value| Ok(value.into()))
    }

    #[test]
    fn texts_that_are_no_pem_are_named_and_not_shown() {
        for (toml, key) in [
            ("ca = \"hunter2\"", "`tls.ca`"),
            ("key = \"hunter2\"", "belong together"),
            ("certificate = \"hunter2\"", "belong together"),
            ("certificate = \"hunter2\"\nkey = \"hunter2\"", "`tls.key`"),
        ] {
            let error = fetch(toml).err().unwrap();
            assert!(error.contains(key) && !error.contains("hunter2"), "{error}");
        }
        assert!(!fetch("").unwrap().is_some());
        assert!(Pem::default().config().is_ok());
    }
}
