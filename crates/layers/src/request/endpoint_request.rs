//! A request on its way through the layers of an endpoint.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::Request;
use http::request::Parts;
use weir_core::Authenticated;

use crate::http::client_address::client_address;
use crate::request::endpoint_route::EndpointRoute;
use crate::request::request_context::{HttpRequestContext, trace_of_headers};
use crate::request::request_facts::RequestFacts;
use crate::request::request_head::RequestHead;

/// A request whose head is checked. On the heap: a future that takes it by value would hold and
/// copy it at every layer.
pub struct EndpointRequest {
    /// The head as it came.
    pub head: Parts,
    /// The context of the request.
    pub context: HttpRequestContext,
}

impl std::fmt::Debug for EndpointRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EndpointRequest").finish_non_exhaustive()
    }
}

impl EndpointRequest {
    /// The request with its context: the client's address is the peer's own, or the one that a
    /// trusted proxy reports.
    pub fn new(route: &Arc<EndpointRoute>, request: Request<Body>) -> Box<Self> {
        let (head, _) = request.into_parts();
        let facts = facts_of(&head.extensions).clone();
        let context = HttpRequestContext {
            route: route.clone(),
            client_address: client_address(
                facts.peer.address,
                &head.headers,
                &route.settings.trusted_proxies,
            ),
            facts,
            trace: trace_of_headers(&head.headers),
            is_over_http_sse: false,
        };
        Box::new(Self { head, context })
    }

    /// Marks the request as one of the HTTP+SSE transport.
    #[must_use]
    pub fn over_http_sse(mut self: Box<Self>) -> Box<Self> {
        self.context.is_over_http_sse = true;
        self
    }
}

/// The facts of a request, which the outermost layer has set.
#[expect(
    clippy::expect_used,
    reason = "without the outermost layer no request comes here"
)]
pub(crate) fn facts_of(extensions: &http::Extensions) -> &Arc<RequestFacts> {
    extensions
        .get::<Arc<RequestFacts>>()
        .expect("the outermost layer sets the facts")
}

/// An authenticated request that may use the endpoint.
pub struct AuthenticatedRequest {
    /// The request, with its body unread.
    pub request: Box<EndpointRequest>,
    /// Proof of the sender's credentials.
    pub sender: Authenticated<()>,
}

impl AuthenticatedRequest {
    /// The head, as the handlers take it.
    #[must_use]
    pub fn head(&self) -> RequestHead<'_> {
        RequestHead {
            context: &self.request.context,
            sender: &self.sender,
            headers: &self.request.head.headers,
        }
    }
}

impl std::fmt::Debug for AuthenticatedRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthenticatedRequest")
            .finish_non_exhaustive()
    }
}

/// An authenticated request with its whole body; a GET and a DELETE have none.
pub struct CompleteRequest {
    /// The request and its sender.
    pub authenticated: AuthenticatedRequest,
    /// The whole body.
    pub body: Bytes,
}

impl std::fmt::Debug for CompleteRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompleteRequest").finish_non_exhaustive()
    }
}
