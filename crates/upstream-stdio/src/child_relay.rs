//! The relay of a child process to the weir process that started it: that process's calls go on
//! while this one has the child.

use bytes::Bytes;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use weir_era::upstream_messages;
use weir_upstream_core::background_tasks::BackgroundTasks;
use weir_wire::Message;

/// The most lines that wait for the other process. Beyond them the relay ends.
const MAX_WAITING_LINES: usize = 1024;

/// The relay, on the side that has the child.
#[derive(Debug)]
pub(super) struct ChildRelay {
    /// The last request id of the other process. The ids of this process are greater.
    last_id: u64,
    lines: mpsc::Sender<Bytes>,
    over: CancellationToken,
}

/// The recipient of a child's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RelayRecipient {
    This,
    Other,
    Both,
}

impl ChildRelay {
    /// Starts the relay. Messages of the other process are passed to `send`, behind those of this
    /// one, until `closed` is cancelled.
    pub(super) fn start(
        tasks: &BackgroundTasks,
        socket: UnixStream,
        last_id: u64,
        closed: CancellationToken,
        send: impl Fn(Bytes) + Send + 'static,
    ) -> Self {
        let (lines, waiting) = mpsc::channel(MAX_WAITING_LINES);
        let over = CancellationToken::new();
        let (from, to) = socket.into_split();
        let until = over.clone();
        tasks.spawn_endless(async move {
            let _over = until.run_until_cancelled_owned(write(to, waiting)).await;
        });
        let ended = over.clone();
        let reading = closed.run_until_cancelled_owned(read(from, send));
        tasks.spawn_endless(async move {
            let _closed = reading.await;
            ended.cancel();
        });
        Self {
            last_id,
            lines,
            over,
        }
    }

    /// True while the other process is connected.
    pub(super) fn is_open(&self) -> bool {
        !self.over.is_cancelled()
    }

    /// True if a request with this id is of the other process.
    pub(super) fn has_request(&self, id: u64) -> bool {
        id <= self.last_id
    }

    /// Returns the recipient of a message. `asks` is true if a call of this process may be asked.
    pub(super) fn recipient(&self, message: &Message, asks: bool) -> RelayRecipient {
        match (message, upstream_messages::request_of(message)) {
            (_, Some(id)) if self.has_request(id) => RelayRecipient::Other,
            (Message::Request(_), _) if !asks => RelayRecipient::Other,
            (Message::Notification(_), None) => RelayRecipient::Both,
            (Message::Request(_) | Message::Response(_) | Message::Notification(_), _) => {
                RelayRecipient::This
            }
        }
    }

    /// Sends a line of the child to the other process.
    pub(super) fn send(&self, line: Bytes) {
        // A process that no longer reads loses the child.
        if self.lines.try_send(line).is_err() {
            self.over.cancel();
        }
    }
}

async fn write(mut to: OwnedWriteHalf, mut lines: mpsc::Receiver<Bytes>) {
    while let Some(line) = lines.recv().await {
        if to.write_all(&line).await.is_err() {
            return;
        }
    }
}

/// Forwards messages of the other process until it is gone.
async fn read(from: OwnedReadHalf, send: impl Fn(Bytes)) {
    let mut from = BufReader::new(from).lines();
    while let Ok(Some(line)) = from.next_line().await {
        send(line.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_are_relayed_by_request_id() {
        let (lines, _waiting) = mpsc::channel(1);
        let relay = ChildRelay {
            last_id: 100,
            lines,
            over: CancellationToken::new(),
        };
        let recipient = |text: &'static str, asks| {
            let message = Message::parse(
                Bytes::from_static(text.as_bytes()),
                &weir_wire::JsonLimits::upstream(),
            );
            message.map(|message| relay.recipient(&message, asks)).ok()
        };
        let of = |text| recipient(text, false);
        assert_eq!(
            of(r#"{"jsonrpc":"2.0","id":100,"result":{}}"#),
            Some(RelayRecipient::Other)
        );
        assert_eq!(
            of(r#"{"jsonrpc":"2.0","id":101,"result":{}}"#),
            Some(RelayRecipient::This)
        );
        let progress = |token: u64| {
            let params = format!(r#"{{"progressToken":{token},"progress":1}}"#);
            let text = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}"#
            );
            Message::parse(text.into(), &weir_wire::JsonLimits::upstream())
                .map(|message| relay.recipient(&message, false))
                .ok()
        };
        assert_eq!(
            (progress(7), progress(170)),
            (Some(RelayRecipient::Other), Some(RelayRecipient::This))
        );
        let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        assert_eq!(of(changed), Some(RelayRecipient::Both));
        let asked = r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#;
        assert_eq!(
            (recipient(asked, false), recipient(asked, true)),
            (Some(RelayRecipient::Other), Some(RelayRecipient::This))
        );
        assert!(relay.is_open());
        relay.send(Bytes::from_static(b"{}\n"));
        relay.send(Bytes::from_static(b"{}\n"));
        assert!(!relay.is_open(), "the other process does not read");
    }
}
