//! The service of the cluster listener: requests that other replicas forward for their clients.

use std::fmt;
use std::sync::Arc;

use weir_core::port::ReplicaId;

use super::client_peer::{ClientPeer, ForwardingReplica};
use super::forwarding::{FORWARDED_HEADER, ForwardedClient};
use super::listener_settings::ListenerLimits;
use super::listener_state::ListenerState;
use super::request_service::{IncomingRequest, RequestService};

/// The replica of a request that names none.
const UNNAMED_REPLICA: ReplicaId = ReplicaId([0; 8]);

/// The service of the cluster listener. It serves requests by the public listener's service, each
/// with the client that the forwarding replica describes in [`FORWARDED_HEADER`].
///
/// The cluster listener is a [`ListenerState`] of its own: a drain of the public listener does not
/// end it.
pub struct ForwardedRequests<R> {
    public: Arc<ListenerState<R>>,
    limits: ListenerLimits,
}

impl<R: RequestService> ForwardedRequests<R> {
    /// Serves by the service of `public`, which is loaded for each request. The limits of
    /// connections follow from its limits of now.
    #[must_use]
    pub fn new(public: Arc<ListenerState<R>>) -> Self {
        let limits = ListenerLimits::for_replicas(public.service().limits());
        Self { public, limits }
    }
}

impl<R: RequestService> RequestService for ForwardedRequests<R> {
    type Body = R::Body;
    type Future = R::Future;

    fn serve(&self, IncomingRequest { mut request, peer }: IncomingRequest) -> R::Future {
        let client = request
            .headers_mut()
            .remove(FORWARDED_HEADER)
            .and_then(|value| ForwardedClient::from_header(&value));
        let peer = match client {
            Some(client) => ClientPeer {
                address: client.address,
                certificate: client.certificate,
                secure: client.secure,
                forwarded_by: Some(ForwardingReplica {
                    id: client.forwarded_by,
                    request: Some(client.request),
                }),
                ..peer
            },
            None => ClientPeer {
                // The connection shows the public key of a replica, not a certificate of a client.
                certificate: None,
                forwarded_by: Some(ForwardingReplica {
                    id: UNNAMED_REPLICA,
                    request: None,
                }),
                ..peer
            },
        };
        self.public
            .peek_service()
            .serve(IncomingRequest { request, peer })
    }

    fn limits(&self) -> &ListenerLimits {
        &self.limits
    }
}

impl<R> fmt::Debug for ForwardedRequests<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardedRequests").finish_non_exhaustive()
    }
}
