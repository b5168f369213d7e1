//! Fetches from the senders' APIs what never arrived. Of several replicas, the one that takes the turn does it.

use std::{sync::Arc, time::Duration};

use jiff::SignedDuration;

use super::Desk;
use crate::{
    backfill::{BackfillError, Backfiller, Order, Report},
    store::StoreError,
};

/// Webhooks that are on their way are not missing yet.
const UNDER_WAY: SignedDuration = SignedDuration::from_mins(5);

/// The longest period that is made up for after a long stop.
const LONGEST: Duration = Duration::from_secs(30 * 86_400);

/// A provider whose past events are fetched by the clock.
pub struct Turn {
    pub every: Duration,
    /// How far back each time, at least; further where the last ones failed.
    pub window: Duration,
    /// Whether events of derived identity are stored.
    pub derived: bool,
    pub backfiller: Arc<Backfiller>,
}

pub(super) async fn run(desk: Desk) -> Result<(), StoreError> {
    for turn in desk.backfills.iter() {
        if desk.stop.is_cancelled() {
            return Ok(());
        }
        let name = &*turn.backfiller.provider.name;
        let Some(begun) = desk.store.begin_backfill(name, turn.every).await? else {
            continue;
        };
        let back = |far: Duration| SignedDuration::try_from(far).unwrap_or(SignedDuration::from_hours(1));
        let usual = begun.now.saturating_sub(back(turn.window)).unwrap_or(begun.now);
        let oldest = begun.now.saturating_sub(back(LONGEST)).unwrap_or(begun.now);
        // What an earlier one did not reach is made up for; the window overlaps with what it did.
        let since = begun
            .covered_until
            .map_or(usual, |covered| covered.min(usual))
            .max(oldest);
        let order = Order {
            since,
            until: begun.now.saturating_sub(UNDER_WAY).unwrap_or(begun.now),
            dry_run: false,
            derived: turn.derived,
        };
        let mut last = Report::default();
        let ended = turn
            .backfiller
            .run(&*desk.store, &order, &desk.stop, &mut |report| last.clone_from(report))
            .await;
        tell(name, &last);
        match ended {
            Ok(report) if report.failed == 0 => desk.store.end_backfill(name, order.until).await?,
            Ok(_) | Err(BackfillError::Stopped) => {}
            Err(BackfillError::Store(error)) => return Err(error),
            Err(error) => {
                tracing::warn!(provider.name = name, %error, "the backfill ended early; the next one makes up for it")
            }
        }
    }
    Ok(())
}

fn tell(provider: &str, report: &Report) {
    for (outcome, count) in [
        ("known", report.known),
        ("stored", report.stored),
        ("held_back", report.held_back),
        ("failed", report.failed),
    ] {
        metrics::counter!("cerca_backfill_events_total", "provider" => provider.to_owned(), "outcome" => outcome)
            .increment(count);
    }
    let Report {
        seen,
        known,
        missing,
        stored,
        held_back,
        failed,
        pages,
        ..
    } = report;
    if *missing > 0 {
        let failures = report.failures.join("; ");
        tracing::warn!(
            provider.name = provider,
            seen,
            known,
            missing,
            stored,
            held_back,
            failed,
            pages,
            failures,
            "events had never arrived"
        );
    } else {
        tracing::debug!(provider.name = provider, seen, pages, "nothing is missing");
    }
}
