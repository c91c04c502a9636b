//! A scriptable upstream server over real loopback TCP, of either era or both. It behaves or
//! misbehaves as scripted and remembers every request. Its state survives [`MockServer::stop`] and
//! [`MockServer::restart`], except for sessions.

pub(crate) mod authorization;
mod behaviour;
mod breakable_stream;
mod builder;
mod call_end;
mod change_stream;
mod legacy;
mod library;
mod misbehaviour;
mod mock_call;
mod mock_response;
mod mock_task;
mod mock_tool;
mod modern;
mod player;
mod recorded_request;
mod server;
mod state;
mod tasks;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use serde_json::Value;
use tokio::sync::oneshot;

pub use authorization::CANARY;
pub use behaviour::{AnswerStep, CallGate, MockBehaviour};
pub use builder::MockServerBuilder;
pub use mock_tool::{CursorBehaviour, MockTool};
pub use recorded_request::RecordedRequest;
pub use state::CallCounts;

use crate::closed_port::ClosedPort;
use crate::owned_task::OwnedTask;
use state::{AnswerRule, MockChange, MockState};

/// The most time [`MockServer::wait_until`] waits before it fails the test.
const UNTIL_TIMEOUT: Duration = Duration::from_secs(60);

/// A running mock server. Dropping it closes every connection.
#[derive(Debug)]
pub struct MockServer {
    shared: Arc<MockState>,
    server: Option<OwnedTask>,
    /// Keeps the port also while the server is stopped.
    port: ClosedPort,
}

impl MockServer {
    async fn start(shared: MockState) -> Self {
        let mut mock_server = Self {
            shared: Arc::new(shared),
            server: None,
            port: ClosedPort::new(),
        };
        mock_server.restart().await;
        mock_server
    }

    /// The URL of the MCP endpoint. The same after a restart.
    pub fn url(&self) -> String {
        format!("http://{}{}", self.port.address(), server::PATH)
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Every request so far, in the order of complete bodies.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.lock().requests.clone()
    }

    /// The requests of one JSON-RPC method, or of `GET` or `DELETE`.
    pub fn requests_of(&self, kind: &str) -> Vec<RecordedRequest> {
        self.shared
            .lock()
            .requests
            .iter()
            .filter(|request| request.kind() == kind)
            .cloned()
            .collect()
    }

    /// Counts the started runs of a tool, with any end.
    pub fn executions(&self, tool: &str) -> usize {
        self.counts(tool).started
    }

    /// The counts of a tool's calls by their end. Running calls are in `started` alone.
    pub fn counts(&self, tool: &str) -> CallCounts {
        self.shared
            .lock()
            .counts
            .get(tool)
            .copied()
            .unwrap_or_default()
    }

    /// Counts the started runs of all tools.
    pub fn total_executions(&self) -> usize {
        self.shared
            .lock()
            .counts
            .values()
            .map(|counts| counts.started)
            .sum()
    }

    /// The answers to the server's own requests.
    pub fn answers(&self) -> Vec<Value> {
        self.shared.lock().answers.clone()
    }

    /// The count of streams that listen for changes now.
    pub fn listeners(&self) -> usize {
        self.shared.lock().listeners
    }

    /// The count of sessions that are open now.
    pub fn sessions(&self) -> usize {
        self.shared.lock().sessions.len()
    }

    /// The count of TCP connections ever accepted.
    pub fn connections(&self) -> u64 {
        self.shared.lock().connections
    }

    /// The count of TCP connections open now.
    pub fn open_connections(&self) -> usize {
        self.shared.lock().open_connections
    }

    /// Replaces the tools from now on, without a notification.
    pub fn set_tools(&self, tools: impl IntoIterator<Item = MockTool>) {
        let tools = tools.into_iter().collect();
        self.shared.change(|inner| inner.tools = tools);
    }

    /// Notifies every listener that the list changed.
    pub fn notify_list_changed(&self) {
        self.notify_list_changed_times(1);
    }

    /// Notifies every listener so many times, at once.
    pub fn notify_list_changed_times(&self, times: usize) {
        for _ in 0..times {
            // An error means that there is no listener.
            let _ = self.shared.changes.send(MockChange::List);
        }
    }

    /// Sends a request on the GET stream of a session, outside of any call; returns the posted
    /// answer.
    pub fn request_on_get_stream(
        &self,
        session: &str,
        method: &str,
        params: &Value,
    ) -> oneshot::Receiver<Value> {
        self.shared.request_on_get_stream(session, method, params)
    }

    /// Sends a notification on the GET stream of a session.
    pub fn send_on_get_stream(&self, session: &str, message: &Value) {
        // An error means that there is no listener.
        let _ = self.shared.changes.send(MockChange::SessionMessage(
            session.to_owned(),
            message.to_string(),
        ));
    }

    /// Notifies the subscribers of a resource that it was updated, under this URI.
    pub fn notify_resource_updated(&self, uri: &str) {
        let _ = self
            .shared
            .changes
            .send(MockChange::Updated(uri.to_owned()));
    }

    /// The resources that sessions and streams are subscribed to now, sorted, one entry for each
    /// subscription.
    pub fn subscriptions(&self) -> Vec<String> {
        let inner = self.shared.lock();
        let sessions = inner
            .sessions
            .values()
            .flat_map(|session| session.subscribed.iter());
        let mut all: Vec<_> = sessions.chain(&inner.listened).cloned().collect();
        all.sort_unstable();
        all
    }

    /// Drops every session, like a server that restarted; their streams end.
    pub fn drop_sessions(&self) {
        self.shared.change(|inner| inner.sessions.clear());
    }

    /// Answers the next `times` requests of this kind by a behaviour, before any tool runs: a
    /// JSON-RPC method, `GET`, `DELETE`, or `*` for all. Rules apply in the order of their
    /// addition.
    pub fn add_rule(&self, kind: &str, times: usize, behaviour: MockBehaviour) {
        let rule = AnswerRule {
            kind: kind.to_owned(),
            left: times,
            behaviour,
        };
        self.shared.change(|inner| inner.rules.push(rule));
    }

    /// Removes every rule.
    pub fn clear_rules(&self) {
        self.shared.change(|inner| inner.rules.clear());
    }

    /// Closes the listener and every connection: connecting is refused from now on.
    pub async fn stop(&mut self) {
        self.server = None;
        self.wait_until("every connection is closed", |mock_server| {
            mock_server.open_connections() == 0
        })
        .await;
    }

    /// Listens again on the same port, without the former sessions. Stops first if it still runs.
    pub async fn restart(&mut self) {
        self.stop().await;
        self.drop_sessions();
        self.server = Some(OwnedTask::spawn(server::serve(
            self.port.listen().await,
            Arc::clone(&self.shared),
        )));
    }

    /// Waits until the condition holds. It is checked at every change of the state.
    ///
    /// # Panics
    /// It does not hold after a minute; the panic shows `what` and the requests.
    pub async fn wait_until(&self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        let mut pulse = self.shared.subscribe_changes();
        let holds = async {
            while !condition(self) {
                // The sender lives in `self`.
                let _ = pulse.changed().await;
            }
        };
        if tokio::time::timeout(UNTIL_TIMEOUT, holds).await.is_err() {
            let requests: Vec<_> = self
                .requests()
                .iter()
                .map(|request| request.kind().to_owned())
                .collect();
            panic!("never happened: {what}; requests: {requests:?}");
        }
    }

    /// Serves a JSON document to every GET of this path, with or without a token.
    pub fn serve_document(&self, path: &str, document: &Value) {
        self.shared
            .change(|inner| inner.authorization.serve_document(path, document));
    }

    /// Answers with 401 from now on, unless `Authorization` is one of these.
    pub fn accept_only(&self, authorizations: &[&str]) {
        let accepted = authorizations.iter().map(|&one| one.to_owned()).collect();
        self.shared
            .change(|inner| inner.authorization.accept_only(accepted));
    }

    /// Sets the `WWW-Authenticate` of every 401.
    pub fn set_challenge(&self, text: &[u8]) {
        let challenge = HeaderValue::from_bytes(text).unwrap_or_else(|error| panic!("{error}"));
        self.shared
            .change(|inner| inner.authorization.set_challenge(challenge));
    }

    /// The requests with this text in path, headers or body.
    pub fn requests_with(&self, text: &str) -> Vec<RecordedRequest> {
        self.requests()
            .into_iter()
            .filter(|request| request.contains_text(text))
            .collect()
    }
}

/// In every suite: no canary ever arrives at a server.
impl Drop for MockServer {
    fn drop(&mut self) {
        let found = self.requests_with(CANARY);
        if let Some(leak) = found.first().filter(|_| !std::thread::panicking()) {
            panic!(
                "{} requests hold a canary; the first: {leak:?}",
                found.len()
            );
        }
    }
}
