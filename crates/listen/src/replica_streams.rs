//! Streams that another replica opens over the cluster listener: requests of weir's own, with a body
//! in both directions at the same time.
//!
//! They are of no client: the other replica has authenticated and authorized its clients' calls.

use std::sync::{Arc, OnceLock};

use http::{HeaderName, HeaderValue, Request, Response};

use crate::forwarding::ForwardedBody;
use crate::request_body::RequestBody;

/// The header that marks a stream of another replica, and its answer. A replica that is still
/// starting, or of a version without such streams, takes one for a request of a client, and its
/// answer has no such header.
pub const STREAM_HEADER: HeaderName = HeaderName::from_static("weir-replica-stream");

/// The value of [`STREAM_HEADER`]: the version of the messages in such streams.
pub const STREAM_VERSION: HeaderValue = HeaderValue::from_static("1");

/// Answers the streams that other replicas open.
pub trait ReplicaStreams: std::fmt::Debug + Send + Sync {
    /// Answers one stream. The body of the answer reads that of the request; it is dropped when the
    /// other replica resets the stream.
    fn serve(self: Arc<Self>, request: Request<RequestBody>) -> Response<ForwardedBody>;
}

/// The answerer of replicas' streams, which is there once upstreams have started.
pub type ReplicaStreamsSlot = Arc<OnceLock<Arc<dyn ReplicaStreams>>>;
