//! A request on its way through the layers of an endpoint.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::Request;
use http::request::Parts;
use weir_core::{Authenticated, EndpointId};
use weir_era::render::WeirIdentity;

use crate::http::client_address::client_address;
use crate::request::endpoint_meters::EndpointMeters;
use crate::request::request_context::{HttpRequestContext, trace_of_headers};
use crate::request::request_facts::RequestFacts;
use crate::settings::FrontSettings;
use crate::state::FrontState;

/// An endpoint of one configuration.
pub(crate) struct EndpointRoute {
    pub(crate) shared: Arc<FrontState>,
    pub(crate) settings: Arc<FrontSettings>,
    pub(crate) about: Arc<WeirIdentity>,
    pub(crate) endpoint: EndpointId,
    pub(crate) meters: Arc<EndpointMeters>,
}

/// A request whose head is checked. On the heap: a future that takes it by value would hold and
/// copy it at every layer.
pub(crate) struct EndpointRequest {
    pub(crate) head: Parts,
    pub(crate) context: HttpRequestContext,
}

impl EndpointRequest {
    /// The request with its context: the client's address is the peer's own, or the one that a
    /// trusted proxy reports.
    pub(crate) fn new(
        route: &EndpointRoute,
        is_over_http_sse: bool,
        request: Request<Body>,
    ) -> Box<Self> {
        let (head, _) = request.into_parts();
        let facts = facts_of(&head.extensions);
        let context = HttpRequestContext {
            shared: route.shared.clone(),
            settings: route.settings.clone(),
            about: route.about.clone(),
            endpoint: route.endpoint.clone(),
            name: facts.name.clone(),
            client_address: client_address(
                facts.peer.address,
                &head.headers,
                &route.settings.trusted_proxies,
            ),
            facts,
            trace: trace_of_headers(&head.headers),
            meters: route.meters.clone(),
            is_over_http_sse,
        };
        Box::new(Self { head, context })
    }
}

/// The facts of a request, which the outermost layer has set.
#[expect(
    clippy::expect_used,
    reason = "without the outermost layer no request comes here"
)]
pub(crate) fn facts_of(extensions: &http::Extensions) -> Arc<RequestFacts> {
    extensions
        .get::<Arc<RequestFacts>>()
        .expect("the outermost layer sets the facts")
        .clone()
}

/// An authenticated request that may use the endpoint.
pub(crate) struct AuthenticatedRequest {
    pub(crate) request: Box<EndpointRequest>,
    pub(crate) sender: Authenticated<()>,
}

/// An authenticated request with its whole body; a GET and a DELETE have none.
pub(crate) struct CompleteRequest {
    pub(crate) authenticated: AuthenticatedRequest,
    pub(crate) body: Bytes,
}
