//! HTTP/2 as a client: a connection on which many requests run at once, to a server or to another
//! replica.
//!
//! Slow readers of responses and responses in many small frames could stop or end all requests of a
//! connection. Here the connection's window grows with what is unread, its handles can see when it
//! is to get no further request, and the bytes of small frames are joined.
//!
//! By the `h2` crate, not by hyper's client: it reports each failure with its code, so that a
//! request that was not processed is known as such, and it has a setting for small frames.

mod bounded_frames;
mod client_connection;
mod inbound_traffic;
mod response;

pub use bounded_frames::BoundedFrames;
pub use client_connection::{ClientConnection, ReceiveWindow, STREAM_WINDOW, is_unprocessed};
pub use response::{Http2Response, OpenResponses};
