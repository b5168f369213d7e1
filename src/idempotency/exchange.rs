//! A request with a key, from the reservation to the record. It runs in a task of its own: a client that hangs up
//! cancels nothing.

use std::sync::Arc;

use bytes::Bytes;
use reqwest::{
    Method, Response, StatusCode, Url,
    header::{AUTHORIZATION, HeaderMap},
};
use tokio::{runtime::Handle, sync::oneshot};
use tokio_util::task::TaskTracker;

use super::{
    gateway::Gateway,
    layer::{Ask, Entry, Layer, Run},
    refusal::Refusal,
    spec::OnUpstreamDown,
    upstream::{Body, Probed, kept, kept_headers, read},
};
use crate::store::{KeptAnswer, KeyStep};

/// A request for the upstream.
pub struct Outgoing {
    pub method: Method,
    pub url: Url,
    /// Without those of one hop.
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// What the client is told.
pub enum Exchanged {
    /// The answer of the upstream, given for the first time.
    First {
        status: u16,
        headers: HeaderMap,
        body: Bytes,
        /// What follows the body, where it was too large to keep.
        rest: Option<Box<Response>>,
    },
    Replayed(Arc<KeptAnswer>),
    Refused(Refusal),
}

/// Runs exchanges on the runtime that it was made in, and waits for them at the end.
pub struct Engine {
    layer: Arc<Layer>,
    runtime: Handle,
    tasks: TaskTracker,
}

impl Engine {
    /// To be called within the runtime that outlives the servers.
    #[must_use]
    pub fn new(layer: Arc<Layer>) -> Self {
        Self {
            layer,
            runtime: Handle::current(),
            tasks: TaskTracker::new(),
        }
    }

    #[must_use]
    pub fn layer(&self) -> &Arc<Layer> {
        &self.layer
    }

    /// Begins an exchange; it goes on if the receiver is dropped.
    pub fn begin(&self, gateway: Arc<Gateway>, ask: Ask, outgoing: Outgoing) -> oneshot::Receiver<Exchanged> {
        let (reply, answer) = oneshot::channel();
        let layer = Arc::clone(&self.layer);
        let exchange = async move {
            gateway.metrics().in_progress.increment(1.0);
            let exchanged = exchange(&layer, &gateway, ask, outgoing).await;
            gateway.metrics().in_progress.decrement(1.0);
            match &exchanged {
                Exchanged::First { .. } => gateway.metrics().first.increment(1),
                Exchanged::Replayed(_) => gateway.count_replay(),
                Exchanged::Refused(refusal) => gateway.count_refusal(refusal),
            }
            let _ = reply.send(exchanged);
        };
        self.tasks.spawn_on(exchange, &self.runtime);
        answer
    }

    /// Resolves when no exchange runs any more. To be called after the servers have stopped.
    pub async fn finished(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

async fn exchange(layer: &Layer, gateway: &Gateway, ask: Ask, outgoing: Outgoing) -> Exchanged {
    let run = match layer.enter(ask.clone()).await {
        Entry::Run(run) => run,
        Entry::Replay(answer) => return Exchanged::Replayed(answer),
        Entry::Refuse(refusal) => return Exchanged::Refused(refusal),
        Entry::Unknown { id } => match find_out(layer, gateway, id, ask, &outgoing).await {
            Ok(run) => run,
            Err(exchanged) => return exchanged,
        },
    };
    if let Err(refusal) = layer.sent(&run).await {
        return Exchanged::Refused(refusal);
    }
    send(layer, gateway, &run, outgoing).await
}

/// Asks the upstream how a request ended: an answer, or the right to run it because it never happened.
async fn find_out(layer: &Layer, gateway: &Gateway, id: i64, ask: Ask, outgoing: &Outgoing) -> Result<Run, Exchanged> {
    let Some(probe) = &gateway.probe else {
        return Err(Exchanged::Refused(Refusal::Unknown));
    };
    let run = match layer.take_over(id, ask).await {
        Ok(Some(run)) => run,
        // Another is asking.
        Ok(None) => return Err(Exchanged::Refused(Refusal::Unknown)),
        Err(refusal) => return Err(Exchanged::Refused(refusal)),
    };
    let authorization = outgoing.headers.get(AUTHORIZATION);
    let keeps = |name: &str| gateway.keeps_header(name);
    let key = &run.ask.name.key;
    match probe
        .ask(&gateway.client, key, authorization, gateway.max_answer, keeps)
        .await
    {
        Probed::Happened(answer) => {
            let answer = Arc::new(answer);
            layer.finish(&run, &answer, &gateway.policy).await;
            Err(match answer.body {
                Some(_) => Exchanged::Replayed(answer),
                None => Exchanged::Refused(Refusal::NotKept(answer)),
            })
        }
        Probed::Never => Ok(run),
        Probed::Undecided => {
            layer.end(&run, KeyStep::Abandon).await;
            Err(Exchanged::Refused(Refusal::Unknown))
        }
    }
}

async fn send(layer: &Layer, gateway: &Gateway, run: &Run, outgoing: Outgoing) -> Exchanged {
    let sent = gateway
        .client
        .request(outgoing.method, outgoing.url)
        .headers(outgoing.headers)
        .body(outgoing.body)
        .send()
        .await;
    let response = match sent {
        Ok(response) => response,
        Err(error) if error.is_connect() || error.is_builder() => {
            tracing::warn!(gateway.path = &*gateway.path, error = %error.without_url(), "the upstream cannot be reached");
            let step = match gateway.on_upstream_down {
                OnUpstreamDown::Release => KeyStep::Release,
                OnUpstreamDown::Keep => KeyStep::Return,
            };
            layer.end(run, step).await;
            return Exchanged::Refused(Refusal::UpstreamDown);
        }
        Err(error) => return lost(layer, gateway, run, error).await,
    };
    // Nobody asked it to switch protocols, so what follows is no answer.
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        tracing::warn!(
            gateway.path = &*gateway.path,
            key.id = run.held.id,
            "the upstream switched protocols unasked"
        );
        layer.end(run, KeyStep::Abandon).await;
        return Exchanged::Refused(Refusal::UpstreamBroke);
    }
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let (body, rest) = match read(response, gateway.max_answer).await {
        Ok(Body::Whole(body)) => (body, None),
        Ok(Body::TooLarge(body, rest)) => (body, Some(rest)),
        Err(error) => return lost(layer, gateway, run, error).await,
    };
    let to_keep = rest.is_none().then(|| body.clone());
    let answer = Arc::new(kept(
        status,
        kept_headers(&headers, |name| gateway.keeps_header(name)),
        to_keep,
    ));
    // The client hears it once it is kept: then its next try hears the same.
    layer.finish(run, &answer, &gateway.policy).await;
    Exchanged::First {
        status,
        headers,
        body,
        rest,
    }
}

/// It was sent, and there is no whole answer.
async fn lost(layer: &Layer, gateway: &Gateway, run: &Run, error: reqwest::Error) -> Exchanged {
    let is_late = error.is_timeout();
    tracing::warn!(
        gateway.path = &*gateway.path,
        key.id = run.held.id,
        error = %error.without_url(),
        "a request was sent and not answered to the end"
    );
    layer.end(run, KeyStep::Abandon).await;
    Exchanged::Refused(if is_late {
        Refusal::UpstreamSlow
    } else {
        Refusal::UpstreamBroke
    })
}
