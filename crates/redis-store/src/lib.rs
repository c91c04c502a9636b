//! State that replicas share, behind core's ports: in Redis or Valkey.
//!
//! Every session has one owner among the replicas, and the memory of the owner is the authority.
//! Redis has a copy of its sessions and replay logs, the list of replicas, buckets of rates, counters,
//! operators' changes, digests of upstreams' lists, and a channel for messages. No request waits longer for Redis than the
//! configured time limit, and one that needs this replica's own sessions alone does not wait for it
//! at all.

mod bus_frame;
mod change_seal;
mod circuit_breaker;
mod counter_table;
mod lease_trips;
mod link_status;
mod list_value;
mod opened_connection;
mod pauses;
mod rate_commands;
mod record_claims;
mod record_commands;
mod record_looks;
mod record_notices;
mod record_seal;
mod record_writer;
mod redis_changes;
mod redis_client;
mod redis_connection;
mod redis_counters;
mod redis_leases;
mod redis_link;
mod redis_lists;
mod redis_rates;
mod redis_store;
mod registry_view;
mod remembered_owners;
mod replay_queue;
mod replay_seal;
mod replay_writer;
mod replica_info;
mod replica_registry;
mod scripts;
mod sealing_rotation;
mod server_checks;
mod server_dialer;
mod server_probe;
mod settings;
mod shared_bus;
mod shared_records;
mod shared_replays;
mod shared_tasks;
mod start_error;
mod store_seal;
mod task_list;
mod task_writer;
mod token_lease;
mod write_queue;
mod write_rounds;
mod write_times;

pub use redis_changes::RedisChanges;
pub use redis_counters::RedisCounters;
pub use redis_leases::RedisLeases;
pub use redis_lists::RedisLists;
pub use redis_rates::RedisRates;
pub use redis_store::{OwnReplica, RedisStore, StorePorts, StoreStatus};
pub use replica_registry::ReplicaRegistry;
pub use sealing_rotation::SealingKeyUse;
pub use server_dialer::ServerDialer;
pub use server_probe::{ServerReport, examine_server};
pub use settings::{RedisSettings, RedisTopology};
pub use shared_records::SharedRecords;
pub use shared_replays::SharedReplays;
pub use shared_tasks::SharedTasks;
pub use start_error::RedisStartError;

#[cfg(test)]
mod tests;
