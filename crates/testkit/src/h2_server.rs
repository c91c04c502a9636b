//! An HTTP/2 server that writes its frames by hand. It is a plain modern MCP server until a test
//! changes its behaviour, for one request or from its first byte on. It speaks clear text (prior
//! knowledge), or any transport that a test wraps its connections in.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf,
};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::accept::{accept, listen_on_loopback};
use crate::h2_client::{
    ACK, DATA, END_STREAM, H2Frame, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame,
    head, literal, take_frame,
};
use crate::owned_task::OwnedTask;
use crate::scripted_server::modern_message;

/// The length of the client connection preface.
const PREFACE: usize = 24;
/// The largest request that it reads, in bytes.
const MAX_REQUEST_BYTES: usize = 16 << 20;

/// A complete request.
#[derive(Clone, Debug)]
pub struct H2Request {
    /// The number of its connection, from 0.
    pub connection: usize,
    /// Its stream.
    pub stream: u32,
    /// The body as JSON; `null` if it is not JSON.
    pub body: Value,
}

impl H2Request {
    /// The JSON-RPC method, or an empty text.
    pub fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    /// The JSON-RPC id.
    pub fn id(&self) -> &Value {
        &self.body["id"]
    }
}

/// One action of the server on a connection.
#[derive(Clone, Debug)]
pub enum H2Act {
    /// Writes these bytes.
    Write(Bytes),
    /// Writes these bytes over and over, until the client closes the connection.
    Endless(Bytes),
    /// Writes these bytes over and over, with a pause before each.
    Drip(Bytes, Duration),
    /// Closes the connection.
    Close,
}

/// The transport under the frames of a connection.
pub trait H2Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> H2Transport for T {}

type WrappedTransport = Pin<Box<dyn Future<Output = io::Result<Box<dyn H2Transport>>> + Send>>;

/// The wrapping of an accepted connection before its first frame, such as a TLS handshake.
pub type WrapTransport = dyn Fn(TcpStream) -> WrappedTransport + Send + Sync;

type H2Script = dyn Fn(&H2Request) -> Option<Vec<H2Act>> + Send + Sync;

/// The server's deviations from a good server.
pub struct H2Plan {
    /// Written after its settings.
    pub greeting: Vec<H2Act>,
    /// Returns its acts on each request, or none to answer as a good server does.
    pub script: Box<H2Script>,
}

impl fmt::Debug for H2Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("H2Plan")
            .field("greeting", &self.greeting)
            .finish_non_exhaustive()
    }
}

impl H2Plan {
    /// Does this on each call of a tool, and is a good server otherwise.
    pub fn on_calls(acts: impl Fn(&H2Request) -> Vec<H2Act> + Send + Sync + 'static) -> Self {
        let script =
            move |request: &H2Request| (request.method() == "tools/call").then(|| acts(request));
        Self {
            greeting: Vec::new(),
            script: Box::new(script),
        }
    }

    /// Does this on each request.
    pub fn on_all(acts: impl Fn(&H2Request) -> Vec<H2Act> + Send + Sync + 'static) -> Self {
        Self {
            greeting: Vec::new(),
            script: Box::new(move |request| Some(acts(request))),
        }
    }

    /// Does this at the beginning of each connection, and is a good server otherwise.
    pub fn greeting(acts: Vec<H2Act>) -> Self {
        Self {
            greeting: acts,
            script: Box::new(|_| None),
        }
    }
}

/// A running server. Dropping it closes every connection.
pub struct H2Server {
    address: SocketAddr,
    shared: Arc<H2ServerState>,
    _server: OwnedTask,
}

impl fmt::Debug for H2Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("H2Server")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

struct H2ServerState {
    plan: H2Plan,
    wrap: Box<WrapTransport>,
    tools: Vec<String>,
    accepted: AtomicUsize,
    open: AtomicUsize,
    most_open: AtomicUsize,
    calls: AtomicUsize,
    resets: AtomicUsize,
    written: AtomicUsize,
    requests: Mutex<HashMap<String, usize>>,
}

impl H2Server {
    /// Starts a server on a free loopback port, with these tools.
    pub async fn start(tools: &[&str], plan: H2Plan) -> Self {
        let clear = |stream: TcpStream| -> WrappedTransport {
            Box::pin(async move { Ok(Box::new(stream) as Box<dyn H2Transport>) })
        };
        Self::wrapped(tools, plan, Box::new(clear)).await
    }

    /// Starts a server that wraps its connections first.
    pub async fn wrapped(tools: &[&str], plan: H2Plan, wrap: Box<WrapTransport>) -> Self {
        let (listener, address) = listen_on_loopback().await;
        let shared = Arc::new(H2ServerState {
            plan,
            wrap,
            tools: tools.iter().map(|&tool| tool.to_owned()).collect(),
            accepted: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            most_open: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            resets: AtomicUsize::new(0),
            written: AtomicUsize::new(0),
            requests: Mutex::default(),
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

    /// The URL of its endpoint in clear text.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Its port on loopback.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Connections that it accepted.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// The most connections that were open at the same time.
    pub fn most_open(&self) -> usize {
        self.shared.most_open.load(Ordering::SeqCst)
    }

    /// Complete calls of tools.
    pub fn calls(&self) -> usize {
        self.shared.calls.load(Ordering::SeqCst)
    }

    /// Streams that its clients reset.
    pub fn resets(&self) -> usize {
        self.shared.resets.load(Ordering::SeqCst)
    }

    /// Bytes that it wrote without end ([`H2Act::Endless`]) and the system accepted.
    pub fn written(&self) -> usize {
        self.shared.written.load(Ordering::SeqCst)
    }
}

/// The head of an answer: this status and these headers.
pub fn answer_head(stream: u32, status: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    head(stream, 0, &answer_block(status, headers))
}

/// The header block of such a head alone.
pub fn answer_block(status: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in [(":status", status)].iter().chain(headers) {
        literal(&mut block, name, value);
    }
    block
}

/// A whole answer with a JSON body.
pub fn h2_answer(stream: u32, status: u16, body: &Value) -> H2Act {
    let mut bytes = answer_head(
        stream,
        &status.to_string(),
        &[("content-type", "application/json")],
    );
    let body = body.to_string();
    let parts: Vec<&[u8]> = body.as_bytes().chunks(16 << 10).collect();
    for (number, part) in parts.iter().enumerate() {
        let last = if number + 1 == parts.len() {
            END_STREAM
        } else {
            0
        };
        bytes.extend(frame(DATA, last, stream, part));
    }
    H2Act::Write(bytes.into())
}

/// Counts a connection while it is open.
struct OpenH2Connection(Arc<H2ServerState>);

impl Drop for OpenH2Connection {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

type H2Reader = ReadHalf<Box<dyn H2Transport>>;
type H2Writer = Arc<tokio::sync::Mutex<WriteHalf<Box<dyn H2Transport>>>>;

async fn serve(shared: Arc<H2ServerState>, stream: TcpStream) {
    let connection = shared.accepted.fetch_add(1, Ordering::SeqCst);
    let open = shared.open.fetch_add(1, Ordering::SeqCst) + 1;
    shared.most_open.fetch_max(open, Ordering::SeqCst);
    let _open = OpenH2Connection(shared.clone());
    // Written bytes are sent at once.
    let _ = stream.set_nodelay(true);
    let Ok(stream) = (shared.wrap)(stream).await else {
        return;
    };
    let (mut reader, writer) = tokio::io::split(stream);
    let writer: H2Writer = Arc::new(tokio::sync::Mutex::new(writer));
    let mut acting = JoinSet::new();
    let mut ended = Vec::from([H2Act::Write(frame(SETTINGS, 0, 0, b"").into())]);
    ended.extend(shared.plan.greeting.iter().cloned());
    acting.spawn(act(shared.clone(), writer.clone(), ended));
    // Any fault of a connection ends it, as an [`H2Act::Close`] does.
    tokio::select! {
        _ = read(&shared, connection, &mut reader, &writer) => {}
        () = closed(&mut acting) => {}
    }
}

/// Reads requests and runs the acts of each in a task, until the connection ends.
async fn read(
    shared: &Arc<H2ServerState>,
    connection: usize,
    reader: &mut H2Reader,
    writer: &H2Writer,
) -> io::Result<()> {
    let mut acting = JoinSet::new();
    let mut unread = BytesMut::new();
    while unread.len() < PREFACE {
        if reader.read_buf(&mut unread).await? == 0 {
            return Ok(());
        }
    }
    drop(unread.split_to(PREFACE));
    let mut bodies: HashMap<u32, BytesMut> = HashMap::new();
    loop {
        let Some(frame) = take_frame(reader, &mut unread).await? else {
            return Ok(());
        };
        answer_control_frame(&frame, writer).await?;
        match frame.kind {
            HEADERS => drop(bodies.insert(frame.stream, BytesMut::new())),
            DATA => {
                let body = bodies.entry(frame.stream).or_default();
                body.extend_from_slice(&frame.payload);
                if body.len() > MAX_REQUEST_BYTES {
                    return Ok(());
                }
            }
            RST_STREAM => {
                shared.resets.fetch_add(1, Ordering::SeqCst);
                bodies.remove(&frame.stream);
            }
            _ => {}
        }
        if frame.kind != RST_STREAM
            && frame.ends_stream()
            && let Some(body) = bodies.remove(&frame.stream)
        {
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let acts = shared.acts(&H2Request {
                connection,
                stream: frame.stream,
                body,
            });
            let (shared, writer) = (shared.clone(), writer.clone());
            acting.spawn(async move {
                if !act(shared, writer.clone(), acts).await {
                    // The reading ends when the client sees this.
                    let _ = writer.lock().await.shutdown().await;
                }
            });
            while acting.try_join_next().is_some() {}
        }
    }
}

/// Answers the connection's frames: settings, pings, and data, with more window for the client.
async fn answer_control_frame(came: &H2Frame, writer: &H2Writer) -> io::Result<()> {
    let reply = match (came.kind, came.flags & ACK) {
        (SETTINGS, 0) => frame(SETTINGS, ACK, 0, b""),
        (PING, 0) => frame(PING, ACK, 0, &came.payload),
        (DATA, _) if !came.payload.is_empty() => {
            let bytes = (came.payload.len() as u32).to_be_bytes();
            let mut both = frame(WINDOW_UPDATE, 0, 0, &bytes);
            if !came.ends_stream() {
                both.extend(frame(WINDOW_UPDATE, 0, came.stream, &bytes));
            }
            both
        }
        _ => return Ok(()),
    };
    write(writer, &reply).await
}

/// Writes and flushes bytes.
async fn write(writer: &H2Writer, bytes: &[u8]) -> io::Result<()> {
    let mut writer = writer.lock().await;
    writer.write_all(bytes).await?;
    writer.flush().await
}

/// Ends when one of the tasks asks for the end of the connection.
async fn closed(acting: &mut JoinSet<bool>) {
    while let Some(ended) = acting.join_next().await {
        if !ended.unwrap_or(false) {
            return;
        }
    }
    std::future::pending().await
}

/// Runs the acts; false at the end of the connection.
async fn act(shared: Arc<H2ServerState>, writer: H2Writer, acts: Vec<H2Act>) -> bool {
    for act in acts {
        let written = match act {
            H2Act::Write(bytes) => write(&writer, &bytes).await,
            H2Act::Endless(bytes) => loop {
                // The lock is taken for each write alone, so that answers to the client's own
                // frames come between.
                let written = write(&writer, &bytes).await;
                if written.is_err() {
                    break written;
                }
                shared.written.fetch_add(bytes.len(), Ordering::SeqCst);
            },
            H2Act::Drip(bytes, pause) => loop {
                tokio::time::sleep(pause).await;
                let written = write(&writer, &bytes).await;
                if written.is_err() {
                    break written;
                }
            },
            H2Act::Close => return false,
        };
        if written.is_err() {
            return false;
        }
    }
    true
}

impl H2ServerState {
    fn acts(&self, request: &H2Request) -> Vec<H2Act> {
        *self
            .requests
            .lock()
            .entry(request.method().to_owned())
            .or_default() += 1;
        let is_call = request.method() == "tools/call";
        if is_call {
            self.calls.fetch_add(1, Ordering::SeqCst);
        }
        if let Some(acts) = (self.plan.script)(request) {
            return acts;
        }
        let tools: Vec<&str> = self.tools.iter().map(String::as_str).collect();
        let (status, message) = modern_message(request.method(), request.id(), &tools).unwrap_or_else(|| {
            let result =
                serde_json::json!({ "resultType": "complete", "content": [{ "type": "text", "text": "own" }] });
            (200, serde_json::json!({ "jsonrpc": "2.0", "id": request.id(), "result": result }))
        });
        vec![h2_answer(request.stream, status, &message)]
    }
}

impl H2Server {
    /// Complete requests of a JSON-RPC method; those without a method are under the empty name.
    pub fn requests_of(&self, method: &str) -> usize {
        self.shared
            .requests
            .lock()
            .get(method)
            .copied()
            .unwrap_or_default()
    }
}
