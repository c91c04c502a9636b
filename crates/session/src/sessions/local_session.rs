//! The state of a session on this replica.

use std::collections::HashMap;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use weir_catalog::{ResourceSubscription, UpdateInbox};
use weir_core::Principal;
use weir_wire::RequestId;

use crate::permits::StreamPermit;
use crate::sessions::call_cancellation::CallCancellation;

/// A resource that a session or stream subscribed to.
#[derive(Debug)]
pub struct SubscribedResource {
    /// The subscription.
    pub subscription: ResourceSubscription,
    /// Its permit.
    pub permit: StreamPermit,
    /// The principal of the request to subscribe, whose claims decide which updates it gets.
    pub subscriber: Principal,
}

/// The local state of a session. The entry goes once it is empty, so open connections and the limit
/// of subscriptions bound the map.
#[derive(Default)]
pub(super) struct LocalSession {
    /// Updates of single resources that its stream will send.
    pub(super) inbox: UpdateInbox,
    /// Subscriptions, by the client's own URIs.
    pub(super) subscribed: HashMap<Box<str>, SubscribedResource>,
    /// The number of subscriptions in progress.
    pub(super) subscribing: usize,
    /// The reader of each resumable stream: one at a time.
    pub(super) readers: HashMap<u64, (u64, CancellationToken)>,
    /// Running calls, by their ids: they compare by value, however the client writes them.
    pub(super) calls: HashMap<RequestId, Vec<(u64, CallCancellation)>>,
    pub(super) stream: Option<(u64, CancellationToken)>,
    /// Open requests to the client, by the request's id. Each belongs to one of the calls.
    pub(super) asks: HashMap<Bytes, mpsc::Sender<ClientReply>>,
    pub(super) detached: usize,
}

impl LocalSession {
    /// Returns true if the session has no local state.
    pub(super) fn is_idle(&self) -> bool {
        let streams = self.stream.is_some() || !self.readers.is_empty();
        self.calls.is_empty() && !streams && self.subscribed.is_empty() && self.subscribing == 0
    }

    /// Adds the subscribed resources to those that the session inherited.
    pub(super) fn add_subscribed_to(&self, inherited: &mut Vec<String>) {
        let is_new = |uri: &&str| !inherited.iter().any(|known| known == uri);
        let subscribed = self.subscribed.keys().map(|uri| &**uri);
        let new: Vec<String> = subscribed.filter(is_new).map(str::to_owned).collect();
        inherited.extend(new);
    }
}

/// A client's message about a request that it was asked.
#[derive(Debug)]
pub enum ClientReply {
    /// Progress: the `params` of the notification.
    Progress(Bytes),
    /// The answer: a result or an error object.
    Answer(Result<Bytes, Bytes>),
}
