//! Shared parts of the tests: an upstream, and sessions of it that another process opened.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::mpsc;
use weir_core::names::UpstreamId;
use weir_core::port::{ListSession, SessionListObserver, SessionListRegistry};
use weir_core::upstream::ListKinds;
use weir_core::{Budgets, CapabilityClass, SessionKey};
use weir_http_client::{HttpClient, HttpServer, RootCertificates};
use weir_oauth_client::AuthorizedHttpClient;
use weir_testkit::scripted_server::ServerAct;
use weir_testkit::{FakeClock, FakeRandom, ScriptedServer};
use weir_upstream_core::settings::{OwnDeadlines, UpstreamBounds};
use weir_upstream_core::upstream_context::{ContextPorts, ContextSettings, UpstreamContext};

use crate::upstream_session::{UpstreamSession, UpstreamSessionClient};

/// The answer to a GET that opens a stream.
pub(crate) const STREAM_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
/// The answer of a server without GET streams.
pub(crate) const NO_STREAM: &[u8] = b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n";

/// The most requests of a test.
const MAX_REQUESTS: usize = 16;

/// An upstream in front of a server.
pub(crate) struct TestUpstream {
    pub(crate) context: Arc<UpstreamContext>,
    pub(crate) clock: FakeClock,
    pub(crate) http: AuthorizedHttpClient,
    lists: Arc<TestLists>,
}

impl TestUpstream {
    pub(crate) fn new(server: &ScriptedServer) -> Self {
        let (clock, lists) = (FakeClock::new(), Arc::new(TestLists::default()));
        let budgets = Budgets::default();
        let settings = ContextSettings {
            id: UpstreamId::new("mock").unwrap(),
            bounds: UpstreamBounds::default(),
            // Tests decide when a stream opens.
            own_deadlines: OwnDeadlines {
                stream_head: Duration::from_secs(600),
                ..OwnDeadlines::default()
            },
            client_capabilities: CapabilityClass::BASE,
            allows_url_elicitation: false,
            mask: Default::default(),
            credential_advice: None,
            client_info: Bytes::from_static(b"{}"),
            fence: None,
        };
        let ports = ContextPorts {
            clock: Arc::new(clock.clone()),
            random: Arc::new(FakeRandom::new(1)),
            notifier: Arc::default(),
            session_lists: lists.clone(),
            budgets: budgets.clone(),
        };
        let to = HttpServer {
            url: server.url().parse().unwrap(),
            headers: Vec::new(),
            ca_file: None,
            h2c: false,
            forward_proxy: None,
        };
        let (connect, agent) = (Duration::from_secs(10), HeaderValue::from_static("weir"));
        let roots = RootCertificates::native();
        let http = HttpClient::new(to, connect, &agent, &roots, &budgets).unwrap();
        Self {
            context: Arc::new(UpstreamContext::new(settings, ports)),
            clock,
            http: AuthorizedHttpClient::without_token(http),
            lists,
        }
    }

    /// Takes over a session with this id, of a client of its own. `is_read` if the process before
    /// read its standing stream.
    pub(crate) fn session(&self, id: &str, is_read: bool) -> Arc<UpstreamSession> {
        let client = UpstreamSessionClient {
            class: CapabilityClass::BASE,
            client: Some(SessionKey([1; 16])),
        };
        self.session_of(client, id, is_read)
    }

    /// Takes over a session with this id, of a client that can be asked.
    pub(crate) fn asked_session(&self, id: &str) -> Arc<UpstreamSession> {
        let client = UpstreamSessionClient {
            class: CapabilityClass::SAMPLING,
            client: Some(SessionKey([1; 16])),
        };
        self.session_of(client, id, false)
    }

    /// Takes over a session with this id that belongs to no single client.
    pub(crate) fn clientless_session(&self, id: &str) -> Arc<UpstreamSession> {
        let client = UpstreamSessionClient {
            class: CapabilityClass::BASE,
            client: None,
        };
        self.session_of(client, id, false)
    }

    fn session_of(
        &self,
        behind: UpstreamSessionClient,
        id: &str,
        is_read: bool,
    ) -> Arc<UpstreamSession> {
        let initialized = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "tools": { "listChanged": true } },
        });
        let exported = json!({
            "id": id,
            "initialized": initialized.to_string(),
            "level": null,
            "is_read": is_read,
        });
        let exported = serde_json::from_value(exported).unwrap();
        let session = UpstreamSession::import(&self.context, &self.http, behind, exported);
        Arc::new(session.unwrap())
    }

    /// True if changes of the lists of this session, by the order of their opening, are heard.
    pub(crate) fn hears_lists(&self, nth: usize) -> bool {
        let opened = self.lists.0.lock();
        opened[nth].is_heard.load(Ordering::Relaxed)
    }

    /// The number of calls that may have changed the lists of each session so far.
    pub(crate) fn list_calls(&self) -> Vec<u64> {
        let calls = |lists: &Arc<TestObserver>| lists.calls.load(Ordering::Relaxed);
        self.lists.0.lock().iter().map(calls).collect()
    }
}

/// Starts a server that answers each GET by `answer`, from the session's id. Returns the ids, too,
/// in the order of the requests.
pub(crate) async fn stream_server(
    answer: impl Fn(&str) -> &'static [u8] + Send + Sync + 'static,
) -> (ScriptedServer, mpsc::Receiver<String>) {
    let (seen, requests) = mpsc::channel(MAX_REQUESTS);
    let server = ScriptedServer::start(move |request| {
        let mut ids = request
            .head
            .lines()
            .filter_map(|line| line.strip_prefix("mcp-session-id: "));
        let id = ids.next().unwrap();
        seen.try_send(id.to_owned()).unwrap();
        vec![ServerAct::Write(Bytes::from_static(answer(id)))]
    });
    (server.await, requests)
}

/// The observers of lists, in the order of their opening.
#[derive(Debug, Default)]
struct TestLists(Mutex<Vec<Arc<TestObserver>>>);

/// The calls so far, and true while changes are heard.
#[derive(Debug, Default)]
struct TestObserver {
    calls: AtomicU64,
    is_heard: AtomicBool,
}

impl SessionListRegistry for TestLists {
    fn open(
        &self,
        _: UpstreamId,
        _: ListKinds,
        _: Weak<dyn ListSession>,
    ) -> Arc<dyn SessionListObserver> {
        let observer = Arc::<TestObserver>::default();
        self.0.lock().push(observer.clone());
        observer
    }
}

impl SessionListObserver for TestObserver {
    fn serves(&self, _: SessionKey) {}

    fn clients(&self) -> Vec<SessionKey> {
        Vec::new()
    }

    fn count_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    fn set_heard(&self, is_heard: bool) {
        self.is_heard.store(is_heard, Ordering::Relaxed);
    }

    fn handle_list_changed(&self, _: ListKinds) {}

    fn handle_resource_updated(&self, _: &str) {}
}
