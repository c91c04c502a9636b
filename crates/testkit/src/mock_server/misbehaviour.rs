//! Bad behaviours of real servers that a gateway must handle.

use std::time::Duration;

use http::StatusCode;
use weir_wire::LogLevel;

use crate::mock_server::behaviour::{AnswerForm, AnswerStep, MockBehaviour, message};

impl MockBehaviour {
    /// Answers with a body that is not JSON.
    pub fn bad_json() -> Self {
        Self::steps([AnswerStep::Raw(
            "{\"jsonrpc\": \"2.0\", \"id\": 1, \"result\": {".to_owned(),
        )])
        .as_json()
    }

    /// Answers another request than the received one.
    pub fn wrong_id() -> Self {
        Self::steps([AnswerStep::Send(message(
            r#""id":"nobody-asked","result":{"content":[]}"#,
        ))])
        .as_json()
    }

    /// Answers twice, differently.
    pub fn two_responses() -> Self {
        let answer = |text: &str| {
            AnswerStep::Send(message(&format!(
                r#""id":"$id","result":{{"resultType":"complete","content":[{{"type":"text","text":"{text}"}}]}}"#
            )))
        };
        Self::steps([answer("first"), answer("second")]).as_events()
    }

    /// Sends the same answer twice.
    pub fn duplicate() -> Self {
        Self::steps([AnswerStep::Echo, AnswerStep::Echo]).as_events()
    }

    /// Resets the connection after so many bytes of the answer, head included; 0 is before any.
    pub fn reset_after(bytes: usize) -> Self {
        Self::steps([AnswerStep::ResetAfter(bytes), AnswerStep::Echo])
    }

    /// Ends the stream without an answer.
    pub fn no_answer() -> Self {
        Self::steps([AnswerStep::Comment]).as_events()
    }

    /// Answers, then sends progress for the finished call.
    pub fn late_progress() -> Self {
        Self::steps([AnswerStep::Echo, AnswerStep::Progress(9, 9)]).as_events()
    }

    /// Sends progress with an unknown token, then the arguments.
    pub fn wrong_progress_token() -> Self {
        let note = message(
            r#""method":"notifications/progress","params":{"progressToken":"not-yours","progress":1}"#,
        );
        Self::steps([AnswerStep::Send(note), AnswerStep::Echo])
    }

    /// Sends log messages without a request for them, then the arguments.
    pub fn unasked_log(level: LogLevel) -> Self {
        Self::steps([
            AnswerStep::Log {
                level,
                unasked: true,
            },
            AnswerStep::Echo,
        ])
    }

    /// Keeps sending progress, every so often, for ever.
    pub fn endless_progress(every: Duration) -> Self {
        let ticks = (1..=10_000)
            .flat_map(|done| [AnswerStep::Progress(done, 10_000), AnswerStep::Wait(every)]);
        Self::steps(ticks.chain([AnswerStep::Hang]))
    }

    /// Keeps sending comments, every so often, for ever.
    pub fn endless_comments(every: Duration) -> Self {
        Self::steps(
            (0..10_000)
                .flat_map(|_| [AnswerStep::Comment, AnswerStep::Wait(every)])
                .chain([AnswerStep::Hang]),
        )
        .as_events()
    }

    /// One progress notification, then silence.
    pub fn hang_after_progress() -> Self {
        Self::steps([AnswerStep::Progress(1, 2), AnswerStep::Hang]).as_events()
    }

    /// An HTTP answer that is not JSON-RPC.
    pub fn status(status: u16, content_type: &'static str, body: &str) -> Self {
        let status =
            StatusCode::from_u16(status).unwrap_or_else(|error| panic!("{status}: {error}"));
        let plain = Self::steps([AnswerStep::Raw(body.to_owned())]);
        Self {
            form: AnswerForm::Plain(content_type),
            status,
            ..plain
        }
    }

    /// 401 with a challenge.
    pub fn unauthorized() -> Self {
        Self::status(401, "text/plain", "no token").with_header("www-authenticate", "Bearer")
    }

    /// 429 or 503 that names a wait in seconds.
    pub fn retry_after(status: u16, seconds: u32) -> Self {
        Self::status(status, "text/plain", "later").with_header("retry-after", &seconds.to_string())
    }

    /// 307 to another location.
    pub fn redirect(location: &str) -> Self {
        Self::status(307, "text/plain", "elsewhere").with_header("location", location)
    }
}
