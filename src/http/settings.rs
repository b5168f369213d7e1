//! What the two servers are told, as values.

use std::{net::SocketAddr, num::NonZero, thread, time::Duration};

use ipnet::IpNet;
use secrecy::{ExposeSecret as _, SecretString};

/// Settings of both servers.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where senders call. Default `127.0.0.1:8080`; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Whether there is a public server; a pure worker has none. Default true.
    pub webhooks: bool,
    /// Where people and metrics call. Default `127.0.0.1:8081`.
    pub admin_listen: SocketAddr,
    /// Bearer token of everything on the admin listener; `None` only on loopback.
    pub admin_token: Option<SecretString>,
    /// Largest body of an event that is published through the API; providers have their own. Default 1 MiB.
    pub max_body: usize,
    /// How long a whole body may take to arrive. Default 10 s.
    pub body_timeout: Duration,
    /// How long a connection may be idle between requests. Default 75 s: longer than the usual minute of load balancers'
    /// own keep-alive, so that they close first and never send into a connection that is being closed.
    pub keep_alive: Duration,
    /// How long after the start of one request a connection may go on without starting another, whatever it is doing.
    /// Default 150 s: more than a slow body, a slow store and an idle keep-alive together.
    pub silence: Duration,
    /// Threads of the public server. Default 0: one per core.
    pub workers: usize,
    /// Connections to the public server at once. Default 8192; each may hold 128 KiB of request head.
    pub max_connections: usize,
    /// Bytes of bodies in memory at once, over all requests. Default 64 MiB.
    pub max_bytes_in_flight: usize,
    /// Largest body of a request to the gateway, where its route says nothing. Default 1 MiB.
    pub gateway_body: usize,
    /// Proxies whose `X-Forwarded-For` is believed, for the log only.
    pub trusted_proxies: Vec<IpNet>,
    /// How long requests in flight may take to finish at shutdown. Default 30 s.
    pub shutdown_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            webhooks: true,
            admin_listen: SocketAddr::from(([127, 0, 0, 1], 8081)),
            admin_token: None,
            max_body: 1 << 20,
            body_timeout: Duration::from_secs(10),
            keep_alive: Duration::from_secs(75),
            silence: Duration::from_secs(150),
            workers: 0,
            max_connections: 8192,
            max_bytes_in_flight: 64 << 20,
            gateway_body: 1 << 20,
            trusted_proxies: Vec::new(),
            shutdown_timeout: Duration::from_secs(30),
        }
    }
}

/// Settings that must not be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("the admin listener {0} is not loopback: it needs a token ([admin] token)")]
    OpenAdmin(SocketAddr),
    #[error("the admin token is empty")]
    EmptyToken,
    #[error("{0} must not be zero")]
    Zero(&'static str),
}

impl Settings {
    pub(super) fn threads(&self) -> usize {
        match self.workers {
            0 => thread::available_parallelism().map_or(1, NonZero::get),
            some => some,
        }
    }

    /// # Errors
    /// Says what makes these settings unsafe or useless.
    pub fn check(&self) -> Result<(), SettingsError> {
        match &self.admin_token {
            Some(token) if token.expose_secret().is_empty() => return Err(SettingsError::EmptyToken),
            None if !self.admin_listen.ip().to_canonical().is_loopback() => {
                return Err(SettingsError::OpenAdmin(self.admin_listen));
            }
            _ => {}
        }
        for (name, value) in [
            ("max_connections", self.max_connections),
            ("max_bytes_in_flight", self.max_bytes_in_flight),
        ] {
            if value == 0 {
                return Err(SettingsError::Zero(name));
            }
        }
        if self.body_timeout.is_zero() {
            return Err(SettingsError::Zero("body_timeout"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admin_listener_off_loopback_needs_a_token() {
        let mut settings = Settings::default();
        assert_eq!(settings.check(), Ok(()));
        settings.admin_listen = SocketAddr::from(([0, 0, 0, 0], 8081));
        assert_eq!(settings.check(), Err(SettingsError::OpenAdmin(settings.admin_listen)));
        settings.admin_token = Some("".into());
        assert_eq!(settings.check(), Err(SettingsError::EmptyToken));
        settings.admin_token = Some("secret".into());
        assert_eq!(settings.check(), Ok(()));
    }
}
