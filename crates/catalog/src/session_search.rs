//! The search for the sessions of a server whose lists are watched without one. It begins when a
//! client with sessions first asks for a list, since the server may list other items in a session.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use weir_core::upstream::Upstream;

use super::context::CatalogContext;

/// The last search at one upstream.
#[derive(Debug, Default)]
pub(super) struct SessionSearch(Arc<Mutex<SearchState>>);

#[derive(Clone, Copy, Debug, Default)]
enum SearchState {
    #[default]
    Unasked,
    Running {
        /// Lists wait for the outcome until then.
        wait_until: Instant,
    },
    Ended {
        /// A server that could not be asked is not asked again before then.
        retry_at: Instant,
    },
}

impl SessionSearch {
    /// Starts a search if the upstream has something to find out. Returns the time until which lists
    /// wait for its outcome, while it runs. The views are built again when it ends.
    pub(super) fn wait_until(
        &self,
        works: &Arc<CatalogContext>,
        upstream: &Arc<dyn Upstream>,
        stop: &CancellationToken,
    ) -> Option<Instant> {
        let mut state = lock(&self.0);
        let now = Instant::now();
        match *state {
            SearchState::Running { wait_until } => return Some(wait_until),
            SearchState::Ended { retry_at } if now < retry_at => return None,
            SearchState::Ended { .. } | SearchState::Unasked => {}
        }
        let finding = upstream.clone().find_sessions()?;
        let wait_until = now + works.settings.first_list_wait;
        *state = SearchState::Running { wait_until };
        drop(state);
        let (state, stop) = (self.0.clone(), stop.clone());
        let (rebuild, pause) = (works.rebuild.clone(), works.settings.reopen_most);
        works.tasks.spawn(async move {
            let _stopped = stop.run_until_cancelled(finding).await;
            *lock(&state) = SearchState::Ended {
                retry_at: Instant::now() + pause,
            };
            rebuild.request();
        });
        Some(wait_until)
    }
}

fn lock(state: &Mutex<SearchState>) -> MutexGuard<'_, SearchState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
