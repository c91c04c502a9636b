//! The context of one request, from the head on.

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use weir_core::budget::{BudgetOwner, ByteReservation};
use weir_core::call::{RequestName, TraceContext};
use weir_core::{Authenticated, EndpointId};
use weir_era::lift;
use weir_listen::{ClientPeer, ForwardedClient, KeptTaskPart, OtherProcess, RequestForwarder};
use weir_session::{NoStreamPermit, StreamPermit};
use weir_wire::header::ReceivedHeader;

use crate::failure::request_refusal::RequestRefusal;
use crate::http::header_names;
use crate::ports::FrontPorts;
use crate::request::endpoint_route::EndpointRoute;
use crate::request::request_facts::RequestFacts;
use crate::settings::FrontLimits;
use crate::state::FrontState;

/// The context of one request.
#[derive(Clone, Debug)]
pub struct HttpRequestContext {
    /// The endpoint of the request, with the settings that the request began with.
    pub route: Arc<EndpointRoute>,
    /// The connection, and what the layers share about the request.
    pub facts: Arc<RequestFacts>,
    /// The client's address: the peer's own, or the one a trusted proxy reports.
    pub client_address: IpAddr,
    /// The trace context of the head. A trace context in `_meta` takes precedence.
    pub trace: TraceContext,
    /// True if the answer goes to an HTTP+SSE stream that it shares with others: it cannot be
    /// resumed.
    pub is_over_http_sse: bool,
}

impl HttpRequestContext {
    /// The state that survives a reload.
    pub fn shared(&self) -> &Arc<FrontState> {
        &self.route.shared
    }

    /// The ports of the state.
    pub fn ports(&self) -> &FrontPorts {
        &self.route.shared.ports
    }

    /// The name of the request.
    pub fn name(&self) -> &RequestName {
        &self.facts.name
    }

    /// The endpoint of the request.
    pub fn endpoint(&self) -> &EndpointId {
        &self.route.endpoint
    }

    /// The connection of the request.
    pub fn peer(&self) -> &ClientPeer {
        &self.facts.peer
    }

    /// The client of the request, as another process hears of it.
    #[must_use]
    pub fn forwarded_client(&self) -> ForwardedClient {
        let peer = self.peer();
        ForwardedClient {
            forwarded_by: self.ports().replica.clone(),
            request: *self.name(),
            address: peer.address,
            secure: peer.secure,
            certificate: peer.certificate.clone(),
        }
    }

    /// True if another replica or process sent the request on to this one, which it had admitted.
    #[must_use]
    pub fn is_forwarded(&self) -> bool {
        self.peer().forwarded_by.is_some()
    }

    /// The process of a graceful restart that sent the request on to this one.
    #[must_use]
    pub fn from_process(&self) -> Option<OtherProcess> {
        self.peer().forwarded_by.as_ref()?.process
    }

    /// The forwarder to another process of a graceful restart, if the request may go there: not to
    /// the process that it comes from, nor to one that takes no requests.
    #[must_use]
    pub fn other_process(&self, process: OtherProcess) -> Option<&Arc<dyn RequestForwarder>> {
        let comes_from_there = self.from_process() == Some(process);
        self.ports().process(process).filter(|_| !comes_from_there)
    }

    /// True if the request may go to another replica: it comes from no replica, not even through the
    /// process after this one.
    #[must_use]
    pub fn may_go_to_replica(&self) -> bool {
        !self.is_forwarded() || self.from_process() == Some(OtherProcess::Predecessor)
    }

    /// The part of a kept task that another replica asks for with this request.
    #[must_use]
    pub fn kept_task_part(&self) -> Option<KeptTaskPart> {
        self.peer().forwarded_by.as_ref()?.kept_task
    }

    /// True if other replicas share sessions with this one.
    pub fn has_replicas(&self) -> bool {
        self.ports().replicas.is_some()
    }

    /// The limits that the request began with.
    pub fn limits(&self) -> &FrontLimits {
        &self.route.settings.limits
    }

    /// An empty reservation in the budget of all bodies, owned by this principal.
    pub(crate) fn bodies(&self, sender: &Authenticated<()>) -> ByteReservation {
        self.route
            .shared
            .ports
            .budgets
            .bodies
            .empty_of(self.owner(sender))
    }

    /// The owner of memory that is held for the request and its answer.
    pub fn owner(&self, sender: &Authenticated<()>) -> BudgetOwner {
        BudgetOwner::of(sender.principal(), self.client_address)
    }

    /// Takes a permit for one more stream.
    ///
    /// # Errors
    ///
    /// The principal, or all callers together, have as many streams open as they may.
    pub fn take_stream_permit(
        &self,
        sender: &Authenticated<()>,
    ) -> Result<StreamPermit, RequestRefusal> {
        let limits = self.limits();
        let (most, most_of_principal) = (limits.streams, limits.streams_per_principal);
        let permits = &self.shared().streams.permits;
        permits
            .take(sender.principal(), most, most_of_principal)
            .map_err(|none| match none {
                NoStreamPermit::Total => RequestRefusal::NoRoomForStream,
                NoStreamPermit::Principal => RequestRefusal::TooManyStreams,
            })
    }
}

/// The trace context of a head (W3C). A header that is given twice counts as absent. `baggage` is
/// ignored: a client that wants it forwarded sends it in `_meta`, and the operator names the
/// upstreams it may go to.
pub(crate) fn trace_of_headers(headers: &HeaderMap) -> TraceContext {
    let one = |name: &http::HeaderName| {
        let value = ReceivedHeader::of(headers.get_all(name)).once()?;
        value.to_str().ok()
    };
    lift::parse_trace(
        one(&header_names::TRACEPARENT),
        one(&header_names::TRACESTATE),
        None,
    )
}
