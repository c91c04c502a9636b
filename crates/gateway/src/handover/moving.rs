//! The state that moves to the successor: it is sent when the successor serves, and both processes stay linked until this one has
//! ended, so that a request finds its session whichever of them it reaches.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{BufReader, Lines};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use weir_core::port::{Replays as _, StreamKey};
use weir_core::telemetry::instruments;
use weir_core::upstream::Upstream;
use weir_front::MovingSessions;
use weir_policy::audit::Head;
use weir_store::MemoryBus;

use super::link::{Link, next_message};
use super::message::{Encoded, LogChange, Message, WireSession};
use super::stores::{MovableRecords, MovableReplays, answer};
use crate::audit::Heads;

/// How long requests wait for sessions that are on their way.
const ARRIVAL: Duration = Duration::from_secs(20);

/// All that has a part in a move.
#[derive(Clone)]
pub(crate) struct SessionState {
    pub(crate) records: Arc<MovableRecords>,
    pub(crate) replays: Arc<MovableReplays>,
    pub(crate) bus: Arc<MemoryBus>,
    pub(crate) front: MovingSessions,
    pub(crate) upstreams: Vec<Arc<dyn Upstream>>,
}

/// Moves the state to the successor, and stays linked with it until this process has ended. Must be called inside a tokio runtime.
pub(super) fn move_state(
    state: SessionState,
    lines: Lines<BufReader<OwnedReadHalf>>,
    to: OwnedWriteHalf,
) -> LinkToSuccessor {
    let link = Link::start(to);
    // Before the records: what is said of a session that has moved reaches the process that has it.
    state.link_bus(&link);
    let sessions = state.records.move_to(&link);
    state.replays.copy_to(&link);
    for session in state.front.leave() {
        link.send(Message::Session(WireSession::of(session)));
    }
    for upstream in &state.upstreams {
        for session in upstream.export_sessions() {
            link.send(Message::Upstream { id: upstream.id().to_string(), session: Encoded(session) });
        }
    }
    link.send(Message::Complete);
    instruments().sessions.add(-i64::try_from(sessions).unwrap_or(i64::MAX), &[]);
    tracing::info!(sessions, "the sessions move to the new process");
    tokio::spawn(receive(state, link.clone(), lines));
    LinkToSuccessor(link)
}

/// The link to the successor.
#[derive(Debug)]
pub(crate) struct LinkToSuccessor(Arc<Link>);

impl LinkToSuccessor {
    /// Says that this process has ended, and with which audit records.
    pub(super) async fn farewell(self, last: &Heads) {
        let text = |head: &Option<Head>| head.as_ref().map(ToString::to_string);
        self.0.send(Message::Ended { calls: text(&last.calls), refusals: text(&last.refusals) });
        self.0.flush().await;
    }
}

impl SessionState {
    fn link_bus(&self, link: &Arc<Link>) {
        let weak = Arc::downgrade(link);
        self.bus.link(link.id, move |message| {
            if let Some(link) = weak.upgrade() {
                let body = Encoded(message.body.clone());
                link.send_if_room(Message::Bus { topic: message.topic.to_owned(), body }, message.body.len());
            }
        });
    }

    /// Takes a message; gives the last audit records where the predecessor has ended.
    async fn take(&self, link: &Arc<Link>, message: Message, open: &OpenStreams) -> Option<Heads> {
        match message {
            Message::Record(record) => {
                self.records.own().put(record.record());
                instruments().sessions.add(1, &[]);
            }
            Message::Log(log) => {
                let log = log.log();
                let running = log.streams.iter().filter(|(_, is_over)| !is_over);
                running.for_each(|(stream, _)| open.add(StreamKey { session: log.session, stream: *stream }));
                self.replays.own().put(log);
            }
            Message::Session(session) => self.front.take(session.session()),
            Message::Upstream { id, session: Encoded(session) } => {
                let upstream = self.upstreams.iter().find(|upstream| upstream.id().as_str() == id);
                upstream.inspect(|upstream| upstream.import_session(&session));
            }
            Message::Complete => self.records.complete(),
            Message::Request { number, request } => {
                let (records, link) = (self.records.clone(), link.clone());
                // It may have to wait for the next process.
                tokio::spawn(async move {
                    let reply = answer(&records, request).await;
                    link.send(Message::Reply { number, reply });
                });
            }
            Message::Reply { number, reply } => link.answered(number, reply),
            Message::LogChange(change) => self.change_log(change, open),
            Message::Bus { topic, body: Encoded(body) } => self.bus.receive(link.id, &topic, body),
            Message::Ended { calls, refusals } => {
                let read = |head: Option<String>| head.as_deref().and_then(Head::read);
                return Some(Heads { calls: read(calls), refusals: read(refusals) });
            }
        }
        None
    }

    fn change_log(&self, change: LogChange, open: &OpenStreams) {
        match change {
            LogChange::Begin { stream } => {
                open.add(stream.key());
                self.replays.begin(stream.key());
            }
            LogChange::Keep { stream, seq, event } => self.replays.keep(stream.key(), seq, event.0),
            LogChange::End { stream } => {
                open.remove(stream.key());
                self.replays.end(stream.key());
            }
            LogChange::Forget { session } => self.replays.forget(session.key()),
        }
    }
}

/// The streams that the predecessor still writes to.
#[derive(Default)]
struct OpenStreams(Mutex<HashSet<StreamKey>>);

impl OpenStreams {
    fn add(&self, key: StreamKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
    }

    fn remove(&self, key: StreamKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }

    fn take(&self) -> HashSet<StreamKey> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Goes on with what the predecessor sends. Gives its last audit records once it has ended.
pub(super) async fn receive_state(
    state: SessionState,
    lines: Lines<BufReader<OwnedReadHalf>>,
    to: OwnedWriteHalf,
) -> Heads {
    let link = Link::start(to);
    state.link_bus(&link);
    let late = {
        let records = state.records.clone();
        async move {
            tokio::time::sleep(ARRIVAL).await;
            records.complete();
            std::future::pending::<Heads>().await
        }
    };
    tokio::select! {
        last = receive(state, link, lines) => last,
        never = late => never,
    }
}

/// Takes messages until the other process is gone.
async fn receive(state: SessionState, link: Arc<Link>, mut lines: Lines<BufReader<OwnedReadHalf>>) -> Heads {
    let (mut last, open) = (Heads::default(), OpenStreams::default());
    loop {
        match next_message(&mut lines).await {
            Ok(Some(message)) => last = state.take(&link, message, &open).await.unwrap_or(last),
            Ok(None) => break,
            Err(error) => {
                tracing::warn!(%error, "the link to the other process of a hand-over broke");
                break;
            }
        }
    }
    link.end();
    state.bus.unlink(link.id);
    state.records.complete();
    // What the other process still wrote to has no end of its own any more.
    open.take().into_iter().for_each(|key| state.replays.end(key));
    last
}
