//! The point at which a client resumes a stream: after the last event with an id, and after the time
//! that the server asks for.

use std::time::Duration;

/// The wait before a stream is resumed, if the server gives no time.
const DEFAULT_RETRY_WAIT: Duration = Duration::from_secs(1);
/// The longest wait that a server may ask for.
pub const MAX_RETRY_WAIT: Duration = Duration::from_secs(300);
/// The longest id that is sent back in a header.
const MAX_ID_BYTES: usize = 1024;

/// The point at which a stream is resumed.
#[derive(Debug, Default)]
pub struct ResumePoint {
    last_event: Option<String>,
    retry: Option<u64>,
}

impl ResumePoint {
    /// Notes an event's id, or the server's reconnection time in milliseconds.
    pub fn record_mark(&mut self, id: Option<String>, retry: Option<u64>) {
        // An empty id resets the last one; an id that is too long for a header is ignored.
        if let Some(id) = id {
            self.last_event = Some(id).filter(|id| !id.is_empty() && id.len() <= MAX_ID_BYTES);
        }
        self.retry = retry.or(self.retry);
    }

    /// The id for `Last-Event-ID`; absent if the stream cannot be resumed.
    #[must_use]
    pub fn last_event(&self) -> Option<&str> {
        self.last_event.as_deref()
    }

    /// The wait before the stream is resumed that the server asked for, if it did.
    #[must_use]
    pub fn asked_wait(&self) -> Option<Duration> {
        let millis = self.retry?;
        Some(Duration::from_millis(millis).min(MAX_RETRY_WAIT))
    }

    /// The wait before the stream is resumed.
    #[must_use]
    pub fn retry_wait(&self) -> Duration {
        self.asked_wait().unwrap_or(DEFAULT_RETRY_WAIT)
    }
}
