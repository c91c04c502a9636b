//! Telemetry: metrics for Prometheus, metrics and traces for a collector, and the log.

mod export_control;
mod exposition;
mod log_filter;
mod log_queue;
mod log_rate;
mod logs;
mod metric_families;
mod metric_names;
mod metrics;
mod otlp;

pub(crate) use export_control::Telemetry;
pub(crate) use exposition::ExpositionFormat;
pub use logs::{LogControl, finish_log, install_panic_hook, start_log};
pub(crate) use logs::{check_filter, print_error, print_prompt};
pub(crate) use metric_names::exposed;
pub use metrics::Metrics;
