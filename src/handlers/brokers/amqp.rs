//! `kind = "amqp"`: publishes to an exchange of RabbitMQ (AMQP 0-9-1) and waits for the broker's confirm. Messages are
//! persistent and mandatory: one that no queue takes comes back and is a failed attempt.
//!
//! One connection for each handler, made anew by us when it has ended; lapin's own recovery stays off, because it would
//! publish a message again that has been given up. A channel carries one message at a time: what the broker says on it,
//! or why it closes it, is of that message.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, ErrorKind,
    options::{BasicPublishOptions, ConfirmSelectOptions},
    protocol::{AMQPErrorKind, AMQPSoftError},
    tcp::{AMQPUriTcpExt as _, AsyncTcpStream, RustlsConnector},
    types::{AMQPValue, FieldTable, LongString, ShortString},
    uri::{AMQPScheme, AMQPUri},
};
use rustls::ClientConfig;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::Mutex;

use super::{
    message::{self, Message},
    template::Template,
    tls::Pem,
};
use crate::{
    domain::Claim,
    handlers::{Failure, Handler, Outgoing},
};

const CONNECT: Duration = Duration::from_secs(10);
/// Seconds after which a silent connection is dead, unless the URL says otherwise.
const HEARTBEAT: u16 = 10;
/// The longest short string of the protocol, in bytes.
const SHORT: usize = 255;
const PERSISTENT: u8 = 2;

pub(super) struct Amqp {
    uri: AMQPUri,
    tls: Option<Arc<ClientConfig>>,
    exchange: ShortString,
    routing_key: Template,
    link: Mutex<Option<Link>>,
}

/// The connection, and the channels that no message is on.
struct Link {
    connection: Arc<Connection>,
    idle: Vec<Channel>,
}

/// The settings of a handler, with secrets fetched.
pub(super) struct Settings<'a> {
    /// `amqp://` or `amqps://`.
    pub(super) url: SecretString,
    /// Empty is the default exchange, whose routing keys are names of queues.
    pub(super) exchange: &'a str,
    pub(super) routing_key: &'a str,
    pub(super) tls: Pem,
}

impl Amqp {
    pub(super) fn new(settings: Settings<'_>) -> Result<Self, String> {
        let mut uri: AMQPUri = settings
            .url
            .expose_secret()
            .parse()
            .map_err(|_| "`url` must be amqp://user:password@host:5672/vhost or amqps://…")?;
        uri.query.heartbeat.get_or_insert(HEARTBEAT);
        let tls = match uri.scheme {
            AMQPScheme::AMQPS => Some(Arc::new(settings.tls.config()?)),
            AMQPScheme::AMQP if settings.tls.is_some() => return Err("`tls` needs a `url` of amqps://…".into()),
            AMQPScheme::AMQP => None,
        };
        let exchange = short(settings.exchange).ok_or("`exchange` must be at most 255 bytes")?;
        let routing_key = Template::parse("routing_key", settings.routing_key)?;
        if settings.exchange.is_empty() && settings.routing_key.is_empty() {
            return Err("`exchange` or `routing_key` is required; without an exchange the key names a queue".into());
        }
        Ok(Self {
            uri,
            tls,
            exchange,
            routing_key,
            link: Mutex::new(None),
        })
    }

    async fn publish(&self, outgoing: &Outgoing<'_>) -> Result<(), Failure> {
        let claim = outgoing.claim;
        let routing_key = self.routing_key.fill(claim);
        let Some(routing_key) = short(&routing_key) else {
            return Err(Failure::GiveUp(format!(
                "the routing key would be {} bytes long; AMQP takes {SHORT}",
                routing_key.len()
            )));
        };
        let (connection, channel) = self.channel().await?;
        if connection.status().blocked() {
            self.give_back(&connection, channel).await;
            return Err(Failure::Retry(
                "the broker takes nothing now: an alarm of memory or disk".into(),
            ));
        }
        let message = Message::new(outgoing);
        let options = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let properties = properties(claim, &message);
        let sent = channel.basic_publish(self.exchange.clone(), routing_key, options, message.payload, properties);
        outgoing.mark_sent();
        let sent = sent.await.map_err(|error| match error.kind() {
            // There was nothing to send it on.
            ErrorKind::InvalidChannelState(..) | ErrorKind::InvalidConnectionState(_) => {
                Failure::Retry(format!("not sent: {error}"))
            }
            _ => judge(&error),
        })?;
        let confirmation = sent.await.map_err(|error| judge(&error))?;
        self.give_back(&connection, channel).await;
        match confirmation {
            Confirmation::Ack(None) => Ok(()),
            Confirmation::Ack(Some(returned)) | Confirmation::Nack(Some(returned)) => Err(Failure::Retry(format!(
                "no queue takes it: {} {}",
                returned.reply_code, returned.reply_text
            ))),
            Confirmation::Nack(None) => Err(Failure::Retry("the broker could not keep it (nack)".into())),
            Confirmation::NotRequested => Err(Failure::Retry("the broker does not confirm".into())),
        }
    }

    /// A channel of its own for one message, on the present connection or on a new one.
    async fn channel(&self) -> Result<(Arc<Connection>, Channel), Failure> {
        let mut link = self.link.lock().await;
        if link.as_ref().is_none_or(|link| !link.connection.status().connected()) {
            *link = None;
            let connection = Arc::new(self.connect().await?);
            *link = Some(Link {
                connection,
                idle: Vec::new(),
            });
        }
        let Some(link) = link.as_mut() else {
            return Err(Failure::Retry("not connected".into()));
        };
        while let Some(channel) = link.idle.pop() {
            if channel.status().connected() {
                return Ok((Arc::clone(&link.connection), channel));
            }
        }
        let connection = Arc::clone(&link.connection);
        let opened = async {
            let channel = connection.create_channel().await?;
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            lapin::Result::Ok(channel)
        };
        let channel = tokio::time::timeout(CONNECT, opened)
            .await
            .map_err(|_| Failure::Retry("the broker opened no channel in time".into()))?
            .map_err(|e| Failure::Retry(format!("no channel: {e}")))?;
        Ok((connection, channel))
    }

    async fn give_back(&self, connection: &Arc<Connection>, channel: Channel) {
        let mut link = self.link.lock().await;
        if let Some(link) = link.as_mut()
            && Arc::ptr_eq(&link.connection, connection)
            && channel.status().connected()
        {
            link.idle.push(channel);
        }
    }

    async fn connect(&self) -> Result<Connection, Failure> {
        let properties = ConnectionProperties::default().with_connection_name("cerca".into());
        let tls = self.tls.clone().map(RustlsConnector::from);
        let host = self.uri.authority.host.clone();
        // TLS is ours, so that every handler trusts the same roots; the stream is opened as if it were plain.
        let open = async move |mut uri: AMQPUri, runtime| {
            uri.scheme = AMQPScheme::AMQP;
            let stream: AsyncTcpStream<_> = uri.connect_async(&runtime).await?;
            match &tls {
                Some(connector) => Ok(stream.into_rustls(connector, &host).await?),
                None => Ok(stream),
            }
        };
        let runtime = lapin::runtime::default_runtime().map_err(|e| Failure::Retry(e.to_string()))?;
        let connected = Connection::connector(self.uri.clone(), runtime, open, properties);
        tokio::time::timeout(CONNECT, connected)
            .await
            .map_err(|_| Failure::Retry("cannot connect: no answer in time".into()))?
            .map_err(|e| Failure::Retry(format!("cannot connect: {e}")))
    }
}

/// A message that is too large for the broker stays so. An exchange that is missing, or closed to us, can be put right by
/// an operator, and one that RabbitMQ forgot in a crash can be declared again.
fn judge(error: &lapin::Error) -> Failure {
    if let ErrorKind::ProtocolError(refused) = error.kind()
        && let AMQPErrorKind::Soft(kind) = refused.kind()
    {
        let said = format!("the broker refused it: {}", refused.get_message());
        match kind {
            AMQPSoftError::PRECONDITIONFAILED => return Failure::GiveUp(said),
            AMQPSoftError::NOTFOUND | AMQPSoftError::ACCESSREFUSED => return Failure::Retry(said),
            _ => {}
        }
    }
    Failure::Unknown(format!("sent, but not confirmed: {error}"))
}

fn properties(claim: &Claim, message: &Message<'_>) -> BasicProperties {
    let mut headers = FieldTable::default();
    let own = message.headers.iter().map(|(name, value)| (*name, value.as_str()));
    let sent = message::of_sender(claim);
    for (name, value) in sent
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .chain(own)
    {
        if let Some(name) = short(name) {
            headers.insert(name, AMQPValue::LongString(LongString::from(value)));
        }
    }
    // The whole key is in the headers too.
    let id = short(&message.key).or_else(|| short(&format!("sha256:{}", message.hashed_key())));
    let mut properties = BasicProperties::default()
        .with_delivery_mode(PERSISTENT)
        .with_headers(headers)
        .with_app_id("cerca".into());
    if let Some(id) = id {
        properties = properties.with_message_id(id);
    }
    if let Some(content_type) = message.content_type.as_deref().and_then(short) {
        properties = properties.with_content_type(content_type);
    }
    if let Some(event_type) = claim.event.event_type.as_deref().and_then(short) {
        properties = properties.with_type(event_type);
    }
    if let Ok(seconds) = u64::try_from(claim.event.created_at.as_second()) {
        properties = properties.with_timestamp(seconds);
    }
    properties
}

/// `None` where the protocol cannot say it; lapin's own conversion panics.
fn short(text: &str) -> Option<ShortString> {
    (text.len() <= SHORT).then(|| ShortString::from(text))
}

impl Handler for Amqp {
    fn handle<'a>(&'a self, outgoing: &'a Outgoing<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(self.publish(outgoing))
    }
}
