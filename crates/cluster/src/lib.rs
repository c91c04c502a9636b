//! Requests between replicas: HTTP/2 with mutual TLS, by keys that are derived from the sealing keys
//! that all replicas share.
//!
//! [`PeerForwarder`] sends a client's request to the replica that owns its session, and opens streams
//! of this replica's own. The other side
//! is a listener of `weir-listen` with the service `ForwardedRequests` and the server config of
//! [`ClusterTls`].

mod answer_body;
mod cluster_key;
mod cluster_tls;
mod forwarded_head;
mod peer_connection;
mod peer_connections;
mod peer_dialer;
mod peer_forwarder;
mod peer_stream;
mod settings;

pub use cluster_key::ClusterSecret;
pub use cluster_tls::ClusterTls;
pub use peer_connection::OpenedPeer;
pub use peer_dialer::{PeerDialer, PeerHandshake};
pub use peer_forwarder::PeerForwarder;
pub use peer_stream::PeerStream;
pub use settings::ClusterSettings;
