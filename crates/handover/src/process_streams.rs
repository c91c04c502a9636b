//! The port to the requests that the processes of a graceful restart forward to each other.

use tokio::net::UnixStream;
use weir_core::HandoverArrival;
use weir_core::port::BoxFuture;
use weir_front::OtherProcess;

/// The requests that a process forwards to another one: the successor those about what stayed in the
/// predecessor, such as parked calls, and the predecessor those about what the successor has. Each
/// direction has a stream of its own, so that large answers hold no message of the link back.
pub trait ProcessStreams: std::fmt::Debug + Send + Sync {
    /// Serves the requests that the other process forwards over this stream.
    fn serve(&self, from: OtherProcess, stream: UnixStream);

    /// Forwards requests over this stream until it ends. A process that has ended has no stream.
    /// The last messages of the other process are taken once `last_messages` is complete: until
    /// then this process may lack state that it will have.
    fn forward(
        &self,
        to: OtherProcess,
        stream: Option<UnixStream>,
        last_messages: HandoverArrival,
    ) -> BoxFuture<'static, ()>;
}
