//! The gateway: config, composition, reload, the operators' listener, telemetry, and the commands
//! of the `weir` binary.
//!
//! It puts the other crates together and holds no logic of the protocol: it never parses JSON-RPC
//! by itself.

pub mod admin;
mod ask;
mod audit;
pub mod cli;
mod client;
mod clients;
pub mod config;
mod docs;
mod doctor;
mod explain;
pub mod fuzzing;
mod handover;
mod import;
pub mod keeper;
mod limits;
mod local_time;
mod login;
mod mcp_clients;
mod memory;
mod new_file;
mod outbound;
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
pub use handover::Inherited;
pub use weir::{Exposure, ReloadError, StartError, Strictness, Weir};
