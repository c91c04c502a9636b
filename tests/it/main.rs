//! weir as its users meet it: the binary, with clients and servers of other projects around it, and
//! mock servers of every era for the faults that only a mock can cause.

#![allow(
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub,
    reason = "a test may panic, and has no readers of its docs"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "processes are polled from tests that have a thread of their own"
)]

mod abuse;
mod admin;
mod audit;
mod auth;
mod causes;
mod cli;
mod deploy;
mod first_hour;
mod foreign;
mod handover;
mod harness;
mod help;
mod hostile;
mod life;
mod limits;
mod matrix;
mod oauth;
mod outbound;
mod outward;
mod pain;
mod policy;
mod prove;
mod stdio;
mod surroundings;
mod telemetry;
mod tenants;
