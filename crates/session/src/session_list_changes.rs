//! Notifications about list changes from a client's own sessions at servers, passed on to the
//! client's GET stream.
//!
//! A server sends a change that concerns all clients to every session, weir's own watch included.
//! So these notifications and those about the shared lists are merged: one change becomes one
//! notification, and each list gets at most one in a window.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll};

use tokio::time::Instant;
use weir_catalog::{Catalog, SessionClient};
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::port::BoxFuture;
use weir_core::upstream::{ListKind, ListKinds};
use weir_core::{CapabilityClass, Principal, SessionKey};

/// Notifications from sessions for one client's stream.
pub struct SessionListChanges {
    client: StreamClient,
    /// Notifications that wait, by upstream. The upstreams of the endpoint bound it.
    received: Vec<(UpstreamId, ListKinds)>,
    /// The examination of a notification, and its start.
    examining: Option<(Instant, BoxFuture<'static, ListKinds>)>,
    /// Lists of which the client has to be notified now.
    ready: ListKinds,
    /// The time of the last notification about each list, shared ones included. By [`ListKind`].
    notified_at: [Option<Instant>; 4],
    /// The same without notifications about shared lists.
    notified_from_session_at: [Option<Instant>; 4],
}

impl std::fmt::Debug for SessionListChanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionListChanges").finish_non_exhaustive()
    }
}

/// The client of the stream.
#[derive(Clone, Debug)]
pub struct StreamClient {
    /// The catalog with the lists of the client.
    pub catalog: Arc<Catalog>,
    /// The endpoint of the stream.
    pub endpoint: EndpointId,
    /// The class of the lists that the client sees.
    pub class: CapabilityClass,
    /// The principal that opened the stream.
    pub principal: Principal,
    /// The session of the stream.
    pub session: SessionKey,
}

impl SessionListChanges {
    /// The notifications that servers sent while the session had no stream, for this client. To be
    /// called once the stream gets those that come.
    pub fn new(client: StreamClient) -> Self {
        let catalog = &client.catalog;
        let unread = catalog.unread_session_changes(&client.endpoint, &client.session);
        let mut changes = Self {
            client,
            received: Vec::new(),
            examining: None,
            ready: ListKinds::default(),
            notified_at: Default::default(),
            notified_from_session_at: Default::default(),
        };
        for (upstream, kinds) in unread {
            changes.receive(upstream, kinds);
        }
        changes
    }

    /// Takes a server's notification from the client's session.
    pub fn receive(&mut self, upstream: UpstreamId, kinds: ListKinds) {
        match self
            .received
            .iter_mut()
            .find(|(known, _)| *known == upstream)
        {
            Some((_, changed)) => *changed = changed.or(kinds),
            None => self.received.push((upstream, kinds)),
        }
    }

    /// Notes that the client gets a notification about a shared list.
    pub fn shared(&mut self, kind: ListKind) {
        self.notified_at[kind as usize] = Some(Instant::now());
    }

    /// True if a change of a shared list needs no notification: the client just got one from its
    /// own session, which hears every later change as well.
    pub fn covers(&self, kind: ListKind) -> bool {
        let StreamClient {
            catalog,
            endpoint,
            session,
            ..
        } = &self.client;
        let is_recent = self.notified_from_session_at[kind as usize]
            .is_some_and(|notified| notified.elapsed() < catalog.change_window());
        is_recent && catalog.receives_in_session(endpoint, session)
    }

    /// The next list of which the client has to be notified.
    pub fn poll_list_change(&mut self, cx: &mut Task<'_>) -> Poll<ListKind> {
        loop {
            if let Some(kind) = ListKind::ALL.into_iter().find(|kind| self.ready.has(*kind)) {
                self.ready = self.ready.without(kind);
                let now = Some(Instant::now());
                (
                    self.notified_at[kind as usize],
                    self.notified_from_session_at[kind as usize],
                ) = (now, now);
                return Poll::Ready(kind);
            }
            if self.examining.is_none() {
                let Some((upstream, kinds)) = self.received.pop() else {
                    return Poll::Pending;
                };
                self.examining = Some((Instant::now(), self.examine(upstream, kinds)));
            }
            let Some((since, looking)) = &mut self.examining else {
                return Poll::Pending;
            };
            let Poll::Ready(news) = Pin::new(looking).poll(cx) else {
                return Poll::Pending;
            };
            let since = *since;
            self.examining = None;
            let is_due = |kind: &ListKind| {
                news.has(*kind) && self.notified_at[*kind as usize].is_none_or(|last| last < since)
            };
            let due = ListKind::ALL.into_iter().filter(is_due);
            // Clients know one word for resources and their templates.
            self.ready = due
                .map(|kind| {
                    if kind == ListKind::Templates {
                        ListKind::Resources
                    } else {
                        kind
                    }
                })
                .collect();
        }
    }

    /// Examines a notification. The watcher walks the shared lists at the same time, so the
    /// examination waits for half of the window first, and for the rest of a whole one after an
    /// earlier notification.
    fn examine(&self, upstream: UpstreamId, kinds: ListKinds) -> BoxFuture<'static, ListKinds> {
        let client = self.client.clone();
        let window = client.catalog.change_window();
        let last = ListKind::ALL
            .into_iter()
            .filter(|kind| kinds.has(*kind))
            .filter_map(|kind| self.notified_at[kind as usize])
            .max();
        let soonest = Instant::now() + window / 2;
        let at = last.map_or(soonest, |last| soonest.max(last + window));
        Box::pin(async move {
            tokio::time::sleep_until(at).await;
            let of = SessionClient {
                endpoint: &client.endpoint,
                class: client.class,
                principal: &client.principal,
                session: client.session,
            };
            client
                .catalog
                .changed_session_lists(&of, &upstream, kinds)
                .await
        })
    }
}
