//! The state that moves to the successor. It is sent once the successor serves. Both processes stay
//! linked until the predecessor has ended, so that a request finds its session in either of them.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, FuturesUnordered, Stream, StreamExt as _};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use weir_audit::{ChainHead, ChainHeads};
use weir_core::HandoverArrival;
use weir_core::port::{LOST_ANSWER, RecordStore as _, ReplayLog as _, StreamKey};
use weir_core::upstream::{HandoverSession, Upstream};
use weir_front::{MovingSessions, OtherProcess};
use weir_process::descriptors;
use weir_store::MemoryBus;

use crate::link::{HandoverLink, next_message};
use crate::message::{Base64Bytes, HandoverMessage, LogChange, WireSession};
use crate::movable_tasks::MovableTasks;
use crate::process_streams::ProcessStreams;
use crate::session_imports::SessionImports;
use crate::stores::{MovableRecords, MovableReplays, answer};

/// The time that requests wait for sessions on their way.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(20);
/// The longest time that a process at its end waits until all messages are sent.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(20);
/// The longest wait for a successor that does not take the descriptors of a child process.
const DESCRIPTORS_TIMEOUT: Duration = Duration::from_secs(20);

/// The stores, sessions and upstreams that take part in a move.
#[derive(Clone, Debug)]
pub struct MovableState {
    /// The records of sessions.
    pub records: Arc<MovableRecords>,
    /// The replay logs of sessions.
    pub replays: Arc<MovableReplays>,
    /// The task book.
    pub tasks: Arc<MovableTasks>,
    /// The messages between sessions and running calls.
    pub bus: Arc<MemoryBus>,
    /// The sessions of the client side.
    pub front: MovingSessions,
    /// The upstreams, with their sessions and child processes.
    pub upstreams: Vec<Arc<dyn Upstream>>,
    /// The requests that the processes forward to each other.
    pub requests: Arc<dyn ProcessStreams>,
}

/// Moves the state to the successor, and stays linked with it until this process has ended. Must be
/// called inside a tokio runtime.
///
/// # Errors
/// The successor is gone before the move.
pub(super) async fn move_state(
    state: MovableState,
    to: OwnedWriteHalf,
    lines: Lines<BufReader<OwnedReadHalf>>,
) -> io::Result<LinkToSuccessor> {
    let (children, their_children) = UnixStream::pair()?;
    let (from_successor, their_requests) = UnixStream::pair()?;
    let (to_successor, their_served) = UnixStream::pair()?;
    let theirs = [their_children, their_requests, their_served].map(UnixStream::into_std);
    let theirs: Vec<_> = theirs.into_iter().collect::<io::Result<_>>()?;
    let given: Vec<_> = theirs.iter().map(AsFd::as_fd).collect();
    descriptors::send(to.as_ref(), DESCRIPTOR_TAG, &given).await?;
    drop(theirs);
    state
        .requests
        .serve(OtherProcess::Successor, from_successor);
    // Nothing that the successor has comes here at its end.
    tokio::spawn(state.requests.forward(
        OtherProcess::Successor,
        Some(to_successor),
        HandoverArrival::default(),
    ));
    let link = HandoverLink::start(to);
    // The state of this process's own predecessor may still be on its way.
    state.records.wait_for_arrival().await;
    // Before the records, so that a message about a moved session reaches the successor.
    state.link_bus(&link);
    let receiving = StateReceiver {
        state: state.clone(),
        link: link.clone(),
        imports: SessionImports::new(state.upstreams.clone(), None),
        open: HashMap::new(),
        last_messages: HandoverArrival::awaited(),
    };
    tokio::spawn(receiving.receive(lines));
    state.front.begin_move();
    let sessions = state.records.move_to(&link);
    state.replays.copy_to(&link);
    for session in state.front.copy_all() {
        link.send(HandoverMessage::Session(WireSession::of(session)));
    }
    state.tasks.copy_to(&link);
    let later_tasks = tasks_after_export(&state.upstreams);
    let mut exports = export_all(&state.upstreams);
    let (mut takes_descriptors, mut lost_children) = (true, 0_u64);
    while let Some((id, exported)) = exports.next().await {
        for HandoverSession {
            description,
            descriptors: given,
        } in exported
        {
            if !given.is_empty() {
                let borrowed: Vec<_> = given.iter().map(OwnedFd::as_fd).collect();
                let is_sent = takes_descriptors && {
                    let sending = descriptors::send(&children, DESCRIPTOR_TAG, &borrowed);
                    let sent = tokio::time::timeout(DESCRIPTORS_TIMEOUT, sending).await;
                    takes_descriptors = sent.is_ok();
                    matches!(sent, Ok(Ok(())))
                };
                if !is_sent {
                    lost_children += 1;
                    continue;
                }
            }
            link.send(HandoverMessage::Upstream {
                id: id.clone(),
                session: Base64Bytes(description),
                has_descriptors: !given.is_empty(),
            });
        }
    }
    link.send(HandoverMessage::Complete);
    tokio::spawn(send_tasks(later_tasks, link.clone()));
    if lost_children > 0 {
        tracing::warn!(
            children = lost_children,
            "graceful restart: child processes not taken by the new process: they end"
        );
    }
    tracing::info!(
        sessions,
        "graceful restart: moving sessions to the new process"
    );
    Ok(LinkToSuccessor(link))
}

/// Exports the sessions of all upstreams at the same time, each with the id of its upstream: child
/// processes that do not read their messages delay no other upstream.
fn export_all(
    upstreams: &[Arc<dyn Upstream>],
) -> impl Stream<Item = (String, Vec<HandoverSession>)> + Unpin + use<> {
    upstreams
        .iter()
        .cloned()
        .map(|upstream| async move {
            let id = upstream.id().to_string();
            (id, upstream.export_sessions().await)
        })
        .collect::<FuturesUnordered<_>>()
}

/// The tasks in exported sessions and child processes of all upstreams from now on, each with the id
/// of its upstream.
fn tasks_after_export(
    upstreams: &[Arc<dyn Upstream>],
) -> impl Stream<Item = (String, Bytes)> + Send + Unpin + use<> {
    let of_upstream = |upstream: &Arc<dyn Upstream>| {
        let (id, tasks) = (upstream.id().to_string(), upstream.tasks_after_export()?);
        Some(tasks.map(move |task| (id.clone(), task)))
    };
    stream::select_all(upstreams.iter().filter_map(of_upstream))
}

/// Sends the tasks that begin, or are over, in sessions and child processes of the successor.
async fn send_tasks(
    mut tasks: impl Stream<Item = (String, Bytes)> + Send + Unpin,
    link: Arc<HandoverLink>,
) {
    while let Some((id, description)) = tasks.next().await {
        link.send(HandoverMessage::Upstream {
            id,
            session: Base64Bytes(description),
            has_descriptors: false,
        });
    }
}

/// The byte that descriptors are sent with.
const DESCRIPTOR_TAG: u8 = b'c';

/// The link to the successor.
#[derive(Debug)]
pub(crate) struct LinkToSuccessor(Arc<HandoverLink>);

impl LinkToSuccessor {
    /// Returns a future that sends all messages that wait at its first poll, for a bounded time.
    pub(crate) fn flush(&self) -> impl Future<Output = ()> + Send + use<> {
        let link = self.0.clone();
        async move {
            let _in_time = tokio::time::timeout(FLUSH_TIMEOUT, link.flush()).await;
        }
    }

    /// Reports the end of this process with its last audit records, and waits until all messages
    /// are sent, for a bounded time.
    pub(crate) async fn send_end(self, last: &ChainHeads) {
        let text = |head: &Option<ChainHead>| head.as_ref().map(ToString::to_string);
        self.0.send(HandoverMessage::Ended {
            calls: text(&last.calls),
            refusals: text(&last.refusals),
        });
        self.flush().await;
    }
}

impl MovableState {
    /// Notes that the predecessor, whose calls go on, runs or has ended.
    pub(super) fn set_predecessor_running(&self, runs: bool) {
        let upstreams = self.upstreams.iter();
        upstreams.for_each(|upstream| upstream.set_predecessor_running(runs));
    }

    fn link_bus(&self, link: &Arc<HandoverLink>) {
        let weak = Arc::downgrade(link);
        self.bus.link(link.id, move |message| {
            if let Some(link) = weak.upgrade() {
                let body = Base64Bytes(message.body.clone());
                link.send_if_room(
                    HandoverMessage::Bus {
                        topic: message.topic.to_owned(),
                        body,
                    },
                    message.body.len(),
                );
            }
        });
    }
}

/// Processes the predecessor's messages. Returns its last audit records once it has ended.
pub(super) async fn receive_state(state: MovableState, socket: UnixStream) -> ChainHeads {
    let records = state.records.clone();
    let receiving = async {
        let given = match descriptors::receive(&socket).await {
            Ok(Some((_, given))) => given,
            Ok(None) | Err(_) => Vec::new(),
        };
        let mut streams = given.into_iter().map(stream_of);
        let children = streams.next().flatten();
        let last_messages = HandoverArrival::awaited();
        tokio::spawn(state.requests.forward(
            OtherProcess::Predecessor,
            streams.next().flatten(),
            last_messages.clone(),
        ));
        if let Some(stream) = streams.next().flatten() {
            state.requests.serve(OtherProcess::Predecessor, stream);
        }
        let (from, to) = socket.into_split();
        let link = HandoverLink::start(to);
        state.link_bus(&link);
        state.tasks.set_predecessor(Some(link.clone()));
        state.replays.set_predecessor(Some(link.clone()));
        let receiving = StateReceiver {
            state: state.clone(),
            link,
            imports: SessionImports::new(state.upstreams.clone(), children),
            open: HashMap::new(),
            last_messages,
        };
        let last = receiving.receive(BufReader::new(from).lines()).await;
        state.tasks.set_predecessor(None);
        state.replays.set_predecessor(None);
        state.set_predecessor_running(false);
        last
    };
    let late = async {
        tokio::time::sleep(ARRIVAL_TIMEOUT).await;
        records.complete();
        std::future::pending::<ChainHeads>().await
    };
    tokio::select! {
        last = receiving => last,
        never = late => never,
    }
}

/// The stream with this descriptor.
fn stream_of(socket: OwnedFd) -> Option<UnixStream> {
    let socket = std::os::unix::net::UnixStream::from(socket);
    socket.set_nonblocking(true).ok()?;
    UnixStream::from_std(socket).ok()
}

/// The receiver of the other process's messages.
struct StateReceiver {
    state: MovableState,
    link: Arc<HandoverLink>,
    imports: SessionImports,
    /// The streams that the other process still writes to, each with the event for its clients if
    /// the process ends before the answer.
    open: HashMap<StreamKey, Bytes>,
    /// Complete once all messages of the other process are taken.
    last_messages: HandoverArrival,
}

impl StateReceiver {
    /// Processes messages until the other process is gone. Returns its last audit records, if it
    /// sent them.
    async fn receive(mut self, mut lines: Lines<BufReader<OwnedReadHalf>>) -> ChainHeads {
        let mut last = ChainHeads::default();
        loop {
            match next_message(&mut lines).await {
                Ok(Some(message)) => last = self.take(message).await.unwrap_or(last),
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(%error, "graceful restart: link to the other process broke");
                    break;
                }
            }
        }
        tracing::debug!("graceful restart: link to the other process closed");
        self.link.fail_requests();
        self.state.bus.unlink(self.link.id);
        // The other process cannot end the streams that it still wrote to. Their calls may have run.
        for (key, lost_answer) in self.open {
            if !lost_answer.is_empty() {
                self.state.replays.append(key, LOST_ANSWER, lost_answer);
            }
            self.state.replays.end(key);
        }
        self.imports.complete(&self.state.records).await;
        // An import of a server that does not answer holds up no report of the end.
        tokio::spawn(async move {
            self.imports.finish().await;
            self.last_messages.complete();
        });
        last
    }

    /// Processes a message. Returns the last audit records if the predecessor has ended.
    async fn take(&mut self, message: HandoverMessage) -> Option<ChainHeads> {
        let Self { state, link, .. } = self;
        match message {
            HandoverMessage::Record(record) => state.records.own().put(record.record()),
            HandoverMessage::Log(log) => {
                let log = log.log();
                let running = log.streams.iter().filter(|moved| !moved.is_over);
                self.open.extend(running.map(|moved| {
                    let key = StreamKey {
                        session: log.session,
                        stream: moved.stream,
                    };
                    (key, moved.lost_answer.clone())
                }));
                state.replays.own().restore(log);
            }
            HandoverMessage::Task(task) => state.tasks.put(task),
            HandoverMessage::Session(session) => state.front.take_over(session.session()),
            HandoverMessage::Upstream {
                id,
                session,
                has_descriptors,
            } => {
                self.imports.begin(&id, session.0, has_descriptors).await;
            }
            HandoverMessage::Complete => {
                let (records, completed) =
                    (state.records.clone(), self.imports.complete(&state.records));
                // Messages about sessions that have arrived do not wait for the imports.
                tokio::spawn(async move {
                    completed.await;
                    let sessions = records.own().count();
                    tracing::info!(sessions, "graceful restart: sessions received");
                });
            }
            HandoverMessage::Request { number, request } => {
                let (records, tasks) = (state.records.clone(), state.tasks.clone());
                let (sessions, link) = (state.front.clone(), link.clone());
                // The records and tasks may have moved on to a third process.
                tokio::spawn(async move {
                    let reply = answer(&records, &tasks, &sessions, request).await;
                    link.send(HandoverMessage::Reply { number, reply });
                });
            }
            HandoverMessage::Reply { number, reply } => link.complete_request(number, reply),
            HandoverMessage::LogChange(change) => self.change_log(change),
            HandoverMessage::Bus {
                topic,
                body: Base64Bytes(body),
            } => state.bus.receive(link.id, &topic, body),
            HandoverMessage::Ended { calls, refusals } => {
                let read = |head: Option<String>| head.as_deref().and_then(ChainHead::read);
                return Some(ChainHeads {
                    calls: read(calls),
                    refusals: read(refusals),
                });
            }
        }
        None
    }

    fn change_log(&mut self, change: LogChange) {
        let replays = &self.state.replays;
        match change {
            LogChange::Begin {
                stream,
                lost_answer: Base64Bytes(lost_answer),
            } => {
                replays.begin(stream.key(), &|| lost_answer.clone());
                self.open.insert(stream.key(), lost_answer);
            }
            LogChange::Keep { stream, seq, event } => replays.append(stream.key(), seq, event.0),
            LogChange::End { stream } => {
                self.open.remove(&stream.key());
                replays.end(stream.key());
            }
            LogChange::Forget { session } => replays.forget(session.key()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Barrier;

    use super::*;
    use crate::tests::meeting_upstream::meeting_upstreams;

    #[tokio::test(start_paused = true)]
    async fn upstreams_do_not_wait_for_each_other_before_they_export() {
        let ids = ["one", "two", "three"];
        let all = Arc::new(Barrier::new(ids.len()));
        let exports = export_all(&meeting_upstreams(&ids, &all)).map(|(id, exported)| {
            let descriptions: Vec<_> = exported.iter().map(|it| it.description.clone()).collect();
            (id, descriptions)
        });
        let mut exported: Vec<_> = tokio::time::timeout(Duration::from_secs(60), exports.collect())
            .await
            .expect("all upstreams export at the same time");
        exported.sort_by_key(|(id, _)| ids.iter().position(|known| known == id));
        assert_eq!(
            exported,
            ids.map(|id| (id.to_owned(), vec![Bytes::from(id)]))
        );
    }
}
