//! The port that sends documents out.

use std::time::Duration;

use bytes::Bytes;

use super::Fut;
use crate::failure::Failure;

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
    ) -> Fut<'_, Result<PostResponse, Failure>>;
}
