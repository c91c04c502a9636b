//! Telemetry: metrics for Prometheus, metrics and traces for a collector, and the log.

mod exposition;
mod gather;
mod log_filter;
mod log_queue;
mod log_rate;
mod logs;
mod metrics;
mod names;
mod otlp;
mod running;

pub(crate) use exposition::Format;
pub use logs::{LogControl, finish_log, hook_panics, start_log};
pub(crate) use logs::{check_filter, print_error, print_prompt};
pub use metrics::Metrics;
pub(crate) use names::exposed;
pub(crate) use running::Telemetry;
