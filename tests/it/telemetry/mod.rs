//! Telemetry for operators: one trace from client to upstream, metrics by push and by scrape, and
//! no delay of requests by it. The official message types read weir's output.

mod collectors;
mod early_ends;
mod last_export;
mod metrics_scrape;
mod otlp_push;
mod request_lines;
mod unreachable_servers;
mod zero_counters;

pub use collectors::{RawCollector, TypedCollector, attribute};
