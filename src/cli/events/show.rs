//! `cerca events show`: one event with its history.

use std::process::ExitCode;

use super::{Desk, Id, clock, harmless, printable, unknown};
use crate::{
    adapters::Adapter,
    cli::{
        context::Context,
        output::{color_of, status_cell, table},
    },
    http::json::{EventJson, normalized},
    ingest::Normalized,
    store::{EventDetail, EventRow},
};

/// Of a step's result; `--json` has all of it.
const RESULT_CHARS: usize = 80;

impl Desk<'_> {
    pub(super) async fn show(&self, id: &Id) -> anyhow::Result<ExitCode> {
        let detail = self.store.event(&id.provider, &id.id).await?;
        let Some(detail) = detail else {
            return Err(unknown(id));
        };
        let normalized = self.normalized(&detail.event).await?;
        if self.context.out.json {
            let adapter = self.adapters.get(&detail.event.provider).map(String::as_str);
            self.context
                .out
                .object(&EventJson::detail(&detail, adapter, normalized))?;
        } else {
            self.facts(&detail.event)?;
            self.common_words(normalized)?;
            self.deliveries(&detail)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// What the event says in common words, where its adapter knows and its bytes are still there.
    async fn normalized(&self, event: &EventRow) -> anyhow::Result<Option<Normalized>> {
        let Some(adapter) = self.adapters.get(&event.provider) else {
            return Ok(None);
        };
        let registry = self.context.registry()?;
        let Some(normalize) = registry.get(adapter).and_then(Adapter::normalize) else {
            return Ok(None);
        };
        let received = self.store.payload(&event.provider, &event.provider_event_id).await?;
        Ok(received.and_then(|received| normalized(normalize, event, &received)))
    }

    fn common_words(&self, normalized: Option<Normalized>) -> anyhow::Result<()> {
        let Some(found) = normalized else { return Ok(()) };
        let out = self.context.out;
        let amount = found.amount.map(|amount| amount.to_string());
        let minor = match &found.currency {
            Some(currency) => format!("{currency}, minor units"),
            None => "minor units".to_owned(),
        };
        out.line("")?;
        for (name, value) in [
            ("normalized", found.event_type.map(str::to_owned)),
            ("amount", amount.map(|amount| format!("{amount} ({minor})"))),
            ("reference", found.reference),
            ("customer", found.customer),
        ] {
            let value = value.as_deref().map_or_else(|| "-".to_owned(), printable);
            out.line(format!("{name:<13} {value}"))?;
        }
        Ok(())
    }

    fn facts(&self, event: &EventRow) -> anyhow::Result<()> {
        let out = self.context.out;
        let dash = || "-".to_owned();
        let text = |value: &Option<String>| value.as_deref().map_or_else(dash, printable);
        let time = |value: Option<jiff::Timestamp>| value.map_or_else(dash, clock);
        let status = event.status.as_str();
        let mut facts = vec![
            ("id", printable(&event.provider_event_id)),
            ("provider", event.provider.clone()),
            ("type", text(&event.event_type)),
            ("status", out.paint(color_of(status), status)),
            ("occurred", time(event.occurred_at)),
            ("created", clock(event.created_at)),
            ("processed", time(event.processed_at)),
            ("ordering key", text(&event.ordering_key)),
            ("content type", text(&event.content_type)),
            ("size", format!("{} bytes", event.size)),
            ("sha256", hex::encode(event.body_sha256)),
        ];
        if event.conflicts > 0 {
            let note = format!(
                "{}: the id came again with another body; the first was kept",
                event.conflicts
            );
            facts.push(("conflicts", note));
        }
        for (name, value) in facts {
            out.line(format!("{name:<13} {value}"))?;
        }
        Ok(())
    }

    fn deliveries(&self, detail: &EventDetail) -> anyhow::Result<()> {
        let out = self.context.out;
        out.line("")?;
        if detail.event.deliveries.is_empty() {
            out.line("No handler wanted it. `cerca events reprocess … --handler NAME` sends it to one.")?;
        } else {
            let mut rows = table(&["HANDLER", "STATE", "ATTEMPTS", "NEXT", "LAST ERROR"]);
            for delivery in &detail.event.deliveries {
                rows.add_row([
                    delivery.handler.clone().into(),
                    status_cell(delivery.state.as_str()),
                    delivery.attempts.to_string().into(),
                    delivery.run_at.map_or_else(|| "-".to_owned(), clock).into(),
                    printable(delivery.last_error.as_deref().unwrap_or("-")).into(),
                ]);
            }
            out.table(&rows)?;
        }
        if !detail.attempts.is_empty() {
            let mut rows = table(&["ATTEMPT", "HANDLER", "STARTED", "TOOK", "OUTCOME", "DETAIL"]);
            for attempt in &detail.attempts {
                rows.add_row([
                    attempt.attempt.to_string().into(),
                    attempt.handler.clone().into(),
                    clock(attempt.started_at).into(),
                    format!("{} ms", attempt.duration_ms).into(),
                    status_cell(attempt.outcome.as_str()),
                    printable(attempt.detail.as_deref().unwrap_or("-")).into(),
                ]);
            }
            out.line("")?;
            out.table(&rows)?;
        }
        if !detail.steps.is_empty() {
            let mut rows = table(&["STEP", "HANDLER", "ATTEMPT", "RECORDED", "RESULT"]);
            for step in &detail.steps {
                let result: String = step.result.chars().take(RESULT_CHARS).collect();
                let more = if result.len() < step.result.len() { "…" } else { "" };
                rows.add_row([
                    printable(&step.name),
                    step.handler.clone(),
                    step.attempt.to_string(),
                    clock(step.recorded_at),
                    printable(&result) + more,
                ]);
            }
            out.line("")?;
            out.table(&rows)?;
        }
        let event = &detail.event;
        let flag = Context::config_flag(&self.config);
        out.line("")?;
        out.line(format!(
            "The bytes: cerca events payload {} {}{flag}",
            event.provider,
            shell(&event.provider_event_id)
        ))?;
        Ok(())
    }
}

/// An id as one word of a shell.
fn shell(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.:/@%+=,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", harmless(text).replace('\'', r"'\''"))
    }
}
