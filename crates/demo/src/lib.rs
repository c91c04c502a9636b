//! Two small but real MCP servers for `weir quickstart` to stand in front of: `notes` speaks the
//! legacy revisions with sessions, `desk` the modern one without. They are ordinary servers reached
//! over loopback HTTP. They have no knowledge of a gateway, and use no code of it.

mod desk;
mod host;
mod http;
mod notes;
mod rpc;

use std::sync::Arc;

use tokio::net::TcpListener;

pub use host::RunningServer;

/// Serves `notes` (2024-11-05 to 2025-11-25, sessions, tools `add_note`, `list_notes` and
/// `search_notes`) on `listener` until the answer is shut down or dropped.
/// [`RunningServer::reveal`] adds the tool `clear_notes`, and [`RunningServer::hide`] removes it.
///
/// Errors if the listener has no local address. Must be called inside a tokio runtime.
pub async fn start_notes(listener: TcpListener) -> std::io::Result<RunningServer> {
    host::start(listener, |signals| {
        Arc::new(notes::NotesServer::new(signals))
    })
}

/// Serves `desk` (2026-07-28, no session, tools `now`, `calculate` and `countdown`) on `listener`
/// until the answer is shut down or dropped. [`RunningServer::reveal`] adds the tool `coin_flip`,
/// and [`RunningServer::hide`] removes it.
///
/// Errors if the listener has no local address. Must be called inside a tokio runtime.
pub async fn start_desk(listener: TcpListener) -> std::io::Result<RunningServer> {
    host::start(listener, |signals| Arc::new(desk::DeskServer::new(signals)))
}
