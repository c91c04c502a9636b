//! Telemetry: metrics for Prometheus, metrics and traces for a collector, and the log.

mod export_control;
mod exposition;
mod held_series;
mod log_filter;
mod log_plan;
mod log_queue;
mod log_rate;
mod logs;
mod metric_families;
pub mod metric_names;
mod metrics;
mod otlp;
mod resource;
mod telemetry_plan;

pub use export_control::{PreparedTelemetry, Telemetry};
pub use exposition::ExpositionFormat;
pub use held_series::HeldSeries;
pub use log_plan::{LogFormat, LogPlan};
pub use logs::{
    LogControl, LogTerminal, check_filter, finish_log, install_panic_hook, print_error,
    print_prompt, start_log,
};
pub use metrics::Metrics;
pub use telemetry_plan::{OtlpPlan, TelemetryPlan};
