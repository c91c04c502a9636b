//! Permits for listen and GET streams, and for subscriptions: limited overall and by principal. A
//! permit is released when it is dropped.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use parking_lot::Mutex;
use weir_core::Principal;
use weir_core::budget::ByteReservation;

/// The permits in use. The map has an entry only for a principal that holds a permit, so the
/// overall limit bounds it.
#[derive(Debug, Default)]
pub struct StreamPermits(Mutex<PermitCounts>);

#[derive(Debug, Default)]
struct PermitCounts {
    open: usize,
    by_principal: HashMap<[u8; 16], usize>,
}

/// The reason that no permit is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoStreamPermit {
    /// The service is at its limit.
    Total,
    /// The principal is at its limit.
    Principal,
}

/// One permit.
#[derive(Debug)]
pub struct StreamPermit {
    permits: Arc<StreamPermits>,
    /// Absent for the anonymous principal, which all anonymous callers share: only the overall
    /// limit applies to it.
    principal: Option<[u8; 16]>,
    /// The reservation in a budget of the process that is released with it.
    weight: Option<ByteReservation>,
}

impl StreamPermits {
    /// Takes a permit for `principal`, of `most` overall and `own_most` of each principal.
    pub fn take(
        self: &Arc<Self>,
        principal: &Principal,
        most: usize,
        own_most: usize,
    ) -> Result<StreamPermit, NoStreamPermit> {
        let of = (!principal.is_anonymous()).then(|| *principal.digest());
        let mut counts = self.0.lock();
        if counts.open >= most {
            return Err(NoStreamPermit::Total);
        }
        if let Some(of) = of {
            let own = counts.by_principal.get(&of).copied().unwrap_or(0);
            if own >= own_most {
                return Err(NoStreamPermit::Principal);
            }
            counts.by_principal.insert(of, own + 1);
        }
        counts.open += 1;
        drop(counts);
        Ok(StreamPermit {
            permits: self.clone(),
            principal: of,
            weight: None,
        })
    }
}

impl StreamPermit {
    /// The permit with a reservation that is released with it.
    pub fn with_reservation(mut self, weight: ByteReservation) -> Self {
        self.weight = Some(weight);
        self
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut counts = self.permits.0.lock();
        counts.open -= 1;
        if let Some(of) = self.principal
            && let Entry::Occupied(mut own) = counts.by_principal.entry(of)
        {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}
