//! `cerca events shadow`: what a handler would do with stored events today, beside what was recorded. No delivery and no
//! attempt changes; http goes to another URL, a statement is undone.

use std::{collections::BTreeMap, process::ExitCode, sync::Arc};

use anyhow::{Context as _, bail};
use clap::Args;
use comfy_table::Color;
use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use serde_json::json;

use super::{Desk, Filter, printable};
use crate::{
    app,
    cli::output::{code, complain, counted},
    config,
    domain::{Attempt, AttemptOutcome, Claim, StoredEvent},
    handlers::{Action, BreakerSpec, Failure, HandlerSpec, Kind, Outgoing, Route, Shaped},
    store::{Effect, EventDetail, Received, Work},
};

#[derive(Debug, Args)]
pub(in crate::cli) struct Shadow {
    /// The handler, as the configuration says it
    #[arg(value_name = "HANDLER")]
    name: String,
    #[command(flatten)]
    filter: Filter,
    /// http: where to send, in the place of the handler's own URL
    #[arg(long)]
    url: Option<String>,
    /// exec: the program to run in the place of the handler's own; again for each of its arguments
    #[arg(long, value_name = "PROGRAM", allow_hyphen_values = true)]
    command: Vec<String>,
    /// How many events at most
    #[arg(long, short = 'n', default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// Events at once
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
}

/// The stored header that marks a shadow run; the http handler sends it on as `Cerca-Shadow`.
const MARK: &str = "cerca-shadow";

const CHUNK: u32 = 100;
const CHUNK_BYTES: usize = 16 << 20;

/// How the two differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Same,
    /// Failed then, done now.
    Better,
    /// Done then, failed now.
    Worse,
    /// Failed then and now in another way, or filtered only once.
    Other,
    /// Never tried by this handler, or not yet.
    New,
}

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Other => "other",
            Self::New => "new",
        }
    }
}

/// One outcome, recorded or of today.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Said {
    outcome: &'static str,
    /// Of the target's answer, where the error names one.
    status: Option<u16>,
    error: Option<String>,
}

impl Said {
    fn new(outcome: &'static str, error: Option<String>) -> Self {
        Self {
            outcome,
            status: error.as_deref().and_then(status),
            error,
        }
    }

    /// Done, or not wanted by the handler's filter.
    fn is_right(&self) -> bool {
        matches!(self.outcome, "done" | "filtered")
    }

    fn words(&self) -> String {
        match &self.error {
            Some(error) => format!("{}: {}", self.outcome, printable(error)),
            None => self.outcome.to_owned(),
        }
    }
}

impl Desk<'_> {
    pub(super) async fn shadow(&self, command: Shadow) -> anyhow::Result<ExitCode> {
        self.tell_unknown(&command.filter);
        let route = self.route(&command)?;
        let filter = command.filter.build()?;
        let mut counts: BTreeMap<Verdict, u64> = BTreeMap::new();
        let (mut left, mut cursor, mut stripped) = (command.limit, None, 0);
        while left > 0 {
            let size = u32::try_from(left).map_or(CHUNK, |left| left.min(CHUNK));
            let chunk = self.store.export(filter.clone(), cursor, size, CHUNK_BYTES).await?;
            left -= (chunk.events.len() as u64).min(left);
            let tries = chunk.events.into_iter().map(|(detail, received)| {
                let claim = claim(&route.name, &detail, received);
                let route = &route;
                async move {
                    let now = match &claim {
                        Some(claim) => Some(self.attempt(route, claim).await?),
                        None => None,
                    };
                    anyhow::Ok((detail, now))
                }
            });
            // In order, so that two runs print the same.
            let mut tries = stream::iter(tries).buffered(command.concurrency.into());
            while let Some(done) = tries.next().await {
                match done? {
                    (detail, Some(now)) => *counts.entry(self.compare(&route.name, &detail, &now)?).or_default() += 1,
                    (_, None) => stripped += 1,
                }
            }
            cursor = chunk.next;
            if cursor.is_none() {
                break;
            }
        }
        self.summary(&route.name, &counts, stripped)?;
        Ok(code(!counts.contains_key(&Verdict::Worse)))
    }

    /// The handler with its effects turned away.
    fn route(&self, command: &Shadow) -> anyhow::Result<Route> {
        let name = &command.name;
        let config = self.context.config_with_secrets()?;
        let names: Vec<&str> = config.handlers.iter().map(|spec| spec.name.as_str()).collect();
        let Some(spec) = config.handlers.iter().find(|spec| spec.name == *name) else {
            let guess = config::near(name, &names);
            let guess = guess.map_or_else(
                || format!("one of {}", names.join(", ")),
                |near| format!("did you mean {near}?"),
            );
            bail!("no handler is called {name}; {guess}");
        };
        let spec = turned_away(spec, command)?;
        let mut config = config;
        config.handlers = vec![spec];
        let plan = app::plan(&config, self.context.global.adapters.as_deref())?;
        plan.routes
            .into_iter()
            .next()
            .context("the handler could not be made ready")
    }

    async fn attempt(&self, route: &Route, claim: &Claim) -> anyhow::Result<Said> {
        let outgoing = match &route.shape {
            None => Outgoing::raw(claim),
            Some(shape) => match shape.apply(claim).await {
                Ok(Shaped::Send(outgoing)) => outgoing,
                Ok(Shaped::Filtered(_)) => return Ok(Said::new("filtered", None)),
                Err(failure) => return Ok(failed(failure)),
            },
        };
        let done = match &route.action {
            Action::Outside(handler) => match tokio::time::timeout(route.timeout, handler.handle(&outgoing)).await {
                Ok(done) => done,
                Err(_) => Err(Failure::Unknown("the handler's time ran out".to_owned())),
            },
            // Refused before: see `turned_away`.
            Action::Native(_) | Action::Pull => {
                let error = "a handler of this kind cannot be run without its effects".to_owned();
                Err(Failure::GiveUp(error))
            }
            Action::InStore(action) => match (action.params)(&outgoing) {
                Err(failure) => Err(failure),
                Ok(params) => {
                    let effect = Effect {
                        claim: claim.clone(),
                        work: Work::Statement {
                            sql: Arc::clone(&action.statement),
                            params,
                        },
                        started_at: Timestamp::now(),
                        limit: route.timeout,
                    };
                    self.store.rehearse(effect).await?.map_err(Failure::Retry)
                }
            },
        };
        Ok(done.map_or_else(failed, |()| Said::new("done", None)))
    }

    /// Prints what differs.
    fn compare(&self, handler: &str, detail: &EventDetail, now: &Said) -> anyhow::Result<Verdict> {
        let then = recorded(handler, &detail.attempts);
        let verdict = verdict(then.as_ref(), now);
        let (out, event) = (self.context.out, &detail.event);
        if out.json {
            let said = |said: &Said| json!({"outcome": said.outcome, "status": said.status, "error": said.error});
            out.object(&json!({
                "provider": event.provider, "provider_event_id": event.provider_event_id,
                "event_type": event.event_type, "handler": handler, "verdict": verdict.as_str(),
                "then": then.as_ref().map(said), "now": said(now),
            }))?;
        } else if verdict != Verdict::Same && !(verdict == Verdict::New && now.outcome == "done") {
            let color = match verdict {
                Verdict::Worse => Color::Red,
                Verdict::Better => Color::Green,
                _ => Color::Yellow,
            };
            let then = then.map_or_else(|| "not tried".to_owned(), |then| then.words());
            out.line(format!(
                "{}  {}  {}  {then} → {}",
                out.paint(color, format!("{:<6}", verdict.as_str())),
                printable(&event.provider),
                printable(&event.provider_event_id),
                now.words()
            ))?;
        }
        Ok(verdict)
    }

    fn summary(&self, handler: &str, counts: &BTreeMap<Verdict, u64>, stripped: u64) -> anyhow::Result<()> {
        let total: u64 = counts.values().sum();
        let count = |verdict| counts.get(&verdict).copied().unwrap_or(0);
        if self.context.out.json {
            self.context.out.object(&json!({
                "handler": handler, "events": total, "same": count(Verdict::Same), "better": count(Verdict::Better),
                "worse": count(Verdict::Worse), "other": count(Verdict::Other), "new": count(Verdict::New),
                "without_payload": stripped,
            }))?;
        } else {
            self.context.out.line(format!(
                "{} through {handler}: {} the same, {} better, {} worse, {} otherwise, {} new.",
                counted(total, "event", "events"),
                count(Verdict::Same),
                count(Verdict::Better),
                count(Verdict::Worse),
                count(Verdict::Other),
                count(Verdict::New)
            ))?;
        }
        if stripped > 0 {
            let stripped = counted(stripped, "event", "events");
            complain(&format!(
                "note: {stripped} left out, whose payload retention has removed"
            ));
        }
        Ok(())
    }
}

fn failed(failure: Failure) -> Said {
    let outcome = match failure {
        Failure::GiveUp(_) => "dead",
        Failure::Unknown(_) => "unknown",
        Failure::Retry(_) | Failure::RetryAfter { .. } | Failure::NotNow { .. } => "retry",
    };
    Said::new(outcome, Some(failure.to_string()))
}

/// The handler's table with another target, where it has one outside of the store.
fn turned_away(spec: &HandlerSpec, command: &Shadow) -> anyhow::Result<HandlerSpec> {
    let mut spec = spec.clone();
    // The real target is asked nothing either.
    spec.probe = None;
    if command.url.is_some() && spec.kind != Kind::Http {
        bail!("--url is for http handlers, and {} is none", spec.name);
    }
    if !command.command.is_empty() && spec.kind != Kind::Exec {
        bail!("--command is for exec handlers, and {} is none", spec.name);
    }
    match spec.kind {
        Kind::Http => match &command.url {
            Some(url) => {
                spec.url = Some(url.clone());
                // Each event is to be tried, also at a target that does not answer.
                spec.breaker = Some(BreakerSpec {
                    failures: 0,
                    ..BreakerSpec::default()
                });
            }
            None => bail!("{} sends to its real target: name another with --url", spec.name),
        },
        Kind::Exec if command.command.is_empty() => {
            bail!(
                "{} runs a program whose effects cannot be undone: name another with --command",
                spec.name
            )
        }
        Kind::Exec => spec.command.clone_from(&command.command),
        Kind::Sql if spec.database.is_some() => {
            bail!(
                "{} writes to another database, where nothing can be undone from here",
                spec.name
            )
        }
        Kind::Sql | Kind::Log => {}
        _ => bail!("{} is of a kind whose effects cannot be turned away", spec.name),
    }
    Ok(spec)
}

/// A claim that no delivery knows; `None` where there are no bytes any more.
fn claim(handler: &Arc<str>, detail: &EventDetail, received: Received) -> Option<Claim> {
    let event = &detail.event;
    let text = received.headers.unwrap_or_else(|| "{}".to_owned());
    let mut headers: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap_or_default();
    headers.insert(MARK.to_owned(), "1".into());
    Some(Claim {
        event: Arc::new(StoredEvent {
            id: event.id,
            provider: event.provider.as_str().into(),
            provider_event_id: event.provider_event_id.clone(),
            event_type: event.event_type.clone(),
            payload: received.bytes?,
            content_type: received.content_type,
            headers: serde_json::Value::Object(headers).to_string(),
            body_sha256: event.body_sha256,
            ordering_key: event.ordering_key.clone(),
            occurred_at: event.occurred_at,
            created_at: event.created_at,
        }),
        handler: Arc::clone(handler),
        attempt: 1,
        token: 0,
    })
}

/// How the handler's last attempt ended.
fn recorded(handler: &str, attempts: &[Attempt]) -> Option<Said> {
    let last = attempts.iter().rfind(|attempt| attempt.handler == handler)?;
    let is_failure = !matches!(last.outcome, AttemptOutcome::Done | AttemptOutcome::Filtered);
    let error = last.detail.clone().filter(|_| is_failure);
    Some(Said::new(last.outcome.as_str(), error))
}

fn verdict(then: Option<&Said>, now: &Said) -> Verdict {
    match then {
        None => Verdict::New,
        Some(then) => match (then.is_right(), now.is_right()) {
            (true, true) if then.outcome == now.outcome => Verdict::Same,
            (false, true) => Verdict::Better,
            (true, false) => Verdict::Worse,
            // What is dead was out of attempts, which a single one cannot be.
            (false, false) if then.error == now.error => Verdict::Same,
            (true, true) | (false, false) => Verdict::Other,
        },
    }
}

/// The status that an error of the http handler begins with.
fn status(error: &str) -> Option<u16> {
    let digits = error.strip_prefix("answered ")?.get(..3)?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_compared() {
        let done = Said::new("done", None);
        let failed = |text: &str| Said::new("retry", Some(text.to_owned()));
        assert_eq!(verdict(None, &done), Verdict::New);
        assert_eq!(verdict(Some(&done), &done), Verdict::Same);
        let filtered = Said::new("filtered", None);
        assert_eq!(verdict(Some(&done), &filtered), Verdict::Other);
        assert_eq!(verdict(Some(&filtered), &filtered), Verdict::Same);
        assert_eq!(verdict(Some(&done), &failed("x")), Verdict::Worse);
        assert_eq!(verdict(Some(&failed("x")), &done), Verdict::Better);
        assert_eq!(verdict(Some(&failed("x")), &failed("x")), Verdict::Same);
        assert_eq!(verdict(Some(&failed("x")), &failed("y")), Verdict::Other);
        assert_eq!(failed("answered 503 Service Unavailable: no").status, Some(503));
        assert_eq!(failed("answered 5").status, None);
    }
}
