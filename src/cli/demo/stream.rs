//! What the senders send, in order, and what comes of each request.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use futures_util::future::try_join_all;
use jiff::Timestamp;

use super::{
    super::sender::{Reply, Sender, sample, sign},
    account::{Account, Line},
};
use crate::{
    adapters::{Provider, Registry},
    domain::EventStatus,
    ingest::{Bad, Ingested, OwnedRequest, ingest},
    store::Store,
};

/// Everything that a play needs.
pub(super) struct Stage<'a> {
    pub(super) sender: &'a Sender,
    pub(super) providers: &'a [Arc<Provider>],
    pub(super) registry: &'a Registry,
    pub(super) store: &'a dyn Store,
}

/// One thing that a sender does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// A new event.
    New,
    /// The event before, again, as after an answer that got lost.
    Again,
    /// A new event, five times at the same moment.
    AtOnce,
    Bad(Bad),
}

/// Five times.
const AT_ONCE: usize = 5;

const PLAY: &[(&str, &str, Act)] = &[
    ("stripe", "payment_intent.succeeded", Act::New),
    ("stripe", "payment_intent.succeeded", Act::Again),
    ("github", "push", Act::New),
    ("asaas", "PAYMENT_RECEIVED", Act::New),
    ("github", "push", Act::Bad(Bad::WrongKey)),
    ("shopify", "orders-create", Act::New),
    ("slack", "message", Act::New),
    ("stripe", "invoice.paid", Act::New),
    ("stripe", "invoice.paid", Act::Bad(Bad::Stale)),
    ("twilio", "message.received", Act::New),
    ("asaas", "PAYMENT_OVERDUE", Act::New),
    ("asaas", "PAYMENT_OVERDUE", Act::Again),
    ("shopify", "orders-create", Act::Bad(Bad::Tampered)),
    ("stripe", "payment_intent.succeeded", Act::AtOnce),
    ("github", "pull_request", Act::New),
    ("slack", "message", Act::Bad(Bad::Stale)),
    ("shopify", "app-uninstalled", Act::New),
    ("asaas", "PAYMENT_RECEIVED", Act::Bad(Bad::WrongKey)),
    ("twilio", "call.completed", Act::New),
    ("github", "issues", Act::New),
    ("github", "issues", Act::Again),
    ("stripe", "payment_intent.succeeded", Act::Bad(Bad::Tampered)),
    ("slack", "block_actions", Act::New),
    ("stripe", "invoice.paid", Act::New),
];

/// On a terminal people read along.
const PACE: Duration = Duration::from_millis(180);

/// How long a handler may take before the account goes on without it.
const PATIENCE: Duration = Duration::from_secs(3);

pub(super) async fn play(stage: &Stage<'_>, account: &mut Account<'_>) -> anyhow::Result<()> {
    let mut before = None;
    for (name, event_type, act) in PLAY {
        let provider = stage.provider(name)?;
        let request = match (act, before.take()) {
            (Act::Again, Some(request)) => request,
            _ => stage.make(provider, event_type, *act)?,
        };
        let times = if *act == Act::AtOnce { AT_ONCE } else { 1 };
        let replies = try_join_all((0..times).map(|_| stage.sender.send(&request))).await?;
        let line = Line {
            provider: name,
            event_type,
            act: *act,
            reason: refusal(provider, &request),
            handled: stage.handled(provider, &request, *act, &replies).await?,
            replies,
        };
        account.add(&line)?;
        before = Some(request);
        if account.is_watched() {
            tokio::time::sleep(PACE).await;
        }
    }
    Ok(())
}

impl Stage<'_> {
    fn provider(&self, name: &str) -> anyhow::Result<&Provider> {
        let found = self.providers.iter().find(|provider| &*provider.name == name);
        found
            .map(|provider| &**provider)
            .with_context(|| format!("{name} is not registered"))
    }

    fn make(&self, provider: &Provider, event_type: &str, act: Act) -> anyhow::Result<OwnedRequest> {
        let adapter = self
            .registry
            .get(&provider.adapter)
            .context("the adapter is built in")?;
        let name = adapter.samples().contains_key(event_type).then_some(event_type);
        let (_, sample) = sample(adapter, provider, name)?;
        let bad = match act {
            Act::Bad(bad) => bad,
            _ => Bad::None,
        };
        sign(provider, &sample, bad)
    }

    /// What became of a new event, once its handlers are through.
    async fn handled(
        &self,
        provider: &Provider,
        request: &OwnedRequest,
        act: Act,
        replies: &[Reply],
    ) -> anyhow::Result<Option<(EventStatus, Duration)>> {
        let new = matches!(act, Act::New | Act::AtOnce) && replies.iter().all(|reply| reply.status == 200);
        let Some(id) = new.then(|| id_of(provider, request)).flatten() else {
            return Ok(None);
        };
        let started = Instant::now();
        loop {
            let event = self.store.event(&provider.name, &id).await?;
            let status = event.map(|detail| detail.event.status);
            match status {
                Some(EventStatus::Pending) | None if started.elapsed() < PATIENCE => {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                Some(status) => return Ok(Some((status, started.elapsed()))),
                None => return Ok(None),
            }
        }
    }
}

fn id_of(provider: &Provider, request: &OwnedRequest) -> Option<String> {
    let headers = request.header_list();
    match ingest(provider, &request.raw(&headers), Timestamp::now()) {
        Ok(Ingested::Events { events, .. }) => events.into_iter().next().map(|event| event.id),
        _ => None,
    }
}

/// Why the server refuses it. The answer does not say, because a forger would read it; the log and the metrics do.
fn refusal(provider: &Provider, request: &OwnedRequest) -> Option<&'static str> {
    let headers = request.header_list();
    ingest(provider, &request.raw(&headers), Timestamp::now())
        .err()
        .map(|rejection| rejection.reason())
}
