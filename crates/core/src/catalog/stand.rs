//! The lists of one endpoint in the catalog: its upstreams, and a list view for each list and each
//! capability class that asks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::Instant;

use super::build::{Segments, build};
use super::changes::Board;
use super::shelf::Shelf;
use super::source::Source;
use super::view::{Said, Version, View};
use super::works::Works;
use crate::capability::CapabilityClass;
use crate::endpoint::Endpoint;
use crate::upstream::ListKind;

/// An endpoint as of one reload. State that clients hold on to is in [`Desks`], which outlives
/// reloads.
pub(super) struct Stand {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) sources: Vec<Arc<Source>>,
    pub(super) desks: Arc<Desks>,
}

/// The list views of one endpoint: at most one for each list and each of the few classes.
#[derive(Default)]
pub(super) struct Desks {
    open: ArcSwap<Vec<Arc<Desk>>>,
    /// Held while views are built, so that they are built one after the other.
    segments: Mutex<Segments>,
}

/// One list as clients of one class see it: the current view, older ones for their cursors, and
/// announcements.
pub(super) struct Desk {
    kind: ListKind,
    pub(super) class: CapabilityClass,
    current: ArcSwap<View>,
    shelf: Mutex<Shelf>,
    announcer: Mutex<Announcer>,
    /// Announces every new view, at once.
    pub(super) built: Arc<Board>,
    /// Announces changes that clients see, at a limited rate.
    pub(super) told: Arc<Board>,
    /// The time of the last access, in seconds of [`Works::seconds`].
    used: AtomicU64,
}

/// Holds announcements back so that clients are notified of one change in a window: the first at
/// once, the last always.
#[derive(Debug, Default)]
struct Announcer {
    last: Option<Instant>,
    dirty: bool,
}

impl Stand {
    /// Returns the list view for a class, made on its first use.
    pub(super) fn desk(
        &self,
        works: &Arc<Works>,
        kind: ListKind,
        class: CapabilityClass,
    ) -> Arc<Desk> {
        let desk = match self.desks.find(kind, class) {
            Some(desk) => desk,
            None => self.open(works, kind, class),
        };
        let now = works.seconds();
        // Only once a second: a store on every request would keep the cache line bouncing between
        // cores.
        if desk.used.load(Ordering::Relaxed) != now {
            desk.used.store(now, Ordering::Relaxed);
        }
        desk
    }

    fn open(&self, works: &Arc<Works>, kind: ListKind, class: CapabilityClass) -> Arc<Desk> {
        let mut segments = self
            .desks
            .segments
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(desk) = self.desks.find(kind, class) {
            return desk;
        }
        let view = build(
            works,
            (&self.endpoint, &self.sources),
            (kind, class),
            &mut segments,
            None,
        );
        report(&view, &View::empty());
        let desk = Arc::new(Desk {
            kind,
            class,
            current: ArcSwap::from_pointee(view),
            shelf: Mutex::default(),
            announcer: Mutex::default(),
            built: Arc::default(),
            told: Arc::default(),
            used: AtomicU64::new(works.seconds()),
        });
        let mut open = self.desks.all();
        open.push(desk.clone());
        self.desks.open.store(Arc::new(open));
        // A reload may have come in between: then this view is an old one.
        works.bell.notify_one();
        desk
    }

    /// Builds the views again and announces changes. Returns the due time of held-back
    /// announcements.
    pub(super) fn refresh(&self, works: &Arc<Works>, now: Instant) -> Option<Instant> {
        let mut segments = self
            .desks
            .segments
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let desks = self.desks.all();
        for desk in &desks {
            let before = desk.view();
            let of = (desk.kind, desk.class);
            let view = build(
                works,
                (&self.endpoint, &self.sources),
                of,
                &mut segments,
                Some(&before),
            );
            desk.show(view, &before, works, now);
        }
        drop(segments);
        desks
            .iter()
            .filter_map(|desk| desk.announce(now, works.settings.change_window))
            .min()
    }

    /// Closes list views that were not used for long, and drops unneeded segments. Returns the
    /// classes still in use.
    pub(super) fn tidy(&self, works: &Works) -> Vec<CapabilityClass> {
        let (now, idle) = (works.seconds(), works.settings.class_idle.as_secs());
        let mut segments = self
            .desks
            .segments
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut open = self.desks.all();
        open.retain(|desk| {
            let keep = desk.class == CapabilityClass::BASE || desk.is_used(now, idle);
            if !keep {
                // A client that took hold of it in this very moment has to come again.
                desk.close();
            }
            keep
        });
        let classes = open.iter().map(|desk| desk.class).collect();
        self.desks.open.store(Arc::new(open));
        segments.keep(&self.sources);
        classes
    }
}

impl Desks {
    /// The endpoint is gone.
    pub(super) fn close(&self) {
        self.all().iter().for_each(|desk| desk.close());
    }

    /// Wakes all waiting clients: the list that they see may be another now.
    pub(super) fn announce(&self) {
        self.all().iter().for_each(|desk| desk.told.announce());
    }

    fn find(&self, kind: ListKind, class: CapabilityClass) -> Option<Arc<Desk>> {
        self.open
            .load()
            .iter()
            .find(|desk| desk.class == class && desk.kind == kind)
            .cloned()
    }

    fn all(&self) -> Vec<Arc<Desk>> {
        self.open.load().to_vec()
    }
}

impl Desk {
    pub(super) fn view(&self) -> Arc<View> {
        self.current.load_full()
    }

    /// The view of this version, current or kept.
    pub(super) fn pinned(
        &self,
        version: Version,
        now: Instant,
        age: Duration,
    ) -> Option<Arc<View>> {
        let current = self.view();
        if current.version == version {
            return Some(current);
        }
        self.shelf
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .find(version, now, age)
    }

    fn show(&self, view: View, before: &Arc<View>, works: &Works, now: Instant) {
        let moved = view.version != before.version;
        let is_news = moved || Said::is_news_after(view.said, before.said);
        if moved {
            let bounds = (works.settings.pinned, works.settings.pinned_for);
            self.shelf
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .put(before.clone(), now, bounds);
            report(&view, before);
        }
        self.current.store(Arc::new(view));
        self.built.announce();
        // A client that comes later sees the new list anyway.
        if is_news && self.told.watchers() > 0 {
            self.announcer
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .dirty = true;
        }
    }

    /// Announces a pending change if its time has come; else returns its due time.
    fn announce(&self, now: Instant, window: Duration) -> Option<Instant> {
        let mut announcer = self
            .announcer
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !announcer.dirty {
            return None;
        }
        let due = announcer.last.map_or(now, |last| last + window);
        if due > now {
            return Some(due);
        }
        *announcer = Announcer {
            last: Some(now),
            dirty: false,
        };
        drop(announcer);
        self.told.announce();
        None
    }

    fn close(&self) {
        self.told.close();
        self.built.close();
    }

    fn is_used(&self, now: u64, idle: u64) -> bool {
        now.saturating_sub(self.used.load(Ordering::Relaxed)) < idle || self.told.watchers() > 0
    }
}

/// Logs new collisions, once.
fn report(view: &View, before: &View) {
    for collision in view
        .collisions
        .iter()
        .filter(|collision| !before.collisions.contains(collision))
    {
        tracing::warn!(
            exposed = &*collision.exposed, kept = %collision.kept, dropped = %collision.dropped,
            native = super::tool::plain(&collision.native, 64),
            "two tools would have the same name; one is not listed",
        );
    }
}
