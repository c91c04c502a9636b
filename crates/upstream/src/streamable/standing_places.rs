//! How many sessions of one server have their standing stream open so that changes of lists are heard: each is a connection.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::session::Session;

/// The sessions that have such a stream. Where there is no place for one more, that which was used least lately gives way.
#[derive(Debug)]
pub(crate) struct StandingPlaces {
    most: usize,
    taken: Mutex<Vec<Weak<Session>>>,
}

impl StandingPlaces {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, taken: Mutex::default() }
    }

    /// Takes a place for a session; false where there is none at all.
    pub(crate) fn take(&self, session: &Arc<Session>) -> bool {
        if self.most == 0 {
            return false;
        }
        let gone = {
            let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            taken.retain(|session| session.strong_count() > 0);
            let gone = if taken.len() < self.most { None } else { oldest(&mut taken) };
            taken.push(Arc::downgrade(session));
            gone
        };
        // It goes on without: its lists are read when its client asks for them.
        if let Some(gone) = gone {
            gone.stop_listening();
        }
        true
    }
}

/// Takes out the session that was used least lately.
fn oldest(taken: &mut Vec<Weak<Session>>) -> Option<Arc<Session>> {
    let used = |session: &Weak<Session>| session.upgrade().map_or(0, |session| session.last_call());
    let at = taken.iter().enumerate().min_by_key(|(_, session)| used(session)).map(|(at, _)| at)?;
    taken.swap_remove(at).upgrade()
}
