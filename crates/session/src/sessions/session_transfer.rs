//! Sessions that move between processes at a graceful restart.

use std::collections::HashMap;

use weir_core::SessionKey;
use weir_core::port::RecordKey;
use weir_core::upstream::ListKind;

use crate::moved_sessions::MovedSession;
use crate::sessions::session_table::{LegacySessions, session_key};

impl LegacySessions {
    /// Describes all sessions with state beside their records.
    pub(crate) fn describe_moving(&self, all: &mut HashMap<SessionKey, MovedSession>) {
        let mut of = |key: SessionKey, change: &mut dyn FnMut(&mut MovedSession)| {
            change(all.entry(key).or_insert_with(|| MovedSession::new(key)));
        };
        // In the order of their move: a renewal makes an inherited subscription the session's own.
        for (key, inherited) in self.inherited_subscriptions.lock().iter() {
            of(*key, &mut |moved| {
                moved.subscriptions = inherited.uris().to_vec();
            });
        }
        for shard in &self.shards {
            let shard = shard.lock();
            for (key, live) in shard.iter().filter(|(_, live)| !live.subscribed.is_empty()) {
                of(*key, &mut |moved| {
                    live.add_subscribed_to(&mut moved.subscriptions);
                });
            }
        }
        for (key, lists) in self.notified_lists.all() {
            of(key, &mut |moved| moved.notified_lists.clone_from(&lists));
        }
        for (key, network) in self.anonymous.all() {
            of(key, &mut |moved| moved.network = Some(network));
        }
    }

    /// Removes a session from those of its network: another process has removed its record here.
    pub(crate) fn leave_network(&self, record: &RecordKey) {
        self.anonymous.remove(&session_key(&record.id));
    }

    /// Takes a session of another process.
    pub(crate) fn adopt(&self, session: MovedSession) {
        if let Some(network) = session.network {
            self.anonymous.add(session.key, network, usize::MAX);
        }
        for (list, version) in ListKind::ALL.into_iter().zip(session.notified_lists) {
            version.inspect(|version| self.notified_lists.record(session.key, list, *version));
        }
        self.inherit_subscriptions(session.key, session.subscriptions);
    }
}
