//! The sessions of clients that have ended lately. A call that races the end of its client's session
//! may open a session at the upstream after the news of the end.

use std::collections::{HashSet, VecDeque};

use parking_lot::Mutex;
use weir_core::SessionKey;

/// The most sessions. Only an opening that began before them needs them.
const MAX_ENDED: usize = 1024;

/// The last sessions that ended, the oldest first. An id of a session never comes back.
#[derive(Debug, Default)]
pub(crate) struct EndedClients(Mutex<VecDeque<SessionKey>>);

impl EndedClients {
    pub(crate) fn add(&self, sessions: &HashSet<SessionKey>) {
        let mut ended = self.0.lock();
        for session in sessions {
            if ended.contains(session) {
                continue;
            }
            ended.push_back(*session);
            if ended.len() > MAX_ENDED {
                ended.pop_front();
            }
        }
    }

    pub(crate) fn contains(&self, session: &SessionKey) -> bool {
        self.0.lock().contains(session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_ended_sessions_are_known() {
        let ended = EndedClients::default();
        let key = |number: usize| {
            let mut key = [0; 16];
            key[..8].copy_from_slice(&number.to_be_bytes());
            SessionKey(key)
        };
        for number in 0..=MAX_ENDED {
            ended.add(&HashSet::from([key(number)]));
            ended.add(&HashSet::from([key(number)]));
        }
        assert!(!ended.contains(&key(0)));
        assert!(ended.contains(&key(1)) && ended.contains(&key(MAX_ENDED)));
    }
}
