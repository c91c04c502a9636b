//! Peers of other projects: reference servers, servers as people write them, and the clients of
//! four SDKs.

mod asks;
mod clients;
mod dual;
mod negotiation;
mod old;
mod own_methods;
mod programs;
mod servers;
mod tasks;
mod toolsets;
mod types;
