//! The link between a process and its successor while both run: messages in both directions, and
//! requests that are answered.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncWriteExt as _, BufReader, BufWriter, Lines};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, oneshot};
use weir_core::Principal;
use weir_core::port::{RecordKey, StoreError};
use weir_store::BusLinkId;

use crate::message::{HandoverMessage, LogChange, RecordReply, RecordRequest, WireKey};

/// The most bytes of replay logs and of the bus that may wait to be sent. Beyond them both lose
/// messages, as they may.
const MAX_WAITING: usize = 64 << 20;

/// The longest wait for messages that the other process has sent.
const MESSAGES_WAIT: Duration = Duration::from_secs(5);

/// The number of the next link in this process.
static LINKS: AtomicU64 = AtomicU64::new(1);

/// One end of a link. Messages that are sent after its end are lost.
pub(super) struct HandoverLink {
    pub(super) id: BusLinkId,
    queue: Arc<LinkQueue>,
    requests: Mutex<PendingRecordRequests>,
}

/// The queue of outgoing messages. Moved state is bounded by the stores that it comes from,
/// requests and replies by the connections of clients, and all other messages by [`MAX_WAITING`].
#[derive(Default)]
struct LinkQueue {
    waiting: Mutex<LinkQueueState>,
    more: Notify,
}

#[derive(Default)]
struct LinkQueueState {
    messages: VecDeque<QueuedSend>,
    /// The bytes of messages that may be lost.
    bytes: usize,
    is_closed: bool,
}

impl LinkQueue {
    fn push(&self, outgoing: QueuedSend) {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed {
            return;
        }
        if let QueuedSend::Message(_, bytes) = &outgoing {
            if *bytes > 0 && waiting.bytes + bytes > MAX_WAITING {
                return;
            }
            waiting.bytes += bytes;
        }
        waiting.messages.push_back(outgoing);
        drop(waiting);
        self.more.notify_one();
    }

    /// Returns the next message or mark; `None` if the queue is empty.
    fn pop(&self) -> Option<QueuedSend> {
        let mut waiting = self.waiting.lock();
        let outgoing = waiting.messages.pop_front();
        if let Some(QueuedSend::Message(_, bytes)) = &outgoing {
            waiting.bytes -= bytes;
        }
        outgoing
    }

    /// Refuses further messages, and with `drops` discards those in the queue.
    fn close(&self, drops: bool) {
        let mut waiting = self.waiting.lock();
        waiting.is_closed = true;
        let gone = if drops {
            std::mem::take(&mut waiting.messages)
        } else {
            VecDeque::new()
        };
        drop(waiting);
        drop(gone);
        self.more.notify_one();
    }

    fn is_over(&self) -> bool {
        let waiting = self.waiting.lock();
        waiting.is_closed && waiting.messages.is_empty()
    }
}

/// A message, or a mark between messages.
enum QueuedSend {
    /// A message, and its bytes that count against [`MAX_WAITING`].
    Message(HandoverMessage, usize),
    /// Signalled once every message before it is sent.
    Mark(oneshot::Sender<()>),
}

struct PendingRecordRequests {
    last: u64,
    /// `None` after the link has ended.
    open: Option<HashMap<u64, oneshot::Sender<RecordReply>>>,
}

impl std::fmt::Debug for HandoverLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HandoverLink({})", self.id.0)
    }
}

impl HandoverLink {
    /// Starts to send over `to`. The task ends once the link is dropped and the queue is sent, or
    /// the other process is gone.
    pub(super) fn start(to: OwnedWriteHalf) -> Arc<Self> {
        let queue = Arc::<LinkQueue>::default();
        tokio::spawn(send_all(to, queue.clone()));
        let requests = Mutex::new(PendingRecordRequests {
            last: 0,
            open: Some(HashMap::new()),
        });
        let id = BusLinkId(LINKS.fetch_add(1, Ordering::Relaxed));
        Arc::new(Self {
            id,
            queue,
            requests,
        })
    }

    /// Sends a message.
    pub(super) fn send(&self, message: HandoverMessage) {
        self.queue.push(QueuedSend::Message(message, 0));
    }

    /// Waits until the queue is sent, or the other process is gone.
    pub(super) async fn flush(&self) {
        let (mark, sent) = oneshot::channel();
        self.queue.push(QueuedSend::Mark(mark));
        let _gone = sent.await;
    }

    /// Sends a message that may be lost: it is dropped if more than [`MAX_WAITING`] bytes would
    /// wait.
    pub(super) fn send_if_room(&self, message: HandoverMessage, bytes: usize) {
        self.queue.push(QueuedSend::Message(message, bytes.max(1)));
    }

    pub(super) fn change_log(&self, change: LogChange) {
        let bytes = change.len();
        self.send_if_room(HandoverMessage::LogChange(change), bytes);
    }

    /// Makes a request of the other process's records.
    ///
    /// # Errors
    /// The other process is gone, or its records fail.
    pub(super) async fn request(&self, request: RecordRequest) -> Result<RecordReply, StoreError> {
        let gone = || StoreError("the process that has the sessions is gone".to_owned());
        let (sender, reply) = oneshot::channel();
        let number = {
            let mut requests = self.requests.lock();
            requests.last += 1;
            let number = requests.last;
            requests
                .open
                .as_mut()
                .ok_or_else(gone)?
                .insert(number, sender);
            number
        };
        self.send(HandoverMessage::Request { number, request });
        match reply.await {
            Ok(RecordReply::Failed(why)) => Err(StoreError(why)),
            Ok(reply) => Ok(reply),
            Err(_) => Err(gone()),
        }
    }

    /// Waits until the messages that the other process has sent so far are taken, or that process
    /// is gone and all its messages are, for a bounded time. Cancel safe.
    pub(super) async fn take_messages_so_far(&self) {
        // Its answer comes after them.
        let no_record = WireKey::of(&RecordKey {
            principal: Principal::owner(None),
            id: [0; 16],
        });
        let asking = self.request(RecordRequest::Load {
            key: no_record,
            touch: None,
        });
        let _in_time = tokio::time::timeout(MESSAGES_WAIT, asking).await;
    }

    /// Completes a request with its reply.
    pub(super) fn complete_request(&self, number: u64, reply: RecordReply) {
        let request = self
            .requests
            .lock()
            .open
            .as_mut()
            .and_then(|open| open.remove(&number));
        // The request's future may have been dropped.
        let _gone = request.map(|request| request.send(reply));
    }

    /// Fails all requests from now on, because the other process is gone.
    pub(super) fn fail_requests(&self) {
        self.requests.lock().open = None;
    }
}

impl Drop for HandoverLink {
    fn drop(&mut self) {
        self.queue.close(false);
    }
}

/// Sends the queue until the link is dropped or the other process is gone.
async fn send_all(to: OwnedWriteHalf, queue: Arc<LinkQueue>) {
    let mut to = BufWriter::new(to);
    loop {
        while let Some(outgoing) = queue.pop() {
            if send(&mut to, outgoing).await.is_err() {
                return queue.close(true);
            }
        }
        if to.flush().await.is_err() {
            return queue.close(true);
        }
        if queue.is_over() {
            return;
        }
        queue.more.notified().await;
    }
}

async fn send(to: &mut BufWriter<OwnedWriteHalf>, outgoing: QueuedSend) -> io::Result<()> {
    match outgoing {
        QueuedSend::Message(message, _) => {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            to.write_all(&line).await
        }
        QueuedSend::Mark(mark) => {
            to.flush().await?;
            // The future of `flush` may have been dropped.
            let _gone = mark.send(());
            Ok(())
        }
    }
}

/// Reads the next message; `None` once the other process is gone. Cancel safe.
pub(super) async fn next_message(
    lines: &mut Lines<BufReader<OwnedReadHalf>>,
) -> io::Result<Option<HandoverMessage>> {
    match lines.next_line().await? {
        Some(line) => Ok(Some(serde_json::from_str(&line)?)),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::pin::pin;

    use bytes::Bytes;
    use tokio::io::AsyncBufReadExt as _;
    use tokio::net::UnixStream;

    use super::super::message::Base64Bytes;
    use super::*;

    #[tokio::test]
    async fn flush_waits_until_all_messages_are_sent() {
        let (own, other) = UnixStream::pair().unwrap();
        let (_from_other, to) = own.into_split();
        let link = HandoverLink::start(to);
        // Far more than the sockets hold.
        let count = 8;
        for _ in 0..count {
            link.send(HandoverMessage::Bus {
                topic: "test".to_owned(),
                body: Base64Bytes(Bytes::from(vec![0; 1 << 20])),
            });
        }
        let mut flush = pin!(link.flush());
        let early = tokio::time::timeout(Duration::from_millis(10), &mut flush).await;
        assert!(early.is_err(), "no message was read");
        let read_all = async {
            let (from, _to) = other.into_split();
            let mut lines = BufReader::new(from).lines();
            for _ in 0..count {
                next_message(&mut lines).await.unwrap().unwrap();
            }
            lines
        };
        let ((), _still_open) = tokio::join!(flush, read_all);
    }
}
