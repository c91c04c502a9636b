//! What operators see: metrics for Prometheus, metrics and traces for a collector, and the log.

mod exposition;
mod gather;
mod logs;
mod metrics;
mod names;
mod otlp;
mod running;

pub(crate) use exposition::Format;
pub(crate) use logs::check_filter;
pub use logs::{LogControl, hook_panics, start_log};
pub use metrics::Metrics;
pub(crate) use names::exposed;
pub(crate) use running::Telemetry;
