//! The sessions of clients that have ended lately. A call that races the end of its client's session
//! may open a session at the upstream after the news of the end.

use std::collections::{HashSet, VecDeque};

use parking_lot::Mutex;
use weir_core::SessionKey;

/// The most sessions. Only an opening that began before them needs them.
const MAX_ENDED: usize = 1024;

/// The last sessions that ended. An id of a session never comes back.
#[derive(Debug, Default)]
pub(crate) struct EndedClients(Mutex<EndedKeys>);

#[derive(Debug, Default)]
struct EndedKeys {
    known: HashSet<SessionKey>,
    /// The oldest first.
    order: VecDeque<SessionKey>,
}

impl EndedClients {
    pub(crate) fn add(&self, sessions: &HashSet<SessionKey>) {
        let mut ended = self.0.lock();
        for session in sessions {
            if !ended.known.insert(*session) {
                continue;
            }
            ended.order.push_back(*session);
            if ended.order.len() > MAX_ENDED
                && let Some(oldest) = ended.order.pop_front()
            {
                ended.known.remove(&oldest);
            }
        }
    }

    pub(crate) fn contains(&self, session: &SessionKey) -> bool {
        self.0.lock().known.contains(session)
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
