//! `kind = "kafka"` (cargo feature `kafka`): an idempotent producer that waits for all in-sync replicas. The key of a message
//! is the event's ordering key, so that what belongs together goes to one partition.
//!
//! One producer for each handler; librdkafka keeps its connections. It is made anew after a fatal error.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::BoxFuture;
use rdkafka::{
    ClientConfig,
    error::{KafkaError, RDKafkaErrorCode},
    message::{Header, OwnedHeaders},
    producer::{FutureProducer, FutureRecord},
};
use secrecy::{ExposeSecret as _, SecretString};

use super::message::{self, Message};
use crate::{
    domain::Claim,
    handlers::{Failure, Handler, Outgoing},
};

/// What we promise depends on these.
const OURS: &[&str] = &[
    "acks",
    "bootstrap.servers",
    "delivery.timeout.ms",
    "enable.gapless.guarantee",
    "enable.idempotence",
    "message.timeout.ms",
    "metadata.broker.list",
    "request.required.acks",
    "transactional.id",
];
/// The largest message that librdkafka is told to let through; the topic's own limit decides.
const LARGEST: &str = "67108864";

pub(super) struct Kafka {
    config: ClientConfig,
    topic: String,
    producer: Mutex<Option<Arc<FutureProducer>>>,
}

/// The settings of a handler, with secrets fetched.
pub(super) struct Settings<'a> {
    /// `host:port` of some brokers; they name the others.
    pub(super) brokers: &'a [String],
    pub(super) topic: &'a str,
    /// Further settings of librdkafka by name.
    pub(super) options: BTreeMap<String, SecretString>,
    /// How long one attempt may take.
    pub(super) timeout: Duration,
}

impl Kafka {
    pub(super) fn new(settings: Settings<'_>) -> Result<Self, String> {
        let good = |c: u8| c.is_ascii_alphanumeric() || b"._-".contains(&c);
        let topic = settings.topic;
        if topic.is_empty() || topic.len() > 249 || topic == "." || topic == ".." || !topic.bytes().all(good) {
            return Err("`topic` must be 1 to 249 of a-z, A-Z, 0-9, ., _ and -".into());
        }
        if settings
            .brokers
            .iter()
            .any(|b| b.is_empty() || b.contains(char::is_whitespace))
        {
            return Err("`brokers` must be a list such as [\"kafka-1:9092\", \"kafka-2:9092\"]".into());
        }
        let mut config = ClientConfig::new();
        config
            .set("client.id", "cerca")
            .set("message.max.bytes", LARGEST)
            .set("linger.ms", "1");
        for (name, value) in &settings.options {
            if OURS.contains(&name.as_str()) {
                return Err(format!(
                    "`options`: \"{name}\" is not to be changed; what Cerca promises depends on it"
                ));
            }
            config.set(name, value.expose_secret());
        }
        // An attempt ends for librdkafka before it ends for the worker, so that its outcome is known.
        let timeout = settings.timeout.mul_f64(0.9).as_millis().clamp(1, 900_000);
        config
            .set("bootstrap.servers", settings.brokers.join(","))
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("message.timeout.ms", timeout.to_string());
        config.create_native_config().map_err(|error| match error {
            // Without the value, which may be a secret.
            KafkaError::ClientConfig(_, _, name, _) => {
                format!("`options`: \"{name}\" is no setting of librdkafka, or its value is wrong")
            }
            error => format!("`options`: {error}"),
        })?;
        Ok(Self {
            config,
            topic: topic.to_owned(),
            producer: Mutex::new(None),
        })
    }

    fn producer(&self) -> Result<Arc<FutureProducer>, Failure> {
        let mut producer = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(producer) = &*producer {
            return Ok(Arc::clone(producer));
        }
        let made = self.config.create();
        let made = Arc::new(made.map_err(|e| Failure::Retry(format!("no producer: {e}")))?);
        *producer = Some(Arc::clone(&made));
        Ok(made)
    }

    async fn publish(&self, outgoing: &Outgoing<'_>) -> Result<(), Failure> {
        let claim = outgoing.claim;
        let producer = self.producer()?;
        let message = Message::new(outgoing);
        let mut record = FutureRecord::<[u8], [u8]>::to(&self.topic)
            .payload(&message.payload[..])
            .headers(headers(claim, &message))
            .timestamp(claim.event.created_at.as_millisecond());
        if let Some(key) = &claim.event.ordering_key {
            record = record.key(key.as_bytes());
        }
        outgoing.mark_sent();
        match producer.send(record, Duration::ZERO).await {
            Ok(_) => Ok(()),
            Err((error, _)) => {
                if error.rdkafka_error_code() == Some(RDKafkaErrorCode::Fatal) {
                    self.forget(&producer);
                }
                Err(judge(&error))
            }
        }
    }

    /// The next message gets another producer.
    fn forget(&self, broken: &Arc<FutureProducer>) {
        let mut producer = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if producer.as_ref().is_some_and(|p| Arc::ptr_eq(p, broken)) {
            *producer = None;
        }
    }
}

fn headers(claim: &Claim, message: &Message<'_>) -> OwnedHeaders {
    let own = message.headers.iter().map(|(name, value)| (*name, value.as_str()));
    let sent = message::of_sender(claim);
    sent.iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .chain(own)
        .fold(OwnedHeaders::new(), |headers, (key, value)| {
            headers.insert(Header {
                key,
                value: Some(value),
            })
        })
}

/// What is wrong with the message itself is final; a topic can be created or opened. Of anything else librdkafka does not say whether the message
/// was on its way.
fn judge(error: &KafkaError) -> Failure {
    use RDKafkaErrorCode as Code;
    let text = format!("not produced: {error}");
    match error.rdkafka_error_code() {
        Some(
            Code::MessageSizeTooLarge
            | Code::InvalidMessageSize
            | Code::InvalidMessage
            | Code::InvalidRecord
            | Code::InvalidTopic
            | Code::PolicyViolation,
        ) => Failure::GiveUp(text),
        Some(
            Code::QueueFull
            | Code::TopicAuthorizationFailed
            | Code::UnknownPartition
            | Code::UnknownTopic
            | Code::UnknownTopicOrPartition,
        ) => Failure::Retry(text),
        _ => Failure::Unknown(text),
    }
}

impl Handler for Kafka {
    fn handle<'a>(&'a self, outgoing: &'a Outgoing<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(self.publish(outgoing))
    }
}
