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
pub struct MockBehaviour {
    pub(super) steps: Vec<AnswerStep>,
    pub(super) form: AnswerForm,
    pub(super) status: StatusCode,
    pub(super) headers: Vec<(String, String)>,
    pub(super) drip: Option<DripRate>,
}

/// One step of an answer. In texts that are sent as messages `"$id"` stands for the id of the
/// request and `"$token"` for its progress token, quotes included.
#[derive(Clone, Debug)]
pub enum AnswerStep {
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
    AskOnGetStream {
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
    Gate(CallGate),
    /// Never goes on.
    Hang,
    /// Passes so many more bytes of the connection, then resets it.
    ResetAfter(usize),
}

/// The form of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerForm {
    /// JSON for a single message, else events.
    Auto,
    Json,
    Events,
    /// The raw bytes under this content type.
    Plain(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct DripRate {
    pub(super) bytes: usize,
    pub(super) every: Duration,
}

/// A gate that holds calls until a test opens it. Clones are the same gate.
#[derive(Clone, Debug)]
pub struct CallGate(Arc<Semaphore>);

impl CallGate {
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

impl MockBehaviour {
    /// A behaviour of exactly these steps.
    pub fn steps(steps: impl IntoIterator<Item = AnswerStep>) -> Self {
        let steps = steps.into_iter().collect();
        Self {
            steps,
            form: AnswerForm::Auto,
            status: StatusCode::OK,
            headers: Vec::new(),
            drip: None,
        }
    }

    /// Answers with its arguments.
    pub fn echo() -> Self {
        Self::steps([AnswerStep::Echo])
    }

    /// Answers with one text block.
    pub fn text(text: &str) -> Self {
        Self::result(json!({"content": [{"type": "text", "text": text}]}))
    }

    /// Answers with this result.
    pub fn result(result: Value) -> Self {
        Self::steps([AnswerStep::Result(result)])
    }

    /// Answers with a JSON-RPC error.
    pub fn error(code: i64, message: &str, data: Value) -> Self {
        let mut error = json!({"code": code, "message": message});
        if !data.is_null() {
            error["data"] = data;
        }
        Self::steps([AnswerStep::Error(error)])
    }

    /// `count` progress notifications, then the arguments.
    pub fn progress(count: u64) -> Self {
        Self::steps(
            (1..=count)
                .map(|done| AnswerStep::Progress(done, count))
                .chain([AnswerStep::Echo]),
        )
    }

    /// Sends one log message of each level to clients that want it, then the arguments.
    pub fn log(levels: &[LogLevel]) -> Self {
        let logs = levels.iter().map(|&level| AnswerStep::Log {
            level,
            unasked: false,
        });
        Self::steps(logs.chain([AnswerStep::Echo]))
    }

    /// Takes the request and never answers.
    pub fn hang() -> Self {
        Self::steps([AnswerStep::Hang])
    }

    /// Answers with its arguments once the gate lets it.
    pub fn gated(gate: &CallGate) -> Self {
        Self::steps([AnswerStep::Gate(gate.clone()), AnswerStep::Echo])
    }

    /// Sends progress at once, and answers with its arguments once the gate lets it.
    pub fn gated_after_progress(gate: &CallGate) -> Self {
        Self::steps([
            AnswerStep::Progress(1, 2),
            AnswerStep::Gate(gate.clone()),
            AnswerStep::Echo,
        ])
        .as_events()
    }

    /// Answers after a while.
    pub fn slow(wait: Duration) -> Self {
        Self::steps([AnswerStep::Wait(wait), AnswerStep::Echo])
    }

    /// Answers with a text of so many bytes.
    pub fn huge(bytes: usize) -> Self {
        Self::steps([AnswerStep::Huge(bytes)])
    }

    /// Answers with an array of a progress notification and the result, as 2025-03-26 allows.
    pub fn batch() -> Self {
        let note = message(
            r#""method":"notifications/progress","params":{"progressToken":"$token","progress":1}"#,
        );
        let answer =
            message(r#""id":"$id","result":{"content":[{"type":"text","text":"from a batch"}]}"#);
        Self::steps([AnswerStep::Send(format!("[{note},{answer}]"))])
    }

    /// Sends a request to its client during the call, then answers with its arguments.
    pub fn ask(method: &'static str, params: Value) -> Self {
        Self::steps([AnswerStep::Ask { method, params }, AnswerStep::Echo])
    }

    /// Ends with `input_required`. Modern only.
    pub fn input_required(requests: Value, state: Option<&str>) -> Self {
        let mut result = json!({"resultType": "input_required"});
        result["inputRequests"] = requests;
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
        self.form = AnswerForm::Events;
        self
    }

    /// Answers always as JSON; its head is sent with the first byte.
    pub fn as_json(mut self) -> Self {
        self.form = AnswerForm::Json;
        self
    }

    /// Sends a few bytes at a time.
    pub fn dripping(mut self, bytes: usize, every: Duration) -> Self {
        self.drip = Some(DripRate {
            bytes: bytes.max(1),
            every,
        });
        self
    }

    /// Reports if the body is a stream of events.
    pub(super) fn is_events(&self) -> bool {
        let says_more = |step: &AnswerStep| {
            matches!(
                step,
                AnswerStep::Progress(..)
                    | AnswerStep::Log { .. }
                    | AnswerStep::Send(_)
                    | AnswerStep::Ask { .. }
                    | AnswerStep::Comment
            )
        };
        match self.form {
            AnswerForm::Auto => self.steps.iter().any(says_more),
            AnswerForm::Events => true,
            AnswerForm::Json | AnswerForm::Plain(_) => false,
        }
    }
}

pub(super) fn message(members: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0",{members}}}"#)
}
