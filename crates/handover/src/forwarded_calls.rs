//! The port to the requests about parked calls, which stay in the process that parked them.

use tokio::net::UnixStream;
use weir_core::HandoverArrival;
use weir_core::port::Fut;

/// The requests about parked calls: the successor forwards those of its predecessor's calls over a
/// stream of their own, so that large answers hold no message of the link back.
pub trait ForwardedCalls: Send + Sync {
    /// Serves the requests that the successor forwards over this stream.
    fn serve(&self, successor: UnixStream);

    /// Forwards requests over this stream until it ends. A predecessor of an older release sends no
    /// stream, and one that has ended sends none either. The last messages of the predecessor are
    /// taken once `last_messages` is complete: until then this process may lack state that it will
    /// have.
    fn forward(
        &self,
        predecessor: Option<UnixStream>,
        last_messages: HandoverArrival,
    ) -> Fut<'static, ()>;
}
