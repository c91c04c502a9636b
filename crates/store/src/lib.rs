//! State that replicas share, behind core's ports: in memory, for a single replica.
//!
//! This crate knows neither HTTP nor JSON-RPC: it stores opaque bytes under a key that begins with
//! the principal, so that no entry is found without its owner. Every map here is bounded, and
//! documents its bound.

mod bus;
mod counters;
mod expiring_table;
mod frame_numbers;
mod lease_plan;
mod local_share;
mod parking;
mod pending_count;
mod records;
mod replays;
mod store_operation;
mod store_outage;
mod tasks;

pub use bus::{BusLinkId, MemoryBus};
pub use counters::MemoryCounters;
pub use expiring_table::ExpiringTable;
pub use frame_numbers::{FrameNumbers, ReceivedFrames, SentFrames};
pub use lease_plan::LeasePlan;
pub use local_share::LocalShare;
pub use parking::{MemoryParking, ParkingCaps};
pub use pending_count::{PendingCount, PendingSum};
pub use records::{MemoryRecords, MovedRecord, RecordCaps};
pub use replays::{MemoryReplays, MovedEvent, MovedLog, MovedStream, ReplayCaps};
pub use store_outage::StoreOutage;
pub use tasks::{MemoryTasks, MovedTask, TaskCaps};

#[cfg(test)]
mod fake;
