//! The gateway: config, composition, reload, the operators' listener, telemetry, and the commands
//! of the `weir` binary.
//!
//! It puts the other crates together and holds no logic of the protocol: it never parses JSON-RPC
//! by itself.

pub mod admin;
mod atomic_file;
mod audit;
pub mod cli;
pub(crate) mod client;
mod clients;
pub mod config;
mod docs;
pub(crate) mod doctor;
pub(crate) mod explain;
mod front_settings;
pub mod fuzzing;
pub(crate) mod handover;
pub(crate) mod import;
mod input_prompt;
pub mod keeper;
mod limits;
mod local_time;
pub(crate) mod login;
pub(crate) mod mcp_clients;
mod memory;
mod quickstart;
mod reload;
mod serve;
pub(crate) mod stdio_server;
mod suggestion;
mod system;
pub mod telemetry;
mod terminal;
pub(crate) mod weir;

pub use audit::AuditError;
pub use handover::InheritedSockets;
pub use weir::{Exposure, ReloadError, StartError, Strictness, Weir};
