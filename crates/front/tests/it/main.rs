//! The client side alone, over sockets: the real catalog and router behind it, a scripted upstream
//! behind those, and ports with answers that the test decides. Features that need a whole weir are
//! tested with the whole weir. These tests cover clients with names, panics, TLS internals, and the
//! phases of a drain.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod abandoned_initialize;
mod batch_memory;
mod client_certificates;
mod cross_origin;
mod drain;
mod expired_sessions;
mod foreign_ids;
mod http2_limits;
mod http_sse;
mod in_flight_requests;
mod in_memory_channel;
mod inherited_subscriptions;
mod moved_sessions;
mod panics;
mod principals;
mod process_requests;
mod process_tasks;
mod reconnect_delays;
mod request_state;
mod scripted_upstream;
mod sessions_in_use;
mod stream_keep_alive;
mod test_front;
mod test_ports;
mod test_replays;
mod tls_handshakes;
mod trusted_proxies;
mod under_memory_pressure;
