//! The properties of a connection that all its requests share.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use weir_core::call::RequestName;
use weir_core::port::ReplicaId;

use crate::connection_activity::ConnectionActivity;
use crate::forwarding::{KeptTaskPart, OtherProcess};
use crate::http2::http2_shared::Http2Shared;

/// The properties of a connection that all its requests share.
#[derive(Clone, Debug)]
pub struct ClientPeer {
    /// The address of the other end of the connection: a client or a proxy.
    pub address: IpAddr,
    /// The client certificate (DER, leaf), verified against the listener's roots.
    pub certificate: Option<Arc<[u8]>>,
    /// The requests of the connection.
    pub activity: Arc<ConnectionActivity>,
    /// True if the connection uses TLS.
    pub secure: bool,
    /// The state that an HTTP/2 connection shares with its requests.
    pub http2: Option<Http2Shared>,
    /// True inside the process, with no router that reads headers in place of bodies.
    pub in_memory: bool,
    /// The replica that forwards the request of this client, and the name of the request there.
    /// `None` for the clients of this replica.
    pub forwarded_by: Option<ForwardingReplica>,
}

/// The replica that forwards a request, or another process of it.
#[derive(Clone, Debug)]
pub struct ForwardingReplica {
    /// Its name.
    pub id: ReplicaId,
    /// The name of the request there; absent if the replica names none.
    pub request: Option<RequestName>,
    /// The part of a kept task that the replica itself asks for.
    pub kept_task: Option<KeptTaskPart>,
    /// The process that forwards the request, in a graceful restart of this replica; absent for
    /// another replica.
    pub process: Option<OtherProcess>,
}

impl ClientPeer {
    pub(crate) fn new(address: IpAddr, activity: Arc<ConnectionActivity>) -> Self {
        Self {
            address,
            certificate: None,
            activity,
            secure: false,
            http2: None,
            in_memory: false,
            forwarded_by: None,
        }
    }

    /// The peer of a channel inside the process.
    #[must_use]
    pub fn in_memory() -> Self {
        Self {
            in_memory: true,
            ..Self::new(IpAddr::V4(Ipv4Addr::LOCALHOST), Arc::default())
        }
    }
}
