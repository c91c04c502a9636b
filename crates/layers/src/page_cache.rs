//! The cache of rendered list pages.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use weir_catalog::CatalogPage;
use weir_core::budget::ByteBudget;
use weir_core::content_version::ContentVersion;
use weir_era::render;
use weir_wire::Revision;

/// The rendered items of pages, by view version, range and revision. Bounded in bytes: the oldest
/// page goes first.
#[derive(Default)]
pub struct PageCache(Mutex<CachedPages>);

impl std::fmt::Debug for PageCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageCache").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct CachedPages {
    pages: HashMap<PageCacheKey, Bytes>,
    order: VecDeque<PageCacheKey>,
    bytes: usize,
}

type PageCacheKey = (ContentVersion, Range<usize>, Revision);

impl PageCache {
    /// The items of a page, with one memory reservation for all its readers; `None` if no memory is
    /// left.
    pub fn items(
        &self,
        revision: Revision,
        page: &CatalogPage,
        most: usize,
        budget: &ByteBudget,
    ) -> Option<Bytes> {
        let key = (page.view.version, page.range.clone(), revision);
        if let Some(kept) = self.lock().pages.get(&key) {
            return Some(kept.clone());
        }
        let rendered = render::items(revision, &page.view.items[page.range.clone()]);
        let rendered = budget.try_reserve(rendered.len())?.hold(rendered);
        if page.view.is_of_session {
            // Only this session reads it.
            return Some(rendered);
        }
        let mut kept = self.lock();
        if rendered.len() <= most && kept.pages.insert(key.clone(), rendered.clone()).is_none() {
            kept.bytes += rendered.len();
            kept.order.push_back(key);
            while kept.bytes > most
                && let Some(oldest) = kept.order.pop_front()
            {
                let freed = kept.pages.remove(&oldest).map_or(0, |page| page.len());
                kept.bytes -= freed;
            }
        }
        Some(rendered)
    }

    /// Discards all pages.
    pub(crate) fn clear(&self) {
        *self.lock() = CachedPages::default();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, CachedPages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
