//! The port that sends documents out.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::failure::Failure;
use crate::port::BoxFuture;

/// The encoding of a posted document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostEncoding {
    /// JSON.
    Json,
    /// A message of Protocol Buffers.
    Protobuf,
    /// The same as a request of gRPC, framed.
    Grpc,
}

/// The response to a posted document.
#[derive(Clone, Debug)]
pub struct PostResponse {
    /// The status of the answer.
    pub status: u16,
    /// gRPC's own, if there was one.
    pub code: Option<u16>,
    /// The body.
    pub body: Bytes,
}

impl PostResponse {
    /// True if a later attempt may succeed, by its status (OTLP specification, failures).
    #[must_use]
    pub const fn is_to_retry(&self) -> bool {
        matches!(self.status, 429 | 502 | 503 | 504)
    }
}

/// Posts documents to one URL of the operator's, such as a collector's.
pub trait DocumentPoster: Send + Sync {
    /// Posts a document, and reads at most 64 KiB of the response, with any status. Dropping the
    /// future ends the request.
    ///
    /// # Errors
    ///
    /// `Unavailable`, `TimedOut` or `BadAnswer` (too large): no whole response came. The document
    /// may have arrived.
    fn post(
        &self,
        form: PostEncoding,
        document: Bytes,
        within: Duration,
    ) -> BoxFuture<'_, Result<PostResponse, Failure>>;
}

/// Adds to a batch, which has its first items, those that come within `wait`: up to `size` in all,
/// and none that come after `stop`.
pub async fn fill_batch<T>(
    batch: &mut Vec<T>,
    size: usize,
    receiver: &mut mpsc::Receiver<T>,
    wait: Duration,
    stop: impl Future<Output = ()>,
) {
    if batch.len() >= size || receiver.is_closed() {
        return;
    }
    let _reason = tokio::time::timeout(wait, stop).await;
    while batch.len() < size
        && let Ok(item) = receiver.try_recv()
    {
        batch.push(item);
    }
}
