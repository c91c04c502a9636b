//! The part of one result that is held while the rest passes: its bound, and its memory.

use std::sync::Arc;

use weir_core::hold::HoldReservation;

use super::SMALL;
use crate::stack::Shared;

/// So much is reserved at a time.
const STEP: usize = 64 << 10;

/// The memory of the held part. The first bytes take none from others, as with a small answer.
pub(super) struct HeldPart {
    shared: Arc<Shared>,
    held: usize,
    reserved: usize,
    reservations: Vec<HoldReservation>,
}

impl HeldPart {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            held: 0,
            reserved: SMALL,
            reservations: Vec::new(),
        }
    }

    /// Whether so many further bytes can be held: within `limits.hold_per_call`, and where others
    /// have not taken `limits.hold`.
    pub(super) fn try_grow(&mut self, bytes: usize) -> bool {
        let held = self.held.saturating_add(bytes);
        let most = self.shared.hold.per_call();
        if held > most {
            return false;
        }
        if held > self.reserved {
            let step = (held - self.reserved).max(STEP);
            let Some(reservation) = self.shared.hold.try_reserve(step) else {
                return false;
            };
            self.reservations.push(reservation);
            self.reserved += step;
        }
        self.held = held;
        true
    }

    /// Nothing is held any more.
    pub(super) fn release(&mut self) {
        (self.held, self.reserved) = (0, SMALL);
        self.reservations.clear();
    }
}
