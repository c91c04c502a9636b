//! The gateway: config, composition, reload, the operators' listener, telemetry, and the commands
//! of the `weir` binary.
//!
//! It puts the other crates together and holds no logic of the protocol: it never parses JSON-RPC
//! by itself.

pub mod admin;
mod atomic_file;
mod audit;
pub mod cli;
mod client;
mod clients;
pub mod config;
mod docs;
mod doctor;
mod explain;
mod front_settings;
pub mod fuzzing;
mod handover;
mod import;
mod input_prompt;
pub mod keeper;
mod limits;
mod local_time;
mod login;
mod mcp_clients;
mod memory;
mod quickstart;
mod reload;
mod serve;
mod stdio_server;
mod suggestion;
mod system;
pub mod telemetry;
mod terminal;
mod weir;

pub use audit::AuditError;
pub use handover::InheritedSockets;
pub use weir::{Exposure, ReloadError, StartError, Strictness, Weir};
