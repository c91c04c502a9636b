//! Classification of the messages on a call's own stream.
//!
//! Only messages of this call pass. Another call's progress, unwanted log messages and responses to
//! other ids are dropped; the reader of the stream counts them.

use bytes::Bytes;
use weir_core::CapabilityClass;
use weir_core::call::LogMessages;
use weir_core::reply::{NoteKind, ReplyNote};
use weir_core::upstream::{ListKind, ListKinds};
use weir_wire::id::echoed_number;
use weir_wire::method::Method;
use weir_wire::{
    ErrorObject, LogLevel, Message, Notification, Request, RequestId, error_code, meta, scan, write,
};

use crate::capability_forwarding;
use crate::lower;
use crate::server_questions::{self, LiftedQuestion};

/// The message filter of one call.
#[derive(Debug)]
pub struct MessageFilter {
    id: u64,
    progress: bool,
    logs: LogMessages,
    last: f64,
    sessions: bool,
    /// The questions that the client of the call can be asked in it.
    class: CapabilityClass,
    /// True if the client could be asked a question in another call, but not in this one.
    refuses_questions: bool,
}

/// The meaning of a message for a call.
#[derive(Debug)]
pub enum MessageClass {
    /// A note for the client.
    Note(ReplyNote),
    /// The answer: the result or the error object.
    Answer(Result<Bytes, Bytes>),
    /// The server sent a request; this message answers it.
    Reply(Bytes),
    /// The server asks the client a question.
    Ask {
        /// The question, for the client.
        lifted: Box<LiftedQuestion>,
        /// The server's request.
        request: Request,
    },
    /// The server no longer waits for the answer to its request of this id.
    Withdrawn(RequestId),
    /// The server reports that these lists changed.
    ListChanged(ListKinds),
    /// A valid message that does not concern the call.
    Ignored,
    /// A message against the protocol, or of another call: dropped.
    Dropped {
        /// The reason.
        reason: DropReason,
        /// The message.
        message: Message,
    },
}

/// The reason why a message is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// A response to another request.
    UnknownId,
    /// A response without an id.
    NoId,
    /// A request of a server that may send none.
    ServerRequest,
    /// A notification of a method that no revision has.
    UnknownNotification,
    /// Progress of another call.
    UnknownProgressToken,
    /// Progress that is no higher than the one before.
    ProgressNotIncreasing,
    /// Progress without a number.
    BadProgress,
    /// A log message without a level.
    BadLogLevel,
}

impl DropReason {
    /// The label of the reason in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownId => "unknown_id",
            Self::NoId => "no_id",
            Self::ServerRequest => "server_request",
            Self::UnknownNotification => "unknown_notification",
            Self::UnknownProgressToken => "unknown_progress_token",
            Self::ProgressNotIncreasing => "progress_not_increasing",
            Self::BadProgress => "bad_progress",
            Self::BadLogLevel => "bad_log_level",
        }
    }
}

/// The lists that a notification of this method reports as changed; empty for other methods.
#[must_use]
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "three of the 38 methods report a changed list"
)]
pub fn changed_lists(method: Method) -> ListKinds {
    match method {
        Method::ToolsListChanged => ListKinds::default().with(ListKind::Tools),
        Method::PromptsListChanged => ListKinds::default().with(ListKind::Prompts),
        Method::ResourcesListChanged => ListKinds::default()
            .with(ListKind::Resources)
            .with(ListKind::Templates),
        _ => ListKinds::default(),
    }
}

impl MessageFilter {
    /// For a call in a session: the server may send requests in between, and gets an answer.
    #[must_use]
    pub fn legacy(id: u64, progress: bool, logs: LogMessages) -> Self {
        let (last, class) = (f64::NEG_INFINITY, CapabilityClass::BASE);
        Self {
            id,
            progress,
            logs,
            last,
            sessions: true,
            class,
            refuses_questions: false,
        }
    }

    /// For a call without a session: servers send no requests on its stream.
    #[must_use]
    pub fn modern(id: u64, progress: bool, logs: LogMessages) -> Self {
        Self {
            sessions: false,
            ..Self::legacy(id, progress, logs)
        }
    }

    /// The same for a client that can be asked the questions in `class`; `here` is true if it can
    /// be asked in this call.
    #[must_use]
    pub fn with_questions(self, class: CapabilityClass, here: bool) -> Self {
        let elsewhere =
            !here && class.cut(capability_forwarding::TO_LEGACY) != CapabilityClass::BASE;
        Self {
            class: if here { class } else { CapabilityClass::BASE },
            refuses_questions: elsewhere,
            ..self
        }
    }

    /// True if the server may ask a question in the middle of the call.
    #[must_use]
    pub fn may_have_questions(&self) -> bool {
        use CapabilityClass as C;
        let any = [
            C::SAMPLING,
            C::SAMPLING_TOOLS,
            C::ELICITATION_FORM,
            C::ELICITATION_URL,
            C::ROOTS,
        ];
        any.iter().any(|one| self.class.has(*one))
    }

    /// Classifies one message of the call's own stream.
    pub fn classify(&mut self, message: Message) -> MessageClass {
        match message {
            Message::Response(response) => {
                let reason = match &response.id {
                    Some(id) if id.echoed_number() == Some(self.id) => {
                        return MessageClass::Answer(response.outcome);
                    }
                    // A response without an id answers no request here: only a refusal by HTTP
                    // status is about its request without an id, and an event stream that ends
                    // after it.
                    None => DropReason::NoId,
                    Some(_) => DropReason::UnknownId,
                };
                MessageClass::Dropped {
                    reason,
                    message: Message::Response(response),
                }
            }
            Message::Request(request) if self.refuses_questions => {
                MessageClass::Reply(answer_outside_call(&request))
            }
            Message::Request(request) if self.sessions => classify_request(self.class, request),
            Message::Request(request) => MessageClass::Dropped {
                reason: DropReason::ServerRequest,
                message: Message::Request(request),
            },
            Message::Notification(notification) => match self.notified(&notification) {
                Ok(class) => class,
                Err(reason) => MessageClass::Dropped {
                    reason,
                    message: Message::Notification(notification),
                },
            },
        }
    }

    fn notified(&mut self, notification: &Notification) -> Result<MessageClass, DropReason> {
        let params = notification
            .params
            .clone()
            .unwrap_or_else(|| Bytes::from_static(b"{}"));
        Ok(match Method::parse(notification.method.as_str()) {
            Some(Method::Progress) => self.progressed(params)?,
            Some(Method::LogMessage) => self.logged(params)?,
            Some(Method::Cancelled) if self.sessions => {
                cancelled_request(&params).map_or(MessageClass::Ignored, MessageClass::Withdrawn)
            }
            Some(Method::ElicitationComplete)
                if self.class.has(CapabilityClass::ELICITATION_URL) =>
            {
                MessageClass::Note(ReplyNote {
                    kind: NoteKind::Other(Method::ElicitationComplete),
                    params,
                })
            }
            Some(
                method @ (Method::ToolsListChanged
                | Method::PromptsListChanged
                | Method::ResourcesListChanged),
            ) => MessageClass::ListChanged(changed_lists(method)),
            Some(_) => MessageClass::Ignored,
            None => return Err(DropReason::UnknownNotification),
        })
    }

    fn progressed(&mut self, params: Bytes) -> Result<MessageClass, DropReason> {
        let token =
            scan::find(&params, "progressToken").and_then(|range| echoed_number(&params[range]));
        if !self.progress || token != Some(self.id) {
            return Err(DropReason::UnknownProgressToken);
        }
        let at = scan::find(&params, "progress").and_then(|range| {
            std::str::from_utf8(&params[range])
                .ok()?
                .trim()
                .parse::<f64>()
                .ok()
        });
        match at {
            Some(at) if at > self.last => {
                self.last = at;
                Ok(MessageClass::Note(ReplyNote {
                    kind: NoteKind::Progress,
                    params,
                }))
            }
            Some(_) => Err(DropReason::ProgressNotIncreasing),
            None => Err(DropReason::BadProgress),
        }
    }

    fn logged(&self, params: Bytes) -> Result<MessageClass, DropReason> {
        match log_level(&params) {
            None => Err(DropReason::BadLogLevel),
            Some(level) if self.logs.include(level) => Ok(MessageClass::Note(ReplyNote {
                kind: NoteKind::Log(level),
                params,
            })),
            Some(_) => Ok(MessageClass::Ignored),
        }
    }
}

/// Classifies a request of a legacy server for a client that can be asked the questions in `class`:
/// a question, or the response to it.
#[must_use]
pub fn classify_request(class: CapabilityClass, request: Request) -> MessageClass {
    let Some(lifted) = server_questions::lift(&request) else {
        return MessageClass::Reply(answer_request(&request));
    };
    match server_questions::may_ask(class, lifted.question.method, &lifted.question.params) {
        Ok(()) => MessageClass::Ask {
            lifted: Box::new(lifted),
            request,
        },
        Err(unaskable) => MessageClass::Reply(write::error_response(
            Some(&request.id),
            false,
            &unaskable.error(),
        )),
    }
}

/// The level of a log message; absent for a malformed one.
#[must_use]
pub fn log_level(params: &[u8]) -> Option<LogLevel> {
    let range = scan::find(params, "level")?;
    LogLevel::parse(&scan::string(&params[range])?)
}

/// The id of the request that a cancel notification withdraws.
#[must_use]
pub fn cancelled_request(params: &[u8]) -> Option<RequestId> {
    let range = scan::find(params, "requestId")?;
    RequestId::from_json(&params[range]).ok()
}

/// The answer to a request of a legacy server outside of any call that may have questions. A ping
/// is answered. A question is refused, since it only makes sense inside such a call (SEP-2260). Any
/// other method is not found.
#[must_use]
pub fn answer_outside_call(request: &Request) -> Bytes {
    if request
        .method
        .known()
        .is_some_and(server_questions::is_question)
    {
        let error = ErrorObject::new(
            error_code::INVALID_PARAMS,
            "Clients are asked in the middle of their own calls only",
        );
        return write::error_response(Some(&request.id), false, &error);
    }
    answer_request(request)
}

/// The answer to a request of a legacy server: a ping is answered, any other method is not found.
#[must_use]
pub fn answer_request(request: &Request) -> Bytes {
    if request.method.as_str() == Method::Ping.as_str() {
        lower::pong(&request.id)
    } else {
        lower::declined(&request.id)
    }
}

/// The resource that a notification reports as updated; absent for any other notification.
#[must_use]
pub fn updated_resource(notification: &Notification) -> Option<String> {
    let params = notification
        .params
        .as_ref()
        .filter(|_| notification.method.known() == Some(Method::ResourcesUpdated))?;
    scan::find(params, "uri")
        .and_then(|range| scan::string(&params[range]))
        .map(Into::into)
}

/// The request that a message on a shared channel belongs to, if it names one: by the response's
/// id, the progress token, or the id of the subscription.
#[must_use]
pub fn request_of(message: &Message) -> Option<u64> {
    match message {
        Message::Response(response) => response.id.as_ref().and_then(RequestId::echoed_number),
        Message::Notification(notification)
            if notification.method.as_str() == Method::Progress.as_str() =>
        {
            let params = notification.params.as_ref()?;
            scan::find(params, "progressToken").and_then(|range| echoed_number(&params[range]))
        }
        Message::Notification(notification) => {
            let params = notification.params.as_ref()?;
            let about = &params[scan::find(params, "_meta")?];
            scan::find(about, meta::SUBSCRIPTION_ID).and_then(|range| echoed_number(&about[range]))
        }
        Message::Request(_) => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    fn message(text: &str) -> Message {
        Message::parse(
            Bytes::copy_from_slice(text.as_bytes()),
            &weir_wire::JsonLimits::default(),
        )
        .unwrap()
    }

    fn word(heard: &MessageClass) -> String {
        match heard {
            MessageClass::Note(note) => format!("note {:?}", note.kind),
            MessageClass::Answer(Ok(_)) => "result".into(),
            MessageClass::Answer(Err(_)) => "error".into(),
            MessageClass::Reply(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            MessageClass::Ask { lifted, .. } => {
                format!("ask {}", lifted.question.method.as_str())
            }
            MessageClass::Withdrawn(id) => {
                format!("withdrawn {}", String::from_utf8_lossy(id.as_json()))
            }
            MessageClass::ListChanged(_) => "changed".into(),
            MessageClass::Ignored => "nothing".into(),
            MessageClass::Dropped { reason, .. } => format!("dropped {}", reason.as_str()),
        }
    }

    fn progress(token: &str, at: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{at}}}}}"#
        )
    }

    // Proves E09, R207, R208.
    #[test]
    fn only_the_calls_own_messages_pass() {
        let mut filter = MessageFilter::legacy(7, true, LogMessages::None);
        for (text, expected) in [
            (progress("7", "1"), "note Progress"),
            (progress("7", "1.0"), "dropped progress_not_increasing"),
            (progress("7", "1.5"), "note Progress"),
            (progress("7", "1e1"), "note Progress"),
            (progress("8", "99"), "dropped unknown_progress_token"),
            (progress("\"8\"", "99"), "dropped unknown_progress_token"),
            (progress("\"7\"", "11"), "note Progress"),
            (progress("7", "\"x\""), "dropped bad_progress"),
            (
                r#"{"jsonrpc":"2.0","id":8,"result":{}}"#.into(),
                "dropped unknown_id",
            ),
            (
                r#"{"jsonrpc":"2.0","id":"8","result":{}}"#.into(),
                "dropped unknown_id",
            ),
            (r#"{"jsonrpc":"2.0","id":"7","result":{}}"#.into(), "result"),
            (r#"{"jsonrpc":"2.0","id":7,"result":{}}"#.into(), "result"),
            (
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}"#.into(),
                "dropped no_id",
            ),
            (
                r#"{"jsonrpc":"2.0","error":{"code":1,"message":"m"}}"#.into(),
                "dropped no_id",
            ),
            (
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"m"}}"#.into(),
                "error",
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#.into(),
                "changed",
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/x"}"#.into(),
                "dropped unknown_notification",
            ),
        ] {
            assert_eq!(word(&filter.classify(message(&text))), expected, "{text}");
        }
        let unasked = word(
            &MessageFilter::modern(7, false, LogMessages::None)
                .classify(message(&progress("7", "1"))),
        );
        assert_eq!(unasked, "dropped unknown_progress_token");
    }

    #[test]
    fn log_messages_pass_from_the_wanted_level_up() {
        let log = |level: &str| {
            message(&format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"{level}"}}}}"#
            ))
        };
        let mut filter = MessageFilter::modern(1, false, LogMessages::From(LogLevel::Warning));
        assert_eq!(word(&filter.classify(log("info"))), "nothing");
        assert_eq!(word(&filter.classify(log("warning"))), "note Log(Warning)");
        assert_eq!(
            word(&filter.classify(log("emergency"))),
            "note Log(Emergency)"
        );
        assert_eq!(word(&filter.classify(log("loud"))), "dropped bad_log_level");
        assert_eq!(
            word(&MessageFilter::modern(1, false, LogMessages::None).classify(log("error"))),
            "nothing"
        );
        let mut open = MessageFilter::legacy(1, false, LogMessages::ServerChoice);
        assert_eq!(word(&open.classify(log("debug"))), "note Log(Debug)");
        assert_eq!(word(&open.classify(log("loud"))), "dropped bad_log_level");
    }

    // Proves R105, E21.
    #[test]
    fn pings_are_answered_and_everything_else_is_declined() {
        let ask = |method: &str| {
            message(&format!(
                r#"{{"jsonrpc":"2.0","id":"a","method":"{method}","params":{{}}}}"#
            ))
        };
        let mut filter = MessageFilter::legacy(1, false, LogMessages::None);
        assert_eq!(
            word(&filter.classify(ask("ping"))),
            r#"{"jsonrpc":"2.0","id":"a","result":{}}"#
        );
        let declined = word(&filter.classify(ask("sampling/createMessage")));
        assert!(
            declined.starts_with(r#"{"jsonrpc":"2.0","id":"a","error":{"code":-32601,"#),
            "{declined}"
        );
        assert_eq!(
            word(&MessageFilter::modern(1, false, LogMessages::None).classify(ask("ping"))),
            "dropped server_request"
        );
        let mut able = MessageFilter::legacy(1, false, LogMessages::None)
            .with_questions(CapabilityClass::SAMPLING, true);
        assert_eq!(
            word(&able.classify(ask("sampling/createMessage"))),
            "ask sampling/createMessage"
        );
        assert!(word(&able.classify(ask("elicitation/create"))).contains("-32601"));
        let cancel =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}"#;
        assert_eq!(word(&able.classify(message(cancel))), "withdrawn \"a\"");
    }

    // Proves R166.
    #[test]
    fn question_in_a_call_without_questions_gets_invalid_params() {
        let ask = |method: &str| {
            message(&format!(
                r#"{{"jsonrpc":"2.0","id":"a","method":"{method}","params":{{}}}}"#
            ))
        };
        let code = |class, here| {
            let heard = word(
                &MessageFilter::legacy(1, false, LogMessages::None)
                    .with_questions(class, here)
                    .classify(ask("sampling/createMessage")),
            );
            ["-32601", "-32602", "ask "]
                .into_iter()
                .find(|code| heard.contains(code))
                .unwrap()
        };
        let able = CapabilityClass::SAMPLING;
        assert_eq!(
            (code(able, false), code(CapabilityClass::BASE, false)),
            ("-32602", "-32601")
        );
        assert_eq!(code(able, true), "ask ");
        let mut completing =
            MessageFilter::legacy(1, false, LogMessages::None).with_questions(able, false);
        assert_eq!(
            word(&completing.classify(ask("ping"))),
            r#"{"jsonrpc":"2.0","id":"a","result":{}}"#
        );
        assert!(!completing.may_have_questions());
    }

    // Proves R185.
    #[test]
    fn question_outside_of_calls_is_refused() {
        let ask = |method: &str| match message(&format!(
            r#"{{"jsonrpc":"2.0","id":"a","method":"{method}"}}"#
        )) {
            Message::Request(request) => {
                String::from_utf8(answer_outside_call(&request).to_vec()).unwrap()
            }
            other @ (Message::Notification(_) | Message::Response(_)) => panic!("{other:?}"),
        };
        assert!(
            ask("elicitation/create").contains("-32602") && ask("roots/list").contains("-32602")
        );
        assert!(ask("ping").contains(r#""result":{}"#) && ask("tasks/list").contains("-32601"));
    }
}
