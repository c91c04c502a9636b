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

mod abandoned;
mod build;
mod changes;
mod closed;
mod dress;
mod feed;
mod ingest;
mod keeper;
mod lens;
mod pace;
mod page;
mod session_lists;
mod settings;
mod shelf;
mod source;
mod stand;
mod status;
mod terms;
mod timing;
mod told;
mod tool;
mod trace;
mod updates;
mod view;
mod walk;
mod watcher;
mod works;

use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio::time::{Instant, timeout, timeout_at};

pub use changes::{Change, Changes};
pub use closed::{Closed, Closing};
pub use lens::Watching;
pub use page::{Page, PageAsk};
pub use session_lists::{ListSession, SessionListTable, SessionLists, SessionSubscription};
pub use settings::{CatalogPorts, CatalogSettings, RefreshPace};
pub use status::{ListStatus, Reach, UpstreamStatus};
pub use terms::Terms;
pub use timing::Recent;
pub(crate) use timing::Timings;
pub use tool::{NotATool, TaskSupport, Tool, plain};
pub use trace::{Place, Traced, supposed};
pub use updates::{Inbox, Subscription};
pub use view::{Collision, Found, Item, Missing, Version, View};

use crate::capability::CapabilityClass;
use crate::endpoint::{Endpoint, Mode, UpstreamRules};
use crate::fast::{FastMap, FastState};
use crate::names::{EndpointId, UpstreamId};
use crate::seal::Sealer;
use crate::telemetry::start_endpoint_at_zero;
use crate::upstream::{About, Extension, Kinds, ListKind, Upstream};
use changes::Board;
use source::Source;
use stand::{Desk, Desks, Stand};
use works::Works;

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
    works: Arc<Works>,
    layout: ArcSwap<Layout>,
    /// Reloads and rebuilds come one after the other.
    applying: Mutex<()>,
    sealer: Sealer,
    outstanding: abandoned::Outstanding,
    lenses: lens::Lenses,
    tables: Arc<updates::Tables>,
    session_views: session_lists::SessionViews,
}

/// All endpoints and upstreams as of one reload.
#[derive(Default)]
struct Layout {
    stands: FastMap<EndpointId, Stand>,
    order: Vec<Arc<Endpoint>>,
    sources: Vec<Arc<Source>>,
    by_id: FastMap<UpstreamId, Arc<Source>>,
}

static NOTHING: LazyLock<Arc<View>> = LazyLock::new(|| Arc::new(View::empty()));

impl Catalog {
    /// An empty catalog, to be filled by [`Self::apply`]. Must be called inside a tokio runtime,
    /// because it spawns tasks.
    #[must_use]
    pub fn new(settings: CatalogSettings, ports: CatalogPorts, sealer: Sealer) -> Arc<Self> {
        let works = Arc::new(Works::new(settings, ports));
        let catalog = Arc::new(Self {
            works: works.clone(),
            layout: ArcSwap::default(),
            applying: Mutex::default(),
            sealer,
            outstanding: abandoned::Outstanding::default(),
            lenses: lens::Lenses::default(),
            tables: Arc::default(),
            session_views: session_lists::SessionViews::default(),
        });
        let keeper = keeper::run(Arc::downgrade(&catalog), works.clone());
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
        let _one = self.applying.lock().unwrap_or_else(PoisonError::into_inner);
        if self.works.stop.is_cancelled() {
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
            let desks = desks(&before, endpoint);
            let sources = members(endpoint)
                .iter()
                .filter_map(|id| by_id.get(id).cloned())
                .collect();
            start_endpoint_at_zero(&endpoint.id);
            stands.insert(
                endpoint.id.clone(),
                Stand {
                    endpoint: endpoint.clone(),
                    sources,
                    desks,
                },
            );
        }
        let kept = |old: &Arc<Source>| sources.iter().any(|new| Arc::ptr_eq(new, old));
        let gone: Vec<_> = before
            .sources
            .iter()
            .filter(|old| !kept(old))
            .cloned()
            .collect();
        self.layout.store(Arc::new(Layout {
            stands,
            order: topology.endpoints,
            sources,
            by_id,
        }));
        for (id, stand) in &before.stands {
            if !self.layout.load().stands.contains_key(id) {
                stand.desks.close();
            }
        }
        gone.iter().for_each(|source| self.retire(source));
        // The base list of every endpoint is ready before a client asks for it.
        self.layout.load().stands.values().for_each(|stand| {
            for kind in ListKind::ALL {
                drop(stand.desk(&self.works, kind, CapabilityClass::BASE));
            }
        });
        self.refresh(Instant::now());
        // The background task sends announcements that were held back.
        self.works.bell.notify_one();
    }

    fn source(
        &self,
        before: &Layout,
        upstream: Arc<dyn Upstream>,
        rules: UpstreamRules,
    ) -> Arc<Source> {
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
                Source::start(&self.works, upstream, rules, snapshot.as_deref())
            }
        }
    }

    fn retire(&self, source: &Source) {
        source.stop();
        let retiring = source
            .upstream
            .clone()
            .retire(self.works.settings.retire_grace);
        self.works.tasks.spawn(retiring);
    }

    /// Builds all views again, for the background task: never in the middle of a reload.
    fn renew(&self, now: Instant) -> Option<Instant> {
        let _one = self.applying.lock().unwrap_or_else(PoisonError::into_inner);
        self.refresh(now)
    }

    /// Builds all views again; returns the due time of held-back announcements.
    fn refresh(&self, now: Instant) -> Option<Instant> {
        let layout = self.layout.load_full();
        layout
            .stands
            .values()
            .filter_map(|stand| stand.refresh(&self.works, now))
            .min()
    }

    /// An endpoint by its path.
    #[must_use]
    pub fn endpoint(&self, id: &EndpointId) -> Option<Arc<Endpoint>> {
        self.layout
            .load()
            .stands
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
        self.desk(endpoint, kind, class).map(|desk| desk.view())
    }

    /// The list that an endpoint shows once the first walks over its upstreams have ended, or as it
    /// stands [`CatalogSettings::first_list_wait`] after they began. An endpoint that does not
    /// exist has an empty list. Cancel safe.
    pub async fn settled(
        &self,
        endpoint: &EndpointId,
        kind: ListKind,
        class: CapabilityClass,
    ) -> Arc<View> {
        let Some(desk) = self.desk(endpoint, kind, class) else {
            return NOTHING.clone();
        };
        let mut built = desk.built.watch();
        loop {
            let view = desk.view();
            let Some(until) = view
                .wait_until
                .filter(|until| !view.settled && *until > Instant::now())
            else {
                return view;
            };
            match timeout_at(until, built.changed()).await {
                Ok(Change::Moved) => {}
                Ok(Change::Gone) | Err(_) => return desk.view(),
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
    ) -> Changes {
        match self.desk(endpoint, kind, class) {
            Some(desk) => desk.told.watch(),
            None => {
                let nowhere = Arc::new(Board::default());
                nowhere.close();
                nowhere.watch()
            }
        }
    }

    /// The server information of an endpoint's upstreams, in config order; those never reached are
    /// absent.
    #[must_use]
    pub fn about(&self, endpoint: &EndpointId) -> Vec<(UpstreamId, Arc<About>)> {
        let layout = self.layout.load();
        let sources = layout
            .stands
            .get(endpoint)
            .map(|stand| &stand.sources[..])
            .unwrap_or_default();
        let about = |source: &Arc<Source>| {
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
            .stands
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
        let (source, desk) = (self.only_source(endpoint), self.desk(endpoint, kind, class));
        let (Some(source), Some(desk)) = (source, desk) else {
            return false;
        };
        let mut built = desk.built.watch();
        let asked = async {
            source.ask_undeclared(kind).await;
            let offers = source.base().snapshot().list(kind).offers;
            // The view of this class is built a moment later, and after a walk of its own.
            while offers && !desk.view().is_asked_for && built.changed().await == Change::Moved {}
            offers
        };
        timeout(self.works.settings.first_list_wait, asked)
            .await
            .unwrap_or(false)
    }

    /// The lists without change notifications: those for which the server of a transparent endpoint
    /// declares none. An aggregating endpoint announces all, since weir looks for changes itself.
    #[must_use]
    pub fn silent(&self, endpoint: &EndpointId) -> Kinds {
        let about = self
            .only_source(endpoint)
            .and_then(|source| source.base().snapshot().about.clone());
        about.map_or_else(Kinds::default, |about| about.pushes.others())
    }

    /// True if an endpoint shows one server as it is.
    #[must_use]
    pub fn is_transparent(&self, endpoint: &EndpointId) -> bool {
        let layout = self.layout.load();
        layout
            .stands
            .get(endpoint)
            .is_some_and(|stand| stand.endpoint.mode.is_transparent())
    }

    /// True if an upstream of the endpoint completes arguments, or is still unknown.
    #[must_use]
    pub fn completes(&self, endpoint: &EndpointId) -> bool {
        let layout = self.layout.load();
        let sources = layout
            .stands
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
            .stands
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
        self.says(endpoint, |about| about.tasks)
    }

    /// True if an upstream of the endpoint declares that its tools have interfaces (MCP Apps).
    #[must_use]
    pub fn has_apps(&self, endpoint: &EndpointId) -> bool {
        self.says(endpoint, |about| about.apps)
    }

    /// True if any known upstream of the endpoint declares the feature.
    fn says(&self, endpoint: &EndpointId, what: impl Fn(&About) -> bool) -> bool {
        let layout = self.layout.load();
        let sources = layout
            .stands
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
    pub fn extensions(&self, endpoint: &EndpointId) -> Vec<Extension> {
        let about = self
            .only_source(endpoint)
            .and_then(|source| source.base().snapshot().about.clone());
        about
            .map(|about| about.extensions.clone())
            .unwrap_or_default()
    }

    /// A tool that no list shows any more, of an upstream of the endpoint: tasks of it may still
    /// run.
    pub(crate) fn bygone(
        &self,
        endpoint: &EndpointId,
        upstream: &UpstreamId,
        exposed: &str,
    ) -> Option<Item> {
        let layout = self.layout.load();
        let source = layout
            .stands
            .get(endpoint)?
            .sources
            .iter()
            .find(|source| source.id() == upstream)?;
        let tool = Arc::new(Tool::unlisted(upstream, exposed));
        let (terms, listed_without) = (source.rules().of(exposed), CapabilityClass::BASE);
        Some(Item {
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
    ) -> Option<Item> {
        let layout = self.layout.load();
        let source = layout
            .stands
            .get(endpoint)?
            .sources
            .iter()
            .find(|source| source.id() == upstream)?;
        let tool = Arc::new(Tool::of_method(upstream, name));
        let (terms, listed_without) = (source.rules().of_methods(), CapabilityClass::BASE);
        Some(Item {
            exposed: name.into(),
            tool,
            terms,
            listed_without,
        })
    }

    /// A resource that no list shows, of an upstream that has resources or may have.
    pub(crate) fn unlisted(
        &self,
        upstream: &UpstreamId,
        exposed: &str,
        native: &str,
    ) -> Option<Item> {
        let layout = self.layout.load();
        let source = layout.by_id.get(upstream)?;
        let snapshot = source.base().snapshot();
        let may_have = [ListKind::Resources, ListKind::Templates]
            .iter()
            .any(|kind| snapshot.list(*kind).offers);
        (may_have || snapshot.about.is_none()).then(|| Item {
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
    pub(crate) fn timed(&self, id: &UpstreamId) -> Option<(Arc<dyn Upstream>, Arc<Timings>)> {
        self.layout
            .load()
            .by_id
            .get(id)
            .map(|source| (source.upstream.clone(), source.timings.clone()))
    }

    /// Stops following, retires every upstream, and waits until all of that is done.
    pub async fn shutdown(&self) {
        {
            let _one = self.applying.lock().unwrap_or_else(PoisonError::into_inner);
            self.works.stop.cancel();
            let layout = self.layout.swap(Arc::default());
            layout.sources.iter().for_each(|source| self.retire(source));
            layout.stands.values().for_each(|stand| stand.desks.close());
        }
        self.works.tasks.close();
        self.works.tasks.wait().await;
    }

    /// The one upstream of a transparent endpoint.
    fn only_source(&self, endpoint: &EndpointId) -> Option<Arc<Source>> {
        let layout = self.layout.load();
        let stand = layout
            .stands
            .get(endpoint)
            .filter(|stand| stand.endpoint.mode.is_transparent())?;
        stand.sources.first().cloned()
    }

    fn desk(
        &self,
        endpoint: &EndpointId,
        kind: ListKind,
        class: CapabilityClass,
    ) -> Option<Arc<Desk>> {
        self.layout
            .load()
            .stands
            .get(endpoint)
            .map(|stand| stand.desk(&self.works, kind, class))
    }
}

impl Drop for Catalog {
    fn drop(&mut self) {
        self.works.stop.cancel();
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
fn desks(before: &Layout, endpoint: &Endpoint) -> Arc<Desks> {
    before
        .stands
        .get(&endpoint.id)
        .map(|stand| stand.desks.clone())
        .unwrap_or_default()
}

fn members(endpoint: &Endpoint) -> &[UpstreamId] {
    match &endpoint.mode {
        Mode::Aggregate { upstreams, .. } => upstreams,
        Mode::Transparent(upstream) => std::slice::from_ref(upstream),
    }
}

/// The same object, with any vtable: the vtables of one type may differ between codegen units.
fn same_object(one: &Arc<dyn Upstream>, other: &Arc<dyn Upstream>) -> bool {
    std::ptr::eq(
        Arc::as_ptr(one).cast::<()>(),
        Arc::as_ptr(other).cast::<()>(),
    )
}
