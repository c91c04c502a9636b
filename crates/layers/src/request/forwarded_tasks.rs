//! Requests about tasks that another process has: the replica whose call became the task, or a
//! process before or after this one.
//!
//! The request of a client of 2025-11-25 names a session of this replica, and the answer to one over
//! HTTP+SSE belongs to a stream of this process, so the other process could not answer them. This
//! one asks it in the form of the tasks extension, which has no sessions, with the credentials of
//! the client, and says which part the client gets.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method as HttpMethod, Request, Response, header};
use weir_core::call::Call;
use weir_core::failure::{AuthenticationDenial, UpstreamError};
use weir_core::port::{BoxFuture, ReplicaId};
use weir_core::telemetry::instruments;
use weir_core::upstream::CallDeadlines;
use weir_core::{Failure, FailureKind};
use weir_era::tasks;
use weir_listen::{
    ForwardError, ForwardedBody, ForwardedRequest, ForwardedSender, KeptTaskPart, OtherProcess,
    RequestForwarder,
};
use weir_router::{TaskHolders, silent_holder};
use weir_wire::header::{JSON, JSON_OR_EVENTS};
use weir_wire::method::Method;
use weir_wire::params::Params;
use weir_wire::write::{ObjectWriter, string};
use weir_wire::{Revision, error_code, meta, scan};

use crate::failure::response_table::refuses_credentials;
use crate::http::header_names;
use crate::request::request_context::HttpRequestContext;

/// The longest answer that is read: the longest state of a task, and its envelope.
const MAX_ANSWER_BYTES: usize = 17 << 20;

/// The other processes of a graceful restart, in the order in which they are asked.
const PROCESSES: [OtherProcess; 2] = [OtherProcess::Predecessor, OtherProcess::Successor];

/// The other processes that may have the task of this request; `None` if there are none.
#[must_use]
pub fn task_holders(
    context: &HttpRequestContext,
    headers: &HeaderMap,
) -> Option<Arc<dyn TaskHolders>> {
    let holders = || -> Arc<dyn TaskHolders> {
        Arc::new(ForwardedTaskRequests {
            context: context.clone(),
            headers: headers.clone(),
        })
    };
    context.ports().may_forward().then(holders)
}

/// Counts a request to another process by its result.
pub fn count_forwarded(result: &'static str) {
    instruments()
        .forwarded
        .add(1, &[opentelemetry::KeyValue::new("result", result)]);
}

/// The requests about a task in the name of one client, to other processes.
struct ForwardedTaskRequests {
    context: HttpRequestContext,
    /// The headers of the client's own request, with its credentials.
    headers: HeaderMap,
}

impl ForwardedTaskRequests {
    /// Makes a request at another process.
    async fn ask(
        &self,
        forwarder: &dyn RequestForwarder,
        to: &ReplicaId,
        call: &Call,
    ) -> Result<Result<Bytes, Failure>, ForwardError> {
        let name = call.params.task_id().ok().flatten();
        let (Some(name), None) = (name, &call.input_refusals) else {
            // The extension has no form for a refusal of input.
            let text = "The request has no form in the tasks extension";
            return Ok(Err(Failure::new(FailureKind::MethodNotFound, text)));
        };
        let Some(request) = self.request(call, &name) else {
            return Ok(Err(Failure::unknown_task(&name)));
        };
        let asking = async {
            let answer = forwarder.forward(to, request).await?;
            Ok(read_state(answer, call.method, &name).await)
        };
        answer_in_time(asking).await
    }

    /// Makes a request at another process of a graceful restart. `None` if that has ended.
    async fn ask_at(
        &self,
        process: OtherProcess,
        forwarder: &dyn RequestForwarder,
        call: &Call,
    ) -> Result<Option<Bytes>, Failure> {
        let own = &self.context.ports().replica;
        let asked = self.ask(forwarder, own, call).await;
        let log = |error: &_| tracing::debug!(%error, ?process, "request not forwarded");
        let is_there = || self.context.other_process(process).is_some();
        conclude(asked.inspect_err(log), is_there)
    }

    /// The request in the form of the tasks extension, with the headers of the client's own one.
    fn request(&self, call: &Call, name: &str) -> Option<ForwardedRequest> {
        let (mut head, ()) = Request::new(()).into_parts();
        head.method = HttpMethod::POST;
        head.uri = self.context.endpoint().as_str().parse().ok()?;
        head.headers = self.headers.clone();
        let gone = [header::CONTENT_LENGTH, header::CONTENT_ENCODING];
        for name in gone.iter().chain([&header_names::SESSION]) {
            head.headers.remove(name);
        }
        let own: [(&HeaderName, &str); 5] = [
            (&header::CONTENT_TYPE, JSON),
            (&header::ACCEPT, JSON_OR_EVENTS),
            (&header_names::VERSION, Revision::MODERN.as_str()),
            (&header_names::METHOD, call.method.as_str()),
            (&header_names::NAME, name),
        ];
        for (header, value) in own {
            let value = HeaderValue::try_from(value).ok()?;
            head.headers.insert(header.clone(), value);
        }
        let mut body = BytesMut::with_capacity(name.len() + 512);
        ObjectWriter::new(&mut body)
            .string("jsonrpc", "2.0")
            .integer("id", 1)
            .string("method", call.method.as_str())
            .with("params", |params| write_params(params, call, name))
            .end();
        let part = if call.wants_status_only {
            KeptTaskPart::Status
        } else {
            KeptTaskPart::Whole
        };
        Some(ForwardedRequest {
            sender: ForwardedSender::KeptTask(part),
            head,
            body: body.freeze(),
            client: self.context.forwarded_client(),
        })
    }
}

impl TaskHolders for ForwardedTaskRequests {
    fn ask_replica<'a>(
        &'a self,
        replica: &'a ReplicaId,
        call: &'a Call,
    ) -> BoxFuture<'a, Result<Option<Bytes>, Failure>> {
        Box::pin(async move {
            let ports = self.context.ports();
            // Another process that asks about a task asks all others itself.
            let is_last = self.context.kept_task_part().is_some();
            let is_there = || ports.may_answer(replica) && !is_last;
            let Some(replicas) = ports.replicas.as_ref().filter(|_| is_there()) else {
                return Ok(None);
            };
            let asked = self.ask(&*replicas.forwarder, replica, call).await;
            let log = |error: &_| tracing::debug!(%replica, %error, "request not forwarded");
            conclude(asked.inspect_err(log), is_there)
        })
    }

    fn may_run(&self, replica: &ReplicaId) -> bool {
        self.context.ports().may_run(replica)
    }

    fn may_ask_process(&self) -> bool {
        let may_ask = |process| self.context.other_process(process).is_some();
        PROCESSES.into_iter().any(may_ask)
    }

    fn ask_process<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Option<Bytes>, Failure>> {
        Box::pin(async move {
            let mut answered = Ok(None);
            for process in PROCESSES {
                let Some(forwarder) = self.context.other_process(process) else {
                    continue;
                };
                answered = self.ask_at(process, &**forwarder, call).await;
                match &answered {
                    Err(failure) if *failure.kind() == FailureKind::UnknownTask => {}
                    Ok(None) => {}
                    Ok(Some(_)) | Err(_) => break,
                }
            }
            answered
        })
    }
}

impl fmt::Debug for ForwardedTaskRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardedTaskRequests")
            .finish_non_exhaustive()
    }
}

/// The answer to a request, counted, or an error if there is none in the time of a list.
async fn answer_in_time<T>(
    asking: impl Future<Output = Result<T, ForwardError>>,
) -> Result<T, ForwardError> {
    let late = |_| Err(ForwardError::Lost("it did not answer in time".to_owned()));
    let answered = tokio::time::timeout(CallDeadlines::LIST.hard, asking).await;
    let answered = answered.unwrap_or_else(late);
    count_forwarded(match &answered {
        Ok(_) => "answered",
        Err(ForwardError::NotSent(_)) => "unreachable",
        Err(ForwardError::NotOwner(_)) => "not_owner",
        Err(ForwardError::Lost(_)) => "lost",
    });
    answered
}

/// The answer of another process to a request. No value if there is none because the process has
/// ended: it may have left the task here.
fn conclude(
    asked: Result<Result<Bytes, Failure>, ForwardError>,
    is_there: impl FnOnce() -> bool,
) -> Result<Option<Bytes>, Failure> {
    match asked {
        Ok(answer) => answer.map(Some),
        Err(_) if is_there() => Err(silent_holder()),
        Err(_) => Ok(None),
    }
}

/// The failure of a wait that is longer than the lifetime of the client's credentials, which the
/// other process checks again with each request.
fn expired() -> Failure {
    let text = "The credentials of the request have expired: make it again with new ones";
    let denial = AuthenticationDenial::Invalid("expired");
    Failure::new(FailureKind::Unauthenticated(denial), text)
}

/// The failure of a request with an answer that no process of weir should give, such as one of
/// another release: it is too long, or is neither a state nor a JSON-RPC error.
fn unreadable() -> Failure {
    let text = "The process of weir that has the task sent an unreadable answer";
    Failure::new(FailureKind::Unavailable, text)
}

fn write_params(out: &mut BytesMut, call: &Call, name: &str) {
    let mut extension = BytesMut::new();
    extension.extend_from_slice(b"{\"extensions\":{");
    string(&mut extension, tasks::EXTENSION);
    extension.extend_from_slice(b":{}}}");
    let mut params = ObjectWriter::new(out);
    params.string("taskId", name).with("_meta", |about| {
        ObjectWriter::new(about)
            .string(meta::PROTOCOL_VERSION, Revision::MODERN.as_str())
            .raw(meta::CLIENT_CAPABILITIES, &extension)
            .end();
    });
    if call.method == Method::TasksUpdate
        && let Some(answers) = answers_of(call)
    {
        params.raw("inputResponses", &answers);
    }
    params.end();
}

/// The answers to the questions of a task that a request brings.
fn answers_of(call: &Call) -> Option<Bytes> {
    let own = || Params::input_responses(&call.params).ok().flatten();
    call.input_responses.clone().or_else(own)
}

/// The state in an answer, or the failure that it tells of.
async fn read_state(
    answer: Response<ForwardedBody>,
    method: Method,
    name: &str,
) -> Result<Bytes, Failure> {
    if refuses_credentials(answer.status()) {
        return Err(expired());
    }
    let answer = read_body(answer).await?;
    if let Some(at) = scan::find(&answer, "result") {
        let state = answer.slice(at);
        let is_state = method != Method::TasksGet || scan::find(&state, "status").is_some();
        return if is_state {
            Ok(state)
        } else {
            Err(unreadable())
        };
    }
    let error = scan::find(&answer, "error").map(|at| answer.slice(at));
    Err(error.map_or_else(unreadable, |error| failure_of(&error, name)))
}

/// The failure of a JSON-RPC error of another process about the task of this name.
fn failure_of(error: &Bytes, name: &str) -> Failure {
    let text = |object: &Bytes, member| {
        let at = scan::find(object, member)?;
        scan::string(&object[at]).map(std::borrow::Cow::into_owned)
    };
    let code = scan::find(error, "code").and_then(|at| scan::integer(&error[at]));
    let (Some(code), Some(message)) = (code, text(error, "message")) else {
        return unreadable();
    };
    let unknown = Failure::unknown_task(name);
    if code == error_code::INVALID_PARAMS && message == unknown.message() {
        return unknown;
    }
    let data = scan::find(error, "data").map(|at| error.slice(at));
    let reason = data.as_ref().and_then(|data| text(data, "reason"));
    if reason.is_some_and(|reason| is_passing(&reason)) {
        return Failure::new(FailureKind::Unavailable, message);
    }
    let error = UpstreamError {
        code,
        message: message.clone(),
        data,
    };
    Failure::new(FailureKind::Upstream(error), message)
}

/// True for the reasons of failures after which the same request may succeed.
fn is_passing(reason: &str) -> bool {
    let kinds = [
        FailureKind::Unavailable,
        FailureKind::Busy,
        FailureKind::TimedOut,
        FailureKind::Overloaded,
    ];
    kinds.iter().any(|kind| kind.reason() == reason)
}

/// The whole body of an answer.
async fn read_body(answer: Response<ForwardedBody>) -> Result<Bytes, Failure> {
    let mut body = answer.into_body();
    let mut whole = BytesMut::new();
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        let frame = frame.map_err(|error| silent_holder().because(error))?;
        if let Ok(data) = frame.into_data() {
            whole.extend_from_slice(&data);
        }
        if whole.len() > MAX_ANSWER_BYTES {
            return Err(unreadable());
        }
    }
    Ok(whole.freeze())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use http_body_util::{BodyExt as _, Full};
    use serde_json::json;

    use super::*;

    fn answer(text: &'static str) -> Response<ForwardedBody> {
        let body = Full::new(Bytes::from_static(text.as_bytes()));
        Response::new(Box::pin(body.map_err(|never| match never {})))
    }

    async fn failure_in(text: &'static str) -> Failure {
        let read = read_state(answer(text), Method::TasksGet, "t").await;
        read.unwrap_err()
    }

    #[tokio::test(start_paused = true)]
    async fn process_that_does_not_answer_is_asked_no_further_once_it_has_ended() {
        let never = || answer_in_time(std::future::pending());
        let late = never().await;
        assert!(matches!(late, Err(ForwardError::Lost(_))), "{late:?}");
        let failure = conclude(late, || true).unwrap_err();
        assert_eq!(failure.message(), silent_holder().message());
        assert_eq!(conclude(never().await, || false).unwrap(), None);
        let answered = || Ok(Ok(Bytes::from_static(b"{}")));
        for is_there in [true, false] {
            let state = conclude(answered(), || is_there).unwrap();
            assert_eq!(state.as_deref(), Some(&b"{}"[..]));
        }
    }

    #[tokio::test]
    async fn unreadable_answer_of_another_process_is_not_called_silence() {
        for text in [
            "",
            "Unauthorized",
            "{}",
            r#"{"error":{"code":1}}"#,
            r#"{"result":{}}"#,
        ] {
            let failure = failure_in(text).await;
            assert_eq!(failure.message(), unreadable().message(), "{text}");
        }
    }

    #[tokio::test]
    async fn expired_credentials_end_a_wait() {
        let mut refused = answer("Unauthorized");
        *refused.status_mut() = 401.try_into().unwrap();
        let failure = read_state(refused, Method::TasksGet, "t")
            .await
            .unwrap_err();
        assert_eq!(failure.kind(), expired().kind());
    }

    #[tokio::test]
    async fn failure_of_another_process_is_passed_on_by_its_reason() {
        for reason in ["unavailable", "busy", "timed_out", "overloaded"] {
            let error = json!({ "code": 1, "message": "later", "data": { "reason": reason } });
            let failure = failure_of(&error.to_string().into(), "t");
            assert_eq!(failure.kind(), &FailureKind::Unavailable, "{reason}");
        }
        let error = json!({ "code": 1, "message": "never", "data": { "reason": "denied" } });
        let failure = failure_of(&error.to_string().into(), "t");
        assert!(matches!(failure.kind(), FailureKind::Upstream(error) if error.code == 1));
    }
}
