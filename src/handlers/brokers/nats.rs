//! `kind = "nats"`: publishes to a subject of JetStream and waits until the stream has it. `Nats-Msg-Id` is the idempotency
//! key, so that a repetition within the stream's window is dropped by the stream itself.
//!
//! One connection for each handler, kept by async-nats, which reconnects for ever. Nothing is published while it is down,
//! because the client would keep the message and send it after the attempt has been given up.

use std::{
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use async_nats::{
    Client, ConnectOptions, Event, HeaderMap, HeaderName, HeaderValue, Request, RequestErrorKind, ServerAddr,
    connection::State,
    jetstream::{self, context::GetStreamByNameErrorKind, response::Response},
};
use futures_util::future::BoxFuture;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::OnceCell;

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
/// How often a silent server is asked whether it is there.
const PING: Duration = Duration::from_secs(10);
/// How often it is looked whether the connection that an answer is awaited on still stands.
const LOOK: Duration = Duration::from_millis(250);
const MESSAGE_ID: &str = "Nats-Msg-Id";

/// Codes of JetStream's answers that another try will meet again: message larger than the stream takes, headers too large.
const TOO_LARGE: [u64; 2] = [10_054, 10_097];

pub(super) struct Nats {
    servers: Vec<ServerAddr>,
    credentials: Option<SecretString>,
    tls: Pem,
    subject: Template,
    timeout: Duration,
    client: OnceCell<Client>,
    /// What a server said last when it refused something, which it does beside the answer.
    refusal: Arc<Mutex<Option<String>>>,
}

/// The settings of a handler, with secrets fetched.
pub(super) struct Settings<'a> {
    /// One or more `nats://` or `tls://` addresses, separated by commas.
    pub(super) url: SecretString,
    pub(super) subject: &'a str,
    /// The text of a `.creds` file.
    pub(super) credentials: Option<SecretString>,
    pub(super) tls: Pem,
    pub(super) timeout: Duration,
}

impl Nats {
    pub(super) fn new(settings: Settings<'_>) -> Result<Self, String> {
        let expected = "`url` must be nats://host:4222 or tls://…; several are separated by commas";
        let servers = settings
            .url
            .expose_secret()
            .split(',')
            .map(|address| address.trim().parse().ok().filter(|a: &ServerAddr| !a.is_websocket()))
            .collect::<Option<Vec<ServerAddr>>>()
            .ok_or(expected)?;
        let subject = Template::parse("subject", settings.subject)?;
        let whole: String = settings.subject.replace(['{', '}'], "");
        if whole.is_empty() || whole.split('.').any(str::is_empty) || subject.literals().any(|t| t.contains(['*', '>']))
        {
            return Err(
                "`subject` must be tokens between dots, without wildcards, such as webhooks.{provider}.{type}".into(),
            );
        }
        if let Some(credentials) = &settings.credentials {
            ConnectOptions::new()
                .credentials(credentials.expose_secret())
                .map_err(|_| "`credentials` must be the text of a .creds file, such as \"file:cerca.creds\"")?;
        }
        Ok(Self {
            servers,
            credentials: settings.credentials,
            tls: settings.tls,
            subject,
            timeout: settings.timeout,
            client: OnceCell::new(),
            refusal: Arc::default(),
        })
    }

    async fn connect(&self) -> Result<Client, Failure> {
        let refusal = Arc::clone(&self.refusal);
        let mut options = ConnectOptions::new()
            .name("cerca")
            .connection_timeout(CONNECT.min(self.timeout))
            .ping_interval(PING)
            .event_callback(move |event| {
                if let Event::ServerError(error) = &event {
                    *refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
                }
                std::future::ready(())
            });
        if let Some(credentials) = &self.credentials {
            let with = options.credentials(credentials.expose_secret());
            options = with.map_err(|_| Failure::Retry("the credentials cannot be read".into()))?;
        }
        if self.tls.is_some() {
            let config = self.tls.config().map_err(Failure::Retry)?;
            options = options.require_tls(true).tls_client_config(config);
        }
        let connected = options.connect(self.servers.clone()).await;
        connected.map_err(|e| Failure::Retry(format!("cannot connect: {e}")))
    }

    async fn publish(&self, outgoing: &Outgoing<'_>) -> Result<(), Failure> {
        let claim = outgoing.claim;
        let client = self.client.get_or_try_init(|| self.connect()).await?;
        if client.connection_state() != State::Connected {
            return Err(Failure::Retry("not connected to the server; reconnecting".into()));
        }
        let subject = self.subject.fill(claim);
        let message = Message::new(outgoing);
        let request = Request::new()
            .payload(message.payload.clone())
            .headers(headers(claim, &message))
            .timeout(Some(self.timeout));
        let connects = client.statistics().connects.load(Ordering::Relaxed);
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).take();
        outgoing.mark_sent();
        let answer = tokio::select! {
            answer = client.send_request(subject.clone(), request) => answer,
            failure = self.lost(client, connects, &subject) => return Err(failure),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return Err(self.unanswered(client, &subject, &error).await),
        };
        match serde_json::from_slice::<Response<jetstream::publish::PublishAck>>(&answer.payload) {
            Ok(Response::Ok(_)) => Ok(()),
            Ok(Response::Err { error }) => {
                let text = format!("the stream refused it: {error}");
                let code = error.error_code().0;
                Err(if TOO_LARGE.contains(&code) {
                    Failure::GiveUp(text)
                } else {
                    Failure::Retry(text)
                })
            }
            Err(_) => Err(Failure::Retry(format!(
                "something else than a stream answered on the subject {subject}"
            ))),
        }
    }

    /// Ends when the answer can no longer come: the connection was lost, or the server refused the subject.
    async fn lost(&self, client: &Client, connects: u64, subject: &str) -> Failure {
        loop {
            tokio::time::sleep(LOOK).await;
            let same = client.statistics().connects.load(Ordering::Relaxed) == connects;
            if !same || client.connection_state() != State::Connected {
                return Failure::Unknown("sent, but the connection was lost before the stream answered".into());
            }
            let refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(text) = refusal.filter(|text| text.contains(&format!("\"{subject}\""))) {
                return Failure::Retry(format!("the server says: {text}"));
            }
        }
    }

    async fn unanswered(&self, client: &Client, subject: &str, error: &async_nats::RequestError) -> Failure {
        match error.kind() {
            RequestErrorKind::MaxPayloadExceeded => Failure::GiveUp(format!(
                "larger than the server takes: {} bytes at most",
                client.max_payload()
            )),
            RequestErrorKind::InvalidSubject => Failure::GiveUp(format!("no valid subject: {subject}")),
            // A stream that elects its leader is silent too, and so is a server that begins: JetStream knows.
            RequestErrorKind::NoResponders => {
                let context = jetstream::new(client.clone());
                match context.stream_by_subject(subject).await {
                    Err(error) if error.kind() == GetStreamByNameErrorKind::NotFound => {
                        Failure::Retry(format!("no stream takes the subject {subject}"))
                    }
                    _ => Failure::Retry(format!("no stream answered on the subject {subject}")),
                }
            }
            RequestErrorKind::TimedOut => Failure::Unknown("sent, but the stream did not answer in time".into()),
            RequestErrorKind::Other => Failure::Unknown(format!("no answer came: {error}")),
        }
    }
}

fn headers(claim: &Claim, message: &Message<'_>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let own = message.headers.iter().map(|(name, value)| (*name, value.as_str()));
    let sent = message::of_sender(claim);
    let sent = sent.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in sent.chain(own).chain([(MESSAGE_ID, message.key.as_str())]) {
        // What `message` gives is always a name and a value.
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
            headers.insert(name, value);
        }
    }
    headers
}

impl Handler for Nats {
    fn handle<'a>(&'a self, outgoing: &'a Outgoing<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(self.publish(outgoing))
    }
}
