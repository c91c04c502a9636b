//! Limits of the process as a whole, for all clients and upstreams together: memory for data that
//! others send, and file descriptors.
//!
//! Bounds of single parts do not add up to a bound of the process. Data that can be held many times
//! over is taken from a budget here, before it is held, and given back when it is dropped.

mod byte_budget;
mod descriptors;

use std::sync::Arc;

pub use self::byte_budget::{ByteBudget, ByteReservation};
pub use self::descriptors::{ConnectionSide, DescriptorBudget, DescriptorPermit};
pub use crate::budget_owner::BudgetOwner;
use crate::hold::{HoldBudget, HoldLimits};

/// The budgets of one process. Clones are the same budgets.
#[derive(Clone, Debug)]
pub struct Budgets {
    /// Bodies of requests, from their first byte until the last reference to them is dropped.
    pub bodies: ByteBudget,
    /// Results that upstreams send as one message, and whole answers, until clients have taken
    /// them; and the cached pages of lists.
    pub results: ByteBudget,
    /// Messages of upstreams and clients that wait to be taken.
    pub messages: ByteBudget,
    /// The names of the resources that clients subscribe to.
    pub subscriptions: ByteBudget,
    /// Connections of clients, with the heads of requests that are read on them.
    pub connections: ByteBudget,
    /// Receive windows of HTTP/2 connections beyond the first 64 KiB of each.
    pub windows: ByteBudget,
    /// Parts of large results that are held while the results pass.
    pub hold: Arc<HoldBudget>,
    /// File descriptors.
    pub descriptors: DescriptorBudget,
}

impl Budgets {
    /// Divides the memory of the process, in bytes. A body is held twice while its call runs, as it
    /// came and as it goes on. The rest is for results and events that other parts hold, each
    /// within its own bound, and for the program with its catalogs.
    pub fn divide(&self, memory: usize) {
        self.connections.set_limit(memory / 4);
        self.bodies.set_limit(memory / 8);
        self.results.set_limit(memory / 8);
        self.messages.set_limit(memory / 16);
        self.subscriptions.set_limit(memory / 32);
        self.windows.set_limit(memory / 32);
    }

    /// Records the bytes taken of each budget as metrics.
    pub fn measure(&self) {
        self.bytes().into_iter().for_each(ByteBudget::measure);
    }

    /// The bytes that are taken of all budgets.
    #[must_use]
    pub fn reserved(&self) -> usize {
        self.bytes().into_iter().map(ByteBudget::used).sum()
    }

    fn bytes(&self) -> [&ByteBudget; 6] {
        [
            &self.bodies,
            &self.results,
            &self.messages,
            &self.subscriptions,
            &self.connections,
            &self.windows,
        ]
    }
}

impl Default for Budgets {
    /// Budgets without a limit; held parts of results have their usual limits.
    fn default() -> Self {
        Self {
            bodies: ByteBudget::new("bodies"),
            results: ByteBudget::new("results"),
            messages: ByteBudget::new("messages"),
            subscriptions: ByteBudget::new("subscriptions"),
            connections: ByteBudget::new("connections"),
            windows: ByteBudget::new("windows"),
            hold: HoldBudget::new(HoldLimits::default()),
            descriptors: DescriptorBudget::default(),
        }
    }
}
