//! The state that an HTTP/2 connection shares with its requests.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::http2::flow_control::Http2Flow;

/// The state that an HTTP/2 connection shares with its requests.
#[derive(Clone, Debug)]
pub struct Http2Shared {
    pub(super) flow: Arc<Http2Flow>,
    pub(super) closing: CancellationToken,
}

impl Http2Shared {
    /// Cancelled when streams that wait for changes must end, because the connection gets GOAWAY.
    #[must_use]
    pub fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    /// The flow control of the connection.
    #[must_use]
    pub fn flow(&self) -> &Arc<Http2Flow> {
        &self.flow
    }
}
