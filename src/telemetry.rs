//! Log setup, and the one list of all metrics.

use std::io::{self, IsTerminal as _};

use metrics::Unit;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _};

use crate::config::{Log, LogFormat};

/// What cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error(
        "`{0}` is not a level (off, error, warn, info, debug, trace) nor a list of levels and target=level, such as \
         info,cerca::http=debug"
    )]
    Level(String),
    #[error("metrics cannot be set up: {0}")]
    Metrics(#[from] metrics_exporter_prometheus::BuildError),
}

/// Libraries that tell at `info` what only their authors need, one that calls every piece of garbage that a stranger sends
/// an error, and clients of brokers: what they say is in the history of the delivery, and one of them says bodies. A
/// directive of the operator's own for the same target comes later and counts.
const QUIET: &str = "actix_server=warn,actix_http=off,tokio_cron_scheduler=warn,sqlx=warn,\
    async_nats=warn,aws_config=warn,lapin=off,librdkafka=off";

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Checks the directives of `log.level` without setting anything up.
///
/// # Errors
/// Says what was expected.
pub fn filter(level: &str) -> Result<EnvFilter, TelemetryError> {
    let wrong = || TelemetryError::Level(level.to_owned());
    let directives: Vec<&str> = level.split(',').map(str::trim).collect();
    if !directives.iter().all(|text| is_directive(text)) {
        return Err(wrong());
    }
    EnvFilter::try_new(format!("{QUIET},{}", directives.join(","))).map_err(|_| wrong())
}

/// `info` or `target=info`. The filter itself would take a misspelt level for the name of a target, and show everything
/// of that target, which is nothing.
fn is_directive(text: &str) -> bool {
    let (target, level) = text.rsplit_once('=').unwrap_or(("all", text));
    !target.is_empty() && LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level))
}

/// Sends logs to standard error. A second call changes nothing, so that tests may call it too.
///
/// # Errors
/// Where the level cannot be read.
pub fn log(log: &Log) -> Result<(), TelemetryError> {
    let registry = tracing_subscriber::registry().with(filter(&log.level)?);
    let json = match log.format {
        LogFormat::Json => true,
        LogFormat::Pretty => false,
        LogFormat::Auto => !io::stderr().is_terminal(),
    };
    let layer = fmt::layer().with_writer(io::stderr);
    let _ = if json {
        registry.with(layer.json().flatten_event(true)).try_init()
    } else {
        registry
            .with(layer.with_target(false).with_ansi(io::stderr().is_terminal()))
            .try_init()
    };
    Ok(())
}

/// Upper bounds of the buckets of every `_seconds` histogram: from a commit on a fast disk to a handler's timeout.
const SECONDS: &[f64] = &[
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// Upper bounds of the buckets of batch sizes.
const BATCHES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

/// Installs the recorder of the process and describes every metric. Before anything registers one.
///
/// # Errors
/// Where a recorder is installed already.
pub fn metrics() -> Result<PrometheusHandle, TelemetryError> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_events".to_owned()), BATCHES)?
        .install_recorder()?;
    describe();
    Ok(handle)
}

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Name, kind, unit and meaning of every metric outside the HTTP surface, which keeps its own list beside the code that
/// moves them (`http::metrics`). A test finds names that are in neither.
const METRICS: &[(&str, Kind, Option<Unit>, &str)] = &[
    (
        "cerca_attempts_total",
        Kind::Counter,
        None,
        "Attempts by handler and outcome (done, retry, dead, released, filtered, postponed, unknown)",
    ),
    (
        "cerca_attempt_seconds",
        Kind::Histogram,
        Some(Unit::Seconds),
        "How long attempts took, by handler",
    ),
    (
        "cerca_attempts_in_flight",
        Kind::Gauge,
        None,
        "Attempts that run now, by handler",
    ),
    (
        "cerca_breaker_state",
        Kind::Gauge,
        None,
        "Circuit breaker of the URL of http handlers in this process, by handler: 0 closed, 1 half-open, 2 open",
    ),
    (
        "cerca_claims_stale_total",
        Kind::Counter,
        None,
        "Claims that had ended when their attempt did: another worker has them",
    ),
    (
        "cerca_leases_expired_total",
        Kind::Counter,
        None,
        "Leases that ended without a word, by what became of the delivery (ready, dead)",
    ),
    (
        "cerca_stale_settles_total",
        Kind::Counter,
        None,
        "Outcomes that came after their lease had ended and changed nothing",
    ),
    (
        "cerca_flush_events",
        Kind::Histogram,
        None,
        "Events stored by one commit",
    ),
    (
        "cerca_flush_seconds",
        Kind::Histogram,
        Some(Unit::Seconds),
        "How long a commit took",
    ),
    (
        "cerca_outbox_relayed_total",
        Kind::Counter,
        None,
        "Rows of the outbox by what they became (stored, duplicate, conflict, refused)",
    ),
    (
        "cerca_backfill_events_total",
        Kind::Counter,
        None,
        "Events that scheduled backfills looked at, by provider and outcome (known, stored, held_back, failed)",
    ),
    (
        "cerca_sqlite_wal_bytes",
        Kind::Gauge,
        Some(Unit::Bytes),
        "Size of SQLite's write-ahead log",
    ),
    (
        "cerca_idempotency_requests_total",
        Kind::Counter,
        None,
        "Requests with an Idempotency-Key, or that need one, by route and outcome (first, replayed, or why not)",
    ),
    (
        "cerca_idempotency_in_progress",
        Kind::Gauge,
        None,
        "Requests with an Idempotency-Key that run now, by route of the gateway",
    ),
    (
        "cerca_idempotency_keys",
        Kind::Gauge,
        None,
        "Idempotency keys by state (processing, abandoned, completed, failed, unknown), read from the store at scrape",
    ),
    (
        "cerca_idempotency_abandoned_total",
        Kind::Counter,
        None,
        "Idempotency keys that nobody ran any more, by outcome (answered, released, given_up, undecided)",
    ),
];

fn describe() {
    for (name, kind, unit, meaning) in METRICS.iter().copied() {
        let unit = unit.unwrap_or(Unit::Count);
        match kind {
            Kind::Counter => metrics::describe_counter!(name, unit, meaning),
            Kind::Gauge => metrics::describe_gauge!(name, unit, meaning),
            Kind::Histogram => metrics::describe_histogram!(name, unit, meaning),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    /// Every string in the sources that is the name of a metric.
    fn names_in(folder: &Path, names: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                names_in(&path, names);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                for part in text.split('"').filter(|part| part.starts_with("cerca_")) {
                    if part
                        .bytes()
                        .all(|b| b.is_ascii_lowercase() || b == b'_' || b.is_ascii_digit())
                        && part.len() > 6
                    {
                        names.insert(part.to_owned());
                    }
                }
            }
        }
    }

    #[test]
    fn every_metric_has_a_meaning() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut names = BTreeSet::new();
        names_in(&root, &mut names);
        let of_http = fs::read_to_string(root.join("http/metrics.rs")).unwrap();
        let listed = |name: &str| METRICS.iter().any(|(known, ..)| *known == name) || of_http.contains(name);
        let missing: Vec<&String> = names.iter().filter(|name| !listed(name)).collect();
        assert!(missing.is_empty(), "without a meaning in telemetry.rs: {missing:?}");
    }

    #[test]
    fn levels_are_checked() {
        assert!(filter("info,cerca::http=debug").is_ok());
        let shown = filter("info,sqlx=debug").unwrap().to_string();
        assert!(
            shown.contains("actix_server=warn") && shown.contains("sqlx=debug") && !shown.contains("sqlx=warn"),
            "{shown}"
        );
        for wrong in ["loud", "", "info,", "info,loud", "loud=very", "=info", "cerca"] {
            let error = filter(wrong).unwrap_err().to_string();
            assert!(error.contains("is not a level"), "{wrong}: {error}");
        }
        for right in ["off", "WARN", "warn, sqlx=debug", "actix_http::h1=trace"] {
            assert!(filter(right).is_ok(), "{right}");
        }
    }

    #[test]
    fn garbage_of_strangers_is_quiet_unless_asked_for() {
        let shown = |level: &str| filter(level).unwrap().to_string();
        assert!(shown("info").contains("actix_http=off"));
        let asked = shown("info,actix_http=error");
        assert!(
            asked.contains("actix_http=error") && !asked.contains("actix_http=off"),
            "{asked}"
        );
    }
}
