//! The parts for reading responses of one server: their bounds and their count of bytes.

use std::sync::Arc;

use tokio::sync::Semaphore;
use weir_core::Budgets;
use weir_core::hold::HoldShare;
use weir_core::telemetry::UpstreamMeter;
use weir_core::{Failure, FailureKind};

use crate::upstream_label::UpstreamLabel;

/// The most responses of one server that are drained at the same time after their calls are over.
const MAX_DRAINING: usize = 64;

/// The bounds of one server's responses, and the count of their bytes.
#[derive(Clone, Debug)]
pub struct ResponseLimits {
    /// The id of the upstream, for failures.
    pub label: UpstreamLabel,
    /// The most bytes of one reply.
    pub max_reply: usize,
    /// The bytes of messages from and to the server.
    pub meter: Arc<UpstreamMeter>,
    /// The upstream's share of the memory for held results.
    pub hold_share: Arc<HoldShare>,
    /// The permits of responses that are drained after the call is over.
    pub drain_permits: Arc<Semaphore>,
}

impl ResponseLimits {
    /// Makes the limits of one server within the budgets of the process.
    pub fn new(label: UpstreamLabel, max_reply: usize, budgets: &Budgets) -> Self {
        Self {
            max_reply,
            meter: UpstreamMeter::of(&label.id),
            hold_share: Arc::new(HoldShare::new(budgets.hold.clone())),
            drain_permits: Arc::new(Semaphore::new(MAX_DRAINING)),
            label,
        }
    }

    /// Makes the failure of a result that would have to be held whole, and is too large for that.
    pub fn too_large_failure(&self) -> Failure {
        let most = self.hold_share.per_call();
        let text = format!(
            "The upstream's result is larger than {most} bytes, the most that can be held to look at it"
        );
        self.label.fail(FailureKind::BadAnswer, text)
    }
}
