//! Hostile clients, hostile upstreams and hostile files, against the binary: what one of them does costs the others nothing
//! and opens nothing.
//!
//! `cargo xtask hostile` runs this module against the release build, ignored tests included; `cargo xtask test` runs the
//! tests that are not ignored. Each submodule is one kind of attacker; what several need stands in `weir-testkit`.

mod answers;
mod children;
mod config;
mod flow;
mod listener;
mod params;
mod sinks;
mod teams;
mod terminal;
