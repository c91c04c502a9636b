//! Sessions that move between processes at a graceful restart.

use std::collections::HashMap;
use std::sync::PoisonError;

use weir_core::SessionKey;
use weir_core::upstream::ListKind;

use crate::moved_sessions::MovedSession;
use crate::sessions::session_table::LegacySessions;

impl LegacySessions {
    /// Describes all sessions with state beside their records.
    pub(crate) fn describe_moving(&self, all: &mut HashMap<SessionKey, MovedSession>) {
        let mut of = |key: SessionKey, change: &mut dyn FnMut(&mut MovedSession)| {
            change(all.entry(key).or_insert_with(|| MovedSession::new(key)));
        };
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for (key, live) in shard.iter().filter(|(_, live)| !live.subscribed.is_empty()) {
                of(*key, &mut |moved| {
                    moved
                        .subscriptions
                        .extend(live.subscribed.keys().map(ToString::to_string))
                });
            }
        }
        for (key, subscriptions) in self.lock_inherited().iter() {
            of(*key, &mut |moved| {
                moved.subscriptions.extend(subscriptions.iter().cloned())
            });
        }
        for (key, lists) in self.notified_lists.all() {
            of(key, &mut |moved| moved.notified_lists.clone_from(&lists));
        }
        for (key, network) in self.anonymous.all() {
            of(key, &mut |moved| moved.network = Some(network));
        }
    }

    /// Takes a session of another process.
    pub(crate) fn adopt(&self, session: MovedSession) {
        if let Some(network) = session.network {
            self.anonymous.add(session.key, network, usize::MAX);
        }
        for (list, version) in ListKind::ALL.into_iter().zip(session.notified_lists) {
            version.inspect(|version| self.notified_lists.record(session.key, list, *version));
        }
        if !session.subscriptions.is_empty() {
            self.lock_inherited()
                .insert(session.key, session.subscriptions);
        }
    }

    /// Takes out the subscriptions that a session had in another process.
    pub fn adopted_subscriptions(&self, key: &SessionKey) -> Vec<String> {
        self.lock_inherited().remove(key).unwrap_or_default()
    }

    /// Removes an inherited subscription that its client cancels.
    pub(super) fn forget_adopted(&self, key: &SessionKey, uri: &str) {
        if let Some(subscriptions) = self.lock_inherited().get_mut(key) {
            subscriptions.retain(|known| known != uri);
        }
    }
}
