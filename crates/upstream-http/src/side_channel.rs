//! The side channel of a request: messages to the server that are not its response.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use weir_core::port::BoxFuture;
use weir_core::upstream::ListKinds;

use crate::response_reader::ResponseReader;

/// The refusal of a stream that the server is asked to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamRefusal {
    /// The server has no such stream, or no such session.
    Absent,
    /// The server cannot be reached or open the stream now. It may ask for a wait.
    NotNow(Option<Duration>),
}

/// The side channel of a request, which outlives its reply.
pub(crate) trait SideChannel: Send + Sync {
    /// Queues a message to the server that has no response.
    fn send(&self, message: Bytes);
    /// Queues a message as [`Self::send`] does; cancels `lost` if it is an answer that does not
    /// reach the server.
    fn send_answer(&self, message: Bytes, lost: &CancellationToken);
    /// Cancels the request `id`, which its client no longer wants.
    fn cancel(&self, id: u64);
    /// Cancelled once no message can be sent any more.
    fn over(&self) -> Option<CancellationToken> {
        None
    }
    /// Notes a list change on the request's stream. True if the lists are its session's own.
    fn list_changed(&self, _kinds: ListKinds) -> bool {
        false
    }
    /// Resumes a stream that broke after an event of this id.
    fn resume(
        self: Arc<Self>,
        last_event: String,
    ) -> BoxFuture<'static, Result<ResponseReader, StreamRefusal>>;
}
