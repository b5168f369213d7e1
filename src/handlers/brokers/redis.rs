//! `kind = "redis"` (cargo feature `redis`): appends to a stream with XADD. Redis does not know repetitions; a consumer
//! recognises them by the field `idempotency-key`.
//!
//! One connection for each handler, made anew by us after any error of its own. How much of what was appended survives a
//! crash of Redis is the server's setting (`appendonly`, `appendfsync`).

use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::{
    Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo as _, RedisError, TlsCertificates,
    aio::MultiplexedConnection,
};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::Mutex;

use super::{
    message::{self, Message},
    template::Template,
    tls::Pem,
};
use crate::handlers::{Failure, Handler, Outgoing};

const CONNECT: Duration = Duration::from_secs(10);

pub(super) struct Redis {
    client: Client,
    stream: Template,
    max_length: Option<u64>,
    timeout: Duration,
    connection: Mutex<Option<(u64, MultiplexedConnection)>>,
}

/// The settings of a handler, with secrets fetched.
pub(super) struct Settings<'a> {
    /// `redis://` or `rediss://`.
    pub(super) url: SecretString,
    pub(super) stream: &'a str,
    /// Entries that the stream keeps, about; the oldest are dropped by Redis. `None` keeps all.
    pub(super) max_length: Option<u64>,
    pub(super) tls: Pem,
    pub(super) timeout: Duration,
}

impl Redis {
    pub(super) fn new(settings: Settings<'_>) -> Result<Self, String> {
        const EXPECTED: &str = "`url` must be redis://user:password@host:6379/0 or rediss://…";
        let info = settings
            .url
            .expose_secret()
            .into_connection_info()
            .map_err(|_| EXPECTED)?;
        let tls = match info.addr() {
            ConnectionAddr::TcpTls { insecure: true, .. } => {
                return Err("`url`: #insecure would trust any server; name its authority in `tls.ca`".into());
            }
            ConnectionAddr::TcpTls { .. } => true,
            _ => false,
        };
        if settings.tls.is_some() && !tls {
            return Err("`tls` needs a `url` of rediss://…".into());
        }
        if settings.max_length == Some(0) {
            return Err("`max_length` must be at least 1".into());
        }
        // redis takes the provider that the process has chosen.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let bytes = |pem: &SecretString| pem.expose_secret().as_bytes().to_vec();
        let client = if tls {
            let client_tls = settings.tls.client.as_ref().map(|(certificate, key)| ClientTlsConfig {
                client_cert: bytes(certificate),
                client_key: bytes(key),
            });
            let root_cert = settings.tls.ca.as_ref().map(bytes);
            Client::build_with_tls(info, TlsCertificates { client_tls, root_cert })
        } else {
            Client::open(info)
        };
        Ok(Self {
            client: client.map_err(|_| EXPECTED)?,
            stream: Template::parse("stream", settings.stream)?,
            max_length: settings.max_length,
            timeout: settings.timeout,
            connection: Mutex::new(None),
        })
    }

    async fn publish(&self, outgoing: &Outgoing<'_>) -> Result<(), Failure> {
        let claim = outgoing.claim;
        let message = Message::new(outgoing);
        let stream = self.stream.fill(claim);
        let (number, mut connection) = self.connection().await?;
        let mut command = redis::cmd("XADD");
        command.arg(&stream);
        if let Some(length) = self.max_length {
            command.arg("MAXLEN").arg("~").arg(length);
        }
        command.arg("*");
        for (name, value) in &message.headers {
            command.arg(name.to_ascii_lowercase()).arg(value);
        }
        let sent = serde_json::to_string(&message::of_sender(claim)).unwrap_or_else(|_| "{}".into());
        command
            .arg("headers")
            .arg(sent)
            .arg("payload")
            .arg(&message.payload[..]);
        outgoing.mark_sent();
        let answer: Result<String, RedisError> = command.query_async(&mut connection).await;
        match answer {
            Ok(_) => Ok(()),
            Err(error) => {
                // The server may be another one after a new connection.
                self.forget(number).await;
                // With a code it is what the server said; without one the server said nothing.
                Err(match error.code() {
                    Some(_) => Failure::Retry(format!("not appended: {error}")),
                    None => Failure::Unknown(format!("sent, but no answer came: {error}")),
                })
            }
        }
    }

    /// The present connection and its number, or a new one.
    async fn connection(&self) -> Result<(u64, MultiplexedConnection), Failure> {
        let mut present = self.connection.lock().await;
        if let Some((number, connection)) = &*present {
            return Ok((*number, connection.clone()));
        }
        let config = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT.min(self.timeout)))
            // Before the worker's own, so that a connection which is silent is not kept.
            .set_response_timeout(Some(self.timeout.mul_f64(0.9)));
        let made = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let made = made.map_err(|e| Failure::Retry(format!("cannot connect: {e}")))?;
        let number = rand::random();
        *present = Some((number, made.clone()));
        Ok((number, made))
    }

    /// The next message gets another connection, unless it has one already.
    async fn forget(&self, number: u64) {
        let mut present = self.connection.lock().await;
        if present.as_ref().is_some_and(|(n, _)| *n == number) {
            *present = None;
        }
    }
}

impl Handler for Redis {
    fn handle<'a>(&'a self, outgoing: &'a Outgoing<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(self.publish(outgoing))
    }
}
