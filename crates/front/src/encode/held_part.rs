//! The part of one result that is held while the rest passes: its limit and its memory.

use std::sync::Arc;

use weir_core::hold::HoldReservation;

use super::SMALL;
use crate::stack::Shared;

/// The bytes of one reservation.
const STEP: usize = 64 << 10;

/// The memory of the held part. The first bytes need no reservation, as with a small answer.
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

    /// Returns true if this many further bytes can be held: within `limits.hold_per_call`, and
    /// within the free part of `limits.hold`.
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

    /// Releases all memory.
    pub(super) fn release(&mut self) {
        (self.held, self.reserved) = (0, SMALL);
        self.reservations.clear();
    }
}
