//! What operators see: metrics for Prometheus, and the log.

mod logs;
mod metrics;
mod names;

pub(crate) use logs::check_filter;
pub use logs::{hook_panics, start_log};
pub use metrics::Metrics;
pub(crate) use names::exposed;
