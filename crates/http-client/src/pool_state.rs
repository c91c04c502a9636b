//! The connections to one server that take a request, and the rules of their reuse: idle HTTP/1.1
//! connections, and HTTP/2 connections.
//!
//! A server may close a connection after any response without notice. A request that is written in
//! that moment is lost, and may have run, so it cannot be sent again. Therefore the first
//! connection of a server is watched for a moment before its reuse. After a request was lost on a
//! kept connection, for a while only connections that have rested for longer are reused.

use std::time::Duration;

use tokio::time::Instant;

use crate::http1_connection::Http1Connection;
use crate::http2_connection::{ASSUMED_MAX_STREAMS, Http2Connection, StreamSlot};

/// The idle timeout of connections. It is shorter than that of common servers (5 s for node and
/// uvicorn), so that a request seldom meets a connection that is being closed.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// The most idle connections that are kept.
const MAX_IDLE_CONNECTIONS: usize = 256;
/// The most HTTP/2 connections. Requests beyond their streams wait.
const MAX_HTTP2_CONNECTIONS: usize = 256;

/// The time that an idle connection must stay open before its server counts as one that keeps
/// connections.
pub(super) const TRIAL_TIME: Duration = Duration::from_millis(20);
/// The rest of a connection before its reuse, after a request was lost on another.
const REST_AFTER_LOSS: Duration = Duration::from_secs(1);
/// The duration of that caution after each loss.
const CAUTION_AFTER_LOSS: Duration = Duration::from_secs(30);

/// The connections to one server: idle ones over HTTP/1.1, idle and busy ones over HTTP/2.
#[derive(Debug, Default)]
pub(super) struct PoolState {
    /// The idle HTTP/1.1 connections, the least recently used first.
    pub(super) http1: Vec<(Http1Connection, Instant)>,
    /// The HTTP/2 connections, in the order of their opening, with the time of their last request.
    http2: Vec<(Http2Connection, Instant)>,
    pub(super) is_swept: bool,
    /// True once an idle connection of the server was found open after [`TRIAL_TIME`].
    is_proven: bool,
    /// The time at which a request was last lost on a kept connection.
    lost_at: Option<Instant>,
}

/// An idle connection, and the time it has rested.
pub(super) struct RestedConnection {
    pub(super) connection: Http1Connection,
    pub(super) rest: Duration,
    /// The time for which it is still to be watched before its reuse.
    pub(super) watch: Option<Duration>,
}

/// The connection that a request is to try next.
pub(super) enum TakenConnection {
    Http1(RestedConnection),
    Http2(Http2Connection, StreamSlot),
}

impl PoolState {
    /// Takes a stream of an HTTP/2 connection, else an idle HTTP/1.1 connection. Absent if one is
    /// to be opened.
    pub(super) fn take_any(&mut self, now: Instant) -> Option<TakenConnection> {
        match self.take_stream(now) {
            Some((connection, slot)) => Some(TakenConnection::Http2(connection, slot)),
            None => self.take_http1(now).map(TakenConnection::Http1),
        }
    }

    /// Takes out the idle HTTP/1.1 connection to use next.
    fn take_http1(&mut self, now: Instant) -> Option<RestedConnection> {
        let is_cautious = self
            .lost_at
            .is_some_and(|lost| now.duration_since(lost) < CAUTION_AFTER_LOSS);
        let (connection, since) = if is_cautious {
            let is_rested = self
                .http1
                .first()
                .is_some_and(|(_, since)| now.duration_since(*since) >= REST_AFTER_LOSS);
            is_rested.then(|| self.http1.remove(0))?
        } else {
            self.http1.pop()?
        };
        let rest = now.duration_since(since);
        let watch = if self.is_proven {
            None
        } else {
            TRIAL_TIME
                .checked_sub(rest)
                .filter(|watch| !watch.is_zero())
        };
        Some(RestedConnection {
            connection,
            rest,
            watch,
        })
    }

    /// Adds a connection, unless the pool is full.
    pub(super) fn add(&mut self, connection: Http1Connection, now: Instant) {
        if self.http1.len() < MAX_IDLE_CONNECTIONS {
            self.http1.push((connection, now));
        }
    }

    /// Takes a stream of an HTTP/2 connection: of the first that has one left. So the newest ones
    /// end once fewer are needed. Absent if a further connection is to be opened.
    pub(super) fn take_stream(&mut self, now: Instant) -> Option<(Http2Connection, StreamSlot)> {
        self.remove_retired();
        if self.http2.is_empty() {
            return None;
        }
        let free = self
            .http2
            .iter()
            .position(|(connection, _)| connection.has_free_stream());
        if let Some(index) = free {
            return self.take_stream_of(index, now);
        }
        // A server that allows no stream would not allow one on a further connection either.
        let is_refused = self
            .http2
            .iter()
            .all(|(connection, _)| connection.max_streams() == 0);
        if is_refused || self.http2.len() >= MAX_HTTP2_CONNECTIONS {
            return self.take_coming_stream(now);
        }
        None
    }

    /// Takes the stream of an HTTP/2 connection that is likely to be free first; absent if there is
    /// no such connection.
    pub(super) fn take_coming_stream(
        &mut self,
        now: Instant,
    ) -> Option<(Http2Connection, StreamSlot)> {
        self.remove_retired();
        let load = self.http2.iter().map(|(connection, _)| {
            let allows_none = connection.max_streams() == 0;
            (allows_none, connection.is_crowded(), connection.streams())
        });
        let (index, _) = load.enumerate().min_by_key(|(_, load)| *load)?;
        self.take_stream_of(index, now)
    }

    fn take_stream_of(
        &mut self,
        index: usize,
        now: Instant,
    ) -> Option<(Http2Connection, StreamSlot)> {
        let (connection, used) = self.http2.get_mut(index)?;
        *used = now;
        Some((connection.clone(), connection.take_slot()))
    }

    /// Returns the streams that a new HTTP/2 connection is taken to allow: no more than the others.
    pub(super) fn assumed_max_streams(&self) -> usize {
        let known = self
            .http2
            .iter()
            .map(|(connection, _)| connection.max_streams());
        known.fold(ASSUMED_MAX_STREAMS, usize::min)
    }

    /// Adds a new HTTP/2 connection, and takes a stream of it.
    pub(super) fn add_http2(
        &mut self,
        connection: Http2Connection,
        now: Instant,
    ) -> (Http2Connection, StreamSlot) {
        let slot = connection.take_slot();
        self.http2.push((connection.clone(), now));
        (connection, slot)
    }

    /// Removes the HTTP/2 connections that take no more requests.
    pub(super) fn remove_retired(&mut self) {
        self.http2.retain(|(connection, _)| connection.is_open());
    }

    /// Notes if the server counts as one that keeps connections.
    pub(super) fn set_proven(&mut self, is_proven: bool) {
        self.is_proven = is_proven;
    }

    /// Notes that a request was lost on a kept connection.
    pub(super) fn record_loss(&mut self) {
        self.is_proven = false;
        self.lost_at = Some(Instant::now());
    }

    /// Closes connections that were idle for too long. True if no connection is left.
    pub(super) fn prune(&mut self, now: Instant) -> bool {
        self.http1
            .retain(|(_, since)| now.duration_since(*since) < IDLE_TIMEOUT);
        self.http2.retain(|(connection, used)| {
            let is_used = connection.streams() > 0 || now.duration_since(*used) < IDLE_TIMEOUT;
            connection.is_open() && is_used
        });
        self.http1.is_empty() && self.http2.is_empty()
    }
}
