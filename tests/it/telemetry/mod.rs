//! What operators get: one trace from client to upstream, metrics by push and by scrape, and
//! nothing of it in the way of a request. What weir sends is read by the official message types.

mod collector;
mod pushed;
mod scraped;
mod zeros;

pub use collector::Collector;
