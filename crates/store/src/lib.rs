//! State that replicas share, behind core's ports: here in memory, for the one replica there is.
//!
//! This crate knows neither HTTP nor JSON-RPC: what it keeps are opaque bytes under a key whose
//! first part is the principal, so that nothing is found without its owner. Every map here is
//! bounded, and says by what.

mod bus;
mod counters;
mod lease;
mod parking;
mod records;
mod replays;
mod tasks;
mod vault;

pub use bus::{BusLinkId, MemoryBus, MemoryMailbox};
pub use counters::MemoryCounters;
pub use lease::MemoryLease;
pub use parking::{MemoryParking, ParkingCaps};
pub use records::{MemoryRecords, MovedRecord, RecordCaps};
pub use replays::{MemoryReplays, MovedEvent, MovedLog, ReplayCaps};
pub use tasks::{MemoryTasks, TaskCaps};
pub use vault::MemoryVault;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks. A panic of another holder leaves these maps whole (each change is one insert or remove),
/// so a poisoned lock is as good as any.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod fake;
