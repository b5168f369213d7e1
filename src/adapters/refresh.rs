//! Fetches the keys that senders publish, by the clock and never inside a request. What may be fetched is decided by
//! the adapter's `[keys]`; how is decided here: https only, no redirects, no private address, little and soon.

use std::{
    collections::HashMap,
    future::Future,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::provider::Provider;

/// Longest answer; sets of keys have a few kilobytes.
const MAX_SIZE: usize = 256 * 1024;
const TIMEOUT: Duration = Duration::from_secs(10);
/// A URL that failed is left alone for this long, in seconds, so that nobody can make us knock at a host.
const RETRY_AFTER: i64 = 30;
/// Most URLs fetched for one provider in one turn.
const MOST_IN_A_TURN: usize = 4;

/// Why a key was not fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    #[error("the key at {url} could not be fetched")]
    Http { url: String, source: reqwest::Error },
    #[error("the answer of {url} is longer than {MAX_SIZE} bytes")]
    TooLong { url: String },
    #[error("{url} answered with {status}")]
    Status { url: String, status: u16 },
    #[error("what {url} gave is no key: {problem}")]
    NoKey { url: String, problem: String },
}

impl FetchError {
    /// What went wrong, without the URL.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Http { source, .. } if source.is_timeout() => "no answer in time".into(),
            Self::Http { source, .. } if source.is_connect() => "no connection".into(),
            Self::Http { .. } => "the request failed".into(),
            Self::TooLong { .. } => "the answer is too long".into(),
            Self::Status { status, .. } => format!("answered with {status}"),
            Self::NoKey { problem, .. } => problem.clone(),
        }
    }
}

/// Keeps the fetched keys of providers fresh.
#[derive(Debug, Default)]
pub struct Refresher {
    /// When a URL failed last.
    failed: Mutex<HashMap<String, Timestamp>>,
}

impl Refresher {
    /// Fetches what a provider needs now, with [`fetch`] or another function, and hands it over. Returns how many were
    /// fetched, and what went wrong. To be called every few seconds; mostly there is nothing to do.
    pub async fn refresh<F, Fut>(&self, provider: &Provider, now: Timestamp, fetch: F) -> (usize, Vec<FetchError>)
    where
        F: Fn(String) -> Fut,
        Fut: Future<Output = Result<Vec<u8>, FetchError>>,
    {
        let mut fetched = 0;
        let mut errors = Vec::new();
        for url in self.allowed(provider.due_keys(now), now) {
            let result = fetch(url.clone()).await.and_then(|text| {
                let problem = |problem| FetchError::NoKey {
                    url: url.clone(),
                    problem,
                };
                provider.put_keys(&url, &text, now).map_err(problem)
            });
            match result {
                Ok(()) => fetched += 1,
                Err(error) => {
                    self.lock().insert(url, now);
                    errors.push(error);
                }
            }
        }
        (fetched, errors)
    }

    fn allowed(&self, urls: Vec<String>, now: Timestamp) -> Vec<String> {
        let mut failed = self.lock();
        failed.retain(|_, at| now.duration_since(*at).as_secs() < RETRY_AFTER);
        let fine = urls.into_iter().filter(|url| !failed.contains_key(url));
        fine.take(MOST_IN_A_TURN).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Timestamp>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fetches one text over https.
///
/// # Errors
/// [`FetchError`]; whatever is unusual is one.
pub async fn fetch(url: String) -> Result<Vec<u8>, FetchError> {
    let failed = |source| FetchError::Http {
        url: url.clone(),
        source,
    };
    let mut response = client().map_err(failed)?.get(&url).send().await.map_err(failed)?;
    if response.status() != reqwest::StatusCode::OK {
        let status = response.status().as_u16();
        return Err(FetchError::Status { url, status });
    }
    let mut text = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        text.extend_from_slice(&chunk);
        if text.len() > MAX_SIZE {
            return Err(FetchError::TooLong { url });
        }
    }
    Ok(text)
}

fn client() -> reqwest::Result<reqwest::Client> {
    // The library may be used without our command line; where one is installed already, that one stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .https_only(true)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .timeout(TIMEOUT)
        .dns_resolver(PublicOnly)
        .build()
}

/// Resolves names to public addresses only.
struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|address| is_public(address.ip())).collect();
            if public.is_empty() {
                return Err("the name has no public address".into());
            }
            let addresses: Addrs = Box::new(public.into_iter());
            Ok(addresses)
        })
    }
}

/// Whether an address is one of the open Internet.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => {
            let first = v6.segments()[0];
            // Global unicast is 2000::/3; without 6to4, Teredo and documentation, which hold or stand for others.
            let special = first == 0x2002 || first == 0x2001 && matches!(v6.segments()[1], 0 | 0x0db8);
            first & 0xe000 == 0x2000 && !special
        }
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let shared = a == 100 && (64..128).contains(&b);
    let reserved = a == 0 || a >= 240 || a == 198 && (b == 18 || b == 19) || (a, b, c) == (192, 0, 0);
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        || shared
        || reserved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_not_public() {
        for address in ["8.8.8.8", "2606:4700::1"] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "::ffff:10.0.0.1",
            "2002:a00::1",
            "64:ff9b::a00:1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }
}
