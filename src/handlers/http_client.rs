//! The connections of http handlers, and a body that says when it was sent.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Once,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use reqwest::{Certificate, Client};

use super::{
    SentMark,
    guard::Guard,
    http::{Target, text_of},
};

const CONNECT: Duration = Duration::from_secs(10);
/// How long a connection is kept without use: less than the 5 s after which Node.js closes it, because a request that
/// meets the close has an unknown outcome.
const IDLE: Duration = Duration::from_secs(4);

/// A client for one handler.
pub(super) fn client(target: &Target<'_>, guard: Guard) -> Result<Client, String> {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // An error means that there is one already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    let trusted = match &target.trusted {
        None => Vec::new(),
        Some(pem) => match Certificate::from_pem_bundle(pem) {
            Ok(certificates) if !certificates.is_empty() => certificates,
            _ => return Err("`ca_file` holds no certificates in PEM".into()),
        },
    };
    let builder = || {
        Client::builder()
            .user_agent(concat!("Cerca/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT.min(target.timeout))
            .timeout(target.timeout)
            .pool_max_idle_per_host(if target.reuse { target.concurrency } else { 0 })
            .pool_idle_timeout(IDLE)
            .dns_resolver(guard.clone())
    };
    let failed = |error| format!("no HTTP client can be made: {}", text_of(&error));
    if !trusted.is_empty() {
        return builder().tls_certs_merge(trusted).build().map_err(failed);
    }
    // Minimal containers have no roots at all, and would fail for http:// URLs too.
    builder().build().or_else(|_| {
        let roots = rustls::RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        let tls = rustls::ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        builder().tls_backend_preconfigured(tls).build().map_err(failed)
    })
}

/// A body that notes when it is taken to be written: before that, the target cannot have acted on it.
pub(super) struct Watched {
    bytes: Option<Bytes>,
    sent: SentMark,
}

impl Watched {
    pub(super) fn new(bytes: Bytes, sent: SentMark) -> Self {
        Self {
            bytes: Some(bytes).filter(|bytes| !bytes.is_empty()),
            sent,
        }
    }
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.sent.set();
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
