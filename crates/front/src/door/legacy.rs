//! Legacy requests (2024-11-05 to 2025-11-25): sessions and their messages.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::future::join_all;
use http::{HeaderMap, HeaderValue};
use weir_core::upstream::ClientSessionChange;
use weir_core::{Authenticated, Call, CapabilityClass, Failure, FailureKind};
use weir_era::capabilities::class_of;
use weir_era::session::{LegacySessionRecord, negotiate};
use weir_era::{lift, server_questions};
use weir_layers::failure;
use weir_layers::failure::failure_data::FailureContext;
use weir_layers::failure::message_refusal::MessageRefusal;
use weir_layers::failure::request_refusal::RequestRefusal;
use weir_layers::failure::response_table::log_and_render;
use weir_layers::failure::{RequestFailure, RequestResult};
use weir_layers::http::answer::{self, RenderedMessage, with_labels};
use weir_layers::http::body::ResponseBody;
use weir_layers::request::outcome::RequestOutcome;
use weir_layers::request::request_context::HttpRequestContext;
use weir_layers::request::request_tracing::{LEGACY_REQUEST, begin_span, run_item_in_span};
use weir_session::{ClientRequest, LoadedSession};
use weir_wire::message::{Notification, Request};
use weir_wire::method::{EXTENSION_METHOD, Method};
use weir_wire::params::Params;
use weir_wire::{JsonLimits as ScanLimits, Message, RequestId, Revision, scan};

use crate::door::client_response::deliver_response;
use crate::method::canonical_call::canonical_call;
use crate::method::extensions;
use crate::method::lists::{self, ListRequest, ListResponse};
use crate::method::offered_methods::{
    check_offered_or_ask, check_task_support, is_call, list_of_method,
};
use crate::method::subscriptions;
use crate::method::tasks;
use crate::reply::client_asker::ClientAsker;
use crate::reply::encode;
use crate::reply::encode::batch_budget::BatchBudget;
use crate::reply::encode::response_context::{ResponseContext, UrlElicitationForm};
use crate::reply::running_call::{OwnedCall, RunningCall, SessionOwner};
use crate::session::session_lookup::{NoSession, load_session, sessionless};

/// Serves a request without modern `_meta`.
pub(crate) async fn serve(
    context: &HttpRequestContext,
    known: &Authenticated<()>,
    headers: &HeaderMap,
    request: Request,
    params: Params,
) -> RequestResult {
    let label = request.method.known().map_or("other", Method::as_str);
    let answered = serve_unlabelled(context, known, headers, request, params).await;
    failure::with_labels(answered, label, "legacy")
}

async fn serve_unlabelled(
    context: &HttpRequestContext,
    known: &Authenticated<()>,
    headers: &HeaderMap,
    request: Request,
    params: Params,
) -> RequestResult {
    let method = request.method.known();
    if method == Some(Method::Initialize) {
        return Box::pin(initialize(context, known, &request.id, &params)).await;
    }
    let loaded = load_session(context, known, headers).await.or_else(|none| {
        if matches!(none, NoSession::Missing) && method != Some(Method::Ping) {
            sessionless(context, known, headers)
        } else {
            Err(none)
        }
    });
    let opened = match loaded {
        Ok(opened) => opened,
        // A ping is answered at any time, also before `initialize`.
        Err(NoSession::Missing) if method == Some(Method::Ping) => {
            return Ok(failure::ok(weir_wire::write::response(&request.id, b"{}")));
        }
        Err(none) => return Err(none.failure(Some(&request.id))),
    };
    let session = SessionRequestContext {
        context,
        known,
        opened: &opened,
    };
    match serve_request(session, AnswerTarget::OwnResponse, request, params).await {
        SessionOutcome::Message(said) => Ok(said.into_answer()),
        SessionOutcome::List(response) => Ok(failure::ok(ResponseBody::new(response))),
        SessionOutcome::Call(asked, owned) => encode::encode_reply(*asked, owned).await,
    }
}

async fn initialize(
    context: &HttpRequestContext,
    known: &Authenticated<()>,
    id: &RequestId,
    params: &Params,
) -> RequestResult {
    let bad = |text: String| RequestFailure::message(Some(id), MessageRefusal::InvalidParams(text));
    let wrong = |error: weir_wire::params::ParamsError| bad(error.to_string());
    let proposed = params.protocol_version().map_err(wrong)?;
    let proposed = proposed.ok_or_else(|| bad("`protocolVersion` is missing".to_owned()))?;
    let class = params.capabilities().map_err(wrong)?;
    let class = class.as_deref().map(class_of).unwrap_or_default();
    let revision = negotiate(Some(&proposed));
    let session = LegacySessionRecord {
        revision,
        class,
        level: None,
        initialized: false,
        began: context.shared.ports.clock.wall(),
    };
    let peer = context.client_address;
    let opened = context
        .shared
        .sessions
        .open(known.principal(), peer, &session, &context.limits().session)
        .await;
    // Refused by status alone: a client that only probes could read a JSON-RPC body as a server
    // that is not weir.
    let opened = opened.map_err(|failure| {
        if matches!(failure.kind(), FailureKind::Limit) {
            RequestRefusal::TooManySessions
        } else {
            RequestRefusal::NoRoomForSession
        }
    })?;
    let info = params.client_info().ok().flatten();
    context.shared.known_clients.record(&ClientRequest {
        principal: known.principal(),
        endpoint: &context.endpoint,
        revision,
        info: info.as_ref(),
        session: Some(opened.key),
        time: session.began,
    });
    let result =
        lists::initialize_result(context, revision, !known.principal().is_anonymous()).await;
    let mut answer = failure::ok(weir_wire::write::response(id, &result));
    if let Ok(value) = HeaderValue::from_str(&opened.text) {
        answer.headers_mut().insert("mcp-session-id", value);
    }
    Ok(answer)
}

/// The outcome of one request of a session.
enum SessionOutcome {
    /// A complete message.
    Message(RenderedMessage),
    /// A page of a list.
    List(ListResponse),
    /// A call that runs.
    Call(Box<ResponseContext>, OwnedCall),
}

/// The destination of a call's answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AnswerTarget {
    /// The response to this request alone: it may become a stream, and the client can be asked on
    /// it.
    OwnResponse,
    /// A batch, which is answered as a whole.
    Batch,
}

/// The context of a request of a session.
#[derive(Clone, Copy)]
struct SessionRequestContext<'a> {
    context: &'a HttpRequestContext,
    known: &'a Authenticated<()>,
    opened: &'a LoadedSession,
}

async fn serve_request(
    session: SessionRequestContext<'_>,
    stream: AnswerTarget,
    request: Request,
    params: Params,
) -> SessionOutcome {
    let SessionRequestContext {
        context,
        known,
        opened,
    } = session;
    let revision = opened.session.revision;
    let told = FailureContext {
        revision,
        tool_call: false,
        request: &context.name,
    };
    let done = |result: &[u8]| {
        let response = weir_wire::write::response(&request.id, result);
        SessionOutcome::Message(failure::ok_message(response, RequestOutcome::Ok))
    };
    let fail = |failure: &Failure| {
        SessionOutcome::Message(log_and_render(failure, told).rendered_message(&request.id))
    };
    match request.method.known() {
        Some(Method::Ping) => done(b"{}"),
        Some(Method::LoggingSetLevel) => {
            match Box::pin(set_level(context, opened, &params)).await {
                Ok(()) => done(b"{}"),
                Err(failure) => fail(&failure),
            }
        }
        Some(method @ (Method::ResourcesSubscribe | Method::ResourcesUnsubscribe)) => {
            match Box::pin(subscriptions::serve_session_request(
                context, known, opened, method, params,
            ))
            .await
            {
                Ok(()) => done(b"{}"),
                Err(failure) => fail(&failure),
            }
        }
        Some(method @ (Method::TasksGet | Method::TasksCancel | Method::TasksList))
            if revision.has_task_param() =>
        {
            match Box::pin(tasks::serve_legacy(context, known, opened, method, params)).await {
                Ok(result) => done(&result),
                Err(failure) => fail(&failure),
            }
        }
        Some(method) if waits_for_upstream(revision, method) => {
            let mut checked = check_offered_or_ask(context, method, opened.class()).await;
            if checked.is_ok() && tasks::asks_for_task(revision, method, &params) {
                checked = Box::pin(check_task_support(context, opened.class(), &params)).await;
            }
            match checked {
                Ok(()) => {
                    let method = CallMethod::Known(method);
                    call(session, &request.id, stream, method, params)
                }
                Err(failure) => fail(&failure),
            }
        }
        Some(method) if list_of_method(method).is_some() => {
            let asked = ListRequest {
                revision,
                method,
                class: opened.class(),
                session: opened.is_stored.then_some(opened.key),
                params: &params,
            };
            match Box::pin(lists::list_page(context, known, asked)).await {
                Ok(result) => SessionOutcome::List(result.response(&request.id)),
                Err(failure) => fail(&failure),
            }
        }
        method => match extensions::extension_method(context, &request.method)
            .filter(|_| method.is_none())
        {
            Some(name) => {
                let method = CallMethod::Extension(name);
                call(session, &request.id, stream, method, params)
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
    opened: &LoadedSession,
    params: &Params,
) -> Result<(), Failure> {
    let level = params
        .level()
        .map_err(|error| Failure::invalid_params(error.to_string()))?;
    let level = level.ok_or_else(|| Failure::invalid_params("`level` is missing"))?;
    if !opened.is_stored {
        return Err(Failure::invalid_params(
            "A level is set for a session: send `initialize`, and its session id with requests",
        ));
    }
    let session = LegacySessionRecord {
        level: Some(level),
        ..opened.session
    };
    if context
        .shared
        .sessions
        .store_changed(opened, &session, &context.limits().session)
        .await
    {
        return Ok(());
    }
    Err(Failure::new(
        FailureKind::Busy,
        "The session changed at the same time: set the level again",
    ))
}

fn call(
    SessionRequestContext {
        context,
        known,
        opened,
    }: SessionRequestContext<'_>,
    id: &RequestId,
    stream: AnswerTarget,
    method: CallMethod,
    params: Params,
) -> SessionOutcome {
    let revision = opened.session.revision;
    let (method, extension) = match method {
        CallMethod::Known(method) => (method, None),
        CallMethod::Extension(name) => (EXTENSION_METHOD, Some(name)),
    };
    let told = FailureContext {
        revision,
        tool_call: method == Method::ToolsCall,
        request: &context.name,
    };
    let fail = |failure: &Failure| {
        SessionOutcome::Message(log_and_render(failure, told).rendered_message(id))
    };
    // A client cannot be asked within a batch.
    let class = if stream == AnswerTarget::OwnResponse {
        opened.class()
    } else {
        CapabilityClass::SESSIONS
    };
    let lifted = match lift::legacy(params, Some(&opened.session), class) {
        Ok(lifted) => lifted,
        Err(error) => return fail(&Failure::invalid_params(error.to_string())),
    };
    let token = lifted.progress_token.clone();
    let (task, as_task) = (
        tasks::task_of_result_request(method, &lifted.params),
        tasks::task_mode_of_legacy(context, revision, method, &lifted),
    );
    let session = opened.is_stored.then_some(opened.key);
    let call = Arc::new(tasks::with_task_mode(
        as_task,
        Call {
            session,
            extension,
            ..canonical_call(context, method, lifted)
        },
    ));
    let asked = server_questions::may_ask_in(&call) && stream == AnswerTarget::OwnResponse;
    let asker = asked.then(|| ClientAsker::new(context, known, opened.key, revision, call.clone()));
    let (router, call) = (context.shared.router.clone(), known.for_item(call));
    let running = RunningCall::new(Box::pin(async move {
        if method == Method::TasksResult {
            router.tasks().task_result(call)
        } else {
            router.call(call).await
        }
    }));
    let visits = opened.is_stored && class.has(CapabilityClass::ELICITATION_URL);
    let running = match asker {
        Some(asker) => running.with_asker(asker),
        None => running,
    };
    let request = Bytes::copy_from_slice(id.as_json());
    let (cancelled, in_flight) =
        context
            .shared
            .sessions
            .register_call(opened.key, request, &context.limits().session);
    let owner = SessionOwner::new(context.shared.clone(), cancelled, in_flight);
    let asked = ResponseContext::new(context, known, id.clone(), revision, method)
        .with_progress_token(token)
        .about_task(task, as_task);
    let asked = if opened.is_stored && !context.is_over_http_sse {
        asked.resumable(opened.key)
    } else {
        asked
    };
    let asked = if visits {
        asked.with_url_elicitation(UrlElicitationForm::Error(opened.key))
    } else {
        asked
    };
    SessionOutcome::Call(Box::new(asked), OwnedCall::by_session(running, owner))
}

/// Answers a batch (2025-03-26 alone). Each item is authenticated, admitted and answered by itself;
/// one array comes back.
pub(crate) async fn batch(
    context: &HttpRequestContext,
    known: &Authenticated<()>,
    headers: &HeaderMap,
    items: Vec<Bytes>,
) -> RequestResult {
    let not_allowed = || RequestFailure::message(None, MessageRefusal::BatchNotAllowed);
    let opened = load_session(context, known, headers)
        .await
        .map_err(|none| match none {
            NoSession::Unknown | NoSession::Elsewhere(_) | NoSession::Unreadable => {
                none.failure(None)
            }
            NoSession::Missing | NoSession::Version => not_allowed(),
        })?;
    if !opened.session.revision.has_batches() {
        return Err(not_allowed());
    }
    let limits = ScanLimits::default();
    let parsed: Vec<_> = items
        .into_iter()
        .map(|item| Message::parse(item, &limits))
        .collect();
    let is_initialize = |request: &Request| request.method.known() == Some(Method::Initialize);
    if parsed
        .iter()
        .any(|item| matches!(item, Ok(Message::Request(request)) if is_initialize(request)))
    {
        let refusal = MessageRefusal::InitializeInBatch;
        return Err(RequestFailure::message(None, refusal));
    }
    let budget = &context.shared.ports.budgets.messages;
    let owner = context.owner(known);
    let room = BatchBudget::new(context.limits().batch_bytes, budget, owner);
    let session = SessionRequestContext {
        context,
        known,
        opened: &opened,
    };
    let answers = parsed
        .into_iter()
        .map(|item| item_of_batch(session, item, &room));
    let answers: Vec<RenderedMessage> = join_all(answers).await.into_iter().flatten().collect();
    let worst = answers
        .iter()
        .map(|said| said.tally)
        .max()
        .unwrap_or(RequestOutcome::Ok);
    let answer = if answers.is_empty() {
        failure::accepted()
    } else {
        let all = json_array(&answers);
        drop(answers);
        let share = budget.try_reserve_of(owner, all.len()).ok_or_else(|| {
            RequestFailure::from(RequestRefusal::Overloaded).labelled("batch", "legacy")
        })?;
        answer::with_outcome(failure::ok(share.hold(all)), worst)
    };
    Ok(with_labels(answer, "batch", "legacy"))
}

fn json_array(items: &[RenderedMessage]) -> Bytes {
    let mut out = BytesMut::with_capacity(
        items
            .iter()
            .map(|item| item.message.len() + 1)
            .sum::<usize>()
            + 2,
    );
    out.put_u8(b'[');
    for (nth, item) in items.iter().enumerate() {
        if nth > 0 {
            out.put_u8(b',');
        }
        out.put_slice(&item.message);
    }
    out.put_u8(b']');
    out.freeze()
}

async fn item_of_batch(
    session: SessionRequestContext<'_>,
    item: Result<Message, weir_wire::message::MessageError>,
    room: &BatchBudget,
) -> Option<RenderedMessage> {
    let SessionRequestContext {
        context,
        known,
        opened,
    } = session;
    let error = |id: Option<&RequestId>, refusal| {
        let error = failure::message_error(refusal, &context.name);
        let message = weir_wire::write::error_response(id, true, &error);
        Some(failure::ok_message(message, RequestOutcome::ProtocolError))
    };
    match item {
        Err(bad) => error(bad.id.clone().as_ref(), bad.into()),
        Ok(Message::Request(request)) => {
            let id = request.id.clone();
            match Params::of(&request.method, request.params.as_ref()) {
                Err(bad) => error(Some(&id), MessageRefusal::wrong_params(bad)),
                Ok(params) => match begin_span(context, &request, &params, LEGACY_REQUEST) {
                    None => answer_batch_item(session, request, params, room).await,
                    Some((context, span)) => {
                        let session = SessionRequestContext {
                            context: &context,
                            ..session
                        };
                        let answering = answer_batch_item(session, request, params, room);
                        run_item_in_span(span, answering).await
                    }
                },
            }
        }
        Ok(Message::Notification(notification)) => {
            if let Err(bad) = Params::of(&notification.method, notification.params.as_ref()) {
                return error(None, MessageRefusal::wrong_params(bad));
            }
            handle_notification(context, known, opened, &notification).await;
            None
        }
        Ok(Message::Response(response)) => {
            deliver_response(context, opened, response);
            None
        }
    }
}

/// Answers one request of a batch. Returns `None` if its client cancelled it.
async fn answer_batch_item(
    session: SessionRequestContext<'_>,
    request: Request,
    params: Params,
    room: &BatchBudget,
) -> Option<RenderedMessage> {
    let id = request.id.clone();
    let serving = serve_request(session, AnswerTarget::Batch, request, params);
    let said = match Box::pin(serving).await {
        SessionOutcome::Message(said) => said,
        SessionOutcome::List(response) => {
            failure::ok_message(response.joined(), RequestOutcome::Ok)
        }
        SessionOutcome::Call(asked, owned) => {
            return encode::encode_for_batch(*asked, owned, room).await;
        }
    };
    Some(room.hold(said).unwrap_or_else(|full| {
        let refusal = MessageRefusal::NoRoomInBatch(full.message().to_owned());
        let error = failure::message_error(refusal, &session.context.name);
        let message = weir_wire::write::error_response(Some(&id), true, &error);
        failure::ok_message(message, RequestOutcome::Failed)
    }))
}

/// Handles a notification of a session. A modern client has no notifications over HTTP that have an
/// effect.
pub(crate) async fn notification(
    context: &HttpRequestContext,
    known: &Authenticated<()>,
    headers: &HeaderMap,
    notification: &Notification,
) -> RequestResult {
    let label = notification.method.known().map_or("other", Method::as_str);
    if !headers.contains_key(&weir_layers::http::header_names::SESSION) {
        return Ok(with_labels(failure::accepted(), label, "none"));
    }
    let opened = load_session(context, known, headers)
        .await
        .map_err(|none| none.failure(None).labelled(label, "legacy"))?;
    handle_notification(context, known, &opened, notification).await;
    Ok(with_labels(failure::accepted(), label, "legacy"))
}

async fn handle_notification(
    context: &HttpRequestContext,
    known: &Authenticated<()>,
    opened: &LoadedSession,
    notification: &Notification,
) {
    let params = notification.params.clone().unwrap_or_default();
    let named = |member: &str| {
        scan::find(&params, member).and_then(|range| RequestId::from_json(&params[range]).ok())
    };
    // Unknown and finished ids are ignored (cancellation, progress, every revision).
    match notification.method.known() {
        Some(Method::Cancelled) => {
            if let Some(id) = named("requestId") {
                context.shared.sessions.cancel(&opened.key, id.as_json());
            }
        }
        Some(Method::Progress) => {
            if let Some(token) = named("progressToken") {
                context.shared.sessions.report_progress(
                    &opened.key,
                    token.as_json(),
                    params.clone(),
                );
            }
        }
        Some(Method::Initialized) => {
            context
                .shared
                .sessions
                .mark_initialized(opened, &context.limits().session)
                .await;
            announce_session(context, known, opened);
        }
        Some(Method::RootsListChanged) => {
            context.shared.router.notify_sessions(
                &HashSet::from([opened.key]),
                ClientSessionChange::RootsChanged,
            );
        }
        _ => {}
    }
}

/// Reports a new session to the upstream of a transparent endpoint, so that it may open one of its
/// own.
fn announce_session(
    context: &HttpRequestContext,
    known: &Authenticated<()>,
    opened: &LoadedSession,
) {
    if !opened.is_stored {
        return;
    }
    let lifted = Params::parse(None)
        .and_then(|none| lift::legacy(none, Some(&opened.session), opened.class_of_lists()));
    if let Ok(lifted) = lifted {
        let call = Call {
            session: Some(opened.key),
            ..canonical_call(context, Method::Ping, lifted)
        };
        context
            .shared
            .router
            .open_session(&known.for_item(Arc::new(call)));
    }
}

/// Handles DELETE: ends the session.
pub(crate) async fn delete(
    context: &HttpRequestContext,
    known: &Authenticated<()>,
    headers: &HeaderMap,
) -> RequestResult {
    let opened = load_session(context, known, headers)
        .await
        .map_err(|none| match none {
            NoSession::Unknown => RequestRefusal::UnknownSession.into(),
            NoSession::Missing
            | NoSession::Version
            | NoSession::Elsewhere(_)
            | NoSession::Unreadable => none.failure(None),
        })
        .map_err(|failure| failure.labelled("DELETE", "legacy"))?;
    let sessions = &context.shared.sessions;
    sessions.end(&opened.record, &opened.session).await;
    Ok(with_labels(failure::no_content(), "DELETE", "legacy"))
}
