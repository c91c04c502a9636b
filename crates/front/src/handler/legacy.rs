//! Legacy requests (2024-11-05 to 2025-11-25).

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use weir_core::upstream::ClientSessionChange;
use weir_core::{Authenticated, Call, CapabilityClass, Failure, FailureKind};
use weir_era::session::LegacySessionRecord;
use weir_era::{lift, server_questions};
use weir_layers::failure;
use weir_layers::failure::RequestResult;
use weir_layers::failure::failure_data::FailureContext;
use weir_layers::failure::response_table::log_and_render;
use weir_layers::http::answer::RenderedMessage;
use weir_layers::http::body::ResponseBody;
use weir_layers::http::message_parts::MessageParts;
use weir_layers::request::forwarded_tasks::task_holders;
use weir_layers::request::moved_sessions::check_session_is_here;
use weir_layers::request::outcome::RequestOutcome;
use weir_layers::request::request_context::HttpRequestContext;
use weir_layers::request::request_head::RequestHead;
use weir_layers::request::session_lookup::{NoSession, load_session, sessionless};
use weir_router::TaskHolders;
use weir_session::LoadedSession;
use weir_wire::message::Request;
use weir_wire::method::Method;
use weir_wire::params::Params;
use weir_wire::{RequestId, Revision};

use crate::handler::legacy_session;
use crate::method::canonical_call::canonical_call;
use crate::method::extensions;
use crate::method::lists::{self, ListRequest};
use crate::method::offered_methods::{
    check_offered_or_ask, check_task_support, is_call, list_of_method,
};
use crate::method::subscriptions;
use crate::method::tasks::{self, LegacyTaskRequest};
use crate::reply::client_asker::ClientAsker;
use crate::reply::encode;
use crate::reply::encode::response_context::{ResponseContext, UrlElicitationForm};
use crate::reply::running_call::{OwnedCall, RunningCall, SessionOwner};

/// Serves a request without modern `_meta`.
pub(crate) async fn serve(
    head: RequestHead<'_>,
    request: Request,
    params: Params,
) -> RequestResult {
    let (context, sender, headers) = (head.context, head.sender, head.headers);
    let method = request.method.known();
    if method == Some(Method::Initialize) {
        return Box::pin(legacy_session::initialize(
            context,
            sender,
            &request.id,
            &params,
        ))
        .await;
    }
    check_session_is_here(context, headers, method)?;
    let loaded = load_session(head).await.or_else(|none| {
        if matches!(none, NoSession::Missing) && method != Some(Method::Ping) {
            sessionless(head)
        } else {
            Err(none)
        }
    });
    let session = match loaded {
        Ok(session) => session,
        // A ping is answered at any time, also before `initialize`.
        Err(NoSession::Missing) if method == Some(Method::Ping) => {
            return Ok(failure::ok(weir_wire::write::response(&request.id, b"{}")));
        }
        Err(none) => return Err(none.failure(Some(&request.id))),
    };
    let request_context = SessionRequestContext {
        context,
        sender,
        session: &session,
        headers: Some(headers),
    };
    match serve_request(request_context, AnswerTarget::OwnResponse, request, params).await {
        SessionOutcome::Message(message) => Ok(message.into_answer()),
        SessionOutcome::List(response) => Ok(failure::ok(ResponseBody::new(response))),
        SessionOutcome::Call(response, owned) => encode::encode_reply(*response, owned).await,
    }
}

/// The outcome of one request of a session.
pub(super) enum SessionOutcome {
    /// A complete message.
    Message(RenderedMessage),
    /// A page of a list.
    List(MessageParts),
    /// A call that runs.
    Call(Box<ResponseContext>, OwnedCall),
}

/// The destination of a call's answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerTarget {
    /// The response to this request alone: it may become a stream, and the client can be asked on
    /// it.
    OwnResponse,
    /// A batch, which is answered as a whole.
    Batch,
}

/// The context of a request of a session.
#[derive(Clone, Copy)]
pub(super) struct SessionRequestContext<'a> {
    pub(super) context: &'a HttpRequestContext,
    pub(super) sender: &'a Authenticated<()>,
    pub(super) session: &'a LoadedSession,
    /// The headers of the request; absent in a batch.
    pub(super) headers: Option<&'a HeaderMap>,
}

impl SessionRequestContext<'_> {
    /// The other processes that may have the task of a request.
    fn task_holders(&self) -> Option<Arc<dyn TaskHolders>> {
        task_holders(self.context, self.headers?)
    }

    /// Renders the failure of the request with this id.
    pub(super) fn render_failure(
        &self,
        id: &RequestId,
        failure: &Failure,
        tool_call: bool,
    ) -> RenderedMessage {
        let failed = FailureContext {
            revision: self.session.record.revision,
            tool_call,
            request: self.context.name(),
        };
        log_and_render(failure, failed).rendered_message(id)
    }
}

/// Serves a request of a session, of a batch too.
pub(super) async fn serve_request(
    request_context: SessionRequestContext<'_>,
    target: AnswerTarget,
    request: Request,
    params: Params,
) -> SessionOutcome {
    let SessionRequestContext {
        context,
        sender,
        session,
        ..
    } = request_context;
    let revision = session.record.revision;
    let done = |result: &[u8]| {
        let response = weir_wire::write::response(&request.id, result);
        SessionOutcome::Message(failure::ok_message(response, RequestOutcome::Ok))
    };
    let fail = |failure: &Failure| {
        SessionOutcome::Message(request_context.render_failure(&request.id, failure, false))
    };
    let done_or_failed =
        |ended: Result<(), Failure>| ended.map_or_else(|why| fail(&why), |()| done(b"{}"));
    match request.method.known() {
        Some(Method::Ping) => done(b"{}"),
        Some(Method::LoggingSetLevel) => {
            done_or_failed(Box::pin(set_level(context, session, &params)).await)
        }
        Some(method @ (Method::ResourcesSubscribe | Method::ResourcesUnsubscribe)) => {
            let serving =
                subscriptions::serve_session_request(context, sender, session, method, params);
            done_or_failed(Box::pin(serving).await)
        }
        Some(method @ (Method::TasksGet | Method::TasksCancel | Method::TasksList))
            if revision.has_task_param() =>
        {
            let about = LegacyTaskRequest {
                session,
                method,
                holders: request_context.task_holders(),
            };
            match Box::pin(tasks::serve_legacy(context, sender, about, params)).await {
                Ok(result) => done(&result),
                Err(failure) => fail(&failure),
            }
        }
        Some(method) if waits_for_upstream(revision, method) => {
            let own = session.is_stored.then_some(session.key);
            let mut checked =
                check_offered_or_ask(context, sender, own, method, session.class()).await;
            if checked.is_ok() && tasks::asks_for_task(revision, method, &params) {
                checked = Box::pin(check_task_support(context, session.class(), &params)).await;
            }
            if let Err(failure) = checked {
                return fail(&failure);
            }
            let method = CallMethod::Known(method);
            call(request_context, &request.id, target, method, params)
        }
        Some(method) if list_of_method(method).is_some() => {
            let list = ListRequest {
                revision,
                method,
                class: session.class(),
                session: session.is_stored.then_some(session.key),
                params: &params,
            };
            match Box::pin(lists::list_page(context, sender, list)).await {
                Ok(result) => SessionOutcome::List(result.response(&request.id)),
                Err(failure) => fail(&failure),
            }
        }
        method => match extensions::extension_method(context, &request.method)
            .filter(|_| method.is_none())
        {
            Some(name) => {
                let method = CallMethod::Extension(name);
                call(request_context, &request.id, target, method, params)
            }
            None => fail(&Failure::new(
                FailureKind::MethodNotFound,
                "This method is not served",
            )),
        },
    }
}

/// The method of a call.
enum CallMethod {
    /// A method of the protocol.
    Known(Method),
    /// A method that no revision defines.
    Extension(Arc<str>),
}

/// Returns true if the answer to a request waits for an upstream to finish.
fn waits_for_upstream(revision: Revision, method: Method) -> bool {
    is_call(method) || (method == Method::TasksResult && revision.has_task_param())
}

async fn set_level(
    context: &HttpRequestContext,
    session: &LoadedSession,
    params: &Params,
) -> Result<(), Failure> {
    let level = params
        .level()
        .map_err(|error| Failure::invalid_params(error.to_string()))?;
    let level = level.ok_or_else(|| Failure::invalid_params("`level` is missing"))?;
    if !session.is_stored {
        return Err(Failure::invalid_params(
            "A level is set for a session: send `initialize`, and its session id with requests",
        ));
    }
    let record = LegacySessionRecord {
        level: Some(level),
        ..session.record
    };
    if context
        .shared()
        .sessions
        .store_changed(session, &record, &context.limits().session)
        .await
    {
        context
            .ports()
            .notifier
            .set_log_messages(&session.key, record.log_messages());
        context.shared().router.notify_sessions(
            &HashSet::from([session.key]),
            ClientSessionChange::LogLevel(level),
        );
        return Ok(());
    }
    Err(Failure::new(
        FailureKind::Busy,
        "The session changed at the same time: set the level again",
    ))
}

fn call(
    request_context: SessionRequestContext<'_>,
    id: &RequestId,
    target: AnswerTarget,
    method: CallMethod,
    params: Params,
) -> SessionOutcome {
    let SessionRequestContext {
        context,
        sender,
        session,
        ..
    } = request_context;
    let revision = session.record.revision;
    let (method, extension) = match method {
        CallMethod::Known(method) => (method, None),
        CallMethod::Extension(name) => (Method::Extension, Some(name)),
    };
    // A client cannot be asked within a batch.
    let class = if target == AnswerTarget::OwnResponse {
        session.class()
    } else {
        CapabilityClass::SESSIONS
    };
    let lifted = match lift::legacy(params, Some(&session.record), class) {
        Ok(lifted) => lifted,
        Err(error) => {
            let failure = Failure::invalid_params(error.to_string());
            let is_tool_call = method == Method::ToolsCall;
            return SessionOutcome::Message(request_context.render_failure(
                id,
                &failure,
                is_tool_call,
            ));
        }
    };
    let task_mode = tasks::task_mode_of_legacy(context, revision, class, method, &lifted);
    let task = tasks::task_of_result_request(method, &lifted.params);
    let response = response_context(
        request_context,
        id,
        method,
        class,
        lifted.progress_token.clone(),
    )
    .about_task(task, task_mode);
    let call = Arc::new(tasks::with_task_mode(
        task_mode,
        Call {
            session: session.is_stored.then_some(session.key),
            extension,
            ..canonical_call(context, method, lifted)
        },
    ));
    let may_ask = server_questions::may_ask_in(&call) && target == AnswerTarget::OwnResponse;
    let asker =
        may_ask.then(|| ClientAsker::new(context, sender, session.key, revision, call.clone()));
    let (router, call) = (context.shared().router.clone(), sender.for_payload(call));
    let holders = if method == Method::TasksResult {
        request_context.task_holders()
    } else {
        None
    };
    let running = RunningCall::new(Box::pin(async move {
        if method == Method::TasksResult {
            router.tasks().with_holders(holders).task_result(call)
        } else {
            router.call(call).await
        }
    }))
    .with_asker(asker);
    let (cancelled, in_flight) =
        context
            .shared()
            .sessions
            .register_call(session.key, id.clone(), &context.limits().session);
    let owner = SessionOwner::new(context.shared().clone(), cancelled, in_flight)
        .over_http_sse(context.is_over_http_sse);
    SessionOutcome::Call(Box::new(response), OwnedCall::by_session(running, owner))
}

/// Makes the context of the response to a call of a client with this class and progress token.
fn response_context(
    SessionRequestContext {
        context,
        sender,
        session,
        ..
    }: SessionRequestContext<'_>,
    id: &RequestId,
    method: Method,
    class: CapabilityClass,
    token: Option<Bytes>,
) -> ResponseContext {
    let visits_urls = session.is_stored && class.has(CapabilityClass::ELICITATION_URL);
    ResponseContext::new(context, sender, id.clone(), session.record.revision, method)
        .with_progress_token(token)
        // The connection of an HTTP+SSE client keeps the session in use.
        .in_session(Some(session).filter(|session| session.is_stored && !context.is_over_http_sse))
        .with_url_elicitation(if visits_urls {
            UrlElicitationForm::Error(session.key)
        } else {
            UrlElicitationForm::Text
        })
}
