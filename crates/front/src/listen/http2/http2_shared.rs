//! The state that an HTTP/2 connection shares with its requests.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::flow_control::Http2Flow;

/// The state that an HTTP/2 connection shares with its requests.
#[derive(Clone, Debug)]
pub(crate) struct Http2Shared {
    pub(crate) flow: Arc<Http2Flow>,
    pub(crate) closing: CancellationToken,
}

impl Http2Shared {
    /// Cancelled when streams that wait for changes must end, because the connection gets GOAWAY.
    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    /// The flow control of the connection.
    pub(crate) fn flow(&self) -> &Arc<Http2Flow> {
        &self.flow
    }
}
