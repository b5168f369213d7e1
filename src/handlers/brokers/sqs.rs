//! `kind = "sqs"` (cargo feature `sqs`): sends to a queue of Amazon SQS, or of what speaks its protocol. On a FIFO queue
//! (`….fifo`) the ordering key is the message group, and a hash of the idempotency key drops repetitions.
//!
//! Credentials and, unless given, the region come from where every AWS client looks: environment, profile, container,
//! instance. A body is text to SQS: one that is not goes as base64, and the attribute `Cerca-Encoding` says so.

use std::time::Duration;

use aws_sdk_sqs::{
    Client,
    config::{BehaviorVersion, Region, retry::RetryConfig, timeout::TimeoutConfig},
    error::{DisplayErrorContext, ProvideErrorMetadata as _, SdkError},
    operation::send_message::SendMessageError,
    types::MessageAttributeValue,
};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures_util::future::BoxFuture;
use tokio::sync::OnceCell;

use super::message::{self, Message};
use crate::{
    domain::Claim,
    handlers::{Failure, Handler, Outgoing},
};

/// The longest message group of a FIFO queue.
const LONGEST_GROUP: usize = 128;

pub(super) struct Sqs {
    queue: String,
    region: Option<String>,
    endpoint: Option<String>,
    timeout: Duration,
    client: OnceCell<Client>,
}

/// The settings of a handler.
pub(super) struct Settings<'a> {
    /// The URL of the queue.
    pub(super) queue: &'a str,
    pub(super) region: Option<&'a str>,
    /// Another address than AWS's own.
    pub(super) endpoint: Option<&'a str>,
    pub(super) timeout: Duration,
}

impl Sqs {
    pub(super) fn new(settings: Settings<'_>) -> Result<Self, String> {
        let is_url =
            |text: &str| reqwest::Url::parse(text).is_ok_and(|u| u.has_host() && u.scheme().starts_with("http"));
        if !is_url(settings.queue) {
            return Err(
                "`queue` must be its URL, such as https://sqs.eu-west-1.amazonaws.com/123456789012/events".into(),
            );
        }
        if settings.endpoint.is_some_and(|endpoint| !is_url(endpoint)) {
            return Err("`endpoint` must be http://… or https://…".into());
        }
        Ok(Self {
            queue: settings.queue.to_owned(),
            region: settings.region.map(str::to_owned),
            endpoint: settings.endpoint.map(str::to_owned),
            timeout: settings.timeout,
            client: OnceCell::new(),
        })
    }

    /// Attempts are counted and spaced by the worker, so the client makes one only.
    async fn client(&self) -> Client {
        let https = aws_smithy_http_client::Builder::new()
            .tls_provider(Provider::Rustls(CryptoMode::Ring))
            .build_https();
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .http_client(https)
            .retry_config(RetryConfig::disabled())
            .timeout_config(TimeoutConfig::builder().operation_timeout(self.timeout).build());
        if let Some(region) = self.region.clone().or_else(|| region_of(&self.queue)) {
            loader = loader.region(Region::new(region));
        }
        if let Some(endpoint) = &self.endpoint {
            loader = loader.endpoint_url(endpoint);
        }
        Client::new(&loader.load().await)
    }

    async fn publish(&self, outgoing: &Outgoing<'_>) -> Result<(), Failure> {
        let claim = outgoing.claim;
        let client = self.client.get_or_init(|| self.client()).await;
        let message = Message::new(outgoing);
        let (body, encoding) = body(message.payload);
        let mut request = client.send_message().queue_url(&self.queue).message_body(body);
        let encoding = encoding.map(|encoding| ("Cerca-Encoding", encoding.to_owned()));
        // SQS takes ten attributes; the sender's headers stay behind.
        for (name, value) in message.headers.iter().cloned().chain(encoding) {
            let attribute = MessageAttributeValue::builder()
                .data_type("String")
                .string_value(value)
                .build()
                .map_err(|e| Failure::GiveUp(format!("no attribute {name}: {e}")))?;
            request = request.message_attributes(name, attribute);
        }
        if self.queue.ends_with(".fifo") {
            request = request
                .message_group_id(group(claim, &message))
                .message_deduplication_id(message.hashed_key());
        }
        outgoing.mark_sent();
        match request.send().await {
            Ok(_) => Ok(()),
            Err(error) => Err(judge(&error)),
        }
    }
}

/// Text that SQS takes is sent as it is. An empty body is not taken either.
fn body(payload: &[u8]) -> (String, Option<&'static str>) {
    let allowed = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..);
    match std::str::from_utf8(payload) {
        Ok("") => ("-".into(), Some("empty")),
        Ok(text) if text.chars().all(allowed) => (text.to_owned(), None),
        _ => (BASE64_STANDARD.encode(payload), Some("base64")),
    }
}

/// Events without an ordering key are each a group of their own: nothing waits for anything.
fn group(claim: &Claim, message: &Message<'_>) -> String {
    match &claim.event.ordering_key {
        Some(key) if !key.is_empty() && key.len() <= LONGEST_GROUP && key.bytes().all(|c| c.is_ascii_graphic()) => {
            key.to_string()
        }
        Some(key) => message::hash(key),
        None => message.hashed_key(),
    }
}

/// `eu-west-1` of `https://sqs.eu-west-1.amazonaws.com/…`.
fn region_of(queue: &str) -> Option<String> {
    let url = reqwest::Url::parse(queue).ok()?;
    let region = url
        .host_str()?
        .strip_prefix("sqs.")?
        .split_once(".amazonaws.com")?
        .0
        .to_owned();
    (!region.is_empty()).then_some(region)
}

/// What is wrong with the message itself is final; credentials and a queue that is not there are not its fault.
fn judge(error: &SdkError<SendMessageError>) -> Failure {
    let Some(refusal) = error.as_service_error() else {
        let text = DisplayErrorContext(error);
        return if is_unsent(error) {
            Failure::Retry(format!("not sent: {text}"))
        } else {
            Failure::Unknown(format!("no answer came: {text}"))
        };
    };
    let code = refusal.code().unwrap_or("no code");
    let text = format!("refused: {code}: {}", refusal.message().unwrap_or_default());
    let is_final = refusal.is_invalid_message_contents()
        || refusal.is_unsupported_operation()
        || matches!(
            code.rsplit('.').next(),
            Some("InvalidParameterValue" | "MissingParameter")
        );
    if is_final {
        Failure::GiveUp(text)
    } else {
        Failure::Retry(text)
    }
}

/// Whether it is known that nothing was sent: no request could be made, or nobody was there to take it.
fn is_unsent(error: &SdkError<SendMessageError>) -> bool {
    use std::io::ErrorKind;
    if matches!(error, SdkError::ConstructionFailure(_)) {
        return true;
    }
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            let kind = io.kind();
            return matches!(
                kind,
                ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable
            );
        }
        source = cause.source();
    }
    false
}

impl Handler for Sqs {
    fn handle<'a>(&'a self, outgoing: &'a Outgoing<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(self.publish(outgoing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::testing::claim;

    #[test]
    fn bodies_that_are_no_text_are_encoded_and_say_so() {
        assert_eq!(body("{\"a\":\"é\r\n\u{1f600}\"}".as_bytes()).1, None);
        assert_eq!(body(b"\xff\0"), ("/wA=".into(), Some("base64")));
        assert_eq!(body(b"a\0b").1, Some("base64"));
        assert_eq!(body(b"a\x1bb").1, Some("base64"));
        assert_eq!(body("\u{ffff}".as_bytes()).1, Some("base64"));
        assert_eq!(body(b""), ("-".into(), Some("empty")));
    }

    #[test]
    fn groups_are_what_the_queue_takes() {
        let mut claim = claim("evt_1", &b"{}"[..]);
        let mut group_of = |key: Option<&str>| {
            std::sync::Arc::make_mut(&mut claim.event).ordering_key = key.map(Into::into);
            group(&claim, &Message::new(&Outgoing::raw(&claim)))
        };
        assert_eq!(group_of(Some("cus_1")), "cus_1");
        let none = group_of(None);
        for odd in [" ", "é", "", &"a".repeat(129)] {
            let group = group_of(Some(odd));
            assert_eq!(group.len(), 64, "{odd}");
            assert_ne!(group, none);
        }
    }

    #[test]
    fn the_region_is_in_the_url_of_the_queue() {
        let region = |url| region_of(url);
        assert_eq!(
            region("https://sqs.eu-west-1.amazonaws.com/1/q").as_deref(),
            Some("eu-west-1")
        );
        assert_eq!(
            region("https://sqs.cn-north-1.amazonaws.com.cn/1/q").as_deref(),
            Some("cn-north-1")
        );
        assert_eq!(region("http://localhost:4566/1/q"), None);
    }
}
