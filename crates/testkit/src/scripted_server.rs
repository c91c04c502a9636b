//! An HTTP/1.1 server over real loopback TCP that writes exactly the bytes that a test gives it, at
//! any time. It is for responses that a server library does not allow.

mod large_answer;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::accept::{accept, listen_on_loopback};
use crate::owned_task::OwnedTask;

pub use large_answer::LargeAnswer;

/// The bytes that are written at once of an [`ServerAct::Fill`].
const FILL: usize = 64 << 10;

/// A received request.
#[derive(Clone, Debug)]
pub struct ScriptedRequest {
    /// The number of its connection, from 0.
    pub connection: usize,
    /// Its position on that connection, from 0.
    pub nth: usize,
    /// The request line and the headers.
    pub head: String,
    /// The body as JSON; `null` if it is not JSON.
    pub body: Value,
    /// The body as text.
    pub text: String,
}

impl ScriptedRequest {
    /// The JSON-RPC method, or an empty text.
    pub fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    /// The name in `params`, or an empty text.
    pub fn tool(&self) -> &str {
        self.body["params"]["name"].as_str().unwrap_or_default()
    }

    /// The JSON-RPC id.
    pub fn id(&self) -> &Value {
        &self.body["id"]
    }
}

/// One action of the server on a request's connection.
#[derive(Clone, Debug)]
pub enum ServerAct {
    /// Writes these bytes.
    Write(Bytes),
    /// Writes this byte so many times.
    Fill(u8, usize),
    /// Writes these bytes over and over, until the client closes the connection.
    Endless(Bytes),
    /// Writes these bytes over and over, with a pause after each.
    Drip(Bytes, Duration),
    /// Stays silent, and reads no further request.
    Hang,
    /// Closes the connection.
    Close,
}

type ScriptFn = dyn Fn(&ScriptedRequest) -> Vec<ServerAct> + Send + Sync;
type ScriptedWriter = Arc<tokio::sync::Mutex<OwnedWriteHalf>>;

/// A running server. Dropping it closes every connection.
pub struct ScriptedServer {
    address: SocketAddr,
    shared: Arc<ScriptedState>,
    _server: OwnedTask,
}

impl fmt::Debug for ScriptedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedServer")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

struct ScriptedState {
    script: Box<ScriptFn>,
    requests: Mutex<Vec<ScriptedRequest>>,
    open: Mutex<Vec<ScriptedWriter>>,
    accepted: AtomicUsize,
    written: AtomicUsize,
}

impl ScriptedServer {
    /// Starts a server on a free loopback port. `script` returns its acts on each request.
    pub async fn start(
        script: impl Fn(&ScriptedRequest) -> Vec<ServerAct> + Send + Sync + 'static,
    ) -> Self {
        let (listener, address) = listen_on_loopback().await;
        let shared = Arc::new(ScriptedState {
            script: Box::new(script),
            requests: Mutex::default(),
            open: Mutex::default(),
            accepted: AtomicUsize::new(0),
            written: AtomicUsize::new(0),
        });
        let serving = shared.clone();
        let server = OwnedTask::spawn(accept(listener, move |stream| {
            serve(serving.clone(), stream)
        }));
        Self {
            address,
            shared,
            _server: server,
        }
    }

    /// The URL of its endpoint.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Connections that it accepted.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// The origin that it listens on.
    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Bytes that it wrote without end ([`ServerAct::Endless`]) and the system accepted.
    pub fn written(&self) -> usize {
        self.shared.written.load(Ordering::SeqCst)
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<ScriptedRequest> {
        self.shared.requests.lock().clone()
    }

    /// Forgets the requests so far.
    pub fn clear_requests(&self) {
        self.shared.requests.lock().clear();
    }

    /// The requests of one method.
    pub fn requests_of(&self, method: &str) -> Vec<ScriptedRequest> {
        self.requests()
            .into_iter()
            .filter(|request| request.method() == method)
            .collect()
    }

    /// Writes to every open connection, in any state.
    pub async fn write_to_all(&self, bytes: &[u8]) {
        let open = self.shared.open.lock().clone();
        for writer in open {
            // A connection that its client has closed is skipped.
            let _ = writer.lock().await.write_all(bytes).await;
        }
    }
}

/// A whole answer with a JSON body.
pub fn json_answer(status: u16, body: &Value) -> ServerAct {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    ServerAct::Write((head + &body).into())
}

/// Answers weir's own requests as a plain modern server with these tools; no answer for a call.
pub fn modern_answer(request: &ScriptedRequest, tools: &[&str]) -> Option<Vec<ServerAct>> {
    let (status, message) = modern_message(request.method(), request.id(), tools)?;
    Some(vec![json_answer(status, &message)])
}

/// Returns the same answer as a status and a message.
pub(crate) fn modern_message(method: &str, id: &Value, tools: &[&str]) -> Option<(u16, Value)> {
    let result = match method {
        "server/discover" => json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} },
            "ttlMs": 0, "cacheScope": "private",
        }),
        "tools/list" => {
            let tools: Vec<Value> = tools
                .iter()
                .map(|name| json!({ "name": name, "inputSchema": { "type": "object" } }))
                .collect();
            json!({ "resultType": "complete", "tools": tools, "ttlMs": 0, "cacheScope": "private" })
        }
        "tools/call" => return None,
        _ => {
            let error = json!({ "code": -32601, "message": "no such method" });
            return Some((404, json!({ "jsonrpc": "2.0", "id": id, "error": error })));
        }
    };
    Some((200, json!({ "jsonrpc": "2.0", "id": id, "result": result })))
}

/// A result of one text, as the answer to a request.
pub fn text_answer(request: &ScriptedRequest, text: &str) -> ServerAct {
    let result = json!({ "resultType": "complete", "content": [{ "type": "text", "text": text }] });
    json_answer(
        200,
        &json!({ "jsonrpc": "2.0", "id": request.id(), "result": result }),
    )
}

async fn serve(shared: Arc<ScriptedState>, stream: TcpStream) {
    let connection = shared.accepted.fetch_add(1, Ordering::SeqCst);
    // Written bytes are sent at once.
    let _ = stream.set_nodelay(true);
    let (mut reader, writer) = stream.into_split();
    let writer = Arc::new(tokio::sync::Mutex::new(writer));
    shared.open.lock().push(writer.clone());
    let (mut unread, mut nth) = (Vec::new(), 0);
    while let Some((head, text)) = request(&mut reader, &mut unread).await {
        let body = serde_json::from_str(&text).unwrap_or_default();
        let request = ScriptedRequest {
            connection,
            nth,
            head,
            body,
            text,
        };
        nth += 1;
        shared.requests.lock().push(request.clone());
        let mut writer = writer.lock().await;
        if !act(&shared, &mut writer, &mut reader, (shared.script)(&request)).await {
            break;
        }
    }
    shared
        .open
        .lock()
        .retain(|open| !Arc::ptr_eq(open, &writer));
}

/// Runs the acts; false at the end of the connection.
async fn act(
    shared: &ScriptedState,
    writer: &mut OwnedWriteHalf,
    reader: &mut OwnedReadHalf,
    acts: Vec<ServerAct>,
) -> bool {
    for act in acts {
        let written = match act {
            ServerAct::Write(bytes) => writer.write_all(&bytes).await,
            ServerAct::Fill(byte, count) => fill(writer, byte, count).await,
            ServerAct::Endless(bytes) => {
                while writer.write_all(&bytes).await.is_ok() {
                    shared.written.fetch_add(bytes.len(), Ordering::SeqCst);
                }
                return false;
            }
            ServerAct::Drip(bytes, pause) => {
                while writer.write_all(&bytes).await.is_ok() {
                    tokio::time::sleep(pause).await;
                }
                return false;
            }
            ServerAct::Hang => {
                // Ends with the connection.
                while reader.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {}
                return false;
            }
            ServerAct::Close => return false,
        };
        if written.is_err() {
            return false;
        }
    }
    true
}

async fn fill(writer: &mut OwnedWriteHalf, byte: u8, mut count: usize) -> std::io::Result<()> {
    let block = vec![byte; FILL.min(count)];
    while count > 0 {
        let now = count.min(block.len());
        writer.write_all(&block[..now]).await?;
        count -= now;
    }
    Ok(())
}

/// Reads one request; no request at the end of the connection.
async fn request(reader: &mut OwnedReadHalf, unread: &mut Vec<u8>) -> Option<(String, String)> {
    loop {
        if let Some(at) = unread.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&unread[..at]).into_owned();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            let end = at
                + 4
                + length
                    .and_then(|length| length.parse::<usize>().ok())
                    .unwrap_or(0);
            if unread.len() >= end {
                let body = String::from_utf8_lossy(&unread[at + 4..end]).into_owned();
                unread.drain(..end);
                return Some((head, body));
            }
        }
        let mut more = [0; 4096];
        match reader.read(&mut more).await {
            Ok(0) | Err(_) => return None,
            Ok(read) => unread.extend_from_slice(&more[..read]),
        }
    }
}
