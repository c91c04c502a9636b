//! How the list of one session differs from the list that all share.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Mark;
use crate::budget::{ByteBudget, Reservation};
use crate::catalog::tool::Tool;
use crate::catalog::view::Version;

/// Items that one session may have of its own, or lack.
const MOST_ITEMS: usize = 256;
/// Their bytes.
const MOST_BYTES: usize = 256 << 10;

/// What one walk in a session found.
#[derive(Debug)]
pub(super) struct Difference {
    /// How far the session was when the walk began.
    pub(super) mark: Mark,
    /// Items that the shared list does not have, or has otherwise; in the order of the server.
    pub(super) changed: Vec<Arc<Tool>>,
    /// The server's names of shared items that the session does not have.
    pub(super) removed: HashSet<Arc<str>>,
    /// A digest of both.
    pub(super) digest: Version,
    _memory: Option<Reservation>,
}

impl Difference {
    /// None: the session is shown the shared list.
    pub(super) fn none(mark: Mark) -> Self {
        let (changed, removed) = (Vec::new(), HashSet::new());
        Self { mark, changed, removed, digest: Version::default(), _memory: None }
    }

    /// Compares a session's list with the shared one. Where a guard cut the walk, what is missing may have been cut off.
    ///
    /// # Errors
    /// The bound that it is beyond: `items`, `bytes`, or `memory` where all sessions together have too much.
    pub(super) fn between(
        shared: &[Arc<Tool>],
        (own, is_cut): (&[Arc<Tool>], bool),
        mark: Mark,
        memory: &ByteBudget,
    ) -> Result<Self, &'static str> {
        let known: HashMap<&str, &Arc<Tool>> = shared.iter().map(|tool| (&*tool.native, tool)).collect();
        let is_another = |tool: &&Arc<Tool>| known.get(&*tool.native).is_none_or(|same| same.digest != tool.digest);
        let changed: Vec<_> = own.iter().filter(is_another).cloned().collect();
        let listed: HashSet<&str> = own.iter().map(|tool| &*tool.native).collect();
        let missing = shared.iter().map(|tool| &tool.native).filter(|native| !is_cut && !listed.contains(&***native));
        let removed: HashSet<Arc<str>> = missing.cloned().collect();
        if changed.is_empty() && removed.is_empty() {
            return Ok(Self::none(mark));
        }
        if changed.len() + removed.len() > MOST_ITEMS {
            return Err("items");
        }
        let bytes = changed.iter().map(|tool| tool.raw.len()).chain(removed.iter().map(|name| name.len())).sum();
        if bytes > MOST_BYTES {
            return Err("bytes");
        }
        let reserved = memory.try_reserve(bytes).ok_or("memory")?;
        let mut names: Vec<&Arc<str>> = removed.iter().collect();
        names.sort_unstable();
        let parts = changed.iter().map(|tool| &tool.digest.0[..]).chain(std::iter::once(&b"-"[..]));
        let digest = Version::of(&parts.chain(names.iter().map(|name| name.as_bytes())).collect::<Vec<_>>());
        Ok(Self { mark, changed, removed, digest, _memory: Some(reserved) })
    }

    /// Whether the session's list is the shared one.
    pub(super) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }

    /// The session's own item of this name of the server.
    pub(super) fn changed(&self, native: &str) -> Option<&Arc<Tool>> {
        self.changed.iter().find(|tool| *tool.native == *native)
    }
}
