//! The views of sessions that cursors lead to.

use std::sync::Arc;

use quick_cache::sync::Cache;
use weir_core::call::SessionKey;
use weir_core::content_version::ContentVersion;

use crate::view::View;

/// The most views kept for cursors. A client whose view is gone has to begin its list anew.
const MAX_SESSION_VIEWS: usize = 64;

/// Views of sessions for which cursors were issued, by client session. A cursor opens for its own
/// session only.
pub(crate) struct SessionViewCache(Cache<(SessionKey, ContentVersion), Arc<View>>);

impl Default for SessionViewCache {
    fn default() -> Self {
        Self(Cache::new(MAX_SESSION_VIEWS))
    }
}

impl SessionViewCache {
    pub(crate) fn keep(&self, client: SessionKey, view: &Arc<View>) {
        self.0.insert((client, view.version), view.clone());
    }

    pub(crate) fn find(&self, client: SessionKey, version: ContentVersion) -> Option<Arc<View>> {
        self.0.get(&(client, version))
    }
}
