//! The sessions of legacy clients. A session is a revision, a log level and at most one listening
//! stream.

use std::collections::HashMap;

use tokio::sync::watch;
use weir_wire::log_level::LogLevel;
use weir_wire::revision::Revision;

/// The most sessions; the least recently used one is dropped when one more opens.
const MAX_SESSIONS: usize = 128;

/// The negotiated state of one session.
#[derive(Clone, Copy, Debug)]
pub(super) struct NotesSession {
    pub(super) revision: Revision,
    /// The least severe log message that is sent; no messages are sent while it is unset.
    pub(super) log_level: Option<LogLevel>,
}

/// All open sessions by id.
#[derive(Debug, Default)]
pub(super) struct NotesSessions {
    open: HashMap<String, NotesSessionEntry>,
    uses: u64,
}

#[derive(Debug)]
struct NotesSessionEntry {
    session: NotesSession,
    last_use: u64,
    /// The number of the newest listening stream. Dropped with the session, which ends that stream.
    stream: watch::Sender<u64>,
}

impl NotesSessions {
    /// Opens a session and returns its unguessable id.
    pub(super) fn open(&mut self, revision: Revision) -> Result<String, getrandom::Error> {
        let mut random = [0; 16];
        getrandom::fill(&mut random)?;
        let id = format!("{:032x}", u128::from_be_bytes(random));
        if self.open.len() >= MAX_SESSIONS {
            let oldest = self
                .open
                .iter()
                .min_by_key(|(_, entry)| entry.last_use)
                .map(|(id, _)| id.clone());
            oldest.and_then(|id| self.open.remove(&id));
        }
        self.uses += 1;
        let session = NotesSession {
            revision,
            log_level: None,
        };
        let entry = NotesSessionEntry {
            session,
            last_use: self.uses,
            stream: watch::Sender::new(0),
        };
        self.open.insert(id.clone(), entry);
        Ok(id)
    }

    /// Returns the session of this id, and counts it as used now.
    pub(super) fn find(&mut self, id: &str) -> Option<NotesSession> {
        self.uses += 1;
        let entry = self.open.get_mut(id)?;
        entry.last_use = self.uses;
        Some(entry.session)
    }

    /// Sets the least severe log message that the session wants.
    pub(super) fn set_level(&mut self, id: &str, level: LogLevel) {
        if let Some(entry) = self.open.get_mut(id) {
            entry.session.log_level = Some(level);
        }
    }

    /// Makes a new stream the session's listening stream. The older one ends, so that each message
    /// has one stream.
    pub(super) fn listen(&mut self, id: &str) -> Option<NotesListeningStream> {
        let entry = self.open.get_mut(id)?;
        entry.stream.send_modify(|number| *number += 1);
        let newest = entry.stream.subscribe();
        let own = *newest.borrow();
        Some(NotesListeningStream { newest, own })
    }

    /// Ends a session; false for an unknown id.
    pub(super) fn close(&mut self, id: &str) -> bool {
        self.open.remove(id).is_some()
    }
}

/// The listening stream of a session, until a newer one replaces it.
#[derive(Debug)]
pub(super) struct NotesListeningStream {
    newest: watch::Receiver<u64>,
    own: u64,
}

impl NotesListeningStream {
    /// Ends when a newer stream took over or the session is gone. Safe to drop and call again.
    pub(super) async fn wait_until_replaced(&mut self) {
        let own = self.own;
        // An error means that the session is gone: over as well.
        let _ = self.newest.wait_for(|newest| *newest != own).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn the_session_unused_for_longest_goes_first() {
        let mut sessions = NotesSessions::default();
        let ids: Vec<_> = (0..MAX_SESSIONS)
            .map(|_| sessions.open(Revision::V2025_06_18).unwrap())
            .collect();
        assert!(sessions.find(&ids[0]).is_some());
        sessions.open(Revision::V2025_06_18).unwrap();
        assert!(sessions.find(&ids[0]).is_some());
        assert!(sessions.find(&ids[1]).is_none());
    }

    // Proves R081.
    #[test]
    fn a_session_id_is_visible_ascii_and_never_the_same() {
        let mut sessions = NotesSessions::default();
        let first = sessions.open(Revision::V2025_06_18).unwrap();
        assert!(first.len() == 32 && first.bytes().all(|b| b.is_ascii_hexdigit()));
        assert_ne!(first, sessions.open(Revision::V2025_06_18).unwrap());
    }

    // Proves R090.
    #[tokio::test]
    async fn a_newer_stream_or_a_closed_session_ends_the_older_stream() {
        let mut sessions = NotesSessions::default();
        let id = sessions.open(Revision::V2025_06_18).unwrap();
        let mut first = sessions.listen(&id).unwrap();
        let mut second = sessions.listen(&id).unwrap();
        first.wait_until_replaced().await;
        assert!(sessions.close(&id) && !sessions.close(&id));
        second.wait_until_replaced().await;
        assert!(sessions.listen(&id).is_none());
    }
}
