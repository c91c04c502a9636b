//! Peers that we did not write: reference servers, servers as people write them, and the clients of four SDKs.

mod clients;
mod servers;
mod tasks;
mod types;
