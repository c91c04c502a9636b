//! The difference between the list of one session and the shared list.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use weir_core::budget::{ByteBudget, ByteReservation};
use weir_core::content_version::ContentVersion;
use weir_core::server_item::ServerItem;

/// The most items in a difference.
const MAX_ITEMS: usize = 256;
/// The most bytes in a difference.
const MAX_BYTES: usize = 256 << 10;

/// Counters of a session at the time of a walk. A walk is due once they are higher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkMark {
    /// Notifications, and occasions on which one may have been missed.
    pub changes: u64,
    /// Calls in the session.
    pub calls: u64,
}

/// The difference that one walk found.
#[derive(Debug)]
pub struct ListDifference {
    /// The session's counters when the walk began.
    pub mark: WalkMark,
    /// Items that are new or defined otherwise than in the shared list, in the server's order.
    pub changed: Vec<Arc<ServerItem>>,
    /// Native names of shared items that the session lacks.
    pub removed: HashSet<Arc<str>>,
    /// A digest of both.
    pub digest: ContentVersion,
    _memory: Option<ByteReservation>,
}

impl ListDifference {
    /// No difference: the session's clients see the shared list.
    pub fn none(mark: WalkMark) -> Self {
        let (changed, removed) = (Vec::new(), HashSet::new());
        Self {
            mark,
            changed,
            removed,
            digest: ContentVersion::default(),
            _memory: None,
        }
    }

    /// Compares a session's list with the shared one. If a guard cut the walk (`is_cut`), missing
    /// items do not count as removed.
    ///
    /// # Errors
    /// The exceeded bound: `items`, `bytes`, or `memory` for the bound of all sessions together.
    pub fn between(
        shared: &[Arc<ServerItem>],
        own: &[Arc<ServerItem>],
        is_cut: bool,
        mark: WalkMark,
        memory: &ByteBudget,
    ) -> Result<Self, &'static str> {
        let known: HashMap<&str, &Arc<ServerItem>> =
            shared.iter().map(|tool| (&*tool.native, tool)).collect();
        let is_another = |tool: &&Arc<ServerItem>| {
            known
                .get(&*tool.native)
                .is_none_or(|same| same.digest != tool.digest)
        };
        let changed: Vec<_> = own.iter().filter(is_another).cloned().collect();
        let listed: HashSet<&str> = own.iter().map(|tool| &*tool.native).collect();
        let missing = shared
            .iter()
            .map(|tool| &tool.native)
            .filter(|native| !is_cut && !listed.contains(&***native));
        let removed: HashSet<Arc<str>> = missing.cloned().collect();
        if changed.is_empty() && removed.is_empty() {
            return Ok(Self::none(mark));
        }
        if changed.len() + removed.len() > MAX_ITEMS {
            return Err("items");
        }
        let bytes = changed
            .iter()
            .map(|tool| tool.raw.len())
            .chain(removed.iter().map(|name| name.len()))
            .sum();
        if bytes > MAX_BYTES {
            return Err("bytes");
        }
        let reserved = memory.try_reserve(bytes).ok_or("memory")?;
        let mut names: Vec<&Arc<str>> = removed.iter().collect();
        names.sort_unstable();
        let parts = changed
            .iter()
            .map(|tool| &tool.digest.0[..])
            .chain(std::iter::once(&b"-"[..]));
        let digest = ContentVersion::of(
            &parts
                .chain(names.iter().map(|name| name.as_bytes()))
                .collect::<Vec<_>>(),
        );
        Ok(Self {
            mark,
            changed,
            removed,
            digest,
            _memory: Some(reserved),
        })
    }

    /// True if the session's list is the shared one.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }

    /// The session's own item of this native name.
    pub fn changed(&self, native: &str) -> Option<&Arc<ServerItem>> {
        self.changed.iter().find(|tool| *tool.native == *native)
    }
}
