//! Sessions of legacy clients, and what else of a client outlives its requests: open streams and
//! their permits, the connections of HTTP+SSE, the client programs that were seen.
//!
//! It knows no method of MCP and chooses no HTTP status.

mod known_clients;
mod moved_sessions;
mod open_streams;
mod opened_ids;
mod outgoing_messages;
mod pending_answers;
mod permits;
mod session_ids;
mod session_list_changes;
mod session_settings;
mod sessions;
mod sse_connections;
mod stream_credentials;
mod stream_registry;

use http::HeaderName;

pub use known_clients::{ClientRequest, ClientSeen, KnownClients};
pub use moved_sessions::{MovedSession, MovingSessions};
pub use open_streams::OpenStreams;
pub use outgoing_messages::OutgoingMessages;
pub use pending_answers::{AnswerKind, NoPendingAnswer, PendingAnswer, PendingAnswers};
pub use permits::{NoStreamPermit, StreamPermit, StreamPermits};
pub use session_ids::{SealedIds, SessionIds};
pub use session_list_changes::{SessionListChanges, StreamClient};
pub use session_settings::{SessionLimits, SessionPorts};
pub use sessions::call_cancellation::{CallCancellation, CancellationCause};
pub use sessions::inherited_subscriptions::SubscriptionRenewal;
pub use sessions::local_session::{ClientReply, SubscribedResource};
pub use sessions::notified_lists::UNKNOWN_VERSION;
pub use sessions::session_expiry::{SessionUpkeep, SessionUser, run_upkeep};
pub use sessions::session_guards::{
    AskGuard, DetachLimits, DetachedPermit, GetStreamGuard, NoDetachPermit, RegisteredCall,
    StreamReaderGuard, SubscriptionGuard,
};
pub use sessions::session_table::{LegacySessions, session_key};
pub use sessions::{LoadedSession, OpenedSession, SessionPlace};
pub use sse_connections::{SseConnection, SseConnectionId, SseConnections, session_headers};
pub use stream_credentials::StreamCredentials;
pub use stream_registry::{StreamKind, StreamRegistration, StreamRegistry, StreamSeen};

/// The header with the id of a client's session.
pub static SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
