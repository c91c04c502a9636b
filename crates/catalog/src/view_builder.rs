//! Builds a view of one endpoint for one capability class from the feeds of its upstreams. It is a
//! pure function of the feeds, so that every replica shows the same list in the same order.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use weir_core::capability::CapabilityClass;
use weir_core::catalog_item::CatalogItem;
use weir_core::content_version::ContentVersion;
use weir_core::endpoint::{Endpoint, EndpointMode, NamePrefix};
use weir_core::fast::{FastMap, FastState};
use weir_core::names::UpstreamId;
use weir_core::server_item::ServerItem;
use weir_core::upstream::ListKind;

use crate::catalog_source::CatalogSource;
use crate::closed_upstreams::ClosedUpstream;
use crate::context::CatalogContext;
use crate::list_feed::{ListFeed, UpstreamSnapshot};
use crate::list_state::IncompleteReason;
use crate::view::{
    ChangeCount, Freshness, IncompleteUpstream, KeptNames, NameCollision, NameIndex, View,
};
use weir_items::{ListEntry, ReservedNames, ResolvedRules};

/// The named items of one upstream on one endpoint, kept until its tools or rules change.
#[derive(Clone)]
struct UpstreamSegment {
    tools: Arc<[Arc<ServerItem>]>,
    /// The list that clients without sessions see, if it differs.
    sessionless: Option<Arc<[Arc<ServerItem>]>>,
    rules: Arc<ResolvedRules>,
    entries: Arc<[ListEntry]>,
    digest: ContentVersion,
    /// True if the items are not shown, and only keep their names.
    is_away: bool,
}

/// The segments of one endpoint, by upstream and the class they were listed for.
#[derive(Default)]
pub(super) struct EndpointSegments {
    /// The endpoint whose naming the segments follow.
    endpoint: Option<Endpoint>,
    reserved: Option<Arc<ReservedNames>>,
    known: HashMap<(UpstreamId, CapabilityClass, ListKind), UpstreamSegment>,
}

/// The contribution of one upstream to a view.
struct UpstreamPart {
    feed: Arc<ListFeed>,
    /// The snapshot that is shown.
    shown: Arc<UpstreamSnapshot>,
    /// The snapshot that clients without sessions see, if the server has another list for clients
    /// with sessions. Items that are in it alone can be called by all.
    sessionless: Option<Arc<UpstreamSnapshot>>,
    reason: Option<IncompleteReason>,
    walked: bool,
    /// True if the items are not shown, and only keep their names.
    is_away: bool,
}

impl UpstreamPart {
    /// The names of an upstream that an operator took out. No class of it is followed for them.
    fn of_closed(source: &Arc<CatalogSource>) -> Self {
        Self {
            feed: source.base().clone(),
            shown: source.base().snapshot(),
            sessionless: None,
            reason: None,
            walked: true,
            is_away: true,
        }
    }

    fn of(builder: &ViewBuilder<'_>, source: &Arc<CatalogSource>) -> Self {
        let kind = builder.kind;
        let feed = source.feed(builder.context, builder.class);
        let own = feed.snapshot();
        let (walked, known) = (own.walked, own.state.was_read());
        // A list of the class without an answer leaves nothing to show.
        let is_given = own.reason(kind) != Some(IncompleteReason::Down);
        if (known && is_given) || feed.class == CapabilityClass::BASE {
            let sessionless = feed
                .class
                .has(CapabilityClass::SESSIONS)
                .then(|| source.base().snapshot());
            return Self {
                feed,
                reason: own.reason(kind),
                is_away: builder.keeps_names() && own.list(kind).is_dropped(),
                shown: own,
                sessionless,
                walked,
            };
        }
        // Until the list for this class is known, the base list is shown in its place.
        let shown = source.base().snapshot();
        let reason = match shown.reason(kind) {
            // The list of the class may have more.
            None | Some(IncompleteReason::Stale | IncompleteReason::Truncated) if !walked => {
                IncompleteReason::Pending
            }
            reason => reason.unwrap_or(IncompleteReason::Stale),
        };
        Self {
            feed: source.base().clone(),
            is_away: builder.keeps_names() && shown.list(kind).is_dropped(),
            shown,
            sessionless: None,
            reason: Some(reason),
            walked,
        }
    }
}

/// The inputs of one view besides the views before it.
#[derive(Clone, Copy)]
pub(super) struct ViewBuilder<'a> {
    /// The shared parts of the catalog.
    pub(super) context: &'a Arc<CatalogContext>,
    /// The endpoint that shows the view.
    pub(super) endpoint: &'a Endpoint,
    /// The upstreams of the endpoint, in config order.
    pub(super) sources: &'a [Arc<CatalogSource>],
    /// The kind of the list.
    pub(super) kind: ListKind,
    /// The class of the clients that see the view.
    pub(super) class: CapabilityClass,
}

impl ViewBuilder<'_> {
    /// True if items that are not shown keep their names. With a prefix, no upstream gets a name of
    /// another one.
    fn keeps_names(&self) -> bool {
        matches!(
            &self.endpoint.mode,
            EndpointMode::Aggregate {
                prefix: NamePrefix::None,
                ..
            }
        )
    }

    /// Builds the view. Parts of `before` that did not change are shared.
    pub(super) fn build(&self, segments: &mut EndpointSegments, before: Option<&View>) -> View {
        let Self {
            context,
            endpoint,
            sources,
            kind,
            ..
        } = *self;
        let reserved = segments.follow(endpoint);
        let mut status = ViewStatus::new(!sources.is_empty());
        let mut used = Vec::with_capacity(sources.len());
        let (mut change_count, mut repeats) = (None, Vec::new());
        let is_as_it_is = endpoint.mode.is_transparent() && endpoint.tools.is_none();
        for source in sources {
            if let Some(closed) = context.closed_upstreams.find(source.id()) {
                status.closed(source, closed);
                if self.keeps_names() {
                    let part = UpstreamPart::of_closed(source);
                    used.push(segments.of(endpoint, source, kind, &part));
                }
                continue;
            }
            let part = UpstreamPart::of(self, source);
            status.add(self, source, &part);
            let repeated = part.shown.repeats[kind as usize];
            if repeated > 0 {
                repeats.push((source.id().clone(), repeated));
            }
            if is_as_it_is {
                change_count = Some(ChangeCount {
                    class: part.feed.class,
                    times: part.shown.change_counts[kind as usize],
                });
            }
            used.push(segments.of(endpoint, source, kind, &part));
        }
        let version = version(endpoint, kind, &used, &reserved);
        let is_same = |before: &&View| {
            before.version == version
                && Arc::ptr_eq(&before.name_index.reserved, &reserved)
                && same_terms(before, &used)
        };
        let list = match before.filter(is_same) {
            Some(same) => AssembledList {
                items: same.items.clone(),
                collisions: same.collisions.clone(),
                body: same.name_index.clone(),
            },
            None => assemble(&used, &reserved),
        };
        View {
            version,
            items: list.items,
            missing: status.missing,
            collisions: list.collisions,
            public: status.public,
            settled: status.settled,
            is_asked_for: status.is_asked_for,
            is_of_session: false,
            name_index: list.body,
            freshness: status.freshness,
            wait_until: status.wait_until,
            has_cursors: AtomicBool::new(
                before.is_some_and(|before| before.version == version && before.is_promised()),
            ),
            content: std::sync::OnceLock::new(),
            change_count,
            repeats: repeats.into(),
        }
    }
}

struct ViewStatus {
    missing: Vec<IncompleteUpstream>,
    public: bool,
    settled: bool,
    is_asked_for: bool,
    freshness: Freshness,
    wait_until: Option<tokio::time::Instant>,
}

impl ViewStatus {
    fn new(any: bool) -> Self {
        let freshness = if any {
            Freshness::OPEN
        } else {
            Freshness::NONE
        };
        Self {
            missing: Vec::new(),
            public: any,
            settled: true,
            is_asked_for: true,
            freshness,
            wait_until: None,
        }
    }

    fn add(&mut self, builder: &ViewBuilder<'_>, source: &Arc<CatalogSource>, part: &UpstreamPart) {
        let kind = builder.kind;
        let (shown, list) = (&part.shown, part.shown.list(kind));
        if let Some(reason) = part.reason {
            self.missing.push(IncompleteUpstream {
                upstream: source.id().clone(),
                reason,
                since: shown.since(kind),
            });
        }
        let whole = matches!(part.reason, None | Some(IncompleteReason::Truncated))
            && !part.feed.is_behind();
        for list in
            std::iter::once(list).chain(part.sessionless.as_ref().map(|shown| shown.list(kind)))
        {
            self.public &= list.public;
            self.freshness = self.freshness.narrow(if whole {
                list.freshness
            } else {
                Freshness::NONE
            });
        }
        self.is_asked_for &= list.is_asked_for;
        if !part.walked {
            self.settled = false;
            self.wait_until = self
                .wait_until
                .max(Some(source.feed(builder.context, builder.class).wait_until));
        }
    }

    /// An upstream that an operator took out shows no items, and no list waits for it.
    fn closed(&mut self, source: &CatalogSource, closed: ClosedUpstream) {
        self.missing.push(IncompleteUpstream {
            upstream: source.id().clone(),
            reason: IncompleteReason::Disabled,
            since: closed.since,
        });
        self.freshness = Freshness::NONE;
    }
}

impl EndpointSegments {
    /// Drops names that were made by another rule. Returns the reserved names of the endpoint.
    fn follow(&mut self, endpoint: &Endpoint) -> Arc<ReservedNames> {
        if self.endpoint.as_ref() != Some(endpoint) {
            *self = Self {
                endpoint: Some(endpoint.clone()),
                ..Self::default()
            };
        }
        let reserved = || Arc::new(ReservedNames::of(endpoint));
        self.reserved.get_or_insert_with(reserved).clone()
    }

    fn of(
        &mut self,
        endpoint: &Endpoint,
        source: &CatalogSource,
        kind: ListKind,
        part: &UpstreamPart,
    ) -> UpstreamSegment {
        let list = part.shown.list(kind);
        let (is_away, rules) = (part.is_away, source.rules());
        let tools = if is_away {
            list.last_items()
        } else {
            &list.items
        };
        let sessionless = part
            .sessionless
            .as_ref()
            .map(|shown| &shown.list(kind).items);
        let key = (source.id().clone(), part.feed.class, kind);
        if let Some(known) = self.known.get(&key)
            && Arc::ptr_eq(&known.tools, tools)
            && known.is_away == is_away
            && known.sessionless.as_ref().map(Arc::as_ptr) == sessionless.map(Arc::as_ptr)
            && Arc::ptr_eq(&known.rules, &rules)
        {
            return known.clone();
        }
        let own = tools
            .iter()
            .filter_map(|tool| ListEntry::new(endpoint, tool, &rules));
        let only_without_sessions = only_in(sessionless.map_or(&[][..], |tools| tools), tools);
        let bridged = only_without_sessions.filter_map(|tool| {
            let entry = ListEntry::new(endpoint, tool, &rules)?;
            Some(ListEntry {
                listed_without: CapabilityClass::SESSIONS,
                ..entry
            })
        });
        let entries: Arc<[ListEntry]> = own.chain(bridged).collect();
        let mut parts: Vec<&[u8]> = Vec::with_capacity(entries.len() * 3 + 1);
        if is_away {
            parts.push(b"away");
        }
        for entry in &*entries {
            parts.push(entry.name.as_bytes());
            parts.push(entry.otherwise.as_deref().unwrap_or_default().as_bytes());
            parts.push(&entry.tool.digest.0);
        }
        let digest = ContentVersion::of(&parts);
        let (tools, sessionless) = (tools.clone(), sessionless.cloned());
        let segment = UpstreamSegment {
            tools,
            sessionless,
            rules,
            entries,
            digest,
            is_away,
        };
        self.known.insert(key, segment.clone());
        segment
    }

    /// Drops upstreams and classes that are not followed any more.
    pub(super) fn keep(&mut self, sources: &[Arc<CatalogSource>]) {
        let live: Vec<_> = sources
            .iter()
            .flat_map(|source| source.feeds())
            .map(|f| (f.upstream.clone(), f.class))
            .collect();
        self.known
            .retain(|(id, class, _), _| live.iter().any(|(known, at)| known == id && at == class));
    }
}

/// The tools of the first list whose names the second does not have.
fn only_in<'a>(
    tools: &'a [Arc<ServerItem>],
    others: &'a [Arc<ServerItem>],
) -> impl Iterator<Item = &'a Arc<ServerItem>> {
    let others = if tools.is_empty() { &[][..] } else { others };
    let known: HashSet<&str, FastState> = others.iter().map(|tool| &*tool.native).collect();
    tools
        .iter()
        .filter(move |tool| !known.contains(&*tool.native))
}

fn version(
    endpoint: &Endpoint,
    kind: ListKind,
    used: &[UpstreamSegment],
    reserved: &ReservedNames,
) -> ContentVersion {
    let mode: &[u8] = match &endpoint.mode {
        EndpointMode::Transparent(_) => b"t",
        EndpointMode::Aggregate {
            prefix: NamePrefix::Always,
            ..
        } => b"a",
        EndpointMode::Aggregate {
            prefix: NamePrefix::None,
            ..
        } => b"n",
    };
    // An upstream without entries leaves no trace: the list is the same without it.
    let shown = used
        .iter()
        .filter(|segment| !segment.entries.is_empty())
        .map(|segment| &segment.digest.0[..]);
    // An alias takes a name away from other tools, also while its own tool is not listed.
    let aliases = match kind {
        ListKind::Tools => reserved.sorted_aliases(),
        ListKind::Prompts | ListKind::Resources | ListKind::Templates => Vec::new(),
    };
    ContentVersion::of(
        &[kind.word().as_bytes(), mode]
            .into_iter()
            .chain(aliases.iter().map(|alias| alias.as_bytes()))
            .chain(shown)
            .collect::<Vec<_>>(),
    )
}

/// Rules are not part of the version, because clients do not see them; items carry them all the
/// same.
fn same_terms(before: &View, used: &[UpstreamSegment]) -> bool {
    let mut entries = used.iter().flat_map(|segment| segment.entries.iter());
    before.items.iter().all(|item| {
        let known = entries
            .by_ref()
            .find(|entry| Arc::ptr_eq(&entry.tool, &item.tool));
        known.is_some_and(|entry| {
            Arc::ptr_eq(&entry.terms, &item.terms) && entry.listed_without == item.listed_without
        })
    })
}

struct AssembledList {
    items: Arc<[CatalogItem]>,
    collisions: Arc<[NameCollision]>,
    body: Arc<NameIndex>,
}

/// Gives every entry its name, first come first served in config order, and reports those that get
/// no name. A name that the operator chose is never another tool's, whether its own tool is listed or
/// not: an upstream could take it otherwise. Entries that are not shown get names, too, so that a call
/// never goes to another upstream because its own is away.
fn assemble(used: &[UpstreamSegment], reserved: &Arc<ReservedNames>) -> AssembledList {
    let entries = || {
        used.iter().flat_map(|segment| {
            let entries = segment.entries.iter();
            entries.zip(std::iter::repeat(segment.is_away))
        })
    };
    let chosen: HashMap<&str, &ServerItem> = entries()
        .filter(|(entry, _)| entry.chosen)
        .map(|(entry, _)| (&*entry.name, &*entry.tool))
        .collect();
    let count = used.iter().map(|segment| segment.entries.len()).sum();
    let mut items: Vec<CatalogItem> = Vec::with_capacity(count);
    let mut taken: FastMap<Arc<str>, u32> =
        FastMap::with_capacity_and_hasher(count, FastState::default());
    let (mut collisions, mut kept_names) = (Vec::new(), KeptNames::default());
    for (entry, is_away) in entries() {
        let is_taken = |name: &str| taken.contains_key(name) || kept_names.contains_key(name);
        let name = entry.first_free_name(reserved, is_taken);
        if is_away {
            kept_names.extend(name.map(|name| (name.clone(), entry.tool.upstream.clone())));
            continue;
        }
        let Some(name) = name else {
            let holder = taken.get(&entry.name).map(|at| &*items[*at as usize].tool);
            let holder = holder.or_else(|| chosen.get(&*entry.name).copied());
            let kept = holder
                .map(|tool| &tool.upstream)
                .or_else(|| kept_names.get(&entry.name))
                .or_else(|| reserved.alias_owner(&entry.name))
                .unwrap_or(&entry.tool.upstream)
                .clone();
            let (dropped, native) = (entry.tool.upstream.clone(), entry.tool.native.clone());
            collisions.push(NameCollision {
                exposed: entry.name.clone(),
                kept,
                dropped,
                native,
            });
            continue;
        };
        taken.insert(name.clone(), u32::try_from(items.len()).unwrap_or(u32::MAX));
        let (tool, terms, listed_without) = (
            entry.tool.clone(),
            entry.terms.clone(),
            entry.listed_without,
        );
        items.push(CatalogItem {
            exposed: name.clone(),
            tool,
            terms,
            listed_without,
        });
    }
    let body = NameIndex::index(taken, &items, reserved.clone(), Arc::new(kept_names));
    AssembledList {
        items: items.into(),
        collisions: collisions.into(),
        body: Arc::new(body),
    }
}
