//! The search for the sessions of a server before the first call of a client with a session: the
//! server may have other items in a session, and other kinds of items, than in the lists that such
//! clients saw so far.

use std::sync::Arc;

use futures_util::future::join_all;
use weir_catalog::Catalog;
use weir_core::Authenticated;
use weir_core::call::Call;
use weir_core::capability::CapabilityClass;
use weir_core::catalog_item::CatalogItem;
use weir_core::failure::Failure;
use weir_core::names::UpstreamId;
use weir_core::port::BoxFuture;
use weir_core::upstream::{ListKind, OutboundCall, Upstream};

use crate::item_search::ItemSearch;
use crate::own_request::own_request;

/// A server, and the search for its sessions.
type SessionSearch = (Arc<dyn Upstream>, BoxFuture<'static, ()>);

impl ItemSearch<'_> {
    /// The item that a call names, as its sender sees it. If it was unknown that its server has
    /// sessions, the item is searched for again in the lists of clients with sessions.
    pub(crate) async fn find_item_with_sessions(
        &self,
        call: &Authenticated<Arc<Call>>,
    ) -> Result<CatalogItem, Failure> {
        let (principal, request) = (call.principal(), call.inner());
        let found = self.find_item(principal, request).await;
        let searches = self.session_searches(call, &found);
        if searches.is_empty() || !Box::pin(run_searches(self.catalog, searches)).await {
            return found;
        }
        self.find_item(principal, request).await
    }

    /// The searches at the servers that may have the item of a call in a session, by the item that
    /// was found without one. Empty if it is known which of them have sessions.
    fn session_searches(
        &self,
        call: &Authenticated<Arc<Call>>,
        found: &Result<CatalogItem, Failure>,
    ) -> Vec<SessionSearch> {
        let request = call.inner();
        let has_session = request.capabilities.class.has(CapabilityClass::SESSIONS);
        if !has_session || request.extension.is_some() {
            return Vec::new();
        }
        let search = |id: &UpstreamId| session_search(self.catalog, id, call);
        match found {
            Ok(item) => search(&item.tool.upstream).into_iter().collect(),
            Err(failure) => {
                let others = self.upstreams_with_unlisted(call.principal(), request, failure);
                others.iter().filter_map(search).collect()
            }
        }
    }

    /// Searches for the sessions of an endpoint's servers, and waits for their lists of these
    /// kinds. See [`crate::Router::find_sessions`].
    pub(crate) async fn find_sessions_of_endpoint(
        &self,
        call: &Authenticated<Arc<Call>>,
        kinds: &[ListKind],
    ) {
        let request = call.inner();
        let class = request.capabilities.class;
        if !class.has(CapabilityClass::SESSIONS) {
            return;
        }
        let visible = self
            .catalog
            .about(&request.endpoint, class, call.principal());
        let search = |(id, _): &(UpstreamId, _)| session_search(self.catalog, id, call);
        let searches: Vec<_> = visible.iter().filter_map(search).collect();
        if !searches.is_empty() {
            run_searches(self.catalog, searches).await;
        }
        for kind in kinds {
            self.catalog
                .settled_view(&request.endpoint, *kind, class)
                .await;
        }
    }
}

/// The search for the sessions of a server; absent if it is known if it has sessions.
fn session_search(
    catalog: &Catalog,
    id: &UpstreamId,
    call: &Authenticated<Arc<Call>>,
) -> Option<SessionSearch> {
    let upstream = catalog.upstream(id)?;
    let searching = upstream.clone().find_sessions(&|| opening_call(call))?;
    Some((upstream, searching))
}

/// Runs these searches. True if a server was found to have sessions.
async fn run_searches(catalog: &Catalog, searches: Vec<SessionSearch>) -> bool {
    let (upstreams, searches): (Vec<_>, Vec<_>) = searches.into_iter().unzip();
    join_all(searches).await;
    let has_sessions = |upstream: &Arc<dyn Upstream>| {
        let carried = upstream.carries();
        carried.has(CapabilityClass::SESSIONS)
    };
    let has_new = upstreams.iter().any(has_sessions);
    if has_new {
        catalog.rebuild_views().await;
    }
    has_new
}

/// A call without an item, for the session that the client's calls will have.
pub(crate) fn opening_call(call: &Authenticated<Arc<Call>>) -> OutboundCall {
    own_request(call, call.inner().clone(), "".into())
}
