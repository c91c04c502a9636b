//! The legacy server: revisions 2024-11-05 to 2025-11-25 over Streamable HTTP, a session for each
//! client, one listening stream a session. A modern request has no session, and is refused like by
//! an old server.

mod note_store;
mod note_tools;
mod notes_session;

use std::sync::Arc;

use futures_util::{Stream, stream};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde_json::{Value, json};
use weir_wire::error_code;
use weir_wire::log_level::LogLevel;
use weir_wire::revision::Revision;

use crate::host::{ServeRequest, SignalReceiver};
use crate::http::{self as web, DemoBody};
use crate::rpc::{self, DemoFault, DemoMessage};
use note_store::NoteStore;
use note_tools::{NoteToolCall, NoteToolOutcome};
use notes_session::{NotesListeningStream, NotesSession, NotesSessions};

const SESSION: &str = "mcp-session-id";
/// The most messages in one batch.
const MAX_BATCH: usize = 50;

/// The state of the server. The locks are held for a lookup or one tool, never across an await.
#[derive(Debug)]
pub(crate) struct NotesServer {
    signals: SignalReceiver,
    sessions: Mutex<NotesSessions>,
    store: Mutex<NoteStore>,
}

type RefusalResponse = Box<Response<DemoBody>>;

impl NotesServer {
    pub(crate) fn new(signals: SignalReceiver) -> Self {
        Self {
            signals,
            sessions: Mutex::default(),
            store: Mutex::default(),
        }
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<DemoBody>, RefusalResponse> {
        web::check_head(&request, &[Method::POST, Method::GET, Method::DELETE])?;
        let (head, body) = request.into_parts();
        match head.method {
            Method::GET => self.listen(&head.headers),
            Method::DELETE => {
                let (id, _) = self.session(&head.headers, None)?;
                self.sessions.lock().close(id);
                Ok(web::empty(StatusCode::NO_CONTENT))
            }
            _ => {
                let body = web::read(body).await?;
                self.post(&head.headers, &body)
            }
        }
    }

    fn post(
        &self,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Response<DemoBody>, RefusalResponse> {
        let message: Value = serde_json::from_slice(body).map_err(|error| {
            refuse(
                DemoFault::new(
                    error_code::PARSE_ERROR,
                    format!("the body is not JSON: {error}"),
                ),
                None,
            )
        })?;
        if let Value::Array(items) = message {
            return self.batch(headers, items);
        }
        match rpc::parse(message).map_err(|bad| refuse(bad.fault, bad.id.as_ref()))? {
            DemoMessage::Request(request) if request.method == "initialize" => {
                self.initialize(&request)
            }
            DemoMessage::Request(request) => {
                let (id, session) = self.session(headers, Some(&request.id))?;
                let mut messages = self.run(id, session, &request);
                if messages.len() > 1 {
                    return Ok(web::events(stream::iter(messages)));
                }
                Ok(web::json(StatusCode::OK, &messages.remove(0)))
            }
            DemoMessage::Notification | DemoMessage::Response => {
                self.session(headers, None)?;
                Ok(web::empty(StatusCode::ACCEPTED))
            }
        }
    }

    /// Answers the requests of a batch in its order (2025-03-26 alone has batches).
    fn batch(
        &self,
        headers: &HeaderMap,
        items: Vec<Value>,
    ) -> Result<Response<DemoBody>, RefusalResponse> {
        let invalid = |why: &str| refuse(DemoFault::new(error_code::INVALID_REQUEST, why), None);
        let (id, session) = self.session(headers, None)?;
        if !session.revision.has_batches() {
            return Err(invalid("the revision of this session has no batches"));
        }
        if items.is_empty() || items.len() > MAX_BATCH {
            return Err(invalid("a batch holds 1 to 50 messages"));
        }
        let (mut notes, mut answers) = (Vec::new(), Vec::new());
        for item in items {
            match rpc::parse(item) {
                Ok(DemoMessage::Request(request)) if request.method == "initialize" => {
                    let fault = DemoFault::new(
                        error_code::INVALID_REQUEST,
                        "initialize must not be part of a batch",
                    );
                    answers.push(fault.message(Some(&request.id)));
                }
                Ok(DemoMessage::Request(request)) => {
                    let mut messages = self.run(id, session, &request);
                    answers.extend(messages.pop());
                    notes.append(&mut messages);
                }
                Ok(DemoMessage::Notification | DemoMessage::Response) => {}
                Err(bad) => answers.push(bad.fault.message(bad.id.as_ref())),
            }
        }
        Ok(match (notes.is_empty(), answers.is_empty()) {
            (_, true) => web::empty(StatusCode::ACCEPTED),
            (true, false) => web::json(StatusCode::OK, &Value::Array(answers)),
            (false, false) => web::events(stream::iter(notes.into_iter().chain(answers))),
        })
    }

    fn initialize(
        &self,
        request: &rpc::DemoRequest,
    ) -> Result<Response<DemoBody>, RefusalResponse> {
        let refused = |fault| refuse(fault, Some(&request.id));
        let version = request.string("protocolVersion").map_err(refused)?;
        let version = version
            .ok_or_else(|| refused(DemoFault::params("params.protocolVersion is missing")))?;
        let revision = Revision::parse(version)
            .filter(|revision| !revision.is_modern())
            .unwrap_or(Revision::NEWEST_LEGACY);
        let id = self.sessions.lock().open(revision);
        let id = id.map_err(|_| {
            web::refuse(
                StatusCode::INTERNAL_SERVER_ERROR,
                "no randomness for a session id",
            )
        })?;
        let result = json!({
            "protocolVersion": revision.as_str(),
            "capabilities": {"tools": {"listChanged": true}, "logging": {}},
            "serverInfo": {"name": "notes", "version": env!("CARGO_PKG_VERSION")},
            "instructions": "Keeps short notes in memory until the server ends.",
        });
        let mut response = web::json(StatusCode::OK, &rpc::result(&request.id, &result));
        if let Ok(id) = HeaderValue::from_str(&id) {
            response.headers_mut().insert(SESSION, id);
        }
        Ok(response)
    }

    /// Runs a request. Returns its notifications, then its answer: never an empty list.
    fn run(
        &self,
        session_id: &str,
        session: NotesSession,
        request: &rpc::DemoRequest,
    ) -> Vec<Value> {
        let mut messages = Vec::new();
        let outcome = match request.method.as_str() {
            "ping" => Ok(json!({})),
            "logging/setLevel" => self.set_level(session_id, request),
            "tools/list" => self.list(session, request),
            "tools/call" => self.call(session, request, &mut messages),
            other => Err(DemoFault::new(
                error_code::METHOD_NOT_FOUND,
                format!("this server has no method {other}"),
            )),
        };
        messages.push(match outcome {
            Ok(result) => rpc::result(&request.id, &result),
            Err(fault) => fault.message(Some(&request.id)),
        });
        messages
    }

    fn set_level(&self, session_id: &str, request: &rpc::DemoRequest) -> Result<Value, DemoFault> {
        let level = request.string("level")?.and_then(LogLevel::parse);
        let level = level
            .ok_or_else(|| DemoFault::params("params.level must be one of the eight log levels"))?;
        self.sessions.lock().set_level(session_id, level);
        Ok(json!({}))
    }

    fn list(&self, session: NotesSession, request: &rpc::DemoRequest) -> Result<Value, DemoFault> {
        if request.string("cursor")?.is_some() {
            return Err(DemoFault::params(
                "this server never gave out that cursor: its list has one page",
            ));
        }
        Ok(json!({"tools": note_tools::list(session.revision, self.signals.borrow().revealed)}))
    }

    fn call(
        &self,
        session: NotesSession,
        request: &rpc::DemoRequest,
        notes: &mut Vec<Value>,
    ) -> Result<Value, DemoFault> {
        let (name, arguments) = request.tool_call()?;
        let (progress_token, revealed) = (request.progress_token(), self.signals.borrow().revealed);
        let call = NoteToolCall {
            name,
            arguments: &arguments,
            progress_token,
            revealed,
        };
        let outcome = note_tools::call(&mut self.store.lock(), &call);
        match outcome.ok_or_else(|| DemoFault::params(format!("unknown tool: {name}")))? {
            NoteToolOutcome::Done(mut result, said) => {
                let wants_log = session
                    .log_level
                    .is_some_and(|level| level <= LogLevel::Info);
                notes.extend(
                    said.into_iter()
                        .filter(|note| wants_log || note["method"] != "notifications/message"),
                );
                if !session.revision.has_structured_content()
                    && let Some(result) = result.as_object_mut()
                {
                    result.remove("structuredContent");
                }
                Ok(result)
            }
            NoteToolOutcome::Failed(why) => Ok(rpc::tool_text(why, true)),
            NoteToolOutcome::BadArguments(why)
                if session.revision.has_tool_error_for_bad_arguments() =>
            {
                Ok(rpc::tool_text(why, true))
            }
            NoteToolOutcome::BadArguments(why) => Err(DemoFault::params(why)),
        }
    }

    fn listen(&self, headers: &HeaderMap) -> Result<Response<DemoBody>, RefusalResponse> {
        let (id, _) = self.session(headers, None)?;
        let listening = self
            .sessions
            .lock()
            .listen(id)
            .ok_or_else(|| unknown_session(None))?;
        Ok(web::events(changes(self.signals.clone(), listening)))
    }

    /// Returns the session that the headers name. 400 without an id or with a version that is not
    /// served, 404 for an unknown one.
    fn session<'a>(
        &self,
        headers: &'a HeaderMap,
        request: Option<&Value>,
    ) -> Result<(&'a str, NotesSession), RefusalResponse> {
        let invalid = |why: &str| refuse(DemoFault::new(error_code::INVALID_REQUEST, why), request);
        let id = web::text(headers, SESSION)
            .ok_or_else(|| invalid("no session: begin with initialize"))?;
        if web::text(headers, "mcp-protocol-version")
            .is_some_and(|version| Revision::parse(version).is_none_or(Revision::is_modern))
        {
            return Err(invalid(
                "MCP-Protocol-Version names a revision that this server does not speak",
            ));
        }
        let session = self
            .sessions
            .lock()
            .find(id)
            .ok_or_else(|| unknown_session(request))?;
        Ok((id, session))
    }
}

impl ServeRequest for NotesServer {
    async fn serve(self: Arc<Self>, request: Request<Incoming>) -> Response<DemoBody> {
        self.answer(request)
            .await
            .unwrap_or_else(|refusal| *refusal)
    }
}

/// Sends `list_changed` each time the list changes, until the session or the server ends, or
/// another stream replaces this one.
fn changes(
    signals: SignalReceiver,
    listening: NotesListeningStream,
) -> impl Stream<Item = Value> + Send {
    let seen = signals.borrow().revealed;
    stream::unfold(
        (signals, listening, seen),
        |(mut signals, mut listening, seen)| async move {
            let news = tokio::select! {
                news = signals.wait_for(|signal| signal.stopping || signal.revealed != seen) => news.map(|signal| *signal),
                () = listening.wait_until_replaced() => return None,
            };
            let signal = news.ok().filter(|signal| !signal.stopping)?;
            let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
            Some((changed, (signals, listening, signal.revealed)))
        },
    )
}

/// An error below the session: HTTP 400 with the JSON-RPC error.
fn refuse(fault: DemoFault, id: Option<&Value>) -> RefusalResponse {
    Box::new(web::json(StatusCode::BAD_REQUEST, &fault.message(id)))
}

fn unknown_session(id: Option<&Value>) -> RefusalResponse {
    let fault = DemoFault::new(
        error_code::INVALID_REQUEST,
        "this session is not open: begin again with initialize",
    );
    Box::new(web::json(StatusCode::NOT_FOUND, &fault.message(id)))
}
