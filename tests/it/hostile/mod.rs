//! Hostile clients, hostile upstreams and hostile files, against the binary: an attack of one of
//! them costs the others nothing and lifts no protection.
//!
//! `cargo xtask hostile` runs this module against the release build, ignored tests included;
//! `cargo xtask test` runs the tests that are not ignored. Each submodule is one kind of attacker;
//! shared parts are in `weir-testkit`. [`crate::harness::Bystander`] measures the cost of an attack
//! for a good client and for the machine.

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
