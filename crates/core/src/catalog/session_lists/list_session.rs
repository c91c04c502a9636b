//! The port of a session at a server.

use std::sync::Arc;

use crate::failure::Failure;
use crate::port::Fut;
use crate::upstream::ListWatch;

/// A session at a server with lists that can be read. Implemented by upstreams.
pub trait ListSession: Send + Sync {
    /// A watch that reads the lists in this session. It receives no change notifications.
    fn lists(self: Arc<Self>) -> Box<dyn ListWatch>;

    /// Subscribes to a resource, by the server's own URI, in this session.
    ///
    /// # Errors
    /// As for any request to the upstream.
    fn subscribe(self: Arc<Self>, uri: Arc<str>) -> Fut<'static, Result<(), Failure>>;

    /// Ends a subscription, without waiting for the server.
    fn unsubscribe(self: Arc<Self>, uri: Arc<str>);
}
