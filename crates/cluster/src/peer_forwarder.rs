//! The client of other replicas: it sends them requests of this replica's clients.

use std::sync::Arc;

use http::{Response, response};
use weir_core::Budgets;
use weir_core::port::{Fut, ReplicaDirectory, ReplicaId};
use weir_listen::{
    ForwardError, ForwardedBody, ForwardedRequest, NOT_OWNER_HEADER, RequestForwarder,
    owner_of_header,
};

use crate::answer_body::AnswerBody;
use crate::cluster_tls::ClusterTls;
use crate::forwarded_head::{forwarded_head, remove_hop_by_hop};
use crate::peer_connection::SendFailure;
use crate::peer_connections::PeerConnections;

/// The connections on which a request is tried: one that was open may take no more requests.
const CONNECTIONS_TRIED: usize = 2;

/// Sends requests of clients to other replicas, over one HTTP/2 connection to each.
#[derive(Debug)]
pub struct PeerForwarder {
    connections: PeerConnections,
}

impl PeerForwarder {
    /// A forwarder without connections. It takes addresses from `directory`, and reports those that
    /// it cannot connect to. Windows and file descriptors count in `budgets`.
    #[must_use]
    pub fn new(directory: Arc<dyn ReplicaDirectory>, tls: ClusterTls, budgets: Budgets) -> Self {
        Self {
            connections: PeerConnections::new(directory, tls, budgets),
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

    async fn send(
        &self,
        to: &ReplicaId,
        request: ForwardedRequest,
    ) -> Result<Response<ForwardedBody>, ForwardError> {
        let head = forwarded_head(&request)
            .ok_or_else(|| ForwardError::NotSent("invalid client certificate".to_owned()))?;
        let mut last = String::new();
        for _ in 0..CONNECTIONS_TRIED {
            let connection = self
                .connections
                .get(to)
                .await
                .map_err(|failure| ForwardError::NotSent(failure.0.to_string()))?;
            match connection.send(head.clone(), request.body.clone()).await {
                Ok(answer) => {
                    let (head, stream) = answer.into_parts();
                    if let Some(owner) = head.headers.get(NOT_OWNER_HEADER) {
                        return Err(ForwardError::NotOwner(owner_of_header(owner)));
                    }
                    let body = AnswerBody::new(stream, &head.headers);
                    return Ok(Response::from_parts(answer_head(head), Box::pin(body)));
                }
                Err(SendFailure::Retired(cause)) => last = cause,
                Err(SendFailure::NotProcessed(cause)) => return Err(ForwardError::NotSent(cause)),
                Err(SendFailure::Lost(cause)) => return Err(ForwardError::Lost(cause)),
            }
        }
        Err(ForwardError::NotSent(last))
    }
}

impl RequestForwarder for PeerForwarder {
    fn forward<'a>(
        &'a self,
        to: &'a ReplicaId,
        request: ForwardedRequest,
    ) -> Fut<'a, Result<Response<ForwardedBody>, ForwardError>> {
        Box::pin(self.send(to, request))
    }
}

/// The head of an answer for the client, without a version: the client's connection has its own.
fn answer_head(mut head: response::Parts) -> response::Parts {
    remove_hop_by_hop(&mut head.headers);
    head.version = http::Version::default();
    head
}
