//! The properties of a connection that all its requests share.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crate::listen::connection_activity::ConnectionActivity;
use crate::listen::http2::http2_shared::Http2Shared;

/// The properties of a connection that all its requests share.
#[derive(Clone, Debug)]
pub(crate) struct ClientPeer {
    pub(crate) address: IpAddr,
    /// The client certificate (DER, leaf), verified against the listener's roots.
    pub(crate) certificate: Option<Arc<[u8]>>,
    pub(crate) pulse: Arc<ConnectionActivity>,
    /// True if the connection uses TLS.
    pub(crate) secure: bool,
    /// The state that an HTTP/2 connection shares with its requests.
    pub(crate) http2: Option<Http2Shared>,
    /// True inside the process, with no router that reads headers in place of bodies.
    pub(crate) in_memory: bool,
}

impl ClientPeer {
    pub(crate) fn new(address: IpAddr, pulse: Arc<ConnectionActivity>) -> Self {
        Self {
            address,
            certificate: None,
            pulse,
            secure: false,
            http2: None,
            in_memory: false,
        }
    }

    /// The peer of a channel inside the process.
    pub(crate) fn in_memory() -> Self {
        Self {
            in_memory: true,
            ..Self::new(IpAddr::V4(Ipv4Addr::LOCALHOST), Arc::default())
        }
    }
}
