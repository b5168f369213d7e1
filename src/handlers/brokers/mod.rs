//! Handlers that publish to a broker: one file per kind. Each waits until the broker says that it has the message. A message
//! that the broker will not take as it is is dead at once; a missing destination and a connection that fails are tried again
//! under the same key. A message
//! that was sent and not answered has an unknown outcome.

mod amqp;
#[cfg(feature = "kafka")]
mod kafka;
mod message;
mod nats;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqs")]
mod sqs;
mod template;
mod tls;

use std::sync::Arc;

use secrecy::SecretString;

use super::{Handler, HandlerSpec, Kind};
use tls::Pem;

/// Fetches the value that the key's reference names.
type Resolve<'a> = dyn Fn(&str, &str) -> Result<SecretString, String> + 'a;

/// Checks the settings of a broker's handler. Opens no connection.
pub(super) fn build(spec: &HandlerSpec, resolve: &Resolve<'_>) -> Result<Arc<dyn Handler>, String> {
    match spec.kind {
        Kind::Nats => {
            let subject = spec.subject.as_deref();
            let subject = subject.ok_or("`subject` is required, such as webhooks.{provider}.{type}")?;
            let credentials = spec.credentials.as_deref();
            Ok(Arc::new(nats::Nats::new(nats::Settings {
                url: url(spec, resolve, "nats://host:4222")?,
                subject,
                credentials: credentials.map(|c| resolve("credentials", c)).transpose()?,
                tls: pem(spec, resolve)?,
                timeout: spec.timeout,
            })?))
        }
        Kind::Amqp => Ok(Arc::new(amqp::Amqp::new(amqp::Settings {
            url: url(spec, resolve, "amqp://user:password@host:5672/vhost")?,
            exchange: spec.exchange.as_deref().unwrap_or_default(),
            routing_key: spec.routing_key.as_deref().unwrap_or_default(),
            tls: pem(spec, resolve)?,
        })?)),
        Kind::Kafka => kafka(spec, resolve),
        Kind::Redis => redis(spec, resolve),
        Kind::Sqs => sqs(spec),
        Kind::Http | Kind::Sql | Kind::Exec | Kind::Native | Kind::Pull | Kind::Log => {
            Err("`kind` is no broker".into())
        }
    }
}

fn url(spec: &HandlerSpec, resolve: &Resolve<'_>, example: &str) -> Result<SecretString, String> {
    let url = spec.url.as_deref();
    resolve("url", url.ok_or_else(|| format!("`url` is required: {example}"))?)
}

fn pem(spec: &HandlerSpec, resolve: &Resolve<'_>) -> Result<Pem, String> {
    match &spec.tls {
        Some(tls) => Pem::fetch(tls, resolve),
        None => Ok(Pem::default()),
    }
}

#[cfg(feature = "kafka")]
fn kafka(spec: &HandlerSpec, resolve: &Resolve<'_>) -> Result<Arc<dyn Handler>, String> {
    if spec.brokers.is_empty() {
        return Err("`brokers` is required: a list such as [\"kafka-1:9092\"]".into());
    }
    let options = spec.options.iter();
    let options = options.map(|(name, value)| Ok((name.clone(), resolve("options", value)?)));
    Ok(Arc::new(kafka::Kafka::new(kafka::Settings {
        brokers: &spec.brokers,
        topic: spec.topic.as_deref().ok_or("`topic` is required")?,
        options: options.collect::<Result<_, String>>()?,
        timeout: spec.timeout,
    })?))
}

#[cfg(feature = "redis")]
fn redis(spec: &HandlerSpec, resolve: &Resolve<'_>) -> Result<Arc<dyn Handler>, String> {
    Ok(Arc::new(redis::Redis::new(redis::Settings {
        url: url(spec, resolve, "redis://user:password@host:6379/0")?,
        stream: spec
            .stream
            .as_deref()
            .ok_or("`stream` is required: the key of the stream")?,
        max_length: spec.max_length,
        tls: pem(spec, resolve)?,
        timeout: spec.timeout,
    })?))
}

#[cfg(feature = "sqs")]
fn sqs(spec: &HandlerSpec) -> Result<Arc<dyn Handler>, String> {
    Ok(Arc::new(sqs::Sqs::new(sqs::Settings {
        queue: spec
            .queue
            .as_deref()
            .ok_or("`queue` is required: the URL of the queue")?,
        region: spec.region.as_deref(),
        endpoint: spec.endpoint.as_deref(),
        timeout: spec.timeout,
    })?))
}

#[cfg(not(feature = "kafka"))]
fn kafka(_: &HandlerSpec, _: &Resolve<'_>) -> Result<Arc<dyn Handler>, String> {
    Err(not_built("kafka"))
}

#[cfg(not(feature = "redis"))]
fn redis(_: &HandlerSpec, _: &Resolve<'_>) -> Result<Arc<dyn Handler>, String> {
    Err(not_built("redis"))
}

#[cfg(not(feature = "sqs"))]
fn sqs(_: &HandlerSpec) -> Result<Arc<dyn Handler>, String> {
    Err(not_built("sqs"))
}

#[cfg(not(all(feature = "kafka", feature = "redis", feature = "sqs")))]
fn not_built(feature: &str) -> String {
    format!("`kind` = \"{feature}\" is not in this binary; build it with `cargo build --release --features {feature}`")
}

#[cfg(test)]
mod tests;
