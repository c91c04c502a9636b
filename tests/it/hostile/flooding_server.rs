//! A legacy upstream that floods: it sends many messages on its GET streams, does not read its
//! input, and leaves calls and results half done. It speaks HTTP/1.1 by hand, so that it can stop
//! at any byte, and counts its connections.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::watch;
use weir_testkit::accept::{accept, listen_on_loopback};
use weir_testkit::owned_task::OwnedTask;

/// The largest body that it reads, in bytes.
const MAX_REQUEST_BYTES: usize = 16 << 20;

/// The n-th message of a flood.
pub type FloodMessage = Arc<dyn Fn(usize) -> String + Send + Sync>;

/// The plan of the server's misbehaviour.
#[derive(Clone)]
pub struct FloodPlan {
    /// The messages on each GET stream, and their count.
    pub get_stream_messages: Option<(FloodMessage, usize)>,
    /// True if it sends them only once a call has begun.
    pub after_call: bool,
    /// True if it never answers a message that is not a request.
    pub hangs_on_messages: bool,
    /// The handling of calls.
    pub calls: FloodCallHandling,
}

impl fmt::Debug for FloodPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FloodPlan")
            .field("after_call", &self.after_call)
            .field("hangs_on_messages", &self.hangs_on_messages)
            .field("calls", &self.calls)
            .finish_non_exhaustive()
    }
}

/// The handling of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloodCallHandling {
    /// An empty result.
    Answered,
    /// No answer, not even a head.
    Hang,
    /// A text of so many bytes.
    Large(usize),
}

impl Default for FloodPlan {
    fn default() -> Self {
        Self {
            get_stream_messages: None,
            after_call: false,
            hangs_on_messages: false,
            calls: FloodCallHandling::Answered,
        }
    }
}

/// Counters of the server.
#[derive(Debug, Default)]
struct FloodCounters {
    open: AtomicUsize,
    most_open: AtomicUsize,
    said: AtomicUsize,
    messages: AtomicUsize,
    calls: AtomicUsize,
    sessions: AtomicUsize,
    ended: AtomicUsize,
}

/// A running server. Dropping it closes every connection.
#[derive(Debug)]
pub struct FloodingServer {
    address: SocketAddr,
    seen: Arc<FloodCounters>,
    _task: OwnedTask,
}

struct FloodState {
    plan: FloodPlan,
    seen: Arc<FloodCounters>,
    called: watch::Sender<bool>,
}

impl FloodingServer {
    /// Starts it on a free port of loopback.
    pub async fn start(plan: FloodPlan) -> Self {
        let (listener, address) = listen_on_loopback().await;
        let seen = Arc::<FloodCounters>::default();
        let shared = Arc::new(FloodState {
            plan,
            seen: seen.clone(),
            called: watch::Sender::new(false),
        });
        let task = OwnedTask::spawn(accept(listener, move |stream| {
            serve(stream, shared.clone())
        }));
        Self {
            address,
            seen,
            _task: task,
        }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// The most connections that were open at the same time.
    pub fn most_connections(&self) -> usize {
        self.seen.most_open.load(Ordering::SeqCst)
    }

    /// Messages that it sent on its streams.
    pub fn sent_messages(&self) -> usize {
        self.seen.said.load(Ordering::SeqCst)
    }

    /// Messages received beside requests.
    pub fn received_messages(&self) -> usize {
        self.seen.messages.load(Ordering::SeqCst)
    }

    /// Calls received.
    pub fn calls(&self) -> usize {
        self.seen.calls.load(Ordering::SeqCst)
    }

    /// Sessions opened.
    pub fn sessions(&self) -> usize {
        self.seen.sessions.load(Ordering::SeqCst)
    }

    /// Sessions ended by DELETE.
    pub fn ended(&self) -> usize {
        self.seen.ended.load(Ordering::SeqCst)
    }
}

/// Counts a connection while it is open.
struct OpenFloodConnection(Arc<FloodCounters>);

impl OpenFloodConnection {
    fn new(seen: Arc<FloodCounters>) -> Self {
        let open = seen.open.fetch_add(1, Ordering::SeqCst) + 1;
        seen.most_open.fetch_max(open, Ordering::SeqCst);
        Self(seen)
    }
}

impl Drop for OpenFloodConnection {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn serve(stream: TcpStream, shared: Arc<FloodState>) {
    let _open = OpenFloodConnection::new(shared.seen.clone());
    let mut stream = BufReader::new(stream);
    // Any fault of a connection ends it.
    while let Some((verb, message)) = request(&mut stream).await {
        if answer(&mut stream, &verb, &message, &shared)
            .await
            .is_none()
        {
            return;
        }
    }
}

/// Reads the verb and the body of the next request; no request at the end.
async fn request(stream: &mut BufReader<TcpStream>) -> Option<(String, Value)> {
    let (mut verb, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        match line.split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().ok()?
            }
            _ if verb.is_empty() => verb = line.split(' ').next()?.to_owned(),
            _ => {}
        }
    }
    let mut body = vec![0; Some(length).filter(|length| *length <= MAX_REQUEST_BYTES)?];
    stream.read_exact(&mut body).await.ok()?;
    Some((verb, serde_json::from_slice(&body).unwrap_or_default()))
}

/// Answers one request; no value once the connection is over.
async fn answer(
    stream: &mut BufReader<TcpStream>,
    verb: &str,
    message: &Value,
    shared: &FloodState,
) -> Option<()> {
    let seen = &shared.seen;
    match (verb, message["method"].as_str().unwrap_or_default()) {
        ("GET", _) => return serve_get_stream(stream, shared).await,
        ("DELETE", _) => {
            seen.ended.fetch_add(1, Ordering::SeqCst);
            write(stream, "204 No Content", "", "").await
        }
        (_, "initialize") => {
            let nth = seen.sessions.fetch_add(1, Ordering::SeqCst);
            let session = format!("mcp-session-id: flooding-{nth}\r\n");
            let about = json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "flooding", "version": "1"},
            });
            result(stream, &session, &message["id"], &about).await
        }
        (_, "notifications/initialized") => write(stream, "202 Accepted", "", "").await,
        (_, "tools/list") => {
            let tools = json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]});
            result(stream, "", &message["id"], &tools).await
        }
        (_, "tools/call") => call(stream, &message["id"], shared).await,
        (_, method) if !method.is_empty() && !message["id"].is_null() => {
            result(stream, "", &message["id"], &json!({})).await
        }
        _ => {
            seen.messages.fetch_add(1, Ordering::SeqCst);
            if shared.plan.hangs_on_messages {
                return ended(stream).await;
            }
            write(stream, "202 Accepted", "", "").await
        }
    }
}

async fn call(stream: &mut BufReader<TcpStream>, id: &Value, shared: &FloodState) -> Option<()> {
    shared.seen.calls.fetch_add(1, Ordering::SeqCst);
    shared.called.send_replace(true);
    match shared.plan.calls {
        FloodCallHandling::Answered => result(stream, "", id, &json!({"content": []})).await,
        FloodCallHandling::Hang => ended(stream).await,
        FloodCallHandling::Large(size) => {
            let text = "x".repeat(size);
            result(
                stream,
                "",
                id,
                &json!({"content": [{"type": "text", "text": text}]}),
            )
            .await
        }
    }
}

/// Serves a GET stream with all planned messages, and stays silent after them.
async fn serve_get_stream(stream: &mut BufReader<TcpStream>, shared: &FloodState) -> Option<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: open\n\n";
    stream.get_mut().write_all(head.as_bytes()).await.ok()?;
    if shared.plan.after_call {
        let mut called = shared.called.subscribe();
        called.wait_for(|called| *called).await.ok()?;
    }
    if let Some((message, count)) = &shared.plan.get_stream_messages {
        for nth in 0..*count {
            let event = format!("data: {}\n\n", message(nth));
            stream.get_mut().write_all(event.as_bytes()).await.ok()?;
            shared.seen.said.fetch_add(1, Ordering::SeqCst);
        }
    }
    ended(stream).await
}

/// Stays silent until the other side closes the connection.
async fn ended(stream: &mut BufReader<TcpStream>) -> Option<()> {
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await.ok()? > 0 {}
    None
}

async fn result(
    stream: &mut BufReader<TcpStream>,
    headers: &str,
    id: &Value,
    result: &Value,
) -> Option<()> {
    let body = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
    write(
        stream,
        "200 OK",
        &format!("content-type: application/json\r\n{headers}"),
        &body,
    )
    .await
}

async fn write(
    stream: &mut BufReader<TcpStream>,
    status: &str,
    headers: &str,
    body: &str,
) -> Option<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    stream.get_mut().write_all(head.as_bytes()).await.ok()?;
    stream.get_mut().write_all(body.as_bytes()).await.ok()
}
