//! The state that all connections of a mock server share.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::{broadcast, oneshot, watch};
use weir_wire::{LogLevel, Revision};

use crate::mock_server::authorization::MockAuthorization;
use crate::mock_server::behaviour::MockBehaviour;
use crate::mock_server::mock_task::MockTask;
use crate::mock_server::mock_tool::{self, CursorBehaviour, MockTool};
use crate::mock_server::recorded_request::RecordedRequest;

/// The changes that a slow listener may miss before it gets only one.
const MAX_CHANGES: usize = 4_096;

/// The settings of a builder, which never change.
#[derive(Clone, Debug)]
pub(super) struct MockSettings {
    /// The newest legacy revision it speaks, if any.
    pub(super) legacy: Option<Revision>,
    pub(super) modern: bool,
    pub(super) page_size: usize,
    pub(super) cursors: CursorBehaviour,
    pub(super) sessions: bool,
    /// The HTTP status for a lost session: 404, or 400 as some real servers answer.
    pub(super) lost_session: u16,
    pub(super) list_changed: bool,
    pub(super) get_stream: bool,
    /// `ttlMs` and `cacheScope` of modern lists.
    pub(super) cache: Option<(i64, String)>,
    pub(super) http2: bool,
    /// The most streams of an HTTP/2 connection, if not hyper's default.
    pub(super) http2_streams: Option<u32>,
    pub(super) library: bool,
    pub(super) tasks: bool,
    pub(super) name: String,
}

#[derive(Debug)]
pub(super) struct MockState {
    pub(super) settings: MockSettings,
    /// The changes for listeners.
    pub(super) changes: broadcast::Sender<MockChange>,
    /// One value for each `notifications/cancelled`: session and request id.
    pub(super) cancels: broadcast::Sender<(Option<String>, Value)>,
    inner: Mutex<MockMutableState>,
    pulse: watch::Sender<u64>,
}

#[derive(Debug, Default)]
pub(super) struct MockMutableState {
    pub(super) tools: Vec<MockTool>,
    pub(super) rules: Vec<AnswerRule>,
    pub(super) authorization: MockAuthorization,
    pub(super) requests: Vec<RecordedRequest>,
    pub(super) counts: HashMap<String, CallCounts>,
    pub(super) sessions: HashMap<String, MockSession>,
    /// The server's own requests without an answer, by id: their method, and the waiting receiver's
    /// sender.
    pub(super) pending_requests: HashMap<String, (String, oneshot::Sender<Value>)>,
    pub(super) answers: Vec<Value>,
    pub(super) tasks: BTreeMap<String, MockTask>,
    pub(super) listeners: usize,
    /// Resources that open modern streams listen for, one entry for each stream.
    pub(super) listened: Vec<String>,
    pub(super) connections: u64,
    pub(super) open_connections: usize,
    /// The last number of sessions, tasks and server requests: no number repeats.
    pub(super) numbers: u64,
}

/// A change for listeners.
#[derive(Clone, Debug)]
pub(super) enum MockChange {
    /// The list of tools changed.
    List,
    /// A resource was updated.
    Updated(String),
    /// A task is in another state.
    Task(String),
    /// A message for the GET stream of one session.
    SessionMessage(String, String),
}

/// An answer that precedes all others.
#[derive(Clone, Debug)]
pub(super) struct AnswerRule {
    pub(super) kind: String,
    pub(super) left: usize,
    pub(super) behaviour: MockBehaviour,
}

/// The counts of one tool's calls by their end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// Calls that began.
    pub started: usize,
    /// Calls whose last step was done.
    pub completed: usize,
    /// Calls whose client went away before the last step.
    pub abandoned: usize,
    /// Calls that `notifications/cancelled` ended.
    pub cancelled: usize,
}

#[derive(Debug)]
pub(super) struct MockSession {
    pub(super) revision: Revision,
    pub(super) capabilities: Value,
    pub(super) level: Option<LogLevel>,
    /// The resources that it is subscribed to.
    pub(super) subscribed: BTreeSet<String>,
    /// Dropped with the session, which ends its streams.
    pub(super) alive: watch::Sender<()>,
}

impl MockState {
    pub(super) fn new(
        settings: MockSettings,
        tools: Vec<MockTool>,
        rules: Vec<AnswerRule>,
    ) -> Self {
        let inner = Mutex::new(MockMutableState {
            tools,
            rules,
            ..MockMutableState::default()
        });
        let (changes, cancels) = (
            broadcast::Sender::new(MAX_CHANGES),
            broadcast::Sender::new(MAX_CHANGES),
        );
        Self {
            settings,
            changes,
            cancels,
            inner,
            pulse: watch::Sender::new(0),
        }
    }

    /// Makes a request of the server's own, and the receiver of its answer.
    pub(super) fn new_request(
        &self,
        method: &str,
        params: &Value,
    ) -> (String, oneshot::Receiver<Value>) {
        let (sender, receiver) = oneshot::channel();
        let id = self.change(|inner| {
            inner.numbers += 1;
            let id = format!("ask-{}", inner.numbers);
            inner
                .pending_requests
                .insert(id.clone(), (method.to_owned(), sender));
            id
        });
        (
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string(),
            receiver,
        )
    }

    /// Sends such a request on the GET stream of a session.
    pub(super) fn request_on_get_stream(
        &self,
        session: &str,
        method: &str,
        params: &Value,
    ) -> oneshot::Receiver<Value> {
        let (message, answer) = self.new_request(method, params);
        // An error means that there is no listener.
        let _ = self
            .changes
            .send(MockChange::SessionMessage(session.to_owned(), message));
        answer
    }

    /// Reads or changes the state; waiting conditions are checked again.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut MockMutableState) -> T) -> T {
        let outcome = change(&mut self.lock());
        self.pulse.send_modify(|pulse| *pulse += 1);
        outcome
    }

    /// Reads the state.
    pub(super) fn lock(&self) -> MutexGuard<'_, MockMutableState> {
        self.inner.lock()
    }

    /// Subscribes to every change of the state.
    pub(super) fn subscribe_changes(&self) -> watch::Receiver<u64> {
        self.pulse.subscribe()
    }

    /// Returns the behaviour of the first rule for this request.
    pub(super) fn rule(&self, request: &RecordedRequest) -> Option<MockBehaviour> {
        let mut inner = self.lock();
        let matching = |rule: &&mut AnswerRule| {
            rule.left > 0 && (rule.kind == "*" || rule.kind == request.kind())
        };
        let rule = inner.rules.iter_mut().find(matching)?;
        rule.left -= 1;
        Some(rule.behaviour.clone())
    }

    /// Counts a call of `tool` and returns its behaviour for this call.
    pub(super) fn begin_call(&self, tool: &str) -> Option<MockBehaviour> {
        self.change(|inner| {
            let behaviours = &inner.tools.iter().find(|own| own.name == tool)?.behaviours;
            let counts = inner.counts.entry(tool.to_owned()).or_default();
            let behaviour = behaviours[counts.started.min(behaviours.len() - 1)].clone();
            counts.started += 1;
            Some(behaviour)
        })
    }

    /// Returns a page of the list for a client with these capabilities.
    pub(super) fn page(&self, capabilities: &Value, cursor: Option<&str>) -> Option<String> {
        let inner = self.lock();
        let shown = |tool: &&MockTool| {
            tool.needs
                .as_ref()
                .is_none_or(|needed| capabilities.get(needed).is_some())
        };
        let tools: Vec<_> = inner.tools.iter().filter(shown).collect();
        mock_tool::render_page(
            &tools,
            self.settings.page_size,
            self.settings.cursors,
            cursor,
        )
    }
}
