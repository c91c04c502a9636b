//! Requests of sessions that go on in the process after this one, once they move there.

use http::HeaderMap;
use weir_listen::OtherProcess;
use weir_wire::method::Method;

use crate::failure::{FailureCause, RequestFailure};
use crate::request::request_context::HttpRequestContext;
use crate::request::session_lookup::names_session;

/// Checks that this process has the state of the session that the head of a message names, if it
/// names one. The process after this one has the stream of a moved session with its log level, the
/// subscriptions, the sessions at servers and the tasks in them. A session of HTTP+SSE stays here
/// with its connection.
///
/// # Errors
/// The message is to be forwarded.
pub fn check_session_is_here(
    context: &HttpRequestContext,
    headers: &HeaderMap,
    method: Option<Method>,
) -> Result<(), RequestFailure> {
    let is_here = context.is_over_http_sse || !context.shared().sessions.has_moved();
    if is_here || !method.is_some_and(needs_whole_session) || !names_session(headers) {
        return Ok(());
    }
    match context.other_process(OtherProcess::Successor) {
        Some(_) => Err(FailureCause::InProcess(OtherProcess::Successor).into()),
        None => Ok(()),
    }
}

/// True for messages that need more of a session than its record.
const fn needs_whole_session(method: Method) -> bool {
    matches!(
        method,
        Method::Initialized
            | Method::RootsListChanged
            | Method::ResourcesSubscribe
            | Method::ResourcesUnsubscribe
            | Method::LoggingSetLevel
            | Method::TasksGet
            | Method::TasksList
            | Method::TasksResult
            | Method::TasksCancel
    )
}
