//! `cerca events`: the store that the configuration names, with or without a running server.

mod export;
mod filter;
mod jobs;
mod reprocess;
mod shadow;
mod show;
mod tail;

use std::{collections::HashMap, process::ExitCode, sync::Arc};

use anyhow::bail;
use clap::{Args, Subcommand};
use comfy_table::Table;

use super::{
    context::Context,
    output::{code, complain, counted, status_cell, table},
};
use crate::{
    config::{self, Config},
    http::json::EventJson,
    store::{EventRow, Received, Store, Who},
};
use filter::Filter;
pub(super) use filter::time;

#[derive(Debug, Subcommand)]
pub(super) enum Events {
    /// List events, newest first
    List(List),
    /// Show one event with its deliveries and attempts
    Show(Id),
    /// Write the exact bytes that were received to standard output
    Payload(Id),
    /// Give deliveries a new life from the stored bytes
    Reprocess(reprocess::Reprocess),
    /// Give up what is not done of an event
    Discard(Discard),
    /// Run a handler on stored events without effect, and compare with what was recorded
    Shadow(shadow::Shadow),
    /// Write events with their payloads, one JSON object a line, newest first
    Export(export::Export),
    /// List reprocessing jobs
    Jobs,
    /// Print events as they arrive
    Tail(tail::Tail),
}

#[derive(Debug, Args)]
pub(super) struct List {
    #[command(flatten)]
    filter: Filter,
    /// How many at most
    #[arg(long, short = 'n', default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
}

/// The name of one event.
#[derive(Debug, Args)]
pub(super) struct Id {
    /// The registered provider
    provider: String,
    /// The provider's own id of the event, exactly
    #[arg(allow_hyphen_values = true)]
    id: String,
}

#[derive(Debug, Args)]
pub(super) struct Discard {
    #[command(flatten)]
    event: Id,
    /// Taken as other commands take it; nothing is asked for one event
    #[arg(long = "yes", short = 'y')]
    _yes: bool,
    /// Why, for the audit
    #[arg(long)]
    reason: Option<String>,
}

/// An open store with what is needed to show its events.
struct Desk<'a> {
    context: &'a Context,
    config: Config,
    store: Arc<dyn Store>,
    adapters: HashMap<String, String>,
}

impl Events {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let config = context.config()?;
        let store = context.store(&config).await?;
        let named = |p: &config::ProviderConfig| {
            let adapter = p.spec.adapter.as_ref().unwrap_or(&p.spec.name);
            (p.spec.name.clone(), adapter.clone())
        };
        let adapters = config.providers.iter().map(named).collect();
        let desk = Desk {
            context,
            config,
            store: store.clone(),
            adapters,
        };
        let result = match self {
            Self::List(command) => desk.list(command).await,
            Self::Show(id) => desk.show(&id).await,
            Self::Payload(id) => desk.payload(&id).await,
            Self::Reprocess(command) => Box::pin(desk.reprocess(command)).await,
            Self::Discard(command) => desk.discard(command).await,
            Self::Shadow(command) => Box::pin(desk.shadow(command)).await,
            Self::Export(command) => desk.export(command).await,
            Self::Jobs => desk.list_jobs().await,
            Self::Tail(command) => desk.tail(command).await,
        };
        store.close().await;
        result
    }
}

/// Rows asked of the store at once.
const PAGE: u32 = 200;

impl Desk<'_> {
    async fn list(&self, command: List) -> anyhow::Result<ExitCode> {
        let out = self.context.out;
        self.tell_unknown(&command.filter);
        let filter = command.filter.build()?;
        let mut left = command.limit;
        let mut cursor = None;
        let mut rows = rows_table();
        let mut shown = 0;
        while left > 0 {
            let size = u32::try_from(left).map_or(PAGE, |left| left.min(PAGE));
            let page = self.store.events(filter.clone(), cursor, size).await?;
            left -= (page.events.len() as u64).min(left);
            shown += page.events.len();
            for event in &page.events {
                if out.json {
                    self.print_json(event)?;
                } else {
                    add_row(&mut rows, event);
                }
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        if out.json {
            return Ok(ExitCode::SUCCESS);
        }
        if shown == 0 {
            out.line("No events match.")?;
        } else {
            out.table(&rows)?;
        }
        if cursor.is_some() {
            complain(&format!("(the newest {shown}; more with --limit)"));
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn payload(&self, id: &Id) -> anyhow::Result<ExitCode> {
        match self.store.payload(&id.provider, &id.id).await? {
            None => Err(unknown(id)),
            Some(Received { bytes: None, .. }) => bail!(
                "retention has removed the payload of {} {}",
                id.provider,
                printable(&id.id)
            ),
            Some(Received { bytes: Some(bytes), .. }) => {
                self.context.out.bytes(&bytes)?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }

    async fn discard(&self, command: Discard) -> anyhow::Result<ExitCode> {
        let id = &command.event;
        let done = self.store.discard(&id.provider, &id.id, who(command.reason)).await?;
        let Some(done) = done else {
            return Err(unknown(id));
        };
        if self.context.out.json {
            self.context
                .out
                .object(&serde_json::json!({ "deliveries": done.deliveries, "in_flight": done.in_flight }))?;
        } else {
            let count = counted(done.deliveries, "delivery", "deliveries");
            self.context.out.line(match (done.deliveries, done.in_flight) {
                (0, _) => "Nothing to discard: every delivery is done, discarded, or in flight and discarded when its \
                           attempt ends."
                    .to_owned(),
                (_, 0) => format!("Discarded {count}."),
                (_, 1) => format!(
                    "Discarded {count}; 1 of them is in flight: its attempt ends first, and if it is done it stays done."
                ),
                (_, in_flight) => format!(
                    "Discarded {count}; {in_flight} of them are in flight: their attempts end first, and what is done \
                     stays done."
                ),
            })?;
        }
        Ok(code(true))
    }

    /// A name that the configuration does not know is no mistake, for its events may be older than the configuration; but
    /// it is more often misspelt.
    fn tell_unknown(&self, filter: &Filter) {
        let providers: Vec<&str> = self.adapters.keys().map(String::as_str).collect();
        let mut handlers: Vec<&str> = self
            .config
            .handlers
            .iter()
            .map(|handler| handler.name.as_str())
            .collect();
        if handlers.is_empty() {
            handlers.push(crate::app::DEFAULT_HANDLER);
        }
        let asked = [
            ("provider", &filter.provider, &providers),
            ("handler", &filter.handler, &handlers),
        ];
        for (kind, name, known) in asked {
            let Some(name) = name.as_deref().filter(|name| !known.contains(name)) else {
                continue;
            };
            let guess = config::near(name, known).map_or_else(String::new, |near| format!("; did you mean {near}?"));
            complain(&format!(
                "note: no {kind} is called {} in the configuration{guess}",
                printable(name)
            ));
        }
    }

    fn print_json(&self, event: &EventRow) -> anyhow::Result<()> {
        let adapter = self.adapters.get(&event.provider).map(String::as_str);
        self.context.out.object(&EventJson::row(event, adapter))
    }
}

pub(super) fn who(reason: Option<String>) -> Who {
    Who {
        actor: "cli".to_owned(),
        reason,
    }
}

fn unknown(id: &Id) -> anyhow::Error {
    anyhow::anyhow!("there is no event {} of {}", printable(&id.id), printable(&id.provider))
}

fn rows_table() -> Table {
    table(&["CREATED", "PROVIDER", "TYPE", "STATUS", "ID"])
}

fn add_row(rows: &mut Table, event: &EventRow) {
    rows.add_row([
        clock(event.created_at).into(),
        event.provider.clone().into(),
        printable(event.event_type.as_deref().unwrap_or("-")).into(),
        status_cell(event.status.as_str()),
        printable(&event.provider_event_id).into(),
    ]);
}

/// Seconds, UTC: `2026-01-31T12:00:00Z`.
pub(super) fn clock(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Text from outside, harmless to a terminal and to its reader: control characters, and those that turn the direction of
/// what follows, are written as escapes. What would look like nothing is put in quotes.
pub(super) fn printable(text: &str) -> String {
    let out = harmless(text);
    if out.trim().is_empty() {
        return format!("\"{out}\"");
    }
    out
}

fn harmless(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || turns(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_outside_plays_with_the_terminal() {
        for (text, shown) in [
            ("evt_1", "evt_1"),
            ("é 中", "é 中"),
            ("a\x1b[31mb", "a\\u{1b}[31mb"),
            ("a\u{202e}gpj.exe", "a\\u{202e}gpj.exe"),
            ("\u{2066}x\u{2069}", "\\u{2066}x\\u{2069}"),
            ("", "\"\""),
            ("  ", "\"  \""),
        ] {
            assert_eq!(printable(text), shown);
        }
    }
}
