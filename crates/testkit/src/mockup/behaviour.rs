//! The behaviour of a mock tool, as a list of small steps. The named behaviours are such lists; a
//! test may write its own.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use weir_wire::LogLevel;

/// A tool's answer, good or bad.
#[derive(Clone, Debug)]
pub struct Behaviour {
    pub(super) steps: Vec<Step>,
    pub(super) form: Form,
    pub(super) status: StatusCode,
    pub(super) headers: Vec<(String, String)>,
    pub(super) drip: Option<Drip>,
}

/// One step of an answer. In texts that are sent as messages `"$id"` stands for the id of the
/// request and `"$token"` for its progress token, quotes included.
#[derive(Clone, Debug)]
pub enum Step {
    /// A progress notification (progress, total) with the token of the request; skipped for a
    /// request without a token.
    Progress(u64, u64),
    /// A log message. Sent only to clients that asked for the level, unless `unasked`.
    Log {
        /// Its level.
        level: LogLevel,
        /// True if it is sent to clients that did not ask for it.
        unasked: bool,
    },
    /// A message given as JSON text.
    Send(String),
    /// A request of the server's own; the call goes on once the answer was posted. Legacy only.
    Ask {
        /// Its method.
        method: &'static str,
        /// Its params.
        params: Value,
    },
    /// The same request on the GET stream of the call's session.
    AskBeside {
        /// Its method.
        method: &'static str,
        /// Its params.
        params: Value,
    },
    /// The result. Modern ones get `resultType` unless they have one.
    Result(Value),
    /// The arguments as text and as structured content.
    Echo,
    /// The result of the answer to the last request of the server, as text.
    Answer,
    /// A JSON-RPC error.
    Error(Value),
    /// A result with a text of so many bytes; never all in memory.
    Huge(usize),
    /// Bytes as they are, at any point of the answer.
    Raw(String),
    /// A comment line on a stream.
    Comment,
    /// Waits.
    Wait(Duration),
    /// Waits until the test opens the gate.
    Gate(Gate),
    /// Never goes on.
    Hang,
    /// Passes so many more bytes of the connection, then resets it.
    ResetAfter(usize),
}

/// The form of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// JSON for a single message, else events.
    Auto,
    Json,
    Events,
    /// The raw bytes under this content type.
    Plain(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Drip {
    pub(super) bytes: usize,
    pub(super) every: Duration,
}

/// A gate that holds calls until a test opens it. Clones are the same gate.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Semaphore>);

impl Gate {
    /// A closed gate.
    #[expect(
        clippy::new_without_default,
        reason = "a gate is closed, which Default would not say"
    )]
    pub fn new() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Lets every call through, now and later.
    pub fn open(&self) {
        self.0.close();
    }

    /// Lets this many calls through.
    pub fn admit(&self, calls: usize) {
        self.0.add_permits(calls);
    }

    pub(super) async fn pass(&self) {
        // An error means that the gate is open for good.
        if let Ok(permit) = self.0.acquire().await {
            permit.forget();
        }
    }
}

impl Behaviour {
    /// A behaviour of exactly these steps.
    pub fn steps(steps: impl IntoIterator<Item = Step>) -> Self {
        let steps = steps.into_iter().collect();
        Self {
            steps,
            form: Form::Auto,
            status: StatusCode::OK,
            headers: Vec::new(),
            drip: None,
        }
    }

    /// Answers with its arguments.
    pub fn echo() -> Self {
        Self::steps([Step::Echo])
    }

    /// Answers with one text block.
    pub fn text(text: &str) -> Self {
        Self::result(json!({"content": [{"type": "text", "text": text}]}))
    }

    /// Answers with this result.
    pub fn result(result: Value) -> Self {
        Self::steps([Step::Result(result)])
    }

    /// Answers with a JSON-RPC error.
    pub fn error(code: i64, message: &str, data: Value) -> Self {
        let mut error = json!({"code": code, "message": message});
        if !data.is_null() {
            error["data"] = data;
        }
        Self::steps([Step::Error(error)])
    }

    /// `count` progress notifications, then the arguments.
    pub fn progress(count: u64) -> Self {
        Self::steps(
            (1..=count)
                .map(|done| Step::Progress(done, count))
                .chain([Step::Echo]),
        )
    }

    /// Sends one log message of each level to clients that want it, then the arguments.
    pub fn log(levels: &[LogLevel]) -> Self {
        let logs = levels.iter().map(|&level| Step::Log {
            level,
            unasked: false,
        });
        Self::steps(logs.chain([Step::Echo]))
    }

    /// Takes the request and never answers.
    pub fn hang() -> Self {
        Self::steps([Step::Hang])
    }

    /// Answers with its arguments once the gate lets it.
    pub fn gated(gate: &Gate) -> Self {
        Self::steps([Step::Gate(gate.clone()), Step::Echo])
    }

    /// Sends progress at once, and answers with its arguments once the gate lets it.
    pub fn gated_after_progress(gate: &Gate) -> Self {
        Self::steps([Step::Progress(1, 2), Step::Gate(gate.clone()), Step::Echo]).as_events()
    }

    /// Answers after a while.
    pub fn slow(wait: Duration) -> Self {
        Self::steps([Step::Wait(wait), Step::Echo])
    }

    /// Answers with a text of so many bytes.
    pub fn huge(bytes: usize) -> Self {
        Self::steps([Step::Huge(bytes)])
    }

    /// Answers with an array of a progress notification and the result, as 2025-03-26 allows.
    pub fn batch() -> Self {
        let note = message(
            r#""method":"notifications/progress","params":{"progressToken":"$token","progress":1}"#,
        );
        let answer =
            message(r#""id":"$id","result":{"content":[{"type":"text","text":"from a batch"}]}"#);
        Self::steps([Step::Send(format!("[{note},{answer}]"))])
    }

    /// Sends a request to its client during the call, then answers with its arguments.
    pub fn ask(method: &'static str, params: Value) -> Self {
        Self::steps([Step::Ask { method, params }, Step::Echo])
    }

    /// Ends with `input_required`. Modern only.
    pub fn input_required(requests: Value, state: Option<&str>) -> Self {
        let mut result = json!({"resultType": "input_required", "inputRequests": requests});
        if let Some(state) = state {
            result["requestState"] = json!(state);
        }
        Self::result(result)
    }

    /// Sets this HTTP status.
    pub fn with_status(mut self, status: u16) -> Self {
        self.status =
            StatusCode::from_u16(status).unwrap_or_else(|error| panic!("{status}: {error}"));
        self
    }

    /// Adds a header.
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Answers always as server-sent events; their head is sent at once.
    pub fn as_events(mut self) -> Self {
        self.form = Form::Events;
        self
    }

    /// Answers always as JSON; its head is sent with the first byte.
    pub fn as_json(mut self) -> Self {
        self.form = Form::Json;
        self
    }

    /// Sends a few bytes at a time.
    pub fn dripping(mut self, bytes: usize, every: Duration) -> Self {
        self.drip = Some(Drip {
            bytes: bytes.max(1),
            every,
        });
        self
    }

    /// Reports if the body is a stream of events.
    pub(super) fn is_events(&self) -> bool {
        let says_more = |step: &Step| {
            matches!(
                step,
                Step::Progress(..)
                    | Step::Log { .. }
                    | Step::Send(_)
                    | Step::Ask { .. }
                    | Step::Comment
            )
        };
        match self.form {
            Form::Auto => self.steps.iter().any(says_more),
            Form::Events => true,
            Form::Json | Form::Plain(_) => false,
        }
    }
}

pub(super) fn message(members: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0",{members}}}"#)
}
