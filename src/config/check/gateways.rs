//! Routes of the gateway, as far as the file alone tells. The rest is judged where they are made ready.

use std::collections::BTreeMap;

use super::{
    super::{file::Server, secret::is_literal},
    Pass,
};
use crate::idempotency::GatewaySpec;

impl Pass<'_> {
    pub(super) fn gateways(&mut self, gateways: &[GatewaySpec], server: &Server) {
        let mut seen = BTreeMap::new();
        for (index, gateway) in gateways.iter().enumerate() {
            let at = |key: &str| format!("gateway[{index}].{key}");
            if let Some(first) = seen.insert(&gateway.path, index) {
                let message = format!("\"{}\" is the path of gateway[{first}] already", gateway.path);
                self.wrong(&at("path"), message);
            }
            if let Some(bytes) = gateway.max_body {
                self.max_body(&at("max_body"), bytes);
            }
            for (key, what, reference) in [
                (
                    "jwt_key",
                    "key",
                    gateway.jwt_key.as_deref().filter(|text| !is_public(text)),
                ),
                (
                    "probe_authorization",
                    "credential",
                    gateway.probe_authorization.as_deref(),
                ),
            ] {
                if reference.is_some_and(is_literal) {
                    let message = format!("the {what} stands in the file; use env:NAME or file:PATH");
                    self.warn(&at(key), message);
                }
            }
            if gateway.principal.starts_with("client-cert:") && server.trusted_proxies.is_empty() {
                self.warn(
                    &at("principal"),
                    "is believed only from server.trusted_proxies, and there are none: every request with a key is 401",
                );
            }
        }
    }
}

/// A public key is no secret.
fn is_public(text: &str) -> bool {
    text.contains("-----BEGIN PUBLIC KEY") || (text.trim_start().starts_with('{') && !text.contains("\"k\""))
}
