//! One walk over all pages of an upstream's list, behind guards against lists without end (B18).

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use weir_core::content_version::ContentVersion;
use weir_core::endpoint::WalkLimits;
use weir_core::failure::Failure;
use weir_core::upstream::{ListKind, ListWatch};

/// Bytes of one walk, for any number of items: many times the need of the largest honest
/// federation.
const MAX_BYTES: usize = 64 << 20;

/// The result of a walk.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WalkResult {
    /// The items' bytes, in the upstream's order.
    pub(super) items: Vec<Bytes>,
    /// The guard that cut it.
    pub(super) truncated: Option<&'static str>,
    /// The smallest promise of its pages; absent if the server's revision has no hints.
    pub(super) ttl: Option<Duration>,
    /// True if every page may be shown to all clients.
    pub(super) public: bool,
    /// True unless the server has no such list.
    pub(super) is_known: bool,
}

/// Asks for page after page. The cursors are the upstream's own, unaltered. A server that does not
/// know the method has an empty list, unless it declares the list and `was_given` with items before:
/// gateways and servers that start answer so, too.
///
/// # Errors
/// The failure of any other page: a part of a list never stands for the whole.
pub(super) async fn walk(
    watch: &mut dyn ListWatch,
    kind: ListKind,
    limits: &WalkLimits,
    was_given: bool,
) -> Result<WalkResult, Failure> {
    let mut walked = WalkResult {
        is_known: true,
        ..WalkResult::not_offered()
    };
    let mut hinted = true;
    let mut ttl_ms = u64::MAX;
    let mut bytes = 0;
    let mut seen = HashSet::new();
    let mut cursor = None;
    for _ in 0..limits.pages {
        let page = match watch.list(kind, cursor).await {
            Err(failure) if failure.is_missing_method() && seen.is_empty() && !was_given => {
                return Ok(WalkResult::not_offered());
            }
            page => page?,
        };
        hinted &= page.hinted;
        ttl_ms = ttl_ms.min(page.ttl_ms);
        walked.public &= page.public;
        for item in page.items {
            if item.len() > limits.item_bytes {
                walked.truncated = Some("item_bytes");
                continue;
            }
            bytes += item.len();
            if walked.items.len() >= limits.items || bytes > MAX_BYTES {
                walked.truncated = Some(if bytes > MAX_BYTES { "bytes" } else { "items" });
                return Ok(finish(walked, hinted, ttl_ms));
            }
            walked.items.push(item);
        }
        match page.next_cursor {
            None => return Ok(finish(walked, hinted, ttl_ms)),
            // The digest stands for the cursor: a server may use long ones.
            Some(next) if !seen.insert(ContentVersion::of(&[next.as_bytes()])) => {
                walked.truncated = Some("cursor_loop");
                return Ok(finish(walked, hinted, ttl_ms));
            }
            next => cursor = next,
        }
    }
    walked.truncated = Some("pages");
    Ok(finish(walked, hinted, ttl_ms))
}

fn finish(mut walked: WalkResult, hinted: bool, ttl_ms: u64) -> WalkResult {
    walked.ttl = hinted.then(|| Duration::from_millis(ttl_ms));
    walked
}

impl WalkResult {
    /// The result for a list that a server does not offer.
    pub(super) fn not_offered() -> Self {
        Self {
            items: Vec::new(),
            truncated: None,
            ttl: None,
            public: true,
            is_known: false,
        }
    }
}

#[cfg(test)]
mod tests;
