//! Replicas in simulated time, over a simulated network and a simulated server of the shared store.

#![allow(
    clippy::disallowed_types,
    reason = "queues are bounded by the length of a run, and a full one would be one more delay"
)]

mod client;
mod faults;
mod host;
mod links;
mod network;
mod open_policy;
mod options;
mod redis_data;
mod redis_scripts;
mod redis_server;
mod replica;
mod replica_listener;
mod replica_world;
mod seeded;
mod stream;
mod tool_server;
mod trace;
mod world;

pub use options::{FaultScenario, PlantedFault, SimulationOptions};
pub use world::{SimulationOutcome, simulate};
