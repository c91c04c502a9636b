//! What operators see: metrics for Prometheus, and the log.

mod exposition;
mod gather;
mod logs;
mod metrics;
mod names;

pub(crate) use exposition::Format;
pub(crate) use logs::check_filter;
pub use logs::{hook_panics, start_log};
pub use metrics::Metrics;
pub(crate) use names::exposed;
