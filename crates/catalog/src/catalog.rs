//! The catalog: the lists of all endpoints over all upstreams.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use opentelemetry::KeyValue;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};
use weir_core::capability::CapabilityClass;
use weir_core::endpoint::{Endpoint, UpstreamRules};
use weir_core::fast::{FastMap, FastState};
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::port::AnnouncementMap;
use weir_core::supervision::run_supervised;
use weir_core::telemetry::instruments;
use weir_core::telemetry::zeroed_counters::start_endpoint_at_zero;
use weir_core::upstream::{ListKind, Upstream};
use weir_seal::Sealer;

use crate::call_timings::CallTimings;
use crate::catalog_source::CatalogSource;
use crate::context::CatalogContext;
use crate::endpoint_lists::{EndpointLists, ListView, ListViews};
use crate::filtered_views::FilteredViews;
use crate::list_changes::{ChangeBroadcast, ChangeReceiver, ListChange};
use crate::outstanding_cursors::OutstandingCursors;
use crate::resource_updates::SubscriptionTables;
use crate::retiring_upstreams::{RETIRE_GRACE, RetiringUpstreams};
use crate::session_lists::SessionViewCache;
use crate::settings::{CatalogPorts, CatalogSettings};
use crate::stale_list_signal::StaleListSignal;
use crate::view::{EMPTY_VIEW, View};
use crate::view_updater::{self, UpdateRound};

/// The endpoints and upstreams of one reload, both in config order.
#[derive(Debug, Default)]
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
    pub(crate) context: Arc<CatalogContext>,
    pub(crate) layout: ArcSwap<CatalogLayout>,
    /// Reloads and rebuilds come one after the other.
    pub(crate) apply_lock: Mutex<()>,
    pub(crate) sealer: Sealer,
    pub(crate) outstanding_cursors: OutstandingCursors,
    pub(crate) filtered_views: FilteredViews,
    pub(crate) subscription_tables: Arc<SubscriptionTables>,
    pub(crate) session_views: SessionViewCache,
    pub(crate) retiring: Arc<RetiringUpstreams>,
}

/// The endpoint that a call comes over and the upstream that it goes to, of the same reload.
#[derive(Debug)]
pub struct CallRoute {
    /// The endpoint; absent if it is gone.
    pub endpoint: Option<Arc<Endpoint>>,
    /// The upstream.
    pub upstream: Arc<dyn Upstream>,
    /// The number of the upstream, for the names of its tasks: a reload with other settings makes
    /// another upstream of the same id.
    pub incarnation: u32,
    /// The timings of the upstream's calls.
    pub timings: Arc<CallTimings>,
    /// Tells that its lists may be out of date.
    pub stale_lists: Arc<StaleListSignal>,
}

/// All endpoints and upstreams as of one reload.
#[derive(Default)]
pub(crate) struct CatalogLayout {
    pub(crate) endpoint_lists: FastMap<EndpointId, EndpointLists>,
    pub(crate) order: Vec<Arc<Endpoint>>,
    pub(crate) sources: Vec<Arc<CatalogSource>>,
    pub(crate) by_id: FastMap<UpstreamId, Arc<CatalogSource>>,
}

impl CatalogLayout {
    /// The upstreams of an endpoint, in config order; none for an unknown endpoint.
    pub(crate) fn sources_of(&self, endpoint: &EndpointId) -> &[Arc<CatalogSource>] {
        self.endpoint_lists
            .get(endpoint)
            .map(|lists| &lists.sources[..])
            .unwrap_or_default()
    }

    /// The endpoints that have an upstream.
    fn endpoints_of(&self, source: &Arc<CatalogSource>) -> Vec<EndpointId> {
        let has_it =
            |lists: &EndpointLists| lists.sources.iter().any(|one| Arc::ptr_eq(one, source));
        let having = self
            .endpoint_lists
            .iter()
            .filter(|(_, lists)| has_it(lists));
        having.map(|(id, _)| id.clone()).collect()
    }

    /// An upstream of an endpoint.
    pub(crate) fn source_of(
        &self,
        endpoint: &EndpointId,
        upstream: &UpstreamId,
    ) -> Option<&Arc<CatalogSource>> {
        let mut sources = self.sources_of(endpoint).iter();
        sources.find(|source| source.id() == upstream)
    }
}

impl Catalog {
    /// An empty catalog, to be filled by [`Self::apply`]. Must be called inside a tokio runtime,
    /// because it spawns tasks.
    #[must_use]
    pub fn new(settings: CatalogSettings, ports: CatalogPorts, sealer: Sealer) -> Arc<Self> {
        let context = Arc::new(CatalogContext::new(settings, ports));
        let catalog = Arc::new(Self {
            context: context.clone(),
            layout: ArcSwap::default(),
            apply_lock: Mutex::default(),
            sealer,
            outstanding_cursors: OutstandingCursors::default(),
            filtered_views: FilteredViews::default(),
            subscription_tables: Arc::default(),
            session_views: SessionViewCache::default(),
            retiring: Arc::default(),
        });
        let weak = Arc::downgrade(&catalog);
        let update = move |round: UpdateRound| match weak.upgrade() {
            Some(catalog) => ControlFlow::Continue(catalog.update_views(&round)),
            None => ControlFlow::Break(()),
        };
        let own = context.clone();
        let updating = run_supervised("views", move || {
            view_updater::run(own.clone(), update.clone())
        });
        context
            .tasks
            .spawn(context.stop.clone().run_until_cancelled_owned(updating));
        if let Some(announcements) = &context.ports.announcements {
            let (weak, news) = (Arc::downgrade(&catalog), announcements.watch());
            let following = run_supervised("announced lists", move || {
                follow_announcements(weak.clone(), news.clone())
            });
            context
                .tasks
                .spawn(context.stop.clone().run_until_cancelled_owned(following));
        }
        catalog
    }

    /// Takes a new configuration. Upstreams that come as the same `Arc` keep watcher and list.
    /// Others start, or stop and are retired. One that follows another of the same id shows its
    /// list until it has its own. Clients are notified if their list changed. Must be called inside
    /// a tokio runtime.
    pub fn apply(&self, topology: Topology) {
        let _one = self.apply_lock.lock();
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
        let mut endpoint_lists =
            FastMap::with_capacity_and_hasher(topology.endpoints.len(), FastState::default());
        for endpoint in &topology.endpoints {
            let list_views = list_views_of(&before, endpoint);
            let sources = endpoint
                .mode
                .upstreams()
                .iter()
                .filter_map(|id| by_id.get(id).cloned())
                .collect();
            start_endpoint_at_zero(&endpoint.id);
            endpoint_lists.insert(
                endpoint.id.clone(),
                EndpointLists {
                    endpoint: endpoint.clone(),
                    sources,
                    list_views,
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
            endpoint_lists,
            order: topology.endpoints,
            sources,
            by_id,
        }));
        for (id, lists) in &before.endpoint_lists {
            if !self.layout.load().endpoint_lists.contains_key(id) {
                lists.list_views.close();
            }
        }
        for source in &gone {
            let is_replaced = self.layout.load().by_id.contains_key(source.id());
            self.run_out(source, before.endpoints_of(source), is_replaced);
        }
        // The base list of every endpoint is ready before a client asks for it.
        self.layout
            .load()
            .endpoint_lists
            .values()
            .for_each(|lists| {
                for kind in ListKind::ALL {
                    drop(lists.list_view(&self.context, kind, CapabilityClass::BASE));
                }
            });
        self.refresh(Instant::now());
        // The background task sends announcements that were held back.
        self.context.rebuild.request();
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
            Some(same) if same_object(same.upstream(), &upstream) => {
                same.set_rules(rules);
                same.clone()
            }
            _ => CatalogSource::start(&self.context, upstream, rules, old.map(|old| &**old)),
        }
    }

    fn retire(&self, source: &CatalogSource) {
        source.stop();
        let retiring = source.upstream().clone().retire(RETIRE_GRACE);
        self.context.tasks.spawn(retiring);
    }

    /// Builds all views again, for the background task: never in the middle of a reload. Returns
    /// the due time of held-back announcements.
    fn update_views(&self, round: &UpdateRound) -> Option<Instant> {
        let due = {
            let _one = self.apply_lock.lock();
            self.refresh(round.now)
        };
        if round.is_tidying {
            self.drop_unused();
        }
        due
    }

    /// Drops lists that no client has asked for in a long time, and counts the lists that no client
    /// read on.
    fn drop_unused(&self) {
        let layout = self.layout.load_full();
        let used: Vec<_> = layout
            .endpoint_lists
            .values()
            .flat_map(|lists| lists.drop_unused(&self.context))
            .collect();
        layout.sources.iter().for_each(|source| source.keep(&used));
        let kept = layout
            .endpoint_lists
            .iter()
            .map(|(id, lists)| (id, lists.versions()))
            .collect();
        self.filtered_views.keep(&kept);
        for endpoint in self.outstanding_cursors.sweep() {
            instruments().cursors_abandoned.add(
                1,
                &[KeyValue::new("endpoint", endpoint.as_str().to_owned())],
            );
        }
    }

    /// Builds all views again; returns the due time of held-back announcements.
    pub(crate) fn refresh(&self, now: Instant) -> Option<Instant> {
        let begun = self.context.rebuild.begin();
        let layout = self.layout.load_full();
        let due = layout
            .endpoint_lists
            .values()
            .filter_map(|lists| lists.refresh_views(&self.context, now))
            .min();
        self.context.rebuild.end(begun);
        if self.context.ports.announcements.is_some() {
            record_lists_behind(&layout);
        }
        due
    }

    /// An endpoint by its path.
    #[must_use]
    pub fn endpoint(&self, id: &EndpointId) -> Option<Arc<Endpoint>> {
        self.layout
            .load()
            .endpoint_lists
            .get(id)
            .map(|lists| lists.endpoint.clone())
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
        let layout = self.layout.load();
        let lists = layout.endpoint_lists.get(endpoint)?;
        Some(lists.view(&self.context, kind, class))
    }

    /// The list that an endpoint shows once the first walks over its upstreams have ended, or as it
    /// endpoint_lists [`CatalogSettings::first_list_wait`] after they began. If another replica announced
    /// other lists, the walk for them is awaited for a limited time, too. An endpoint that does not
    /// exist has an empty list. Cancel safe.
    pub async fn settled_view(
        &self,
        endpoint: &EndpointId,
        kind: ListKind,
        class: CapabilityClass,
    ) -> Arc<View> {
        let Some(list_view) = self.list_view(endpoint, kind, class) else {
            return EMPTY_VIEW.clone();
        };
        if self.may_be_behind() {
            Box::pin(self.catch_up(endpoint, kind, class)).await;
        }
        let mut built = list_view.view_changes.watch();
        loop {
            let view = list_view.view();
            let Some(until) = view
                .wait_until
                .filter(|until| !view.settled && *until > Instant::now())
            else {
                return view;
            };
            match timeout_at(until, built.changed()).await {
                Ok(ListChange::Changed) => {}
                Ok(ListChange::EndpointGone) | Err(_) => return list_view.view(),
            }
        }
    }

    /// Builds all views again, from what the upstreams are known to offer now, and waits for that.
    pub async fn rebuild_views(&self) {
        self.context.rebuild.request();
        let views = self.context.rebuild.wait_for_views();
        let _in_time = timeout(self.context.settings.first_list_wait, views).await;
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
            Some(list_view) => list_view.announcements.watch(),
            None => {
                let nowhere = Arc::new(ChangeBroadcast::default());
                nowhere.close();
                nowhere.watch()
            }
        }
    }

    /// The upstreams of the newest reload, in config order.
    #[must_use]
    pub fn upstreams(&self) -> Vec<Arc<dyn Upstream>> {
        self.layout
            .load()
            .sources
            .iter()
            .map(|source| source.upstream().clone())
            .collect()
    }

    /// An upstream by its id.
    #[must_use]
    pub fn upstream(&self, id: &UpstreamId) -> Option<Arc<dyn Upstream>> {
        self.layout
            .load()
            .by_id
            .get(id)
            .map(|source| source.upstream().clone())
    }

    /// The route of a call that comes over an endpoint; absent if the upstream is gone.
    #[must_use]
    pub fn call_route(&self, endpoint: &EndpointId, upstream: &UpstreamId) -> Option<CallRoute> {
        let layout = self.layout.load();
        let source = layout.by_id.get(upstream)?;
        Some(CallRoute {
            endpoint: layout
                .endpoint_lists
                .get(endpoint)
                .map(|lists| lists.endpoint.clone()),
            upstream: source.upstream().clone(),
            incarnation: source.incarnation,
            timings: source.timings.clone(),
            stale_lists: source.stale_lists().clone(),
        })
    }

    /// Notes that the process ends, or hands its connections over: an upstream that is lost from now
    /// on is not followed any further.
    pub fn begin_ending(&self) {
        self.context.begin_ending();
    }

    /// Reverts [`Self::begin_ending`], because the process goes on.
    pub fn abort_ending(&self) {
        self.context.abort_ending();
    }

    /// Stops following, retires every upstream, and waits until all of that is done.
    pub async fn shutdown(&self) {
        {
            let _one = self.apply_lock.lock();
            self.context.stop.cancel();
            let layout = self.layout.swap(Arc::default());
            layout.sources.iter().for_each(|source| self.retire(source));
            layout
                .endpoint_lists
                .values()
                .for_each(|lists| lists.list_views.close());
        }
        self.context.tasks.close();
        self.context.tasks.wait().await;
    }

    pub(crate) fn list_view(
        &self,
        endpoint: &EndpointId,
        kind: ListKind,
        class: CapabilityClass,
    ) -> Option<Arc<ListView>> {
        self.layout
            .load()
            .endpoint_lists
            .get(endpoint)
            .map(|lists| lists.list_view(&self.context, kind, class))
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

/// The lists of an endpoint outlive a reload: clients hold on to them.
fn list_views_of(before: &CatalogLayout, endpoint: &Endpoint) -> Arc<ListViews> {
    before
        .endpoint_lists
        .get(&endpoint.id)
        .map(|lists| lists.list_views.clone())
        .unwrap_or_default()
}

/// The same object, with any vtable: the vtables of one type may differ between codegen units.
fn same_object(one: &Arc<dyn Upstream>, other: &Arc<dyn Upstream>) -> bool {
    std::ptr::eq(
        Arc::as_ptr(one).cast::<()>(),
        Arc::as_ptr(other).cast::<()>(),
    )
}

/// Gives the feeds of a catalog every announcement. It ends with the catalog.
async fn follow_announcements(
    catalog: Weak<Catalog>,
    mut announced: watch::Receiver<Arc<AnnouncementMap>>,
) {
    while announced.changed().await.is_ok() {
        let newest = announced.borrow_and_update().clone();
        match catalog.upgrade() {
            Some(catalog) => catalog.learn(&newest),
            None => return,
        }
    }
}

/// Records the number of feeds that are behind.
fn record_lists_behind(layout: &CatalogLayout) {
    let feeds = layout.sources.iter().flat_map(|source| source.feeds());
    let behind = feeds.filter(|feed| feed.is_behind()).count();
    instruments().lists_behind.record(behind as u64, &[]);
}
