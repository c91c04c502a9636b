//! The bound on GET streams that are open for notifications about a session's own lists: each is a
//! connection.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::session_channel::SessionChannel;

/// The sessions with such a stream. Beyond the bound the least recently used session loses its
/// stream.
#[derive(Debug)]
pub(crate) struct StandingStreamSlots {
    most: usize,
    taken: Mutex<Vec<Weak<SessionChannel>>>,
}

impl StandingStreamSlots {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            taken: Mutex::default(),
        }
    }

    /// Takes a place for a session; false if the bound is 0.
    pub(crate) fn take_slot(&self, session: &Arc<SessionChannel>) -> bool {
        if self.most == 0 {
            return false;
        }
        let gone = {
            let mut taken = self.taken.lock();
            taken.retain(|session| session.strong_count() > 0);
            let gone = if taken.len() < self.most {
                None
            } else {
                take_oldest(&mut taken)
            };
            taken.push(Arc::downgrade(session));
            gone
        };
        // Without its stream, that session's lists are walked on its client's requests.
        if let Some(gone) = gone {
            gone.stop_listening();
        }
        true
    }
}

/// Takes out the least recently used session.
fn take_oldest(taken: &mut Vec<Weak<SessionChannel>>) -> Option<Arc<SessionChannel>> {
    let used =
        |session: &Weak<SessionChannel>| session.upgrade().map_or(0, |session| session.last_call());
    let at = taken
        .iter()
        .enumerate()
        .min_by_key(|(_, session)| used(session))
        .map(|(at, _)| at)?;
    taken.swap_remove(at).upgrade()
}

#[cfg(test)]
mod tests;
