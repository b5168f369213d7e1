//! Who is calling, for the log: the peer, or what a trusted proxy says of it. Never used to decide anything.

use std::net::IpAddr;

use actix_web::{HttpRequest, http::header::HeaderMap};
use ipnet::IpNet;

/// The address of the client.
#[must_use]
pub(super) fn client(request: &HttpRequest, trusted: &[IpNet]) -> Option<IpAddr> {
    let peer = request.peer_addr()?.ip().to_canonical();
    Some(behind(peer, request.headers(), trusted))
}

/// Walks `X-Forwarded-For` from the right as long as the address reached is a trusted proxy: what stands left of the
/// first stranger was written by that stranger.
fn behind(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let is_trusted = |address: &IpAddr| trusted.iter().any(|net| net.contains(address));
    let hops: Vec<&str> = headers
        .get_all("x-forwarded-for")
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .collect();
    let mut address = peer;
    for hop in hops.iter().rev() {
        if !is_trusted(&address) {
            break;
        }
        match hop.trim().parse::<IpAddr>() {
            Ok(next) => address = next.to_canonical(),
            Err(_) => break,
        }
    }
    address
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn only_trusted_proxies_are_believed() {
        let trusted = ["10.0.0.0/8".parse().unwrap()];
        let mut headers = HeaderMap::new();
        headers.insert(
            HeaderName::from_static("x-forwarded-for"),
            HeaderValue::from_static("1.1.1.1, 203.0.113.7, 10.0.0.2"),
        );
        let at = |peer: &str| behind(peer.parse().unwrap(), &headers, &trusted).to_string();
        assert_eq!(at("10.0.0.1"), "203.0.113.7");
        assert_eq!(at("192.0.2.1"), "192.0.2.1");
    }
}
