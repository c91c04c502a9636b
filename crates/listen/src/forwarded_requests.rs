//! The service of requests that other processes forward for their clients: other replicas, on the
//! cluster listener, and the processes before and after this one in a graceful restart.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use futures_util::TryFutureExt as _;
use futures_util::future::{Either, MapOk};
use http::Response;
use weir_core::port::{BoxFuture, ReplicaId};

use crate::client_peer::{ClientPeer, ForwardingReplica};
use crate::forwarding::{
    FORWARDED_HEADER, ForwardedClient, KEPT_TASK_HEADER, KeptTaskPart, OtherProcess,
    remove_internal_headers,
};
use crate::listener_settings::ListenerLimits;
use crate::listener_state::ListenerState;
use crate::operator_requests::{
    OPERATOR_HEADER, OperatorRequest, OperatorRequestsSlot, ReplicaBody, answer,
};
use crate::replica_streams::{ReplicaStreamsSlot, STREAM_HEADER, STREAM_VERSION, opens_stream};
use crate::request_service::{IncomingRequest, RequestService};

/// The replica of a request that names none.
const UNNAMED_REPLICA: ReplicaId = ReplicaId([0; 8]);

/// The service of forwarded requests. It serves them by the public listener's service, each with
/// the client that the forwarding process describes in [`FORWARDED_HEADER`]. A request with
/// [`OPERATOR_HEADER`] is an operator's. A request without a client, for the path of streams and
/// with [`STREAM_HEADER`], is a replica's own.
///
/// It has a [`ListenerState`] of its own: a drain of the public listener does not
/// end it.
pub struct ForwardedRequests<R> {
    public: Arc<ListenerState<R>>,
    operators: OperatorRequestsSlot,
    streams: ReplicaStreamsSlot,
    limits: ListenerLimits,
    process: Option<OtherProcess>,
}

/// The answer to a client's request, as the cluster listener writes it.
type ClientAnswer<B> = fn(Response<B>) -> Response<ReplicaBody<B>>;

impl<R: RequestService> ForwardedRequests<R> {
    /// Serves by the service of `public`, which is loaded for each request. The limits of
    /// connections follow from its limits of now.
    #[must_use]
    pub fn new(public: Arc<ListenerState<R>>) -> Self {
        let limits = ListenerLimits::for_replicas(public.service().limits());
        Self {
            public,
            operators: OperatorRequestsSlot::default(),
            streams: ReplicaStreamsSlot::default(),
            limits,
            process: None,
        }
    }

    /// Serves requests of this process in a graceful restart, instead of another replica's.
    #[must_use]
    pub(crate) fn of_process(self, process: OtherProcess) -> Self {
        let process = Some(process);
        Self { process, ..self }
    }

    /// Answers operators' requests, too, once there is an answerer in this place.
    #[must_use]
    pub fn with_operators(self, operators: OperatorRequestsSlot) -> Self {
        Self { operators, ..self }
    }

    /// Answers streams of other replicas, too, once there is an answerer in this place.
    #[must_use]
    pub fn with_streams(self, streams: ReplicaStreamsSlot) -> Self {
        Self { streams, ..self }
    }
}

impl<R: RequestService> RequestService for ForwardedRequests<R> {
    type Body = ReplicaBody<R::Body>;
    type Future = Either<
        MapOk<R::Future, ClientAnswer<R::Body>>,
        BoxFuture<'static, Result<Response<Self::Body>, Infallible>>,
    >;

    fn serve(&self, IncomingRequest { mut request, peer }: IncomingRequest) -> Self::Future {
        if let Some(streams) = self.streams.get().filter(|_| opens_stream(&request)) {
            let mut answer = streams.clone().serve(request).map(ReplicaBody::Stream);
            answer.headers_mut().insert(STREAM_HEADER, STREAM_VERSION);
            return Either::Right(Box::pin(std::future::ready(Ok(answer))));
        }
        let client = request
            .headers_mut()
            .remove(FORWARDED_HEADER)
            .and_then(|value| ForwardedClient::from_header(&value));
        let kept_task = request
            .headers_mut()
            .remove(KEPT_TASK_HEADER)
            .and_then(|value| KeptTaskPart::from_header(&value));
        let is_operators = request.headers_mut().remove(OPERATOR_HEADER).is_some();
        let operators = self.operators.get().filter(|_| is_operators);
        // No further header speaks for a process of weir.
        remove_internal_headers(request.headers_mut());
        let client = match (client, operators) {
            (Some(client), Some(operators)) => {
                let request = OperatorRequest { request, client };
                return Either::Right(answer(&**operators, request));
            }
            (client, _) => client,
        };
        let peer = match client {
            Some(client) => ClientPeer {
                address: client.address,
                certificate: client.certificate,
                secure: client.secure,
                forwarded_by: Some(ForwardingReplica {
                    id: client.forwarded_by,
                    request: Some(client.request),
                    kept_task,
                    process: self.process,
                }),
                ..peer
            },
            None => ClientPeer {
                // The connection shows the public key of a replica, not a certificate of a client.
                certificate: None,
                forwarded_by: Some(ForwardingReplica {
                    id: UNNAMED_REPLICA,
                    request: None,
                    kept_task: None,
                    process: self.process,
                }),
                ..peer
            },
        };
        let served = self
            .public
            .peek_service()
            .serve(IncomingRequest { request, peer });
        let write: ClientAnswer<R::Body> = |answer| answer.map(ReplicaBody::Client);
        Either::Left(served.map_ok(write))
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
