//! Telemetry: metrics for Prometheus, metrics and traces for a collector, and the log.

pub(crate) mod export_control;
pub(crate) mod exposition;
mod log_filter;
mod log_queue;
mod log_rate;
pub(crate) mod logs;
mod metric_families;
pub(crate) mod metric_names;
pub(crate) mod metrics;
mod otlp;

pub use logs::{LogControl, finish_log, install_panic_hook, start_log};
pub(crate) use logs::{check_filter, print_error, print_prompt};
pub use metrics::Metrics;
