//! The port that sends documents out.

use std::time::Duration;

use bytes::Bytes;

use super::{Fetched, Fut};
use crate::failure::Failure;

/// Posts JSON documents to one URL of the operator's, such as a collector's.
pub trait Post: Send + Sync {
    /// Posts a document, and reads at most 64 KiB of the answer, whatever its status. Dropping the future ends the request.
    ///
    /// # Errors
    /// `Unavailable`, `TimedOut` or `BadAnswer` (too large): no whole answer came. The document may have arrived.
    fn post(&self, json: Bytes, within: Duration) -> Fut<'_, Result<Fetched, Failure>>;
}
