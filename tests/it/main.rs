//! weir as its users meet it: the binary, with clients and servers of other projects around it, and
//! mock servers of every era for the faults that only a mock can cause.

#![allow(
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub,
    reason = "a test may panic, and has no readers of its docs"
)]
#![allow(
    clippy::print_stdout,
    reason = "a test prints its figures, and the reason that it is skipped"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "processes are polled from tests that have a thread of their own"
)]

mod admin;
mod audit;
mod auth;
mod cli;
mod deploy;
mod down_causes;
mod first_hour;
mod forward_proxy;
mod handover;
mod harness;
mod help_page;
mod hostile;
mod hostile_input;
mod limits;
mod long_proofs;
mod machine_environment;
mod matrix;
mod oauth;
mod outward;
mod policy;
mod process_life;
mod replicas;
mod stdio;
mod telemetry;
mod tenant_isolation;
mod third_party;
mod upstream_auth;
mod user_reports;
