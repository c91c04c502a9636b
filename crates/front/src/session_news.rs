//! Changes of lists that servers tell of in the sessions that they have with one client: told on its standing stream.
//!
//! They come beside the changes of the lists that all clients share, and mostly are the same: a server tells every session of what
//! concerns all. So one change is told once, and at most one of each list in a window.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll};

use tokio::time::Instant;
use weir_core::catalog::Catalog;
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::port::Fut;
use weir_core::upstream::{Kinds, ListKind};
use weir_core::{CapabilityClass, Principal, SessionKey};

/// What a client is to be told.
pub(crate) struct SessionNews {
    client: Client,
    /// What servers said, until it is looked into. Bounded by the upstreams of the endpoint.
    said: Vec<(UpstreamId, Kinds)>,
    /// What is looked into, and since when.
    looking: Option<(Instant, Fut<'static, Kinds>)>,
    /// What is to be told now.
    ready: Kinds,
    /// When each list was last told of, from here or as a shared one. By [`ListKind`].
    told: [Option<Instant>; 4],
    /// When one was last told of from here.
    own: [Option<Instant>; 4],
}

/// Whose news.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) endpoint: EndpointId,
    pub(crate) class: CapabilityClass,
    pub(crate) principal: Principal,
    pub(crate) session: SessionKey,
}

impl SessionNews {
    pub(crate) fn new(client: Client) -> Self {
        let (told, own) = Default::default();
        Self { client, said: Vec::new(), looking: None, ready: Kinds::default(), told, own }
    }

    /// A server says in the client's session that lists changed.
    pub(crate) fn heard(&mut self, upstream: UpstreamId, kinds: Kinds) {
        match self.said.iter_mut().find(|(known, _)| *known == upstream) {
            Some((_, said)) => *said = said.or(kinds),
            None => self.said.push((upstream, kinds)),
        }
    }

    /// The client is told of a list that all share.
    pub(crate) fn shared(&mut self, kind: ListKind) {
        self.told[kind as usize] = Some(Instant::now());
    }

    /// Whether a change of a shared list is one that the client was just told of: its server tells it in its own session, too.
    pub(crate) fn covers(&self, kind: ListKind) -> bool {
        let Client { catalog, endpoint, session, .. } = &self.client;
        let is_recent = self.own[kind as usize].is_some_and(|told| told.elapsed() < catalog.change_window());
        is_recent && catalog.hears_in_session(endpoint, session)
    }

    /// The next list to tell of.
    pub(crate) fn poll_news(&mut self, cx: &mut Task<'_>) -> Poll<ListKind> {
        loop {
            if let Some(kind) = ListKind::ALL.into_iter().find(|kind| self.ready.has(*kind)) {
                self.ready = self.ready.without(kind);
                let now = Some(Instant::now());
                (self.told[kind as usize], self.own[kind as usize]) = (now, now);
                return Poll::Ready(kind);
            }
            if self.looking.is_none() {
                let Some((upstream, kinds)) = self.said.pop() else { return Poll::Pending };
                self.looking = Some((Instant::now(), self.look(upstream, kinds)));
            }
            let Some((since, looking)) = &mut self.looking else { return Poll::Pending };
            let Poll::Ready(news) = Pin::new(looking).poll(cx) else { return Poll::Pending };
            let since = *since;
            self.looking = None;
            let is_untold =
                |kind: &ListKind| news.has(*kind) && self.told[*kind as usize].is_none_or(|told| told < since);
            let untold = ListKind::ALL.into_iter().filter(is_untold);
            // Clients know one word for resources and their templates.
            self.ready =
                untold.map(|kind| if kind == ListKind::Templates { ListKind::Resources } else { kind }).collect();
        }
    }

    /// Looks what is news of what a server said. The shared lists are read again at the same time, so half of the window passes first;
    /// more where the client was just told of the same.
    fn look(&self, upstream: UpstreamId, kinds: Kinds) -> Fut<'static, Kinds> {
        let client = self.client.clone();
        let window = client.catalog.change_window();
        let just_told =
            ListKind::ALL.into_iter().filter(|kind| kinds.has(*kind)).filter_map(|kind| self.told[kind as usize]).max();
        let soonest = Instant::now() + window / 2;
        let at = just_told.map_or(soonest, |told| soonest.max(told + window));
        Box::pin(async move {
            tokio::time::sleep_until(at).await;
            let of = (&client.endpoint, &upstream);
            client.catalog.session_news(of, client.class, (&client.principal, client.session), kinds).await
        })
    }
}
