//! The port of replay logs: what was written on a stream of a session, kept for a while, so that a
//! client whose connection was lost can have the rest.

use bytes::Bytes;
use tokio::sync::watch;

use super::{Fut, StoreError};
use crate::call::SessionKey;

/// A stream of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamKey {
    /// Whose it is: nothing is found without its session, which in turn is not found without its
    /// principal.
    pub session: SessionKey,
    /// Which of the session's, by an unguessable number.
    pub stream: u64,
}

/// What is kept of a stream.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    /// Events by their number, in order, as they are to be written again.
    pub events: Vec<(u64, Bytes)>,
    /// True if the stream has ended: nothing follows.
    pub over: bool,
}

/// Replay logs. Bounded in bytes, of each session and altogether, and in age; the oldest go first.
pub trait Replays: Send + Sync {
    /// A stream begins. Until [`Replays::end`] it is known, however little is kept of it. False
    /// where nothing is kept at all.
    fn begin(&self, key: StreamKey) -> bool;

    /// Keeps the event of this number, which is greater than those before it. Never blocks.
    fn keep(&self, key: StreamKey, seq: u64, event: Bytes);

    /// The stream has ended.
    fn end(&self, key: StreamKey);

    /// What is kept of a stream after this number; `None` where nothing is known of the stream.
    fn after(&self, key: StreamKey, seq: u64) -> Fut<'_, Result<Option<Replay>, StoreError>>;

    /// Moves whenever something is kept of a stream, and when it ends.
    fn moves(&self, key: StreamKey) -> Option<watch::Receiver<u64>>;

    /// The session is over: nothing is kept of it.
    fn forget(&self, session: SessionKey);

    /// Lets go what is too old. Called now and then.
    fn expire(&self);
}
