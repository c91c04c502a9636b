//! Test support for replicas of weir: a real Redis, and a load balancer in front of them. A
//! dev-dependency only; its functions panic like tests do.

#![allow(
    clippy::missing_panics_doc,
    reason = "a test kit panics with what it saw"
)]

mod redis_server;
mod round_robin_proxy;

pub use redis_server::{RedisServer, RespValue};
pub use round_robin_proxy::RoundRobinProxy;
