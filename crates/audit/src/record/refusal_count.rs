//! The count of refusals of one kind in a minute.

use std::time::SystemTime;

use weir_core::Principal;
use weir_core::instant::rfc3339;
use weir_core::names::EndpointId;
use weir_core::network::SenderNetwork;

use crate::record::record_object::RecordObject;
use crate::record::recorded_principal::write_principal;

/// Refusals of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RefusalTally {
    pub(super) count: u64,
    pub(super) first: SystemTime,
    pub(super) last: SystemTime,
}

/// A count in the form of a record.
#[derive(Debug)]
pub(super) struct RefusalCount {
    pub(super) of: RefusalGroup,
    pub(super) count: RefusalTally,
}

/// The refusals that are counted together.
#[derive(Debug)]
pub(super) enum RefusalGroup {
    Network(SenderNetwork, EndpointId, &'static str),
    Rest(&'static str),
    Principal(Principal),
}

impl RefusalTally {
    /// Returns the tally of one refusal.
    pub(super) fn of(now: SystemTime) -> Self {
        Self {
            count: 1,
            first: now,
            last: now,
        }
    }

    /// Adds a refusal.
    pub(super) fn add(&mut self, now: SystemTime) {
        self.count += 1;
        self.last = now;
    }

    /// Returns the tally with one more refusal.
    pub(super) fn and(mut self, now: SystemTime) -> Self {
        self.add(now);
        self
    }
}

impl RefusalCount {
    /// Writes its members.
    pub(super) fn write(&self, record: &mut RecordObject<'_>) {
        match &self.of {
            RefusalGroup::Network(network, endpoint, reason) => {
                record.text("decision", "refused").text("reason", reason);
                record
                    .text("endpoint", endpoint.as_str())
                    .text("network", &network.to_string());
            }
            RefusalGroup::Rest(reason) => {
                record.text("decision", "refused").text("reason", reason);
            }
            RefusalGroup::Principal(who) => {
                write_principal(who, record);
                record.text("decision", "refused");
            }
        }
        record
            .text("since", &rfc3339(self.count.first))
            .number("count", self.count.count);
    }
}
