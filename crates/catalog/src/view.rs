//! The list that one endpoint shows to one capability class: immutable, and built off the request
//! path.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use weir_core::capability::CapabilityClass;
use weir_core::catalog_item::CatalogItem;
use weir_core::content_version::ContentVersion;
use weir_core::fast::{FastMap, FastState};
use weir_core::names::UpstreamId;

use crate::list_state::IncompleteReason;
use weir_items::ReservedNames;

/// The longest freshness that weir ever promises, even if an upstream promises more (D15).
const MAX_TTL: Duration = Duration::from_secs(300);

/// The list of an endpoint that does not exist.
pub(super) static EMPTY_VIEW: LazyLock<Arc<View>> = LazyLock::new(|| Arc::new(View::empty()));

/// An upstream with a part of the list that is not whole and fresh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncompleteUpstream {
    /// The upstream.
    pub upstream: UpstreamId,
    /// The reason.
    pub reason: IncompleteReason,
    /// The start of this state.
    pub since: SystemTime,
}

/// A tool that is not shown, because another one already has the name it would get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameCollision {
    /// The name that both would have.
    pub exposed: Arc<str>,
    /// The upstream of the tool that has it.
    pub kept: UpstreamId,
    /// The upstream of the tool that is left out.
    pub dropped: UpstreamId,
    /// Its native name.
    pub native: Arc<str>,
}

/// A list as clients of one capability class see it on one endpoint. Items are in config order,
/// then in the order of the upstream.
pub struct View {
    /// Digest of names and items.
    pub version: ContentVersion,
    /// The items.
    pub items: Arc<[CatalogItem]>,
    /// The upstreams with a part that is not whole and fresh, in config order.
    pub missing: Vec<IncompleteUpstream>,
    /// Tools that could not be shown.
    pub collisions: Arc<[NameCollision]>,
    /// True if any cache may keep the list: only if every upstream that contributes permits it.
    pub public: bool,
    /// True once every upstream's first walk has ended, well or badly.
    pub settled: bool,
    /// True if it has items of one client's session.
    pub is_of_session: bool,
    /// True if every upstream was asked for the list.
    pub(super) is_asked_for: bool,
    pub(super) name_index: Arc<NameIndex>,
    pub(super) freshness: Freshness,
    /// The end of waiting for first walks, while some have not ended.
    pub(super) wait_until: Option<Instant>,
    /// True once a cursor into this view was handed out.
    pub(super) has_cursors: AtomicBool,
    /// See [`Self::content`]; computed on its first use.
    pub(super) content: OnceLock<ContentVersion>,
    /// The change notifications of a transparent endpoint's server, for clients that see all of its
    /// list.
    pub(super) change_count: Option<ChangeCount>,
    /// The number of repeated notifications of each upstream that has some.
    pub(super) repeats: Arc<[(UpstreamId, u64)]>,
}

/// The number of `list_changed` notifications of a server to clients of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChangeCount {
    pub(super) class: CapabilityClass,
    pub(super) times: u64,
}

impl ChangeCount {
    /// True if the server sent one since `before`. Those to clients of another class do not count.
    pub(super) fn has_grown_since(current: Option<Self>, before: Option<Self>) -> bool {
        current
            .zip(before)
            .is_some_and(|(now, before)| now.class == before.class && now.times > before.times)
    }
}

/// The result of looking a name up.
#[derive(Clone, Copy, Debug)]
pub enum NameLookup<'a> {
    /// The name as the endpoint shows it.
    Exposed(&'a CatalogItem),
    /// An upstream's own name, of exactly one tool.
    Native(&'a CatalogItem),
    /// An upstream's own name, of several tools.
    Ambiguous,
    /// No item has the name.
    Unknown,
}

impl<'a> NameLookup<'a> {
    /// The item, if there is exactly one.
    #[must_use]
    pub fn item(self) -> Option<&'a CatalogItem> {
        match self {
            Self::Exposed(item) | Self::Native(item) => Some(item),
            Self::Ambiguous | Self::Unknown => None,
        }
    }
}

impl View {
    /// The number of repeated notifications of all its upstreams.
    pub(super) fn repeat_count(&self) -> u64 {
        self.repeats.iter().map(|(_, times)| times).sum()
    }

    /// Looks a name up: as exposed first, then as a native name that exactly one tool has.
    #[must_use]
    pub fn find(&self, name: &str) -> NameLookup<'_> {
        if let Some(at) = self.name_index.exposed.get(name) {
            return NameLookup::Exposed(&self.items[*at as usize]);
        }
        match self.name_index.native.get(name) {
            Some(Some(at)) => NameLookup::Native(&self.items[*at as usize]),
            Some(None) => NameLookup::Ambiguous,
            None => NameLookup::Unknown,
        }
    }

    /// True if an item has this name on the endpoint, or another upstream that is away keeps it from
    /// this one.
    pub(super) fn is_taken(&self, name: &str, upstream: &UpstreamId) -> bool {
        let keeper = self.name_index.kept.get(name);
        self.name_index.exposed.contains_key(name) || keeper.is_some_and(|id| id != upstream)
    }

    /// The names of items that are not shown because their upstreams are away, each with its
    /// upstream. No other item has such a name, and none is found under it. Empty unless the endpoint
    /// names items without a prefix.
    #[must_use]
    pub fn kept_names(&self) -> &KeptNames {
        &self.name_index.kept
    }

    /// True if an item may ask for its arguments as headers
    /// ([`weir_core::server_item::ServerItem::has_header_arguments`]): few lists have one.
    #[must_use]
    pub fn is_mirrored(&self) -> bool {
        self.name_index.mirrored
    }

    /// The milliseconds from now that a client may keep the list: the smallest of the remaining
    /// promises of the upstreams and of weir, and 0 if an upstream is pending, down or stale.
    #[must_use]
    pub fn ttl_ms(&self) -> u64 {
        self.freshness
            .left(Instant::now())
            .as_millis()
            .try_into()
            .unwrap_or(0)
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("version", &self.version)
            .field("items", &self.items.len())
            .field("missing", &self.missing)
            .field("settled", &self.settled)
            .finish_non_exhaustive()
    }
}

/// Names of items that are not shown, each with its upstream.
pub type KeptNames = FastMap<Arc<str>, UpstreamId>;

/// The part of a view that stays while only its state changes.
#[derive(Debug)]
pub(super) struct NameIndex {
    exposed: FastMap<Arc<str>, u32>,
    /// Native names that no other item of the endpoint can have.
    native: FastMap<Arc<str>, Option<u32>>,
    mirrored: bool,
    pub(super) reserved: Arc<ReservedNames>,
    /// See [`View::kept_names`].
    pub(super) kept: Arc<KeptNames>,
}

impl NameIndex {
    /// `exposed` holds the position of every item by its name.
    pub(super) fn index(
        exposed: FastMap<Arc<str>, u32>,
        items: &[CatalogItem],
        reserved: Arc<ReservedNames>,
        kept: Arc<KeptNames>,
    ) -> Self {
        let mut native: FastMap<Arc<str>, Option<u32>> =
            FastMap::with_capacity_and_hasher(items.len(), FastState::default());
        for (at, item) in (0u32..).zip(items) {
            if !reserved.permits_native(&item.tool) || kept.contains_key(&item.tool.native) {
                continue;
            }
            native
                .entry(item.tool.native.clone())
                .and_modify(|at| *at = None)
                .or_insert(Some(at));
        }
        let mirrored = items.iter().any(|item| item.tool.has_header_arguments);
        Self {
            exposed,
            native,
            mirrored,
            reserved,
            kept,
        }
    }

    /// The index of some of the items: a name of one of the others means none of these.
    pub(super) fn index_part(&self, items: &[CatalogItem]) -> Self {
        let exposed = (0u32..)
            .zip(items)
            .map(|(at, item)| (item.exposed.clone(), at))
            .collect();
        let mut part = Self::index(exposed, items, self.reserved.clone(), self.kept.clone());
        part.native
            .retain(|name, _| !self.exposed.contains_key(name));
        part
    }
}

/// The time that a list may be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Freshness {
    /// The earliest end of an upstream's own promise.
    pub(super) until: Option<Instant>,
    /// The smallest of weir's own promises for upstreams that make none.
    pub(super) promise: Duration,
}

impl Freshness {
    /// Not limited yet.
    pub(super) const OPEN: Self = Self {
        until: None,
        promise: MAX_TTL,
    };
    /// Not to be kept.
    pub(super) const NONE: Self = Self {
        until: None,
        promise: Duration::ZERO,
    };

    /// The narrower of both.
    pub(super) fn narrow(self, other: Self) -> Self {
        let until = match (self.until, other.until) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self {
            until,
            promise: self.promise.min(other.promise),
        }
    }

    fn left(self, now: Instant) -> Duration {
        let own = self
            .until
            .map_or(MAX_TTL, |until| until.saturating_duration_since(now));
        own.min(self.promise).min(MAX_TTL)
    }
}

impl View {
    /// The list of an endpoint that does not exist.
    pub(super) fn empty() -> Self {
        Self {
            version: ContentVersion::default(),
            items: Arc::new([]),
            missing: Vec::new(),
            collisions: Arc::new([]),
            public: false,
            settled: true,
            is_asked_for: true,
            is_of_session: false,
            name_index: Arc::new(NameIndex::index(
                FastMap::default(),
                &[],
                Arc::new(ReservedNames::none()),
                Arc::default(),
            )),
            freshness: Freshness::NONE,
            wait_until: None,
            has_cursors: AtomicBool::new(false),
            content: OnceLock::new(),
            change_count: None,
            repeats: Arc::new([]),
        }
    }

    /// A digest of the content that clients see, equal for equal content: a part that has all items
    /// of the whole has its digest.
    pub(super) fn content(&self) -> ContentVersion {
        *self.content.get_or_init(|| content(&self.items))
    }

    pub(super) fn promise_cursor(&self) {
        self.has_cursors.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_promised(&self) -> bool {
        self.has_cursors.load(Ordering::Relaxed)
    }
}

/// The digest of items under their names.
pub(super) fn content(items: &[CatalogItem]) -> ContentVersion {
    let mut parts: Vec<&[u8]> = Vec::with_capacity(items.len() * 2 + 1);
    parts.push(b"content");
    for item in items {
        parts.push(item.exposed.as_bytes());
        parts.push(&item.tool.digest.0);
    }
    ContentVersion::of(&parts)
}
