//! Test support for every other crate: clients and servers of each era that speak raw HTTP, a proxy
//! that breaks connections on purpose, and fakes of the ports. A dev-dependency only; its functions
//! panic like tests do.

#![allow(
    clippy::missing_panics_doc,
    reason = "a test kit panics with what it saw"
)]

mod accept;
pub mod client;
mod closed_port;
pub mod emitted;
pub mod fakes;
pub mod faultd;
pub mod flooding;
pub mod h2;
pub mod h2_server;
pub mod idp;
pub mod mockup;
pub mod recorder;
pub mod relay;
pub mod schemas;
pub mod scripted;
pub mod signer;
pub mod sse_relay;
pub mod stdio;
pub mod task;
pub mod token_server;

pub use client::{Answer, Exchange, Modern, RawClient, RawSocket, SseEvent};
pub use closed_port::ClosedPort;
pub use fakes::{FakeClock, FakeRandom, TokioClock};
pub use faultd::{Direction, Faultd, Toxic};
pub use flooding::FloodingServer;
pub use h2::{H2Client, H2Frame};
pub use h2_server::{H2Act, H2Plan, H2Request, H2Server};
pub use idp::{Idp, Misbehaviour};
pub use mockup::{Behaviour, Mockup};
pub use recorder::{Recorder, Seen};
pub use schemas::{Schemas, Sender};
pub use scripted::{ScriptedRequest, ScriptedServer};
pub use signer::Signer;
pub use sse_relay::SseRelay;
pub use stdio::MockStdio;
pub use token_server::TokenServer;
