//! Front alone, over sockets: the real catalog and router behind it, a scripted upstream behind
//! those, and ports whose answers the test decides. What needs a whole weir is tested with the
//! whole weir; here is what that cannot show yet: clients with names, bugs, TLS from the inside,
//! and the phases of a drain.

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
