//! The ports between an upstream's sessions and the catalog, for lists that a server changes in one
//! session alone.

use std::fmt;
use std::sync::{Arc, Weak};

use crate::call::SessionKey;
use crate::failure::Failure;
use crate::list_kind::ListKinds;
use crate::names::UpstreamId;
use crate::port::BoxFuture;
use crate::upstream::ListWatch;

/// A session at a server with lists that can be read. Implemented by upstreams.
pub trait ListSession: Send + Sync {
    /// A watch that reads the lists in this session. It receives no change notifications.
    fn lists(self: Arc<Self>) -> Box<dyn ListWatch>;

    /// Subscribes to a resource, by the server's own URI, in this session.
    ///
    /// # Errors
    /// As for any request to the upstream.
    fn subscribe(self: Arc<Self>, uri: Arc<str>) -> BoxFuture<'static, Result<(), Failure>>;

    /// Ends a subscription, unless another process has taken over this session. Completes once the
    /// server has answered, or did not answer in time.
    fn unsubscribe(self: Arc<Self>, uri: Arc<str>) -> BoxFuture<'static, ()>;

    /// Runs a task among the background tasks of the upstream. An upstream that is retired waits for
    /// its end, within limits.
    fn spawn(&self, task: BoxFuture<'static, ()>);
}

/// The observer of the lists of one session at a server. The upstream's session owns it and reports
/// to it. Implemented by the catalog.
pub trait SessionListObserver: fmt::Debug + Send + Sync {
    /// Adds a client session that this session serves.
    fn serves(&self, client: SessionKey);

    /// Returns the client sessions that this session serves.
    fn clients(&self) -> Vec<SessionKey>;

    /// Counts a call in this session.
    fn count_call(&self);

    /// Records if a stream is open for notifications. Notifications before its opening may have
    /// been missed.
    fn set_heard(&self, is_heard: bool);

    /// Takes a `list_changed` notification of this session, and passes it to the clients' streams.
    fn handle_list_changed(&self, kinds: ListKinds);

    /// Takes a `notifications/resources/updated` of this session.
    fn handle_resource_updated(&self, uri: &str);
}

/// The registry of all sessions at all servers with lists of their own. Implemented by the catalog.
pub trait SessionListRegistry: fmt::Debug + Send + Sync {
    /// Opens the observer of a new session at an upstream. Its lists are the shared ones until a
    /// notification comes.
    fn open(
        &self,
        upstream: UpstreamId,
        declares_changes: ListKinds,
        session: Weak<dyn ListSession>,
    ) -> Arc<dyn SessionListObserver>;
}
