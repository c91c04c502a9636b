//! Hostile clients, hostile upstreams and hostile files, against the binary: an attack of one of
//! them costs the others nothing and lifts no protection.
//!
//! `cargo xtask hostile` runs this module against an optimized build, ignored tests included;
//! `cargo xtask test` runs the tests that are not ignored. Each submodule is one kind of attacker;
//! shared parts are in `weir-testkit`. [`crate::harness::Bystander`] measures the cost of an attack
//! for a good client and for the machine.

mod ambiguous_params;
mod anonymous_shares;
mod blocked_sinks;
mod certificate_names;
mod endless_comments;
mod escape_sequences;
mod flooding_server;
mod hostile_team_files;
mod http2_upstreams;
mod identity_services;
mod malformed_requests;
mod memory_limit;
mod message_floods;
mod mismatched_answers;
mod stalled_clients;
mod stubborn_children;
mod weakened_config;
