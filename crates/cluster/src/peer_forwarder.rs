//! The client of other replicas: it sends them requests of this replica's clients.

use std::sync::Arc;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Response, Uri, Version, response};
use weir_core::Budgets;
use weir_core::port::{BoxFuture, ReplicaDirectory, ReplicaId};
use weir_http2_client::Http2Response;
use weir_listen::{
    ANSWERED_BY_HEADER, ForwardError, ForwardedBody, ForwardedRequest, NOT_OWNER_HEADER,
    RequestForwarder, STREAM_HEADER, STREAM_PATH, STREAM_VERSION, replica_of_header,
};

use crate::cluster_tls::ClusterTls;
use crate::forwarded_head::{forwarded_head, remove_hop_by_hop};
use crate::peer_answer_body::PeerAnswerBody;
use crate::peer_connection::{PeerConnection, PeerSendFailure};
use crate::peer_connections::PeerConnections;
use crate::peer_dialer::{PeerDialer, TcpDialer};
use crate::peer_stream::PeerStream;

/// The connections on which a request is tried: one that was open may take no more requests.
const CONNECTIONS_TRIED: usize = 2;

/// Sends requests of clients to other replicas, over an HTTP/2 connection to each, or a few while
/// clients read slowly.
#[derive(Debug)]
pub struct PeerForwarder {
    connections: PeerConnections,
}

impl PeerForwarder {
    /// A forwarder without connections. It takes addresses from `directory`, and reports those that
    /// it cannot connect to. Windows and file descriptors count in `budgets`.
    #[must_use]
    pub fn new(directory: Arc<dyn ReplicaDirectory>, tls: ClusterTls, budgets: Budgets) -> Self {
        Self::over(Arc::new(TcpDialer), directory, tls, budgets)
    }

    /// As [`Self::new`], with connections that `dialer` opens.
    #[must_use]
    pub fn over(
        dialer: Arc<dyn PeerDialer>,
        directory: Arc<dyn ReplicaDirectory>,
        tls: ClusterTls,
        budgets: Budgets,
    ) -> Self {
        Self {
            connections: PeerConnections::new(dialer, directory, tls, budgets),
        }
    }

    /// Uses other keys for the connections that are opened from now on. Requests in flight end on
    /// the connections that they began on.
    pub fn use_tls(&self, tls: ClusterTls) {
        self.connections.use_tls(tls);
    }

    /// Closes all connections at once, and waits for the end of their tasks. Requests in flight
    /// are lost, so those of clients end first.
    pub async fn shutdown(&self) {
        self.connections.shutdown().await;
    }

    /// Opens a stream to another replica, which both sides send on, and returns it with the headers
    /// of the answer. `first` is what this side sends first. Dropping the future or the stream
    /// resets it.
    ///
    /// # Errors
    /// The other replica cannot be reached, has no such streams, or was lost before an answer.
    pub async fn open_stream(
        &self,
        to: &ReplicaId,
        headers: HeaderMap,
        first: Bytes,
    ) -> Result<(HeaderMap, PeerStream), ForwardError> {
        let mut last = String::new();
        for _ in 0..CONNECTIONS_TRIED {
            let connection = self.connection(to).await?;
            let head = stream_head(headers.clone());
            match connection.open_stream(head, first.clone()).await {
                Ok(answer) => {
                    let (head, stream) = answer.into_parts();
                    if head.headers.get(STREAM_HEADER) != Some(&STREAM_VERSION) {
                        let cause = "the replica is starting, or has another version of weir";
                        return Err(ForwardError::NotSent(cause.to_owned()));
                    }
                    return Ok((head.headers, stream));
                }
                Err(PeerSendFailure::Retired(cause)) => last = cause,
                Err(PeerSendFailure::NotProcessed(cause)) => {
                    return Err(ForwardError::NotSent(cause));
                }
                Err(PeerSendFailure::Lost(cause)) => return Err(ForwardError::Lost(cause)),
            }
        }
        Err(ForwardError::NotSent(last))
    }

    async fn connection(&self, to: &ReplicaId) -> Result<PeerConnection, ForwardError> {
        let connected = self.connections.get(to).await;
        connected.map_err(|failure| ForwardError::NotSent(failure.0.to_string()))
    }

    async fn send(
        &self,
        to: &ReplicaId,
        request: ForwardedRequest,
    ) -> Result<Response<ForwardedBody>, ForwardError> {
        let head = request_head(&request)?;
        let mut last = String::new();
        for _ in 0..CONNECTIONS_TRIED {
            let connection = self.connection(to).await?;
            match connection.send(head.clone(), request.body.clone()).await {
                Ok(answer) => {
                    self.check_answered_by(to, answer.headers())?;
                    return client_answer(answer);
                }
                Err(PeerSendFailure::Retired(cause)) => last = cause,
                Err(PeerSendFailure::NotProcessed(cause)) => {
                    return Err(ForwardError::NotSent(cause));
                }
                Err(PeerSendFailure::Lost(cause)) => return Err(ForwardError::Lost(cause)),
            }
        }
        Err(ForwardError::NotSent(last))
    }
}

impl PeerForwarder {
    /// Checks that `to` answered, as far as the answer says. If it was started again at its address,
    /// it has another name: the one before has ended, and the registry does not know that yet.
    ///
    /// # Errors
    /// Another replica answered, and has not carried the request out.
    fn check_answered_by(&self, to: &ReplicaId, headers: &HeaderMap) -> Result<(), ForwardError> {
        let named = headers.get(ANSWERED_BY_HEADER).and_then(replica_of_header);
        if named.is_none_or(|named| named == *to) {
            return Ok(());
        }
        self.connections.report_ended(to);
        let cause = "the replica has ended: another one answers at its address";
        Err(ForwardError::NotSent(cause.to_owned()))
    }
}

impl RequestForwarder for PeerForwarder {
    fn forward<'a>(
        &'a self,
        to: &'a ReplicaId,
        request: ForwardedRequest,
    ) -> BoxFuture<'a, Result<Response<ForwardedBody>, ForwardError>> {
        Box::pin(self.send(to, request))
    }
}

/// The head of a client's request for another process.
///
/// # Errors
/// The client's connection cannot be described.
pub(crate) fn request_head(request: &ForwardedRequest) -> Result<Request<()>, ForwardError> {
    forwarded_head(request)
        .ok_or_else(|| ForwardError::NotSent("invalid client certificate".to_owned()))
}

/// The head of a stream of weir's own.
fn stream_head(headers: HeaderMap) -> Request<()> {
    let mut head = Request::new(());
    *head.method_mut() = Method::POST;
    *head.version_mut() = Version::HTTP_2;
    *head.uri_mut() = stream_uri();
    *head.headers_mut() = headers;
    head.headers_mut().insert(STREAM_HEADER, STREAM_VERSION);
    head
}

/// The URI of streams. The header names their kind.
fn stream_uri() -> Uri {
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(http::uri::Scheme::HTTPS);
    parts.authority = Some(http::uri::Authority::from_static("replica"));
    parts.path_and_query = Some(PathAndQuery::from_static(STREAM_PATH));
    Uri::from_parts(parts).unwrap_or_default()
}

/// The answer of another process to a request of a client.
///
/// # Errors
/// That process is not the owner of the subject of the request.
pub(crate) fn client_answer(
    answer: Response<Http2Response>,
) -> Result<Response<ForwardedBody>, ForwardError> {
    let (head, stream) = answer.into_parts();
    if let Some(owner) = head.headers.get(NOT_OWNER_HEADER) {
        return Err(ForwardError::NotOwner(replica_of_header(owner)));
    }
    let body = PeerAnswerBody::new(stream, &head.headers);
    Ok(Response::from_parts(answer_head(head), Box::pin(body)))
}

/// The head of an answer for the client, without a version: the client's connection has its own.
fn answer_head(mut head: response::Parts) -> response::Parts {
    remove_hop_by_hop(&mut head.headers);
    head.version = http::Version::default();
    head
}
