//! Telemetry for operators: one trace from client to upstream, metrics by push and by scrape, and
//! no delay of requests by it. The official message types read weir's output.

mod collector;
mod pushed;
mod scraped;
mod zeros;

pub use collector::Collector;
