//! `cerca events tail`: new events as they arrive, by looking again and again.

use std::{collections::BTreeSet, process::ExitCode, time::Duration};

use clap::Args;
use comfy_table::Color;

use super::{Desk, Filter, PAGE, clock, printable};
use crate::{
    cli::output::color_of,
    store::{EventFilter, EventRow, StoreError},
};

#[derive(Debug, Args)]
pub(in crate::cli) struct Tail {
    #[command(flatten)]
    filter: Filter,
    /// Print this many earlier events first
    #[arg(long, short = 'n', default_value_t = 0)]
    lines: u32,
}

/// How often the store is asked.
const EVERY: Duration = Duration::from_millis(500);

/// Rows are numbered before they are committed, so a lower number may appear after a higher one: this far back it is
/// looked for.
const OVERLAP: i64 = 1000;

impl Desk<'_> {
    pub(super) async fn tail(&self, command: Tail) -> anyhow::Result<ExitCode> {
        self.tell_unknown(&command.filter);
        let filter = command.filter.build()?;
        let mut seen = BTreeSet::new();
        let first = self
            .store
            .events(filter.clone(), None, command.lines.clamp(1, PAGE))
            .await?;
        // What was there before is known by the newest row of any kind, not only of those that match.
        let newest = self.store.events(EventFilter::default(), None, 1).await?;
        let mut floor = newest.events.first().map_or(0, |event| event.id);
        for event in first.events.iter().rev() {
            floor = floor.max(event.id);
            if command.lines > 0 {
                self.print_line(event)?;
            }
        }
        loop {
            match self.fresh(&filter, floor, &seen).await {
                Ok(events) => {
                    for event in events.iter().rev() {
                        self.print_line(event)?;
                        seen.insert(event.id);
                    }
                }
                Err(error) => super::super::output::complain(&format!("{error}; trying again")),
            }
            if let Some(newest) = seen.last() {
                floor = floor.max(newest - OVERLAP);
                seen.retain(|id| *id > floor);
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Events above `floor` that were not printed, newest first.
    async fn fresh(&self, filter: &EventFilter, floor: i64, seen: &BTreeSet<i64>) -> Result<Vec<EventRow>, StoreError> {
        let mut found = Vec::new();
        let mut cursor = None;
        loop {
            let page = self.store.events(filter.clone(), cursor, PAGE).await?;
            let end = page.next.is_none_or(|next| next <= floor + 1);
            let new = page
                .events
                .into_iter()
                .filter(|event| event.id > floor && !seen.contains(&event.id));
            found.extend(new);
            if end {
                return Ok(found);
            }
            cursor = page.next;
        }
    }

    fn print_line(&self, event: &EventRow) -> anyhow::Result<()> {
        let out = self.context.out;
        if out.json {
            return self.print_json(event);
        }
        let status = event.status.as_str();
        out.line(format!(
            "{}  {}  {:<9}  {}  {}",
            out.paint(Color::DarkGrey, clock(event.created_at)),
            event.provider,
            out.paint(color_of(status), format!("{status:<9}")),
            printable(event.event_type.as_deref().unwrap_or("-")),
            printable(&event.provider_event_id)
        ))?;
        Ok(())
    }
}
