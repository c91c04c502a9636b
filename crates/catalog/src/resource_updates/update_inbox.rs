//! The updates that wait for a client: each resource once, in the order in which they were first
//! updated.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// Resources that wait for a client. Beyond this, parts of a resource are announced as the whole.
const MAX_UPDATES: usize = 1024;
/// Bytes of their names, likewise.
const MAX_UPDATE_BYTES: usize = 256 << 10;

/// The updates that wait for one client. Clones are the same inbox.
#[derive(Clone, Default)]
pub struct UpdateInbox(Arc<Mutex<QueuedUpdates>>);

#[derive(Default)]
struct QueuedUpdates {
    order: VecDeque<Arc<str>>,
    known: HashSet<Arc<str>>,
    bytes: usize,
    /// The number of the newest reader.
    reader: u64,
    waker: Option<Waker>,
}

/// The reader of an inbox, until a newer one is opened.
#[derive(Debug)]
pub struct UpdateReader {
    inbox: UpdateInbox,
    nth: u64,
}

impl UpdateReader {
    /// The next updated resource, by the client's name for it; pending for ever once a newer reader
    /// was opened. For a caller that is polled itself, such as a response body.
    pub fn poll_updated(&self, cx: &mut Context<'_>) -> Poll<Arc<str>> {
        let mut waiting = self.inbox.0.lock();
        if waiting.reader != self.nth {
            return Poll::Pending;
        }
        match waiting.order.pop_front() {
            Some(uri) => {
                waiting.known.remove(&uri);
                waiting.bytes -= uri.len();
                Poll::Ready(uri)
            }
            None => {
                waiting.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl UpdateInbox {
    /// Opens a reader in place of the one before.
    #[must_use]
    pub fn open_reader(&self) -> UpdateReader {
        let mut waiting = self.0.lock();
        waiting.reader += 1;
        UpdateReader {
            inbox: self.clone(),
            nth: waiting.reader,
        }
    }

    /// Adds an updated resource, by the client's name for it.
    pub fn push_update(&self, uri: &Arc<str>) {
        self.put(uri.clone(), uri);
    }

    /// Adds an update, or `whole` in its place if too much waits already.
    pub(crate) fn put(&self, uri: Arc<str>, whole: &Arc<str>) {
        let mut waiting = self.0.lock();
        let has_room =
            waiting.order.len() < MAX_UPDATES && waiting.bytes + uri.len() <= MAX_UPDATE_BYTES;
        let uri = if has_room { uri } else { whole.clone() };
        if waiting.known.insert(uri.clone()) {
            waiting.bytes += uri.len();
            waiting.order.push_back(uri);
        }
        let waker = waiting.waker.take();
        drop(waiting);
        // Outside the lock: a woken task may come back at once.
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl fmt::Debug for UpdateInbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UpdateInbox({} waiting)", self.0.lock().order.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(inbox: &UpdateInbox) -> Vec<Arc<str>> {
        let mut cx = Context::from_waker(Waker::noop());
        let reader = inbox.open_reader();
        let next = || match reader.poll_updated(&mut cx) {
            Poll::Ready(uri) => Some(uri),
            Poll::Pending => None,
        };
        std::iter::from_fn(next).collect()
    }

    // Proves D11.
    #[test]
    fn pending_updates_are_deduplicated_and_a_flood_collapses_into_the_parent() {
        let (inbox, whole): (UpdateInbox, Arc<str>) = (UpdateInbox::default(), "w".into());
        for _ in 0..3 {
            inbox.put("b".into(), &whole);
            inbox.put("a".into(), &whole);
        }
        assert_eq!(drain(&inbox), ["b".into(), "a".into()] as [Arc<str>; 2]);
        inbox.put("b".into(), &whole);
        assert_eq!(drain(&inbox).len(), 1, "told, and updated again");
        for part in 0..10 * MAX_UPDATES {
            inbox.put(part.to_string().into(), &whole);
        }
        let told = drain(&inbox);
        assert_eq!((told.len(), told.last()), (MAX_UPDATES + 1, Some(&whole)));
        for part in 0..8 {
            inbox.put(
                format!("{part}{}", "x".repeat(MAX_UPDATE_BYTES / 4)).into(),
                &whole,
            );
        }
        let told = drain(&inbox);
        assert_eq!(
            (told.len(), told.last()),
            (4, Some(&whole)),
            "long names count by their bytes"
        );
    }

    #[tokio::test]
    async fn replaced_reader_takes_neither_updates_nor_the_wake_of_the_newest() {
        let inbox = UpdateInbox::default();
        let (replaced, newest) = (inbox.open_reader(), inbox.open_reader());
        let reading = tokio::spawn(std::future::poll_fn(move |cx| newest.poll_updated(cx)));
        tokio::task::yield_now().await;
        let mut cx = Context::from_waker(Waker::noop());
        assert!(replaced.poll_updated(&mut cx).is_pending());
        inbox.push_update(&"a".into());
        assert!(replaced.poll_updated(&mut cx).is_pending());
        tokio::task::yield_now().await;
        assert!(reading.is_finished());
    }
}
