//! Requests between replicas: HTTP/2 with mutual TLS, by keys that are derived from the sealing
//! keys that all replicas share.
//!
//! [`PeerForwarder`] sends a client's request to the replica that owns its session, and opens
//! streams of this replica's own. [`ConfirmedLists`] has the other replicas confirm announced
//! lists, and [`ListStreams`] answers them. The other side is a listener of `weir-listen` with the
//! service `ForwardedRequests` and the server config of [`ClusterTls`]. [`ProcessForwarder`] sends a
//! client's request to the process before or after this one in a graceful restart.

mod cluster_key;
mod cluster_tls;
mod confirmed_lists;
mod forwarded_head;
mod list_streams;
mod peer_answer_body;
mod peer_connection;
mod peer_connections;
mod peer_dialer;
mod peer_forwarder;
mod peer_stream;
mod process_forwarder;
mod settings;

pub use cluster_key::ClusterSecret;
pub use cluster_tls::ClusterTls;
pub use confirmed_lists::ConfirmedLists;
pub use list_streams::{ListFollower, ListStreams};
pub use peer_connection::OpenedPeer;
pub use peer_dialer::{PeerDialer, PeerHandshake};
pub use peer_forwarder::PeerForwarder;
pub use peer_stream::PeerStream;
pub use process_forwarder::ProcessForwarder;
pub use settings::ClusterSettings;
