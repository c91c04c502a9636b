//! A client with a legacy session, or one of the newest revision without: it calls tools at any
//! replica, and checks each answer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Method, Request};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use weir_core::Principal;
use weir_core::port::Clock as _;

use crate::faults::REPLICAS;
use crate::host::HostClock;
use crate::open_policy::ISSUER;
use crate::redis_server::RedisServer;
use crate::replica_listener::{AnswerPart, ListenerRequest};
use crate::seeded::Seeded;
use crate::tool_server::ToolServer;
use crate::trace::Trace;

/// The revision of legacy clients.
const REVISION: &str = "2025-11-25";
/// The revision of modern clients.
const MODERN: &str = "2026-07-28";
/// The longest time that a request may take: every wait of weir for a store, an owner or a lease
/// is shorter.
const MAX_REQUEST: Duration = Duration::from_secs(30);
/// The longest time for which an ended session or a missing block may be seen at a replica.
pub(crate) const MAX_STALE: Duration = Duration::from_secs(5);
/// The longest time in which a replica drops an ended session once it noticed that it lacks a message.
const LOOK_TIME: Duration = Duration::from_secs(1);

/// The way into a replica, by its number.
type OpenListener = (usize, mpsc::UnboundedSender<ListenerRequest>);

/// The replicas that take requests. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct OpenListeners(Arc<Mutex<Vec<OpenListener>>>);

impl OpenListeners {
    pub(crate) fn open(&self, replica: usize, listener: mpsc::UnboundedSender<ListenerRequest>) {
        self.0.lock().push((replica, listener));
    }

    pub(crate) fn close(&self, replica: usize) {
        self.0.lock().retain(|(open, _)| *open != replica);
    }
}

/// The parts of the world that clients use.
#[derive(Clone)]
pub(crate) struct ClientWorld {
    pub(crate) listeners: OpenListeners,
    pub(crate) clock: HostClock,
    pub(crate) random: Seeded,
    pub(crate) trace: Trace,
    pub(crate) redis: RedisServer,
    pub(crate) tools: ToolServer,
    /// Clients make no more changes, and ask every replica once.
    pub(crate) is_over: Arc<std::sync::atomic::AtomicBool>,
    /// The calls that did not run, by their answers.
    pub(crate) did_not_run: Arc<Mutex<BTreeSet<String>>>,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The number of the replica that answered.
    pub(crate) replica: usize,
    pub(crate) status: u16,
    pub(crate) session: Option<String>,
    pub(crate) body: String,
    /// True if the body ended as it should.
    pub(crate) is_whole: bool,
}

impl Answer {
    /// The JSON-RPC message with a result or an error.
    fn message(&self) -> Option<Value> {
        let lines = self
            .body
            .lines()
            .map(|line| line.strip_prefix("data: ").unwrap_or(line));
        let mut found = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        found.rfind(|message| message.get("result").or(message.get("error")).is_some())
    }
}

/// A client.
pub(crate) struct Client {
    world: ClientWorld,
    /// The name of the client: each session is of a principal of its own.
    name: String,
    sessions: usize,
    calls: usize,
    session: Option<Session>,
    is_modern: bool,
    endpoint: &'static str,
}

/// A session that is open, as far as the client knows.
#[derive(Clone)]
struct Session {
    id: String,
    principal: String,
    begun: Duration,
}

impl Client {
    pub(crate) fn new(world: ClientWorld, number: usize) -> Self {
        let is_modern = number % 3 == 2;
        let endpoint = if number.is_multiple_of(2) {
            "/plain"
        } else {
            "/single"
        };
        let name = format!("c{number}");
        Self {
            world,
            name,
            sessions: 0,
            calls: 0,
            session: None,
            is_modern,
            endpoint,
        }
    }

    /// Acts until the world's end.
    pub(crate) async fn run(mut self) {
        loop {
            let pause = self.world.random.between(5, 400);
            sleep(Duration::from_millis(pause)).await;
            if self
                .world
                .is_over
                .load(std::sync::atomic::Ordering::Relaxed)
            {
                break;
            }
            if self.is_modern {
                self.call(None).await;
                continue;
            }
            match self.session.clone() {
                None => self.begin_session().await,
                Some(session) if self.world.random.percent(4) => {
                    self.end_session(session).await;
                }
                Some(session) => self.call(Some(session)).await,
            }
        }
        self.check_end().await;
    }

    /// After all faults: every replica serves.
    async fn check_end(&mut self) {
        let replicas: Vec<_> = self
            .world
            .listeners
            .0
            .lock()
            .iter()
            .map(|(number, _)| *number)
            .collect();
        for replica in replicas {
            let session = self.session.clone();
            if session.is_none() && !self.is_modern {
                return;
            }
            let (call, answer) = self.send_call(session.as_ref(), Some(replica)).await;
            let is_served = answer
                .as_ref()
                .is_some_and(|answer| self.result_of(answer).is_some());
            if !is_served {
                let seen = answer.map(|answer| (answer.status, answer.body));
                self.violate(format!(
                    "{call} is not served at r{replica} after all faults: {seen:?}"
                ));
            }
        }
    }

    async fn begin_session(&mut self) {
        self.sessions += 1;
        let principal = format!("{}s{}", self.name, self.sessions);
        let params = json!({
            "protocolVersion": REVISION, "capabilities": {},
            "clientInfo": {"name": "simulated", "version": "1.0.0"},
        });
        let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let begun = self.world.clock.now();
        let request = self.post(&principal, None, &message);
        let Some(answer) = self
            .exchange(request, None, &format!("{principal} begins"))
            .await
        else {
            return;
        };
        if let (200, Some(id)) = (answer.status, answer.session) {
            self.session = Some(Session {
                id,
                principal,
                begun,
            });
        }
    }

    async fn end_session(&mut self, session: Session) {
        self.world.tools.note_end(&session.principal);
        let request = self.request(Method::DELETE, &session.principal, Some(&session.id));
        let request = request.body(Bytes::new()).unwrap_or_default();
        let event = format!("{} ends", session.principal);
        let answer = self.exchange(request, None, &event).await;
        self.session = None;
        if answer.is_none_or(|answer| answer.status >= 300) {
            // It may have ended or not: this client uses it no more.
            return;
        }
        let world = self.world.clone();
        let (name, endpoint) = (self.name.clone(), self.endpoint);
        tokio::spawn(async move {
            let mut look = Self {
                world,
                name,
                sessions: 0,
                calls: 0,
                session: None,
                is_modern: false,
                endpoint,
            };
            look.check_ended(session).await;
        });
    }

    /// An ended session is refused at every replica. The end is lost if its replica crashes before
    /// the store could be told, and comes late if its request was held up on the way, or a replica
    /// that got no message cannot use the store: [`RedisServer::times_since_end`].
    async fn check_ended(&mut self, session: Session) {
        sleep(MAX_STALE).await;
        for _ in 0..6 {
            let message = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
            let request = self.post(&session.principal, Some(&session.id), &message);
            let event = format!("{} looks after its end", session.principal);
            let answer = self.exchange(request, None, &event).await;
            if let Some(answer) = answer
                && answer.status < 300
                && let Some([ended, noticed]) = self
                    .world
                    .redis
                    .times_since_end(&digest_of(&session.principal), REPLICAS[answer.replica])
                && ended >= MAX_STALE
                && noticed >= LOOK_TIME
            {
                self.violate(format!("{} is served after its end", session.principal));
            }
            sleep(Duration::from_millis(700)).await;
        }
    }

    async fn call(&mut self, session: Option<Session>) {
        let begun = self.world.clock.wall();
        let (call, answer) = self.send_call(session.as_ref(), None).await;
        let Some(answer) = answer else { return };
        let principal = session
            .as_ref()
            .map_or(&self.name, |session| &session.principal)
            .clone();
        if answer.status == 404 {
            self.check_lost(session, &call, answer.replica, begun);
        }
        let is_refused = matches!(answer.status, 404 | 421 | 429 | 503)
            || self.has_reason(&answer, "unavailable");
        if is_refused {
            self.world.did_not_run.lock().insert(call);
            return;
        }
        if let Some(text) = self.result_of(&answer)
            && text != format!("{call} for {principal}")
        {
            self.violate(format!("the answer to {call} of {principal} is {text}"));
        }
    }

    /// A session goes on if the store had it when the replica claimed it: one whose owner crashed may
    /// be written just after the claim of a call that began at `begun`.
    fn check_lost(
        &mut self,
        session: Option<Session>,
        call: &str,
        replica: usize,
        begun: SystemTime,
    ) {
        self.session = None;
        let Some(session) = session else {
            return self.violate(format!("404 for {call}"));
        };
        let digest = digest_of(&session.principal);
        let age = self.world.clock.now().saturating_sub(session.begun);
        let redis = &self.world.redis;
        if redis.has_record(&digest) && !redis.has_missed_claim(&digest, REPLICAS[replica], begun) {
            self.violate(format!(
                "{} is unknown after {age:?}, and the store has it",
                session.principal
            ));
        }
    }

    async fn send_call(
        &mut self,
        session: Option<&Session>,
        replica: Option<usize>,
    ) -> (String, Option<Answer>) {
        self.calls += 1;
        let call = format!("{}/{}", self.name, self.calls);
        let principal = session.map_or(self.name.clone(), |session| session.principal.clone());
        let mut params = json!({"name": "count", "arguments": {"call": call}});
        if session.is_none() {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        let message =
            json!({"jsonrpc": "2.0", "id": self.calls, "method": "tools/call", "params": params});
        let mut request = self.post(&principal, session.map(|session| &*session.id), &message);
        if session.is_none() {
            let headers = request.headers_mut();
            for (name, value) in [
                ("mcp-protocol-version", MODERN),
                ("mcp-method", "tools/call"),
                ("mcp-name", "count"),
            ] {
                headers.insert(name, http::HeaderValue::from_static(value));
            }
        }
        let answer = self.exchange(request, replica, &call).await;
        (call, answer)
    }

    fn has_reason(&self, answer: &Answer, reason: &str) -> bool {
        let message = answer.message().unwrap_or_default();
        let data = [
            &message["result"]["_meta"]["dev.weir/error"],
            &message["error"]["data"],
        ];
        data.iter().any(|data| data["reason"] == reason)
    }

    /// The text of the tool, unless the answer is a failure.
    fn result_of(&self, answer: &Answer) -> Option<String> {
        let message = answer.message()?;
        let result = message.get("result")?;
        if result["isError"] == true {
            return None;
        }
        Some(result["content"][0]["text"].as_str()?.to_owned())
    }

    fn post(&self, principal: &str, session: Option<&str>, message: &Value) -> Request<Bytes> {
        let request = self.request(Method::POST, principal, session);
        request
            .body(Bytes::from(message.to_string()))
            .unwrap_or_default()
    }

    fn request(
        &self,
        method: Method,
        principal: &str,
        session: Option<&str>,
    ) -> http::request::Builder {
        let mut request = Request::builder()
            .method(method)
            .uri(self.endpoint)
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {principal}"));
        if let Some(session) = session {
            request = request
                .header("mcp-session-id", session)
                .header("mcp-protocol-version", REVISION);
        }
        request
    }

    /// Sends a request to a replica, to any if none is named; `None` if it was lost.
    async fn exchange(
        &self,
        request: Request<Bytes>,
        replica: Option<usize>,
        event: &str,
    ) -> Option<Answer> {
        let open = self.world.listeners.0.lock().clone();
        let chosen = match replica {
            Some(number) => open.into_iter().find(|(open, _)| *open == number),
            None if open.is_empty() => None,
            None => Some(self.world.random.pick(&open).clone()),
        };
        let (number, listener) = chosen?;
        let begun = self.world.clock.now();
        let (answer, mut parts) = mpsc::unbounded_channel();
        if listener.send(ListenerRequest { request, answer }).is_err() {
            return None;
        }
        let outcome = timeout(MAX_REQUEST, collect(number, &mut parts)).await;
        let taken = self.world.clock.now().saturating_sub(begun);
        match &outcome {
            Err(_) => self.violate(format!(
                "{event} at r{number} has no answer after {taken:?}"
            )),
            Ok(answer) => {
                let seen = answer
                    .as_ref()
                    .map(|answer| (answer.status, answer.is_whole));
                self.note(format!("{event} at r{number}: {seen:?} after {taken:?}"));
            }
        }
        outcome.ok().flatten()
    }

    fn note(&self, event: String) {
        self.world.trace.note(self.world.clock.now(), event);
    }

    fn violate(&self, violation: String) {
        self.world.trace.violate(self.world.clock.now(), violation);
    }
}

/// The digest of a principal, as the names of its records have it.
fn digest_of(principal: &str) -> String {
    let owner = Principal::owner(Some((ISSUER, principal)));
    owner
        .digest()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

async fn collect(
    replica: usize,
    parts: &mut mpsc::UnboundedReceiver<AnswerPart>,
) -> Option<Answer> {
    let Some(AnswerPart::Head(head)) = parts.recv().await else {
        return None;
    };
    let session = head
        .headers
        .get("mcp-session-id")
        .and_then(|id| id.to_str().ok());
    let mut answer = Answer {
        replica,
        status: head.status.as_u16(),
        session: session.map(str::to_owned),
        body: String::new(),
        is_whole: false,
    };
    loop {
        match parts.recv().await {
            Some(AnswerPart::Data(data)) => answer.body.push_str(&String::from_utf8_lossy(&data)),
            Some(AnswerPart::End(is_whole)) => answer.is_whole = is_whole,
            Some(AnswerPart::Head(_)) | None => return Some(answer),
        }
    }
}
