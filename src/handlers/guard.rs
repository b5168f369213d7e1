//! Keeps http handlers from being led into the private network. The URL is the operator's: an address or a private name that
//! it spells out is meant. A public name is another's to point: whoever controls its DNS could aim signed requests at
//! `169.254.169.254` or a database. So what a public name resolves to is looked at for each new connection.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use futures_util::future::BoxFuture;
use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::AllowPrivate;

/// Top-level names that never belong to anyone (RFC 6761, RFC 6762, RFC 8375, ICANN's `internal`).
const PRIVATE_NAMES: [&str; 5] = ["localhost", "local", "internal", "home.arpa", "test"];

/// Looks a name up.
type LookUp = dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync;

/// The resolver of one handler.
#[derive(Clone)]
pub(super) struct Guard {
    /// Names whose addresses must be public. Others are a proxy's, which the operator named elsewhere.
    public_names: Arc<[String]>,
    allowed: Arc<[IpNet]>,
    look_up: Arc<LookUp>,
}

impl Guard {
    /// `hosts` are those of the handler's URLs.
    ///
    /// # Errors
    /// What is no network.
    pub(super) fn new<'a>(hosts: impl Iterator<Item = &'a str>, allow: Option<&AllowPrivate>) -> Result<Self, String> {
        let (is_open, networks) = match allow {
            None | Some(AllowPrivate::All(false)) => (false, &[][..]),
            Some(AllowPrivate::All(true)) => (true, &[][..]),
            Some(AllowPrivate::Networks(networks)) => (false, &networks[..]),
        };
        let network = |text: &String| {
            text.parse::<IpNet>()
                .map_err(|_| format!("`allow_private`: \"{text}\" is not a network such as 10.0.0.0/8"))
        };
        Ok(Self {
            public_names: hosts
                .filter(|host| !is_open && is_public_name(host))
                .map(str::to_ascii_lowercase)
                .collect(),
            allowed: networks.iter().map(network).collect::<Result<_, _>>()?,
            look_up: Arc::new(|name| {
                Box::pin(async move { Ok(tokio::net::lookup_host((name.as_str(), 0)).await?.collect()) })
            }),
        })
    }

    #[cfg(test)]
    pub(super) fn looking_up(
        mut self,
        look_up: impl Fn(String) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        self.look_up = Arc::new(move |name| {
            let found = look_up(name);
            Box::pin(async move { found })
        });
        self
    }

    fn is_allowed(&self, address: IpAddr) -> bool {
        is_public(address)
            || self
                .allowed
                .iter()
                .any(|network| network.contains(&address.to_canonical()))
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let name = name.as_str().to_ascii_lowercase();
            let mut found = (guard.look_up)(name.clone()).await?;
            if guard.public_names.contains(&name) {
                let first = found.first().map(SocketAddr::ip);
                found.retain(|address| guard.is_allowed(address.ip()));
                if let (Some(address), true) = (first, found.is_empty()) {
                    return Err(format!(
                        "{name} resolves to {address}, which is not a public address; `allow_private` would allow it"
                    )
                    .into());
                }
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Whether others could own the name: it has a dot, and is neither an address nor under a name that nobody has.
fn is_public_name(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let is_address = host.starts_with('[') || host.parse::<IpAddr>().is_ok();
    let is_private = PRIVATE_NAMES.iter().any(|suffix| {
        host.strip_suffix(suffix)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    });
    !is_address && !is_private && host.contains('.')
}

/// Whether an address is reachable from everywhere, by IANA's special-purpose registries.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = match (a, b, c) {
        (0 | 10 | 127 | 224..=255, ..)
        | (169, 254, _)
        | (172, 16..=31, _)
        | (192, 168, _)
        | (192, 0, 0 | 2)
        | (198, 18..=19, _)
        | (198, 51, 100)
        | (203, 0, 113) => true,
        // Shared between a carrier and its customers.
        (100, 64..=127, _) => true,
        _ => false,
    };
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let part = address.segments();
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match part {
        // Translated by NAT64.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => is_public_v4(embedded(high, low)),
        // 6to4.
        [0x2002, high, low, ..] => is_public_v4(embedded(high, low)),
        // Teredo, benchmarking, ORCHID; documentation.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        // Unicast that is given out today. The rest is local, multicast, or nobody's.
        [first, ..] => (0x2000..0x4000).contains(&first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_addresses_are_told_from_all_others() {
        for public in [
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for private in [
            "0.0.0.0",
            "10.1.2.3",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "192.0.0.8",
            "192.0.2.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "100.64.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::a00:1",
            "2002:a00:1::",
            "2001:db8::1",
            "2001::1",
            "3fff::1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
    }

    #[test]
    fn names_that_nobody_can_own_are_the_operators() {
        for public in [
            "example.com",
            "hooks.example.com.",
            "localhost.example.com",
            "mylocalhost.dev",
        ] {
            assert!(is_public_name(public), "{public}");
        }
        for private in [
            "localhost",
            "a.localhost",
            "orders",
            "orders.default.svc.cluster.local",
            "host.docker.internal",
            "127.0.0.1",
            "[::1]",
            "10.0.0.1",
        ] {
            assert!(!is_public_name(private), "{private}");
        }
    }

    async fn resolved(allow: Option<AllowPrivate>, name: &str, addresses: &[&str]) -> Result<usize, String> {
        let found: Vec<SocketAddr> = addresses
            .iter()
            .map(|a| SocketAddr::new(a.parse().unwrap(), 0))
            .collect();
        let guard = Guard::new(["api.example.com"].into_iter(), allow.as_ref())
            .unwrap()
            .looking_up(move |_| Ok(found.clone()));
        let answer = guard.resolve(name.parse().unwrap()).await;
        answer.map(Iterator::count).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_public_name_must_not_lead_inside() {
        let name = "api.example.com";
        assert_eq!(resolved(None, name, &["8.8.8.8", "10.0.0.1"]).await, Ok(1));
        let error = resolved(None, name, &["169.254.169.254"]).await.unwrap_err();
        assert!(
            error.contains("169.254.169.254") && error.contains("`allow_private`"),
            "{error}"
        );
        assert_eq!(
            resolved(Some(AllowPrivate::All(true)), name, &["10.0.0.1"]).await,
            Ok(1)
        );
        let networks = || Some(AllowPrivate::Networks(vec!["10.0.0.0/8".to_owned()]));
        assert_eq!(resolved(networks(), name, &["10.0.0.1", "192.168.0.1"]).await, Ok(1));
        assert!(resolved(networks(), name, &["192.168.0.1"]).await.is_err());
        assert_eq!(
            resolved(None, "proxy.corp.example", &["10.0.0.1"]).await,
            Ok(1),
            "a proxy's"
        );
    }
}
