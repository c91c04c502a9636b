//! The part of one result that is held while the rest passes: its limit and its memory.

use std::fmt;
use std::sync::Arc;

use weir_core::hold::HoldReservation;

use crate::state::FrontState;

/// The size up to which a whole answer needs no reservation: each connection has that much.
pub const UNRESERVED_BYTES: usize = 8 << 10;

/// The bytes of one reservation.
const RESERVED_AT_ONCE: usize = 64 << 10;

/// The memory of the held part. The first bytes need no reservation, as with a small answer.
pub struct HeldPart {
    shared: Arc<FrontState>,
    held: usize,
    reserved: usize,
    reservations: Vec<HoldReservation>,
}

impl HeldPart {
    /// An empty part.
    #[must_use]
    pub fn new(shared: Arc<FrontState>) -> Self {
        Self {
            shared,
            held: 0,
            reserved: UNRESERVED_BYTES,
            reservations: Vec::new(),
        }
    }

    /// Returns true if this many further bytes can be held: within `limits.hold_per_call`, and
    /// within the free part of `limits.hold`.
    pub fn try_grow(&mut self, bytes: usize) -> bool {
        let held = self.held.saturating_add(bytes);
        let most = self.shared.hold_budget.per_call();
        if held > most {
            return false;
        }
        if held > self.reserved {
            let step = (held - self.reserved).max(RESERVED_AT_ONCE);
            let Some(reservation) = self.shared.hold_budget.try_reserve(step) else {
                return false;
            };
            self.reservations.push(reservation);
            self.reserved += step;
        }
        self.held = held;
        true
    }

    /// Releases all memory.
    pub fn release(&mut self) {
        (self.held, self.reserved) = (0, UNRESERVED_BYTES);
        self.reservations.clear();
    }
}

impl fmt::Debug for HeldPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeldPart({} bytes)", self.held)
    }
}
