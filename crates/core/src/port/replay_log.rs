//! The port of replay logs: events of a session's streams, kept for a while, so that a client can
//! resume after a lost connection.

use bytes::Bytes;
use tokio::sync::watch;

use crate::call::SessionKey;
use crate::port::{BoxFuture, StoreError};

/// The number of the event in place of an answer that was lost with its replica: no event of a
/// running stream has it.
pub const LOST_ANSWER: u64 = u64::MAX;

/// A stream of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamKey {
    /// The session. No stream is found without its session, and no session without its principal.
    pub session: SessionKey,
    /// An unguessable number within the session.
    pub stream: u64,
}

/// The kept part of a stream.
#[derive(Clone, Debug, Default)]
pub struct ReplayedEvents {
    /// Events by their number, in order, as they are to be written again.
    pub events: Vec<(u64, Bytes)>,
    /// True if the stream has ended: there are no further events.
    pub is_ended: bool,
}

/// Replay logs. Bounded in bytes, of each session and altogether, and in age; the oldest go first.
pub trait ReplayLog: std::fmt::Debug + Send + Sync {
    /// Begins a stream. Until [`ReplayLog::end`] it is known, however little is kept of it. False
    /// if the log keeps no events at all.
    ///
    /// `lost_answer` makes the last event of a stream whose process ends before the answer.
    fn begin(&self, key: StreamKey, lost_answer: &dyn Fn() -> Bytes) -> bool;

    /// Keeps the event of this number; numbers increase. Never blocks.
    fn append(&self, key: StreamKey, seq: u64, event: Bytes);

    /// Ends the stream.
    fn end(&self, key: StreamKey);

    /// The kept events of a stream after this number; no value for an unknown stream.
    fn events_after(
        &self,
        key: StreamKey,
        seq: u64,
    ) -> BoxFuture<'_, Result<Option<ReplayedEvents>, StoreError>>;

    /// Notifies of each kept event of a stream, and of its end.
    fn watch_events(&self, key: StreamKey) -> Option<watch::Receiver<u64>>;

    /// Fetches the log of a stream that is not known here, of a session that this replica owns. It
    /// comes from the process before this one, or from the shared store. A log from the store has
    /// ended, with the answer or with the event of a lost one. True if the stream is known now.
    /// Cancel safe.
    fn recover(&self, _key: StreamKey) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(false))
    }

    /// Drops all events of a session that is over.
    fn forget(&self, session: SessionKey);

    /// Drops events that are too old. Called now and then.
    fn expire(&self);
}
