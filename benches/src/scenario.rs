//! The parts of a run. Each starts its own processes, measures, and returns a table.

pub(crate) mod body;
pub(crate) mod calls;
pub(crate) mod dual;
pub(crate) mod fanout;
pub(crate) mod gates;
pub(crate) mod hang;
pub(crate) mod lists;
pub(crate) mod overload;
pub(crate) mod sessions;
pub(crate) mod store;
pub(crate) mod telemetry;
pub(crate) mod transports;
mod weir_pair;

use crate::settings::RunSettings;
use std::time::Duration;

/// Lets memory settle before it is read: allocators free late, sockets close late. A measurement is
/// the one case that needs real time.
async fn settle(settings: &RunSettings) {
    tokio::time::sleep(Duration::from_millis(settings.settle_ms)).await;
}
