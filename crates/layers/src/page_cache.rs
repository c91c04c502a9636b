//! The cache of rendered list pages.

use std::ops::Range;

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use weir_catalog::CatalogPage;
use weir_core::budget::ByteBudget;
use weir_core::content_version::ContentVersion;
use weir_era::render;
use weir_wire::Revision;

use crate::settings::FrontLimits;

/// The estimated number of pages. So few make one shard, and only then a page may be as large as
/// the whole cache.
const ESTIMATED_PAGES: usize = 32;

/// The rendered items of pages, by view version, range and revision. Bounded in bytes.
pub struct PageCache(Cache<PageCacheKey, Bytes, PageSizeWeighter>);

type PageCacheKey = (ContentVersion, Range<usize>, Revision);

/// A page weighs its bytes.
#[derive(Clone)]
struct PageSizeWeighter;

impl Weighter<PageCacheKey, Bytes> for PageSizeWeighter {
    fn weight(&self, _: &PageCacheKey, page: &Bytes) -> u64 {
        // An entry without a weight would never be evicted.
        page.len().max(1) as u64
    }
}

impl std::fmt::Debug for PageCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageCache").finish_non_exhaustive()
    }
}

impl Default for PageCache {
    fn default() -> Self {
        let bytes = FrontLimits::default().page_cache_bytes as u64;
        Self(Cache::with_weighter(
            ESTIMATED_PAGES,
            bytes,
            PageSizeWeighter,
        ))
    }
}

impl PageCache {
    /// The items of a page, with one memory reservation for all its readers; `None` if no memory is
    /// left. At most `most` bytes of pages are kept.
    pub fn items(
        &self,
        revision: Revision,
        page: &CatalogPage,
        most: usize,
        budget: &ByteBudget,
    ) -> Option<Bytes> {
        let key = (page.view.version, page.range.clone(), revision);
        if let Some(kept) = self.0.get(&key) {
            return Some(kept);
        }
        let rendered = render::items(revision, &page.view.items[page.range.clone()]);
        let rendered = budget.try_reserve(rendered.len())?.hold(rendered);
        // Only one session reads a page of its own.
        if !page.view.is_of_session {
            self.keep(key, rendered.clone(), most);
        }
        Some(rendered)
    }

    /// Keeps a page, unless it is larger than the cache may be. A reload may have changed `most`.
    fn keep(&self, key: PageCacheKey, rendered: Bytes, most: usize) {
        if self.0.capacity() != most as u64 {
            self.0.set_capacity(most as u64);
        }
        self.0.insert(key, rendered);
    }

    /// Discards all pages.
    pub(crate) fn clear(&self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 1000;

    fn key(number: u8) -> PageCacheKey {
        (ContentVersion([number; 16]), 0..50, Revision::MODERN)
    }

    /// Keeps a page of this size, whose memory is reserved.
    fn keep(cache: &PageCache, number: u8, size: usize, most: usize, budget: &ByteBudget) {
        let reserved = budget.try_reserve(size).expect("memory");
        cache.keep(key(number), reserved.hold(vec![b'x'; size].into()), most);
    }

    fn budget() -> ByteBudget {
        let budget = ByteBudget::new("results");
        budget.set_limit(1 << 20);
        budget
    }

    #[test]
    fn pages_are_kept_within_the_bound_and_evicted_ones_free_their_memory() {
        let (cache, budget) = (PageCache::default(), budget());
        for number in 0..100 {
            keep(&cache, number, PAGE, 10 * PAGE, &budget);
            assert!(cache.0.get(&key(number)).is_some(), "the newest is kept");
        }
        assert_eq!((cache.0.len(), budget.used()), (10, 10 * PAGE));
        keep(&cache, 0, PAGE, 5 * PAGE, &budget);
        assert_eq!(budget.used(), 5 * PAGE, "a lower bound of a reload");
        cache.clear();
        assert_eq!((cache.0.len(), budget.used()), (0, 0));
    }

    #[test]
    fn page_that_does_not_fit_is_not_kept_and_evicts_no_other() {
        let (cache, budget) = (PageCache::default(), budget());
        keep(&cache, 1, PAGE, 10 * PAGE, &budget);
        keep(&cache, 2, 11 * PAGE, 10 * PAGE, &budget);
        assert_eq!(budget.used(), PAGE);
        assert!(cache.0.get(&key(1)).is_some() && cache.0.get(&key(2)).is_none());
        keep(&cache, 3, 9 * PAGE, 10 * PAGE, &budget);
        assert!(cache.0.get(&key(3)).is_some(), "one page may be nearly all");
        keep(&cache, 4, 1, 0, &budget);
        assert_eq!(budget.used(), 0, "a bound of zero keeps none");
    }
}
