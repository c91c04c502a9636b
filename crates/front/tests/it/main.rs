//! The client side alone, over sockets: the real catalog and router behind it, a scripted upstream
//! behind those, and ports with answers that the test decides. Features that need a whole weir are
//! tested with the whole weir. These tests cover clients with names, panics, TLS internals, and the
//! phases of a drain.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod abandoned;
mod certified;
mod drains;
mod failing;
mod foreign_ids;
mod http2;
mod in_flight;
mod in_memory;
mod ports;
mod pressure;
mod principals;
mod proxies;
mod scripted;
mod secure;
mod states;
mod waiting;
mod world;
