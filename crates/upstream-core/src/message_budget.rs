//! The memory for the waiting messages of one server, within the budget of the process.

use weir_core::budget::{ByteBudget, ByteReservation};

use crate::upstream_label::UpstreamLabel;

/// The memory for the waiting messages of one server. Clones share it.
#[derive(Clone, Debug)]
pub struct MessageBudget {
    /// The id of the upstream that the bytes are taken for.
    pub label: UpstreamLabel,
    budget: ByteBudget,
}

impl MessageBudget {
    /// Makes the share of one server in the budget of the process.
    pub fn new(label: UpstreamLabel, budget: ByteBudget) -> Self {
        Self { label, budget }
    }

    /// Takes the bytes of a message; absent if there is no memory for it.
    pub fn try_reserve(&self, bytes: usize) -> Option<ByteReservation> {
        self.budget.try_reserve_of(self.label.owner(), bytes)
    }
}
