//! One upstream as the catalog follows it, with a feed and a watcher for each capability class.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use weir_core::capability::CapabilityClass;
use weir_core::endpoint::UpstreamRules;
use weir_core::names::UpstreamId;
use weir_core::supervision::run_supervised;
use weir_core::upstream::{ListKind, ServerDescription, Upstream};

use crate::call_timings::CallTimings;
use crate::context::CatalogContext;
use crate::followed_upstream::FollowedUpstream;
use crate::list_feed::{ListFeed, UpstreamSnapshot};
use crate::list_state::ListState;
use crate::list_watcher::ListWatcher;
use crate::stale_list_signal::StaleListSignal;
use weir_items::ResolvedRules;

/// Capability classes watched at one upstream at the same time; further ones see the base list.
const MAX_CLASSES: usize = 16;

/// An upstream and its feeds.
pub(super) struct CatalogSource {
    followed: Arc<FollowedUpstream>,
    /// Its number among the upstreams of its id, since a reload with other settings makes another.
    pub(super) incarnation: u32,
    /// True if it is the first upstream of its id in this process: it takes over the tasks of the
    /// process before.
    pub(super) is_first: bool,
    /// The timings of its latest calls.
    pub(super) timings: Arc<CallTimings>,
    base: Arc<ListFeed>,
    others: Mutex<Vec<(Arc<ListFeed>, CancellationToken)>>,
    /// The class that weir carried to its predecessor.
    carried_before: CapabilityClass,
    stop: CancellationToken,
}

impl CatalogSource {
    /// Begins to follow an upstream in the base class, and in the classes in which its predecessor of
    /// the same id is followed. Each class begins with the predecessor's list.
    pub(super) fn start(
        context: &Arc<CatalogContext>,
        upstream: Arc<dyn Upstream>,
        rules: UpstreamRules,
        predecessor: Option<&Self>,
    ) -> Arc<Self> {
        let before = predecessor.map(|old| old.base.snapshot());
        let base = feed(
            context,
            upstream.id(),
            CapabilityClass::BASE,
            before.as_deref(),
        );
        let stop = context.stop.child_token();
        let mut incarnation = [0; 4];
        context.ports.random.fill(&mut incarnation);
        let followed = Arc::new(FollowedUpstream::new(upstream, rules, stop.clone()));
        let source = Arc::new(Self {
            followed: followed.clone(),
            incarnation: u32::from_be_bytes(incarnation),
            is_first: predecessor.is_none(),
            timings: Arc::default(),
            base: base.clone(),
            others: Mutex::default(),
            carried_before: predecessor.map_or(CapabilityClass::BASE, Self::carried),
            stop: stop.clone(),
        });
        spawn_watcher(context, followed, base, stop);
        if let Some(old) = predecessor {
            source.follow_classes_of(context, old);
        }
        source
    }

    /// The class that weir carries to this upstream. Before the first walk, that of the predecessor:
    /// the server's revision may not be known yet.
    fn carried(&self) -> CapabilityClass {
        let carried = self.upstream().carries();
        let is_known = carried != CapabilityClass::BASE || self.base.peek().walks > 0;
        if is_known {
            carried
        } else {
            self.carried_before
        }
    }

    /// Follows the classes in which a predecessor is followed, as far as weir carries them to this
    /// upstream.
    fn follow_classes_of(&self, context: &Arc<CatalogContext>, old: &Self) {
        let carried = self.carried();
        let mut others = self.others.lock();
        for before in old.feeds() {
            let class = before.class;
            if class != CapabilityClass::BASE && class == class.cut(carried) {
                let feed = feed(context, self.id(), class, Some(&before.snapshot()));
                others.push(self.follow_class(context, feed));
            }
        }
    }

    /// Begins to follow the upstream in the class of a feed.
    fn follow_class(
        &self,
        context: &Arc<CatalogContext>,
        feed: Arc<ListFeed>,
    ) -> (Arc<ListFeed>, CancellationToken) {
        let stop = self.stop.child_token();
        spawn_watcher(context, self.followed.clone(), feed.clone(), stop.clone());
        (feed, stop)
    }

    pub(super) fn id(&self) -> &UpstreamId {
        self.followed.id()
    }

    pub(super) fn upstream(&self) -> &Arc<dyn Upstream> {
        &self.followed.server
    }

    pub(super) fn stale_lists(&self) -> &Arc<StaleListSignal> {
        &self.followed.stale_lists
    }

    pub(super) fn rules(&self) -> Arc<ResolvedRules> {
        self.followed.rules()
    }

    /// Takes the rules of a reload; equal ones are no change.
    pub(super) fn set_rules(&self, rules: UpstreamRules) {
        self.followed.set_rules(rules);
    }

    /// Asks for a list that the server does not declare, with this walk and all that follow, and
    /// waits until it was asked for once, or cannot be asked.
    pub(super) async fn ask_undeclared(&self, kind: ListKind) {
        if !self.followed.may_ask_undeclared(kind) {
            return;
        }
        if self.followed.add_undeclared(kind) {
            self.feeds()
                .iter()
                .for_each(|feed| feed.walk_now.notify_one());
        }
        self.base
            .wait_for(|snapshot| {
                snapshot.list(kind).is_asked_for || snapshot.state != ListState::Fresh
            })
            .await;
    }

    pub(super) fn base(&self) -> &Arc<ListFeed> {
        &self.base
    }

    /// The feed for clients of this class, which is first cut to the members that weir carries to
    /// this upstream. Starts to follow the class if need be. If too many are followed already,
    /// returns the base feed.
    pub(super) fn feed(
        &self,
        context: &Arc<CatalogContext>,
        class: CapabilityClass,
    ) -> Arc<ListFeed> {
        let class = class.cut(self.carried());
        if class == CapabilityClass::BASE || self.stop.is_cancelled() {
            return self.base.clone();
        }
        let mut others = self.others.lock();
        if let Some((feed, _)) = others.iter().find(|(feed, _)| feed.class == class) {
            return feed.clone();
        }
        if others.len() + 1 >= MAX_CLASSES {
            return self.base.clone();
        }
        let feed = feed(context, self.id(), class, None);
        others.push(self.follow_class(context, feed.clone()));
        feed
    }

    /// The feed of the lists that the server gives in a session to clients of this class, if the
    /// class is followed.
    pub(super) fn session_feed(&self, class: CapabilityClass) -> Option<Arc<ListFeed>> {
        let class = Some(class)
            .filter(|class| class.has(CapabilityClass::SESSIONS))?
            .cut(self.carried());
        let others = self.others.lock();
        let (feed, _) = others.iter().find(|(feed, _)| feed.class == class)?;
        Some(feed.clone())
    }

    /// The server's description of itself to clients of this class, or else to clients without
    /// sessions. Absent if the server was never reached.
    pub(super) fn description(&self, class: CapabilityClass) -> Option<Arc<ServerDescription>> {
        self.session_feed(class)
            .and_then(|feed| feed.snapshot().about.clone())
            .or_else(|| self.base.snapshot().about.clone())
    }

    /// All feeds, the base first.
    pub(super) fn feeds(&self) -> Vec<Arc<ListFeed>> {
        let others = self.others.lock();
        std::iter::once(&self.base)
            .chain(others.iter().map(|(feed, _)| feed))
            .cloned()
            .collect()
    }

    /// Ends the feeds of classes that are not in `used`, cut as [`Self::feed`] does.
    pub(super) fn keep(&self, used: &[CapabilityClass]) {
        let carried = self.carried();
        let mut others = self.others.lock();
        others.retain(|(feed, stop)| {
            let wanted = used.iter().any(|class| class.cut(carried) == feed.class);
            if !wanted {
                stop.cancel();
            }
            wanted
        });
    }

    /// Ends all feeds.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }
}

fn feed(
    context: &CatalogContext,
    id: &UpstreamId,
    class: CapabilityClass,
    before: Option<&UpstreamSnapshot>,
) -> Arc<ListFeed> {
    let wait = context.settings.first_list_wait;
    let feed = ListFeed::new(
        id.clone(),
        class,
        wait,
        UpstreamSnapshot::starting(context.wall(), before),
        context.rebuild.clone(),
    );
    if let Some(announcements) = &context.ports.announcements
        && let Some(lists) = announcements.watch().borrow().get(&feed.group())
    {
        feed.learn(*lists, Instant::now());
    }
    Arc::new(feed)
}

/// Follows an upstream in the class of a feed until `stop`.
fn spawn_watcher(
    context: &Arc<CatalogContext>,
    followed: Arc<FollowedUpstream>,
    feed: Arc<ListFeed>,
    stop: CancellationToken,
) {
    let own = context.clone();
    let watch = move || ListWatcher::new(own.clone(), followed.clone(), feed.clone()).run();
    context.tasks.spawn(async move {
        tokio::select! {
            // First: the end of an upstream that is not followed any more is no loss.
            biased;
            () = stop.cancelled() => {}
            never = run_supervised("list watch", watch) => match never {},
        }
    });
}
