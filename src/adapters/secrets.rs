//! What may be asked of a provider's secrets, which never leave it, and the calls that confirm its subscriptions.

use std::future::Future;

use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use subtle::{Choice, ConstantTimeEq as _};

use super::{confirm::Called, provider::Provider, refresh::FetchError, rules::Scheme};

impl Provider {
    /// Notes a URL that confirms a subscription, to be called by [`Self::make_calls`]. False where too many wait.
    #[must_use]
    pub fn want_call(&self, url: &str, now: Timestamp) -> bool {
        self.calls.want(url, now)
    }

    /// Calls the URLs that are due, with [`super::fetch`] or another function. To be called every few seconds; mostly there is
    /// nothing to do.
    pub async fn make_calls<F, Fut>(&self, now: Timestamp, call: F) -> Vec<Called>
    where
        F: Fn(String) -> Fut,
        Fut: Future<Output = Result<Vec<u8>, FetchError>>,
    {
        self.calls.turn(now, call).await
    }

    /// Whether its secret is to come in a handshake: the adapter keeps one, and none is known.
    #[must_use]
    pub fn awaits_secret(&self) -> bool {
        let comes = self.rules.handshakes.iter().any(|handshake| handshake.keep.is_some());
        comes && self.rules.verify && self.secrets.is_empty()
    }

    /// Whether a rule that counts wants a user and a password (RFC 7617).
    #[must_use]
    pub fn takes_password(&self) -> bool {
        let rules = self.rules.signatures.iter().zip(&self.keys);
        rules
            .filter(|(_, keys)| !keys.is_empty())
            .any(|(rule, _)| rule.scheme == Scheme::Basic)
    }

    /// Whether this is one of its secrets, told in a time that depends on lengths alone.
    #[must_use]
    pub fn has_secret(&self, secret: &SecretString) -> bool {
        let secret = secret.expose_secret().as_bytes();
        let mut same = Choice::from(0);
        for one in &self.secrets {
            same |= one.expose_secret().as_bytes().ct_eq(secret);
        }
        same.into()
    }

    /// Whether both have the same secrets.
    #[must_use]
    pub fn same_secrets(&self, other: &Self) -> bool {
        self.secrets.len() == other.secrets.len() && self.secrets.iter().all(|secret| other.has_secret(secret))
    }
}
