//! The catalog: the lists of every endpoint, kept ready so that no client's request ever asks an
//! upstream for a list.
//!
//! Each upstream has a watcher that walks all its pages and receives its change notifications; it
//! publishes immutable snapshots. A background task builds a view of each endpoint from them, off
//! the request path, and announces changes to the clients that see them. An upstream that is slow,
//! down or flapping delays no client.
//!
//! It is not a router: [`crate::route`] makes calls. It knows no protocol either: items are the
//! upstreams' own bytes.

mod call_timings;
mod catalog_source;
mod closed_upstreams;
mod context;
mod endpoint_lists;
mod filtered_views;
mod ingest;
mod list_changes;
mod list_feed;
mod list_watcher;
mod outstanding_cursors;
mod overrides;
mod pace;
mod page;
mod resource_updates;
mod session_lists;
mod settings;
mod status;
mod superseded_views;
mod terms;
mod tool;
mod traced_tool;
mod view;
mod view_builder;
mod view_updater;
mod walk;
mod walk_span;

use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio::time::{Instant, timeout, timeout_at};

pub(crate) use call_timings::CallTimings;
pub use call_timings::RecentCalls;
pub use closed_upstreams::{ClosedUpstream, ClosingMode};
pub use filtered_views::ViewWatch;
pub use list_changes::{ChangeReceiver, ListChange};
pub use page::{CatalogPage, ListPageRequest};
pub(crate) use resource_updates::ResourceSubscriber;
pub use resource_updates::{ResourceSubscription, UpdateInbox};
pub use session_lists::{
    ListSession, SessionClient, SessionListTable, SessionLists, SessionSubscription,
};
pub use settings::{CatalogPorts, CatalogSettings, RefreshPace};
pub use status::{ListStatus, UpstreamReach, UpstreamStatus};
pub use terms::CallTerms;
pub use tool::{InvalidItem, TaskSupport, Tool};
pub use traced_tool::{ToolPlacement, TracedTool, trace_by_config};
pub use view::{CatalogItem, IncompleteUpstream, NameCollision, NameLookup, View};

pub use crate::content_version::ContentVersion;
pub use crate::log_text::sanitize_text;

use crate::capability::CapabilityClass;
use crate::endpoint::{Endpoint, EndpointMode, UpstreamRules};
use crate::fast::{FastMap, FastState};
use crate::list_kind::{ListKind, ListKinds};
use crate::names::{EndpointId, UpstreamId};
use crate::seal::Sealer;
use crate::telemetry::start_endpoint_at_zero;
use crate::upstream::{DeclaredExtension, ServerDescription, Upstream};
use catalog_source::CatalogSource;
use context::CatalogContext;
use endpoint_lists::{EndpointLists, ListView, ListViews};
use list_changes::ChangeBroadcast;

/// The endpoints and upstreams of one reload, both in config order.
#[derive(Default)]
pub struct Topology {
    /// The endpoints.
    pub endpoints: Vec<Arc<Endpoint>>,
    /// The upstreams, each with the operator's rules for it. An upstream with unchanged settings
    /// comes as the same `Arc` again.
    pub upstreams: Vec<(Arc<dyn Upstream>, UpstreamRules)>,
}

/// The catalog. It owns the upstreams it was given: it follows them, and retires them when a reload
/// or the shutdown takes them away.
pub struct Catalog {
    context: Arc<CatalogContext>,
    layout: ArcSwap<CatalogLayout>,
    /// Reloads and rebuilds come one after the other.
    apply_lock: Mutex<()>,
    sealer: Sealer,
    outstanding_cursors: outstanding_cursors::OutstandingCursors,
    filtered_views: filtered_views::FilteredViews,
    subscription_tables: Arc<resource_updates::SubscriptionTables>,
    session_views: session_lists::SessionViews,
}

/// All endpoints and upstreams as of one reload.
#[derive(Default)]
struct CatalogLayout {
    endpoint_lists: FastMap<EndpointId, EndpointLists>,
    order: Vec<Arc<Endpoint>>,
    sources: Vec<Arc<CatalogSource>>,
    by_id: FastMap<UpstreamId, Arc<CatalogSource>>,
}

static EMPTY_VIEW: LazyLock<Arc<View>> = LazyLock::new(|| Arc::new(View::empty()));

impl Catalog {
    /// An empty catalog, to be filled by [`Self::apply`]. Must be called inside a tokio runtime,
    /// because it spawns tasks.
    #[must_use]
    pub fn new(settings: CatalogSettings, ports: CatalogPorts, sealer: Sealer) -> Arc<Self> {
        let works = Arc::new(CatalogContext::new(settings, ports));
        let catalog = Arc::new(Self {
            context: works.clone(),
            layout: ArcSwap::default(),
            apply_lock: Mutex::default(),
            sealer,
            outstanding_cursors: outstanding_cursors::OutstandingCursors::default(),
            filtered_views: filtered_views::FilteredViews::default(),
            subscription_tables: Arc::default(),
            session_views: session_lists::SessionViews::default(),
        });
        let keeper = view_updater::run(Arc::downgrade(&catalog), works.clone());
        works
            .tasks
            .spawn(works.stop.clone().run_until_cancelled_owned(keeper));
        catalog
    }

    /// Takes a new configuration. Upstreams that come as the same `Arc` keep watcher and list.
    /// Others start, or stop and are retired. One that follows another of the same id shows its
    /// list until it has its own. Clients are notified if their list changed. Must be called inside
    /// a tokio runtime.
    pub fn apply(&self, topology: Topology) {
        let _one = self
            .apply_lock
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if self.context.stop.is_cancelled() {
            return;
        }
        let before = self.layout.load_full();
        let sources: Vec<_> = topology
            .upstreams
            .into_iter()
            .map(|(up, rules)| self.source(&before, up, rules))
            .collect();
        let by_id: FastMap<_, _> = sources
            .iter()
            .map(|source| (source.id().clone(), source.clone()))
            .collect();
        let mut stands =
            FastMap::with_capacity_and_hasher(topology.endpoints.len(), FastState::default());
        for endpoint in &topology.endpoints {
            let desks = list_views_of(&before, endpoint);
            let sources = members(endpoint)
                .iter()
                .filter_map(|id| by_id.get(id).cloned())
                .collect();
            start_endpoint_at_zero(&endpoint.id);
            stands.insert(
                endpoint.id.clone(),
                EndpointLists {
                    endpoint: endpoint.clone(),
                    sources,
                    list_views: desks,
                },
            );
        }
        let kept = |old: &Arc<CatalogSource>| sources.iter().any(|new| Arc::ptr_eq(new, old));
        let gone: Vec<_> = before
            .sources
            .iter()
            .filter(|old| !kept(old))
            .cloned()
            .collect();
        self.layout.store(Arc::new(CatalogLayout {
            endpoint_lists: stands,
            order: topology.endpoints,
            sources,
            by_id,
        }));
        for (id, stand) in &before.endpoint_lists {
            if !self.layout.load().endpoint_lists.contains_key(id) {
                stand.list_views.close();
            }
        }
        gone.iter().for_each(|source| self.retire(source));
        // The base list of every endpoint is ready before a client asks for it.
        self.layout
            .load()
            .endpoint_lists
            .values()
            .for_each(|stand| {
                for kind in ListKind::ALL {
                    drop(stand.list_view(&self.context, kind, CapabilityClass::BASE));
                }
            });
        self.refresh(Instant::now());
        // The background task sends announcements that were held back.
        self.context.rebuild.notify_one();
    }

    fn source(
        &self,
        before: &CatalogLayout,
        upstream: Arc<dyn Upstream>,
        rules: UpstreamRules,
    ) -> Arc<CatalogSource> {
        let old = before
            .sources
            .iter()
            .find(|source| source.id() == upstream.id());
        match old {
            Some(same) if same_object(&same.upstream, &upstream) => {
                same.set_rules(rules);
                same.clone()
            }
            _ => {
                let snapshot = old.map(|old| old.base().snapshot());
                CatalogSource::start(&self.context, upstream, rules, snapshot.as_deref())
            }
        }
    }

    fn retire(&self, source: &CatalogSource) {
        source.stop();
        let retiring = source
            .upstream
            .clone()
            .retire(self.context.settings.retire_grace);
        self.context.tasks.spawn(retiring);
    }

    /// Builds all views again, for the background task: never in the middle of a reload.
    fn renew(&self, now: Instant) -> Option<Instant> {
        let _one = self
            .apply_lock
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.refresh(now)
    }

    /// Builds all views again; returns the due time of held-back announcements.
    fn refresh(&self, now: Instant) -> Option<Instant> {
        let layout = self.layout.load_full();
        layout
            .endpoint_lists
            .values()
            .filter_map(|stand| stand.refresh_views(&self.context, now))
            .min()
    }

    /// An endpoint by its path.
    #[must_use]
    pub fn endpoint(&self, id: &EndpointId) -> Option<Arc<Endpoint>> {
        self.layout
            .load()
            .endpoint_lists
            .get(id)
            .map(|stand| stand.endpoint.clone())
    }

    /// All endpoints, in config order.
    #[must_use]
    pub fn endpoints(&self) -> Vec<Arc<Endpoint>> {
        self.layout.load().order.clone()
    }

    /// The list of one kind that an endpoint shows now to clients of a class, without waiting.
    #[must_use]
    pub fn view(
        &self,
        endpoint: &EndpointId,
        kind: ListKind,
        class: CapabilityClass,
    ) -> Option<Arc<View>> {
        self.list_view(endpoint, kind, class)
            .map(|desk| desk.view())
    }

    /// The list that an endpoint shows once the first walks over its upstreams have ended, or as it
    /// stands [`CatalogSettings::first_list_wait`] after they began. An endpoint that does not
    /// exist has an empty list. Cancel safe.
    pub async fn settled_view(
        &self,
        endpoint: &EndpointId,
        kind: ListKind,
        class: CapabilityClass,
    ) -> Arc<View> {
        let Some(desk) = self.list_view(endpoint, kind, class) else {
            return EMPTY_VIEW.clone();
        };
        let mut built = desk.view_changes.watch();
        loop {
            let view = desk.view();
            let Some(until) = view
                .wait_until
                .filter(|until| !view.settled && *until > Instant::now())
            else {
                return view;
            };
            match timeout_at(until, built.changed()).await {
                Ok(ListChange::Changed) => {}
                Ok(ListChange::EndpointGone) | Err(_) => return desk.view(),
            }
        }
    }

    /// Announcements of changes of one list, from now on.
    #[must_use]
    pub fn changes(
        &self,
        endpoint: &EndpointId,
        class: CapabilityClass,
        kind: ListKind,
    ) -> ChangeReceiver {
        match self.list_view(endpoint, kind, class) {
            Some(desk) => desk.announcements.watch(),
            None => {
                let nowhere = Arc::new(ChangeBroadcast::default());
                nowhere.close();
                nowhere.watch()
            }
        }
    }

    /// The server information of an endpoint's upstreams, in config order; those never reached are
    /// absent.
    #[must_use]
    pub fn about(&self, endpoint: &EndpointId) -> Vec<(UpstreamId, Arc<ServerDescription>)> {
        let layout = self.layout.load();
        let sources = layout
            .endpoint_lists
            .get(endpoint)
            .map(|stand| &stand.sources[..])
            .unwrap_or_default();
        let about = |source: &Arc<CatalogSource>| {
            Some((source.id().clone(), source.base().snapshot().about.clone()?))
        };
        sources.iter().filter_map(about).collect()
    }

    /// True if an endpoint has this list: some upstream offers it, once offered it, or is still
    /// unknown.
    #[must_use]
    pub fn offers(&self, endpoint: &EndpointId, kind: ListKind) -> bool {
        let layout = self.layout.load();
        let sources = layout
            .endpoint_lists
            .get(endpoint)
            .map(|stand| &stand.sources[..])
            .unwrap_or_default();
        sources.iter().any(|source| {
            let snapshot = source.base().snapshot();
            snapshot.list(kind).offers || snapshot.about.is_none()
        })
    }

    /// True if the server of a transparent endpoint has a list that it does not declare. The server
    /// is asked for the list, and from then on with every walk; clients of the class then see it.
    /// False if the server does not answer within [`CatalogSettings::first_list_wait`] or cannot be
    /// asked, and always for an aggregating endpoint. Cancel safe.
    pub async fn offers_undeclared(
        &self,
        endpoint: &EndpointId,
        kind: ListKind,
        class: CapabilityClass,
    ) -> bool {
        let (source, desk) = (
            self.only_source(endpoint),
            self.list_view(endpoint, kind, class),
        );
        let (Some(source), Some(desk)) = (source, desk) else {
            return false;
        };
        let mut built = desk.view_changes.watch();
        let asked = async {
            source.ask_undeclared(kind).await;
            let offers = source.base().snapshot().list(kind).offers;
            // The view of this class is built a moment later, and after a walk of its own.
            while offers
                && !desk.view().is_asked_for
                && built.changed().await == ListChange::Changed
            {}
            offers
        };
        timeout(self.context.settings.first_list_wait, asked)
            .await
            .unwrap_or(false)
    }

    /// The lists without change notifications: those for which the server of a transparent endpoint
    /// declares none. An aggregating endpoint announces all, since weir looks for changes itself.
    #[must_use]
    pub fn lists_without_notifications(&self, endpoint: &EndpointId) -> ListKinds {
        let about = self
            .only_source(endpoint)
            .and_then(|source| source.base().snapshot().about.clone());
        about.map_or_else(ListKinds::default, |about| about.notifies_of.others())
    }

    /// True if an endpoint shows one server as it is.
    #[must_use]
    pub fn is_transparent(&self, endpoint: &EndpointId) -> bool {
        let layout = self.layout.load();
        layout
            .endpoint_lists
            .get(endpoint)
            .is_some_and(|stand| stand.endpoint.mode.is_transparent())
    }

    /// True if an upstream of the endpoint completes arguments, or is still unknown.
    #[must_use]
    pub fn completes(&self, endpoint: &EndpointId) -> bool {
        let layout = self.layout.load();
        let sources = layout
            .endpoint_lists
            .get(endpoint)
            .map(|stand| &stand.sources[..])
            .unwrap_or_default();
        sources.iter().any(|source| {
            source
                .base()
                .snapshot()
                .about
                .as_ref()
                .is_none_or(|about| about.completes)
        })
    }

    /// True if an upstream of the endpoint announces updates of single resources, or is still
    /// unknown.
    #[must_use]
    pub fn subscribes(&self, endpoint: &EndpointId) -> bool {
        let layout = self.layout.load();
        let sources = layout
            .endpoint_lists
            .get(endpoint)
            .map(|stand| &stand.sources[..])
            .unwrap_or_default();
        sources.iter().any(|source| {
            source
                .base()
                .snapshot()
                .about
                .as_ref()
                .is_none_or(|about| about.subscribes)
        })
    }

    /// True if calls of an upstream of the endpoint can become tasks. An upstream that is still
    /// unknown counts as one without tasks.
    #[must_use]
    pub fn has_tasks(&self, endpoint: &EndpointId) -> bool {
        self.any_upstream_declares(endpoint, |about| about.tasks)
    }

    /// True if an upstream of the endpoint declares that its tools have interfaces (MCP Apps).
    #[must_use]
    pub fn has_apps(&self, endpoint: &EndpointId) -> bool {
        self.any_upstream_declares(endpoint, |about| about.apps)
    }

    /// True if any known upstream of the endpoint declares the feature.
    fn any_upstream_declares(
        &self,
        endpoint: &EndpointId,
        what: impl Fn(&ServerDescription) -> bool,
    ) -> bool {
        let layout = self.layout.load();
        let sources = layout
            .endpoint_lists
            .get(endpoint)
            .map(|stand| &stand.sources[..])
            .unwrap_or_default();
        sources.iter().any(|source| {
            source
                .base()
                .snapshot()
                .about
                .as_ref()
                .is_some_and(|about| what(about))
        })
    }

    /// The extensions of the one upstream of a transparent endpoint. An aggregating endpoint has
    /// none, since weir could not find the upstream that a message is for.
    #[must_use]
    pub fn extensions(&self, endpoint: &EndpointId) -> Vec<DeclaredExtension> {
        let about = self
            .only_source(endpoint)
            .and_then(|source| source.base().snapshot().about.clone());
        about
            .map(|about| about.extensions.clone())
            .unwrap_or_default()
    }

    /// A tool that no list shows any more, of an upstream of the endpoint: tasks of it may still
    /// run.
    pub(crate) fn removed_tool(
        &self,
        endpoint: &EndpointId,
        upstream: &UpstreamId,
        exposed: &str,
    ) -> Option<CatalogItem> {
        let layout = self.layout.load();
        let source = layout
            .endpoint_lists
            .get(endpoint)?
            .sources
            .iter()
            .find(|source| source.id() == upstream)?;
        let tool = Arc::new(Tool::unlisted(upstream, exposed));
        let (terms, listed_without) = (source.rules().of(exposed), CapabilityClass::BASE);
        Some(CatalogItem {
            exposed: exposed.into(),
            tool,
            terms,
            listed_without,
        })
    }

    /// A method that no revision knows, at an upstream of the endpoint. It takes the scopes of all
    /// tools of that upstream, since it may do the same as any of them.
    pub(crate) fn of_method(
        &self,
        endpoint: &EndpointId,
        upstream: &UpstreamId,
        name: &str,
    ) -> Option<CatalogItem> {
        let layout = self.layout.load();
        let source = layout
            .endpoint_lists
            .get(endpoint)?
            .sources
            .iter()
            .find(|source| source.id() == upstream)?;
        let tool = Arc::new(Tool::of_method(upstream, name));
        let (terms, listed_without) = (source.rules().of_methods(), CapabilityClass::BASE);
        Some(CatalogItem {
            exposed: name.into(),
            tool,
            terms,
            listed_without,
        })
    }

    /// A resource that no list shows, of an upstream that has resources or may have.
    pub(crate) fn unlisted_resource(
        &self,
        upstream: &UpstreamId,
        exposed: &str,
        native: &str,
    ) -> Option<CatalogItem> {
        let layout = self.layout.load();
        let source = layout.by_id.get(upstream)?;
        let snapshot = source.base().snapshot();
        let may_have = [ListKind::Resources, ListKind::Templates]
            .iter()
            .any(|kind| snapshot.list(*kind).offers);
        (may_have || snapshot.about.is_none()).then(|| CatalogItem {
            exposed: exposed.into(),
            tool: Arc::new(Tool::unlisted(upstream, native)),
            terms: source.rules().of(native),
            listed_without: CapabilityClass::BASE,
        })
    }

    /// The upstreams of the newest reload, in config order.
    #[must_use]
    pub fn upstreams(&self) -> Vec<Arc<dyn Upstream>> {
        self.layout
            .load()
            .sources
            .iter()
            .map(|source| source.upstream.clone())
            .collect()
    }

    pub(crate) fn upstream(&self, id: &UpstreamId) -> Option<Arc<dyn Upstream>> {
        self.layout
            .load()
            .by_id
            .get(id)
            .map(|source| source.upstream.clone())
    }

    /// An upstream by its id, with the timings of its calls.
    pub(crate) fn upstream_with_timings(
        &self,
        id: &UpstreamId,
    ) -> Option<(Arc<dyn Upstream>, Arc<CallTimings>)> {
        self.layout
            .load()
            .by_id
            .get(id)
            .map(|source| (source.upstream.clone(), source.timings.clone()))
    }

    /// Stops following, retires every upstream, and waits until all of that is done.
    pub async fn shutdown(&self) {
        {
            let _one = self
                .apply_lock
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            self.context.stop.cancel();
            let layout = self.layout.swap(Arc::default());
            layout.sources.iter().for_each(|source| self.retire(source));
            layout
                .endpoint_lists
                .values()
                .for_each(|stand| stand.list_views.close());
        }
        self.context.tasks.close();
        self.context.tasks.wait().await;
    }

    /// The one upstream of a transparent endpoint.
    fn only_source(&self, endpoint: &EndpointId) -> Option<Arc<CatalogSource>> {
        let layout = self.layout.load();
        let stand = layout
            .endpoint_lists
            .get(endpoint)
            .filter(|stand| stand.endpoint.mode.is_transparent())?;
        stand.sources.first().cloned()
    }

    fn list_view(
        &self,
        endpoint: &EndpointId,
        kind: ListKind,
        class: CapabilityClass,
    ) -> Option<Arc<ListView>> {
        self.layout
            .load()
            .endpoint_lists
            .get(endpoint)
            .map(|stand| stand.list_view(&self.context, kind, class))
    }
}

impl Drop for Catalog {
    fn drop(&mut self) {
        self.context.stop.cancel();
    }
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = self.layout.load();
        write!(
            f,
            "Catalog({} endpoints, {} upstreams)",
            layout.order.len(),
            layout.sources.len()
        )
    }
}

impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Topology({} endpoints, {} upstreams)",
            self.endpoints.len(),
            self.upstreams.len()
        )
    }
}

/// The lists of an endpoint outlive a reload: clients hold on to them.
fn list_views_of(before: &CatalogLayout, endpoint: &Endpoint) -> Arc<ListViews> {
    before
        .endpoint_lists
        .get(&endpoint.id)
        .map(|stand| stand.list_views.clone())
        .unwrap_or_default()
}

fn members(endpoint: &Endpoint) -> &[UpstreamId] {
    match &endpoint.mode {
        EndpointMode::Aggregate { upstreams, .. } => upstreams,
        EndpointMode::Transparent(upstream) => std::slice::from_ref(upstream),
    }
}

/// The same object, with any vtable: the vtables of one type may differ between codegen units.
fn same_object(one: &Arc<dyn Upstream>, other: &Arc<dyn Upstream>) -> bool {
    std::ptr::eq(
        Arc::as_ptr(one).cast::<()>(),
        Arc::as_ptr(other).cast::<()>(),
    )
}
