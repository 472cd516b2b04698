//! Logs and metrics of the process.

use std::sync::OnceLock;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

use crate::config::{LogConfig, LogFormat};

static METRICS: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

/// Upper bounds of the duration histograms, in seconds.
const SECONDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// Upper bounds of the histogram of commands in a batch.
const COMMANDS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

/// Starts the process's metrics; later calls give the same handle. `None` when another recorder is in place.
pub fn metrics() -> Option<&'static PrometheusHandle> {
    METRICS
        .get_or_init(|| {
            let batches = Matcher::Full("payonce_batch_size".to_owned());
            let builder = PrometheusBuilder::new().set_buckets(&SECONDS).ok()?;
            let builder = builder.set_buckets_for_metric(batches, &COMMANDS).ok()?;
            builder.install_recorder().ok()
        })
        .as_ref()
}

/// Starts the process's log. A second call changes nothing.
pub fn init_log(config: &LogConfig) {
    let filter = EnvFilter::new(&config.filter);
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A failure means that a log is in place already, which is what was asked for.
    let _ = match config.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}
