//! What the layers share about one request beside its head: the one extension of a request.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use weir_core::call::RequestName;
use weir_listen::{ClientPeer, RequestBody};

use crate::http::body::RequestLabels;
use crate::in_flight::InFlightPermit;
use crate::outer_rules::OuterRules;
use crate::request::endpoint_meters::EndpointMeters;
use crate::request::message_labels::MessageLabels;
use crate::request::outcome::ResponseOutcome;

/// The connection of a request, its name, the rules that it follows, and the parts that one layer
/// leaves for another one.
pub struct RequestFacts {
    pub(crate) name: RequestName,
    pub(crate) peer: ClientPeer,
    pub(crate) rules: Arc<OuterRules>,
    /// The method and the era of the message once they are known.
    decoded: OnceLock<MessageLabels>,
    parts: Mutex<SharedParts>,
}

impl std::fmt::Debug for RequestFacts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestFacts").finish_non_exhaustive()
    }
}

struct SharedParts {
    /// Taken by the layer that reads it.
    body: Option<RequestBody>,
    /// Taken by a layer that answers outside of the response to this request.
    permit: Option<InFlightPermit>,
    labels: RequestLabels,
    outcome: Option<ResponseOutcome>,
}

impl RequestFacts {
    pub(crate) fn new(
        name: RequestName,
        peer: ClientPeer,
        body: RequestBody,
        rules: Arc<OuterRules>,
    ) -> Self {
        Self {
            name,
            peer,
            rules,
            decoded: OnceLock::new(),
            parts: Mutex::new(SharedParts {
                body: Some(body),
                permit: None,
                labels: RequestLabels::NONE,
                outcome: None,
            }),
        }
    }

    /// The body, unless it was taken before.
    pub(crate) fn take_body(&self) -> Option<RequestBody> {
        self.parts.lock().body.take()
    }

    /// Keeps the in-flight permit until the answer begins.
    pub(crate) fn hold_permit(&self, permit: InFlightPermit) {
        self.parts.lock().permit = Some(permit);
    }

    /// The in-flight permit, unless it was taken before.
    pub fn take_permit(&self) -> Option<InFlightPermit> {
        self.parts.lock().permit.take()
    }

    /// The in-flight permit and the body, as far as no layer has taken them.
    pub(crate) fn take_unused(&self) -> (Option<InFlightPermit>, Option<RequestBody>) {
        let mut parts = self.parts.lock();
        (parts.permit.take(), parts.body.take())
    }

    /// Leaves the method and the era to the metrics of a request that ends before its answer begins.
    /// The first ones count.
    pub fn leave_decoded(&self, labels: MessageLabels) {
        // A request that is tried again after another replica ended has the same labels.
        let _same = self.decoded.set(labels);
    }

    /// The method and the era, if they are known.
    pub(crate) fn decoded(&self) -> Option<MessageLabels> {
        self.decoded.get().copied()
    }

    /// Leaves the metrics of the endpoint for a request that ends before its answer begins.
    pub(crate) fn leave_meters(&self, meters: Arc<EndpointMeters>) {
        self.parts.lock().labels.meters = Some(meters);
    }

    /// Leaves the labels and the outcome of the answer to the metrics.
    pub(crate) fn leave_labels(&self, labels: RequestLabels, outcome: Option<ResponseOutcome>) {
        let mut parts = self.parts.lock();
        (parts.labels, parts.outcome) = (labels, outcome);
    }

    /// The labels and the outcome of the answer.
    pub(crate) fn take_labels(&self) -> (RequestLabels, Option<ResponseOutcome>) {
        let mut parts = self.parts.lock();
        let labels = std::mem::replace(&mut parts.labels, RequestLabels::NONE);
        (labels, parts.outcome.take())
    }
}
