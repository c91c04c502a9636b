//! Hostile clients, hostile upstreams and hostile files, against the binary: what one of them does
//! costs the others nothing and opens nothing.
//!
//! `cargo xtask hostile` runs this module against the release build, ignored tests included;
//! `cargo xtask test` runs the tests that are not ignored. Each submodule is one kind of attacker;
//! what several need stands in `weir-testkit`. What an attack costs a good client and the machine
//! is measured by [`crate::harness::Bystander`].

mod answers;
mod children;
mod comments;
mod config;
mod flow;
mod http2_upstreams;
mod identity;
mod listener;
mod malformed;
mod memory;
mod names;
mod params;
mod shares;
mod sinks;
mod teams;
mod terminal;
