//! The dialog with a server over HTTP, and the outcome of the probe that chooses it.

use std::sync::Arc;

use weir_core::upstream::ServerDescription;
use weir_era::upstream_messages::ProbeOutcome;
use weir_upstream_stdio::StdioUpstream;

use crate::modern_server::ModernServer;
use crate::session_pool::SessionPool;

/// The transport and era in use for a server.
#[derive(Debug)]
pub(super) enum ServerDialog {
    Modern(ModernServer, ServerDescription),
    Legacy(Arc<SessionPool>),
    /// A server of HTTP+SSE, which is called like a child.
    Sse(Arc<StdioUpstream>),
}

/// The outcome of a probe.
pub(super) enum EraProbeResult {
    Era(ProbeOutcome),
    Sse,
    /// The probe was not answered: it may be a legacy server, which is tried.
    NoAnswer,
}
