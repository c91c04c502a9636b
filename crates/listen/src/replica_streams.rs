//! Streams that another replica opens over the cluster listener: requests of weir's own, with a body
//! in both directions at the same time.
//!
//! They are of no client: the other replica has authenticated and authorized its clients' calls.

use std::sync::{Arc, OnceLock};

use http::{HeaderName, HeaderValue, Method, Request, Response};

use crate::forwarding::{FORWARDED_HEADER, ForwardedBody};
use crate::request_body::RequestBody;

/// The header that marks a stream of another replica, and its answer. A replica that is still
/// starting, or of a version without such streams, takes one for a request of a client, and its
/// answer has no such header.
pub const STREAM_HEADER: HeaderName = HeaderName::from_static("weir-replica-stream");

/// The value of [`STREAM_HEADER`]: the version of the messages in such streams.
pub const STREAM_VERSION: HeaderValue = HeaderValue::from_static("1");

/// The path of such streams.
pub const STREAM_PATH: &str = "/weir-replica-stream";

/// True for the request of another replica for a stream. The request of a client that a replica
/// forwards is none, whatever headers the client sent.
pub(crate) fn opens_stream<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    *request.method() == Method::POST
        && request.uri().path() == STREAM_PATH
        && headers.get(STREAM_HEADER) == Some(&STREAM_VERSION)
        && !headers.contains_key(FORWARDED_HEADER)
}

/// Answers the streams that other replicas open.
pub trait ReplicaStreams: std::fmt::Debug + Send + Sync {
    /// Answers one stream. The body of the answer reads that of the request; it is dropped when the
    /// other replica resets the stream.
    fn serve(self: Arc<Self>, request: Request<RequestBody>) -> Response<ForwardedBody>;
}

/// The answerer of replicas' streams, which is there once upstreams have started.
pub type ReplicaStreamsSlot = Arc<OnceLock<Arc<dyn ReplicaStreams>>>;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn only_a_replica_opens_a_stream() {
        let request = |path| Request::post(path).header(STREAM_HEADER, STREAM_VERSION);
        let own = request("https://replica/weir-replica-stream");
        assert!(opens_stream(&own.body(()).unwrap()));
        let of_client = [
            request("https://replica/weir-replica-stream").header(FORWARDED_HEADER, "1"),
            request("https://replica/mcp/messages?sessionId=1"),
            request("https://replica/weir-replica-stream").method(Method::GET),
            Request::post("https://replica/weir-replica-stream"),
        ];
        for request in of_client {
            let request = request.body(()).unwrap();
            assert!(!opens_stream(&request), "{request:?}");
        }
    }
}
