//! The questions that servers ask clients in the middle of a call (sampling, elicitation, roots),
//! translated between revisions.
//!
//! A question of a legacy server is lifted into the form of the newest revision, without an id and
//! without members of a single hop. For a legacy client it is lowered into the form of the client's
//! revision. Answers go the other way.
//!
//! Sources: client/sampling, client/elicitation and client/roots of each revision; SEP-1034,
//! SEP-1330 (enums).

mod question_refusal;
mod revision_forms;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use weir_core::call::InputMode;
use weir_core::failure::UpstreamError;
use weir_core::{Call, CapabilityClass, Failure, FailureKind, UpstreamQuestion};
use weir_wire::answer_shape::is_answer_shape;
use weir_wire::method::Method;
use weir_wire::splice::{MetaEdits, ObjectEdits};
use weir_wire::write::{self, ObjectWriter};
use weir_wire::{ErrorObject, Request, RequestId, Revision, error_code, meta, related_task, scan};

pub use question_refusal::QuestionRefusal;

/// A question of a legacy server, lifted.
#[derive(Debug)]
pub struct LiftedQuestion {
    /// The request's id at the server.
    pub id: RequestId,
    /// The question itself.
    pub question: UpstreamQuestion,
    /// The progress token that the server gave.
    pub progress_token: Option<Bytes>,
    /// The server's own name of a URL elicitation.
    pub elicitation_id: Option<Arc<str>>,
    /// The server's own id of the task that asks.
    pub related_task: Option<Arc<str>>,
}

/// True for the requests that servers make of clients.
#[must_use]
pub const fn is_question(method: Method) -> bool {
    matches!(
        method,
        Method::SamplingCreateMessage | Method::ElicitationCreate | Method::RootsList
    )
}

/// Reports if a call of this method may ask its client (2026-07-28, basic/patterns/mrtr;
/// 2025-11-25, tasks).
#[must_use]
pub const fn may_have_questions(method: Method) -> bool {
    matches!(
        method,
        Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead | Method::TasksResult
    )
}

/// Reports if a server with sessions may ask its client in the middle of this call. In a method
/// that no revision knows it may do so only if the client is asked by requests: a client that is
/// asked by rounds has no rounds for such methods.
#[must_use]
pub fn may_ask_in(call: &Call) -> bool {
    may_have_questions(call.method)
        || call.method == Method::Extension && call.input_mode == InputMode::Requests
}

/// The part of a class that a revision has a form for.
#[must_use]
pub fn cut_to_revision(revision: Revision, class: CapabilityClass) -> CapabilityClass {
    use CapabilityClass as C;
    let mut has = C::SAMPLING.with(C::ROOTS).with(C::TASKS).with(C::UI);
    if revision.has_elicitation() {
        has = has.with(C::ELICITATION_FORM);
    }
    if revision.has_elicitation_modes() {
        has = has.with(C::ELICITATION_URL);
    }
    if revision.has_sampling_tools() {
        has = has.with(C::SAMPLING_TOOLS);
    }
    class.cut(has)
}

/// Checks that a client of this class can be asked this.
///
/// # Errors
/// [`QuestionRefusal`].
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "three of the 38 methods are questions"
)]
pub fn may_ask(
    class: CapabilityClass,
    method: Method,
    params: &[u8],
) -> Result<(), QuestionRefusal> {
    use CapabilityClass as C;
    let member = |name: &str| {
        scan::find(params, name)
            .map(|range| &params[range])
            .filter(|value| *value != b"null")
    };
    let (any, exact) = match method {
        Method::SamplingCreateMessage => {
            let tools = member("tools").is_some() || member("toolChoice").is_some();
            (
                class.has(C::SAMPLING) || class.has(C::SAMPLING_TOOLS),
                !tools || class.has(C::SAMPLING_TOOLS),
            )
        }
        Method::ElicitationCreate => {
            let mode = member("mode").and_then(scan::string);
            let exact = match mode.as_deref() {
                None | Some("form") => class.has(C::ELICITATION_FORM),
                Some("url") => class.has(C::ELICITATION_URL),
                Some(_) => false,
            };
            (
                class.has(C::ELICITATION_FORM) || class.has(C::ELICITATION_URL),
                exact,
            )
        }
        Method::RootsList => (class.has(C::ROOTS), true),
        _ => (false, false),
    };
    match (any, exact) {
        (true, true)
            if is_by_url(params, method)
                && !member("url")
                    .and_then(scan::string)
                    .is_some_and(|url| is_safe(&url)) =>
        {
            Err(QuestionRefusal::UnsafeUrl)
        }
        (true, true) => Ok(()),
        (true, false) => Err(QuestionRefusal::UndeclaredMode),
        (false, _) => Err(QuestionRefusal::Undeclared),
    }
}

/// Lifts a legacy server's request, if it is a question for clients.
#[must_use]
pub fn lift(request: &Request) -> Option<LiftedQuestion> {
    let method = request
        .method
        .known()
        .filter(|method| is_question(*method))?;
    let params = request
        .params
        .clone()
        .unwrap_or_else(|| Bytes::from_static(b"{}"));
    let about = scan::find(&params, "_meta").map(|range| params.slice(range));
    let token = about
        .and_then(|about| scan::find(&about, meta::PROGRESS_TOKEN).map(|range| about.slice(range)));
    let elicitation = scan::find(&params, "elicitationId")
        .and_then(|range| scan::string(&params[range]).map(Arc::from));
    let edits = ObjectEdits::new()
        .remove("task")
        .remove("elicitationId")
        .meta(MetaEdits::new().drop_owned());
    // The server's messages are checked when they are read.
    let bare = edits.apply_or_keep(&params);
    Some(LiftedQuestion {
        id: request.id.clone(),
        question: UpstreamQuestion {
            method,
            params: bare,
        },
        progress_token: token,
        elicitation_id: elicitation,
        related_task: related_task::find(&params).map(Arc::from),
    })
}

/// The parameters of a question to a legacy client.
#[derive(Debug)]
pub struct QuestionLowering<'a> {
    /// The client's revision.
    pub revision: Revision,
    /// The request's id, unique in the client's session.
    pub id: &'a RequestId,
    /// True if progress is wanted; the id is the token.
    pub wants_progress: bool,
    /// weir's name of a URL elicitation.
    pub elicitation_id: &'a str,
}

/// The request that asks a legacy client.
///
/// # Errors
/// [`QuestionRefusal::NotInRevision`] if the client's revision has no form for it.
pub fn lower(
    question: &UpstreamQuestion,
    to: &QuestionLowering<'_>,
) -> Result<Bytes, QuestionRefusal> {
    let params = revision_forms::lower_params(to.revision, question)?;
    let mut edits = ObjectEdits::new();
    if is_by_url(&params, question.method) {
        edits = edits.set("elicitationId", crate::lower::json(to.elicitation_id));
    }
    if to.wants_progress {
        let token = Bytes::copy_from_slice(to.id.as_json());
        edits = edits.meta(MetaEdits::new().add(meta::PROGRESS_TOKEN, token));
    }
    let params = edits
        .apply(&params)
        .map_err(|_| QuestionRefusal::NotInRevision)?
        .0;
    Ok(write::request(
        to.id,
        question.method.as_str(),
        Some(&params),
    ))
}

/// True for a question that sends the user to a URL.
#[must_use]
pub fn is_by_url(params: &[u8], method: Method) -> bool {
    let mode = scan::find(params, "mode").and_then(|range| scan::string(&params[range]));
    method == Method::ElicitationCreate && mode.as_deref() == Some("url")
}

/// The URL of a question that sends the user there.
#[must_use]
pub fn elicited_url(params: &[u8], method: Method) -> Option<Cow<'_, str>> {
    let url = scan::find(params, "url").filter(|_| is_by_url(params, method))?;
    scan::string(&params[url])
}

/// True for an answer by which the user agrees to an elicitation.
#[must_use]
pub fn is_accepted(answer: &[u8]) -> bool {
    let action = scan::find(answer, "action").and_then(|range| scan::string(&answer[range]));
    action.as_deref() == Some("accept")
}

/// True for a URL that a user may be sent to: over TLS, or on their own machine. It is a URI of
/// visible characters (RFC 3986), because a client without such questions shows it as text, where
/// other characters could hide.
fn is_safe(url: &str) -> bool {
    if !url.bytes().all(|byte| byte.is_ascii_graphic()) {
        return false;
    }
    let Some((scheme, rest)) = url.split_once("://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let name = host.rsplit_once(':').map_or(
        host,
        |(name, port)| if port.ends_with(']') { host } else { name },
    );
    let is_own = name.eq_ignore_ascii_case("localhost")
        || name
            .trim_matches(['[', ']'])
            .parse::<core::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback());
    scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("http") && is_own
}

/// A legacy server's question answered: the response message. The result names the server's own
/// task that asked, if it is one; a JSON-RPC error has no place for it. A result of another shape
/// than the question's becomes an error: the server would take it as weir's own message.
#[must_use]
pub fn response(
    revision: Revision,
    id: &RequestId,
    method: Method,
    task: Option<&str>,
    outcome: Result<Bytes, Bytes>,
) -> Bytes {
    match outcome {
        Ok(result) if !is_answer_shape(method, &result) => {
            write::error_response(Some(id), false, &bad_answer_error())
        }
        Ok(result) => {
            let result = revision_forms::lower_answer(revision, method, &result);
            let related = task.map(|task| related_task::set(&result, task));
            write::response(id, related.as_ref().unwrap_or(&result))
        }
        Err(error) => {
            let unreadable = |_| {
                ErrorObject::new(
                    error_code::INTERNAL_ERROR,
                    "The client answered with a malformed error",
                )
            };
            write::error_response(
                Some(id),
                false,
                &ErrorObject::parse(&error).unwrap_or_else(unreadable),
            )
        }
    }
}

/// Makes the failure of a client's answer that does not have the shape of its question's result.
pub(crate) fn bad_answer_failure(key: &str) -> Failure {
    Failure::invalid_params(format!(
        "`inputResponses.{key}` is no answer to what was asked"
    ))
}

/// The error response to a question that will get no answer any more.
#[must_use]
pub fn no_answer_response(id: &RequestId) -> Bytes {
    let error = ErrorObject::new(error_code::INTERNAL_ERROR, "The client did not answer");
    write::error_response(Some(id), false, &error)
}

/// `notifications/progress` of an answer, with the token of the server that asked, and the task of
/// the server that did.
#[must_use]
pub fn progress_with_token(params: &Bytes, token: &Bytes, task: Option<&str>) -> Option<Bytes> {
    let params = progress_params(params, token)?;
    let related = task.map(|task| related_task::set(&params, task));
    Some(progress_notification(related.as_ref().unwrap_or(&params)))
}

/// The `params` of `notifications/progress` with another token.
#[must_use]
pub fn progress_params(params: &Bytes, token: &Bytes) -> Option<Bytes> {
    let edits = ObjectEdits::new()
        .set("progressToken", token.clone())
        .meta(MetaEdits::new().drop_owned());
    edits.apply(params).ok().map(|(params, _)| params)
}

/// `notifications/progress` with these `params`.
#[must_use]
pub fn progress_notification(params: &Bytes) -> Bytes {
    write::notification(Method::Progress.as_str(), Some(params))
}

/// `notifications/cancelled` about a question that was put to a legacy client.
#[must_use]
pub fn question_cancelled(id: &RequestId) -> Bytes {
    let mut params = BytesMut::with_capacity(96);
    ObjectWriter::new(&mut params)
        .raw("requestId", id.as_json())
        .string("reason", "The server no longer waits for this")
        .end();
    write::notification(Method::Cancelled.as_str(), Some(&params))
}

/// A URL that a server wants visited before it serves a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlElicitation {
    /// The reason, for the user.
    pub message: String,
    /// The URL as the server wrote it.
    pub url: String,
    /// The server's own name for it, used in the later notification of completion.
    pub id: Option<String>,
}

/// The URLs in the `data` of `-32042`. At most 16. Malformed entries and URLs that a user may not
/// be sent to are left out.
#[must_use]
pub fn url_elicitations(data: &[u8]) -> Vec<UrlElicitation> {
    let list = scan::find(data, "elicitations")
        .map(|range| &data[range])
        .unwrap_or_default();
    let text = |of: &[u8], name: &str| {
        scan::find(of, name).and_then(|range| scan::string(&of[range]).map(String::from))
    };
    let visit = |at: std::ops::Range<usize>| {
        let one = &list[at];
        let url = text(one, "url").filter(|url| is_safe(url))?;
        Some(UrlElicitation {
            message: text(one, "message").unwrap_or_default(),
            url,
            id: text(one, "elicitationId"),
        })
    };
    if list.starts_with(b"[") {
        scan::elements(list).filter_map(visit).take(16).collect()
    } else {
        Vec::new()
    }
}

/// The visits that a failure requires; `None` for any other failure.
#[must_use]
pub fn required_visits(failure: &Failure) -> Option<(&UpstreamError, Vec<UrlElicitation>)> {
    let FailureKind::Upstream(error) = failure.kind() else {
        return None;
    };
    let data = error.data.as_deref().unwrap_or_default();
    (error.code == error_code::URL_ELICITATION_REQUIRED).then(|| (error, url_elicitations(data)))
}

/// The text of a failure that requires visits, if it names none that a user may make.
#[must_use]
pub fn no_visit_text(error: &UpstreamError) -> &'static str {
    let data = error.data.as_deref().unwrap_or_default();
    let list = scan::find(data, "elicitations").map_or(&[][..], |range| &data[range]);
    let has_url = |at: std::ops::Range<usize>| scan::find(&list[at], "url").is_some();
    if list.starts_with(b"[") && scan::elements(list).any(has_url) {
        "The server wants a URL visited first, which weir refuses to pass on: it has to begin with https, or with http on \
         the user's own machine"
    } else {
        "The server wants a URL visited first, and does not say which"
    }
}

/// The text that asks for visits where no question can: the server's `message`, the visits, and the
/// advice to call again.
#[must_use]
pub fn visits_as_text(message: &str, visits: &[UrlElicitation]) -> String {
    let mut text = message.to_owned();
    for visit in visits {
        text.push_str(&format!("\n{}: {}", visit.message, visit.url));
    }
    text.push_str("\nOpen this in a browser, and then call again.");
    text
}

/// The `data` of `-32042` for a client of 2025-11-25, under the names that `name` gives (schema,
/// `URLElicitationRequiredError`).
#[must_use]
pub fn url_elicitations_data(
    visits: &[UrlElicitation],
    name: impl Fn(&UrlElicitation) -> String,
) -> Bytes {
    let mut out = BytesMut::with_capacity(256);
    let mut data = ObjectWriter::new(&mut out);
    data.with("elicitations", |out| {
        out.put_u8(b'[');
        for (nth, visit) in visits.iter().enumerate() {
            if nth > 0 {
                out.put_u8(b',');
            }
            let mut one = ObjectWriter::new(out);
            one.string("mode", "url")
                .string("message", &visit.message)
                .string("url", &visit.url);
            one.string("elicitationId", &name(visit)).end();
        }
        out.put_u8(b']');
    });
    data.end();
    out.freeze()
}

/// The key of the question about the visit at this index.
#[must_use]
pub fn visit_key(index: usize) -> String {
    format!("visit-{}", index + 1)
}

/// An `input_required` result that asks for visits.
#[must_use]
pub fn url_elicitation_result(visits: &[UrlElicitation]) -> Bytes {
    let mut out = BytesMut::with_capacity(256);
    let mut result = ObjectWriter::new(&mut out);
    result.string("resultType", "input_required");
    result.with("inputRequests", |out| {
        let mut requests = ObjectWriter::new(out);
        for (nth, visit) in visits.iter().enumerate() {
            requests.with(&visit_key(nth), |out| {
                let mut request = ObjectWriter::new(out);
                request.string("method", Method::ElicitationCreate.as_str());
                request.with("params", |out| {
                    let mut params = ObjectWriter::new(out);
                    params
                        .string("mode", "url")
                        .string("message", &visit.message)
                        .string("url", &visit.url)
                        .end();
                });
                request.end();
            });
        }
        requests.end();
    });
    result.end();
    out.freeze()
}

/// A legacy client's answer in the form of the newest revision. There, results of questions have
/// neither `_meta` nor a type.
///
/// # Errors
/// The client's error, which a result of another shape than the question's counts as.
pub fn lift_answer(method: Method, result: &Bytes) -> Result<Bytes, ErrorObject> {
    if !is_answer_shape(method, result) {
        return Err(bad_answer_error());
    }
    let edits = ObjectEdits::new().remove("_meta").remove("resultType");
    Ok(edits.apply_or_keep(result))
}

/// The error of a client that answers a question with a result of another shape.
fn bad_answer_error() -> ErrorObject {
    let text = "the client's answer is not a result of the question";
    ErrorObject::new(error_code::INVALID_PARAMS, text)
}

#[cfg(test)]
mod tests;
