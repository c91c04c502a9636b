//! Test support for replicas of weir: a real Redis, and a load balancer in front of them. A
//! dev-dependency only; its functions panic like tests do.

#![allow(
    clippy::missing_panics_doc,
    reason = "a test kit panics with what it saw"
)]

mod documented_user;
mod free_port;
mod poll_pause;
mod redis_cluster;
mod redis_server;
mod round_robin_proxy;
mod sentinel_servers;
mod tls_files;

pub use documented_user::documented_user;
pub use free_port::free_port;
pub use redis_cluster::RedisCluster;
pub use redis_server::{RedisServer, RespValue};
pub use round_robin_proxy::RoundRobinProxy;
pub use sentinel_servers::SentinelServers;
pub use tls_files::TlsFiles;
