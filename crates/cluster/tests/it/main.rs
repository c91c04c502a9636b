//! Replicas that forward requests to each other over loopback.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod connections;
mod counting_dialer;
mod requests;
mod test_replica;
mod test_service;
