//! Test support for every other crate: clients and servers of each era that speak raw HTTP, a proxy
//! that breaks connections on purpose, and fakes of the ports. A dev-dependency only; its functions
//! panic like tests do.

#![allow(
    clippy::missing_panics_doc,
    reason = "a test kit panics with what it saw"
)]

pub mod accept;
pub mod client;
mod closed_port;
mod condition;
pub mod emitted_messages;
pub mod fakes;
pub mod fault_proxy;
pub mod h2_client;
pub mod h2_server;
mod handover_upstream;
pub mod identity_provider;
pub mod message_recorder;
pub mod mock_server;
pub mod owned_task;
pub mod relay;
pub mod schemas;
pub mod scripted_server;
pub mod sse_relay;
pub mod stdio;
mod test_folder;
pub mod token_server;
pub mod token_signer;

pub use client::{ClientAnswer, HttpExchange, ModernEnvelope, RawClient, RawSocket, SseEvent};
pub use closed_port::ClosedPort;
pub use condition::wait_for_condition;
pub use fakes::{FakeClock, FakeRandom, FixedRandom, TokioClock, principal_of};
pub use fault_proxy::{FaultProxy, ProxyDirection, Toxic};
pub use h2_client::{H2Client, H2Frame};
pub use h2_server::{H2Act, H2Plan, H2Request, H2Server};
pub use handover_upstream::HandoverUpstream;
pub use identity_provider::{IdentityProvider, IdpMisbehaviour};
pub use message_recorder::{MessageRecorder, RecordedMessage};
pub use mock_server::{MockBehaviour, MockServer};
pub use schemas::{MessageSender, ProtocolSchemas};
pub use scripted_server::{ScriptedRequest, ScriptedServer};
pub use sse_relay::SseRelay;
pub use stdio::MockStdio;
pub use test_folder::TestFolder;
pub use token_server::TokenServer;
pub use token_signer::TokenSigner;
