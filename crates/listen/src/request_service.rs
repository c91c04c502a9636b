//! The service behind the listener, which answers the requests of all connections.

use std::convert::Infallible;
use std::fmt;

use bytes::Bytes;
use http::{Request, Response};
use tokio::time::Instant;

use crate::address_range::AddressRange;
use crate::client_peer::ClientPeer;
use crate::listener_settings::ListenerLimits;
use crate::request_body::{BodyError, RequestBody};

/// A request from a connection.
pub struct IncomingRequest {
    /// Its head and its body.
    pub request: Request<RequestBody>,
    /// The connection that it came over.
    pub peer: ClientPeer,
}

/// Without the head, which may have credentials.
impl fmt::Debug for IncomingRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IncomingRequest")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

/// The service behind the listener. It answers each request of each connection, with no error: a
/// failure is an answer, too.
pub trait RequestService: Send + Sync + 'static {
    /// The body of an answer.
    type Body: ServedBody;
    /// An answer in the making. It holds all that it needs: the service may be replaced meanwhile.
    type Future: Future<Output = Result<Response<Self::Body>, Infallible>> + Send + 'static;

    /// Serves one request.
    fn serve(&self, incoming: IncomingRequest) -> Self::Future;

    /// The limits of connections that are accepted from now on.
    fn limits(&self) -> &ListenerLimits;

    /// The proxies whose connections carry many clients: they have no limit of connections for one
    /// address.
    fn trusted_proxies(&self) -> &[AddressRange] {
        &[]
    }
}

/// The body of an answer.
pub trait ServedBody:
    http_body::Body<Data = Bytes, Error = BodyError> + Send + Unpin + 'static
{
    /// The latest end of the answer, if it is known: the client may read slowly until then.
    fn until(&self) -> Option<Instant>;
}
