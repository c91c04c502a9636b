//! The lists of one endpoint in the catalog: its upstreams, and a list view for each list and each
//! capability class that asks.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::time::Instant;
use weir_core::capability::CapabilityClass;
use weir_core::content_version::ContentVersion;
use weir_core::endpoint::Endpoint;
use weir_core::log_text::sanitize_text;
use weir_core::upstream::ListKind;

use crate::catalog_source::CatalogSource;
use crate::context::CatalogContext;
use crate::list_changes::ChangeBroadcast;
use crate::superseded_views::SupersededViews;
use crate::view::{ChangeCount, View};
use crate::view_builder::{EndpointSegments, ViewBuilder};

/// A class that no client has asked for in this time is not watched any more.
const CLASS_IDLE: Duration = Duration::from_secs(300);

/// An endpoint as of one reload. State that clients hold on to is in [`ListViews`], which outlives
/// reloads.
pub(super) struct EndpointLists {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) sources: Vec<Arc<CatalogSource>>,
    pub(super) list_views: Arc<ListViews>,
}

/// The list views of one endpoint: at most one for each list and each of the few classes.
#[derive(Default)]
pub(super) struct ListViews {
    open: ArcSwap<Vec<Arc<ListView>>>,
    /// Held while views are built, so that they are built one after the other.
    segments: Mutex<EndpointSegments>,
}

/// One list as clients of one class see it: the current view, older ones for their cursors, and
/// announcements.
pub(super) struct ListView {
    kind: ListKind,
    pub(super) class: CapabilityClass,
    current: ArcSwap<View>,
    superseded: Mutex<SupersededViews>,
    announcer: Mutex<AnnouncementThrottle>,
    /// Announces every new view, at once.
    pub(super) view_changes: Arc<ChangeBroadcast>,
    /// Announces changes that clients see, at a limited rate.
    pub(super) announcements: Arc<ChangeBroadcast>,
    /// True if the list was read since the last look at [`Self::last_used`].
    was_used: AtomicBool,
    /// The time of the last look that found it read, in seconds of [`CatalogContext::seconds`].
    last_used: AtomicU64,
}

/// Holds announcements back so that clients are notified of one change in a window: the first at
/// once, the last always.
#[derive(Debug, Default)]
struct AnnouncementThrottle {
    last: Option<Instant>,
    is_pending: bool,
}

impl EndpointLists {
    /// Returns the list view for a class, made on its first use.
    pub(super) fn list_view(
        &self,
        context: &Arc<CatalogContext>,
        kind: ListKind,
        class: CapabilityClass,
    ) -> Arc<ListView> {
        let list_view = match self.list_views.find(kind, class) {
            Some(list_view) => list_view,
            None => self.open(context, kind, class),
        };
        list_view.mark_used();
        list_view
    }

    /// Returns the current view of a class.
    pub(super) fn view(
        &self,
        context: &Arc<CatalogContext>,
        kind: ListKind,
        class: CapabilityClass,
    ) -> Arc<View> {
        // The list view itself is not cloned: all cores would write to its reference count.
        match find_list_view(&self.list_views.open.load(), kind, class) {
            Some(list_view) => {
                list_view.mark_used();
                list_view.view()
            }
            None => self.open(context, kind, class).view(),
        }
    }

    fn open(
        &self,
        context: &Arc<CatalogContext>,
        kind: ListKind,
        class: CapabilityClass,
    ) -> Arc<ListView> {
        let mut segments = self.list_views.segments.lock();
        if let Some(list_view) = self.list_views.find(kind, class) {
            return list_view;
        }
        let builder = self.view_builder(context, kind, class);
        let view = builder.build(&mut segments, None);
        log_collisions(&view, &View::empty());
        let list_view = Arc::new(ListView {
            kind,
            class,
            current: ArcSwap::from_pointee(view),
            superseded: Mutex::default(),
            announcer: Mutex::default(),
            view_changes: Arc::default(),
            announcements: Arc::default(),
            was_used: AtomicBool::new(true),
            last_used: AtomicU64::new(context.seconds()),
        });
        let mut open = self.list_views.all();
        open.push(list_view.clone());
        self.list_views.open.store(Arc::new(open));
        // A reload may have come in between: then this view is an old one.
        context.rebuild.request();
        list_view
    }

    fn view_builder<'a>(
        &'a self,
        context: &'a Arc<CatalogContext>,
        kind: ListKind,
        class: CapabilityClass,
    ) -> ViewBuilder<'a> {
        ViewBuilder {
            context,
            endpoint: &self.endpoint,
            sources: &self.sources,
            kind,
            class,
        }
    }

    /// Builds the views again and announces changes. Returns the due time of held-back
    /// announcements.
    pub(super) fn refresh_views(
        &self,
        context: &Arc<CatalogContext>,
        now: Instant,
    ) -> Option<Instant> {
        let mut segments = self.list_views.segments.lock();
        let list_views = self.list_views.all();
        for list_view in &list_views {
            let before = list_view.view();
            let builder = self.view_builder(context, list_view.kind, list_view.class);
            let view = builder.build(&mut segments, Some(&before));
            list_view.show(view, &before, context, now);
        }
        drop(segments);
        list_views
            .iter()
            .filter_map(|list_view| list_view.announce_if_due(now, context.settings.change_window))
            .min()
    }

    /// Closes list views that were not used for long, and drops unneeded segments and superseded
    /// views of which no cursor is good any more. Returns the classes still in use.
    pub(super) fn drop_unused(&self, context: &CatalogContext) -> Vec<CapabilityClass> {
        let (now, idle) = (context.seconds(), CLASS_IDLE.as_secs());
        let mut segments = self.list_views.segments.lock();
        let mut open = self.list_views.all();
        open.retain(|list_view| {
            let keep = list_view.class == CapabilityClass::BASE || list_view.note_use(now, idle);
            if !keep {
                // A client that took hold of it in this very moment has to come again.
                list_view.close();
            }
            keep
        });
        let classes = open.iter().map(|list_view| list_view.class).collect();
        self.list_views.open.store(Arc::new(open));
        segments.keep(&self.sources);
        for list_view in self.list_views.all() {
            list_view.superseded.lock().drop_older(Instant::now());
        }
        classes
    }

    /// The versions of all views, current and superseded.
    pub(super) fn versions(&self) -> HashSet<ContentVersion> {
        let mut versions = HashSet::new();
        for list_view in self.list_views.all() {
            versions.insert(list_view.view().version);
            versions.extend(list_view.superseded.lock().versions());
        }
        versions
    }
}

impl ListViews {
    /// The endpoint is gone.
    pub(super) fn close(&self) {
        self.all().iter().for_each(|list_view| list_view.close());
    }

    /// Wakes all waiting clients: the list that they see may be another now.
    pub(super) fn announce_all(&self) {
        self.all()
            .iter()
            .for_each(|list_view| list_view.announcements.announce());
    }

    fn find(&self, kind: ListKind, class: CapabilityClass) -> Option<Arc<ListView>> {
        find_list_view(&self.open.load(), kind, class).cloned()
    }

    fn all(&self) -> Vec<Arc<ListView>> {
        self.open.load().to_vec()
    }
}

impl ListView {
    pub(super) fn view(&self) -> Arc<View> {
        self.current.load_full()
    }

    /// The view of this version, current or kept.
    pub(super) fn pinned(&self, version: ContentVersion, now: Instant) -> Option<Arc<View>> {
        let current = self.view();
        if current.version == version {
            return Some(current);
        }
        self.superseded.lock().find(version, now)
    }

    fn mark_used(&self) {
        // A store on every request would keep the cache line bouncing between cores.
        if !self.was_used.load(Ordering::Relaxed) {
            self.was_used.store(true, Ordering::Relaxed);
        }
    }

    fn show(&self, view: View, before: &Arc<View>, context: &CatalogContext, now: Instant) {
        let moved = view.version != before.version;
        let has_changed = moved
            || view.repeat_count() > before.repeat_count()
            || ChangeCount::has_grown_since(view.change_count, before.change_count);
        if moved {
            let most = context.settings.superseded_views;
            self.superseded.lock().put(before.clone(), now, most);
            log_collisions(&view, before);
        }
        self.current.store(Arc::new(view));
        self.view_changes.announce();
        // A client that comes later sees the new list anyway.
        if has_changed && self.announcements.watchers() > 0 {
            self.announcer.lock().is_pending = true;
        }
    }

    /// Announces a pending change if its time has come; else returns its due time.
    fn announce_if_due(&self, now: Instant, window: Duration) -> Option<Instant> {
        let mut announcer = self.announcer.lock();
        if !announcer.is_pending {
            return None;
        }
        let due = announcer.last.map_or(now, |last| last + window);
        if due > now {
            return Some(due);
        }
        *announcer = AnnouncementThrottle {
            last: Some(now),
            is_pending: false,
        };
        drop(announcer);
        self.announcements.announce();
        None
    }

    fn close(&self) {
        self.announcements.close();
        self.view_changes.close();
    }

    /// Notes the reads since the last look, and returns true if the list was read in the last
    /// `idle` seconds or is watched.
    fn note_use(&self, now: u64, idle: u64) -> bool {
        if self.was_used.swap(false, Ordering::Relaxed) {
            self.last_used.store(now, Ordering::Relaxed);
        }
        now.saturating_sub(self.last_used.load(Ordering::Relaxed)) < idle
            || self.announcements.watchers() > 0
    }
}

fn find_list_view(
    open: &[Arc<ListView>],
    kind: ListKind,
    class: CapabilityClass,
) -> Option<&Arc<ListView>> {
    open.iter()
        .find(|list_view| list_view.class == class && list_view.kind == kind)
}

/// Logs new collisions, once.
fn log_collisions(view: &View, before: &View) {
    for collision in view
        .collisions
        .iter()
        .filter(|collision| !before.collisions.contains(collision))
    {
        tracing::warn!(
            exposed = &*collision.exposed, kept = %collision.kept, dropped = %collision.dropped,
            native = sanitize_text(&collision.native, 64),
            "tool name collision: one tool is not listed",
        );
    }
}
