//! Sessions of the anonymous principal by the network that opened them. One network cannot take the
//! share of the others.

use std::collections::HashMap;

use parking_lot::Mutex;
use weir_core::SessionKey;
use weir_core::network::SenderNetwork;

/// The open sessions of the anonymous principal on this replica.
#[derive(Default)]
pub(super) struct AnonymousSessions(Mutex<AnonymousCounts>);

#[derive(Default)]
struct AnonymousCounts {
    by_key: HashMap<SessionKey, SenderNetwork>,
    by_network: HashMap<SenderNetwork, usize>,
}

impl AnonymousSessions {
    /// Counts a session if its network has fewer than `most`.
    pub(super) fn add(&self, key: SessionKey, network: SenderNetwork, most: usize) -> bool {
        let mut opened = self.0.lock();
        let own = opened.by_network.entry(network).or_default();
        if *own >= most {
            if *own == 0 {
                opened.by_network.remove(&network);
            }
            return false;
        }
        *own += 1;
        opened.by_key.insert(key, network);
        true
    }

    /// Forgets a session that ended, or was not opened.
    pub(super) fn remove(&self, key: &SessionKey) {
        let mut opened = self.0.lock();
        let Some(network) = opened.by_key.remove(key) else {
            return;
        };
        if let Some(own) = opened.by_network.get_mut(&network) {
            *own -= 1;
            if *own == 0 {
                opened.by_network.remove(&network);
            }
        }
    }

    /// The sessions, and the network of each.
    pub(super) fn all(&self) -> Vec<(SessionKey, SenderNetwork)> {
        self.0
            .lock()
            .by_key
            .iter()
            .map(|(key, network)| (*key, *network))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_cap_binds_each_network_and_ended_sessions_free_slots() {
        let sessions = AnonymousSessions::default();
        let (one, other) = (
            SenderNetwork::of([192, 0, 2, 1].into()),
            SenderNetwork::of([192, 0, 3, 1].into()),
        );
        let opened = (0..10)
            .filter(|n| sessions.add(SessionKey([*n; 16]), one, 3))
            .count();
        assert_eq!(opened, 3);
        assert!(sessions.add(SessionKey([20; 16]), other, 3));
        sessions.remove(&SessionKey([0; 16]));
        sessions.remove(&SessionKey([0; 16]));
        assert!(
            sessions.add(SessionKey([21; 16]), one, 3)
                && !sessions.add(SessionKey([22; 16]), one, 3)
        );
        assert!(!sessions.add(
            SessionKey([23; 16]),
            SenderNetwork::of([192, 0, 4, 1].into()),
            0
        ));
        for n in [1, 2, 20, 21] {
            sessions.remove(&SessionKey([n; 16]));
        }
        assert!(sessions.0.lock().by_network.is_empty() && sessions.0.lock().by_key.is_empty());
    }
}
