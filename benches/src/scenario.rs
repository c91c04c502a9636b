//! The parts of a run. Each sets up its own stage, measures, and gives a table.

pub(crate) mod body;
pub(crate) mod calls;
pub(crate) mod fanout;
pub(crate) mod hang;
pub(crate) mod lists;
pub(crate) mod sessions;

use std::time::Duration;

/// How long memory is left to settle before it is read: allocators give back late, sockets close late.
const SETTLE: Duration = Duration::from_millis(500);

/// Sleeps that long; a measurement is the one place where only real time will do.
async fn settle() {
    tokio::time::sleep(SETTLE).await;
}
