//! Legacy requests (2024-11-05 to 2025-11-25): sessions and their messages.

mod session_lookup;

use std::collections::HashSet;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::future::join_all;
use http::{HeaderMap, HeaderValue, StatusCode};
use weir_core::telemetry::instruments;
use weir_core::upstream::ClientSessionChange;
use weir_core::{Authenticated, Call, CapabilityClass, Failure, FailureKind};
use weir_era::capabilities::class_of;
use weir_era::session::{LegacySessionRecord, negotiate};
use weir_era::{lift, server_questions};
use weir_wire::message::{Notification, Request, Response};
use weir_wire::method::{EXTENSION_METHOD, Method};
use weir_wire::params::Params;
use weir_wire::{JsonLimits as ScanLimits, Message, RequestId, Revision, error_code, scan};

pub(crate) use session_lookup::load_session;
use session_lookup::{NoSession, sessionless};

use crate::answer::{self, RenderedMessage, RequestRefusal, with_labels};
use crate::body::ResponseBody;
use crate::client_asker::ClientAsker;
use crate::encode::{self, BatchBudget, ResponseContext};
use crate::extensions;
use crate::known_clients::ClientRequest;
use crate::lists::{self, ListRequest, ListResponse};
use crate::modern::{canonical_call, check_offered_or_ask, is_call, list_of_method};
use crate::observe::HttpAnswer;
use crate::outcome::RequestOutcome;
use crate::request_checks::{envelope_error, envelope_refusal};
use crate::request_span::RequestSpan as Span;
use crate::rescue::{FailureContext, log_and_render};
use crate::running_call::{OwnedCall, RunningCall, SessionOwner};
use crate::sessions::{LegacySessions, LoadedSession};
use crate::stack::HttpRequestContext;
use crate::subscriptions;
use crate::tasks;

/// Serves a request without modern `_meta`.
pub(crate) async fn serve(
    context: &HttpRequestContext,
    known: &Authenticated<()>,
    headers: &HeaderMap,
    request: Request,
    params: Params,
) -> HttpAnswer {
    let method = request.method.known();
    let label = method.map_or("other", Method::as_str);
    let answer = match method {
        Some(Method::Initialize) => {
            Box::pin(initialize(context, known, &request.id, &params)).await
        }
        _ => match load_session(context, known, headers).await.or_else(|none| {
            if matches!(none, NoSession::Missing) && method != Some(Method::Ping) {
                sessionless(context, known, headers)
            } else {
                Err(none)
            }
        }) {
            Ok(opened) => {
                let session = SessionRequestContext {
                    context,
                    known,
                    opened: &opened,
                };
                match serve_request(session, AnswerTarget::OwnResponse, request, params).await {
                    SessionOutcome::Message(said) => said.into_answer(),
                    SessionOutcome::List(response) => {
                        answer::json_body(StatusCode::OK, ResponseBody::new(response))
                    }
                    SessionOutcome::Call(asked, owned) => encode::encode_reply(*asked, owned).await,
                }
            }
            // A ping is answered at any time, also before `initialize`.
            Err(NoSession::Missing) if method == Some(Method::Ping) => answer::json(
                StatusCode::OK,
                weir_wire::write::response(&request.id, b"{}"),
            ),
            Err(none) => none.answer(context, Some(&request.id)),
        },
    };
    with_labels(answer, label, "legacy")
}

async fn initialize(
    context: &HttpRequestContext,
    known: &Authenticated<()>,
    id: &RequestId,
    params: &Params,
) -> HttpAnswer {
    let bad = |text: &str| {
        envelope_refusal(
            context,
            StatusCode::OK,
            Some(id),
            error_code::INVALID_PARAMS,
            text,
        )
    };
    let proposed = match params.protocol_version() {
        Ok(Some(version)) => version,
        Ok(None) => return bad("`protocolVersion` is missing"),
        Err(error) => return bad(&error.to_string()),
    };
    let class = match params.capabilities() {
        Ok(raw) => raw.as_deref().map(class_of).unwrap_or_default(),
        Err(error) => return bad(&error.to_string()),
    };
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
        .open(known.principal(), peer, &session, context.limits())
        .await;
    match opened {
        // By status alone: a client that only probes could read a JSON-RPC body as a server that is
        // not weir.
        Err(failure) if matches!(failure.kind(), FailureKind::Limit) => answer::too_many_sessions(),
        Err(_) => answer::no_session(),
        Ok(text) => {
            let info = params.client_info().ok().flatten();
            let key = LegacySessions::key_of(&text);
            context.shared.known_clients.record(&ClientRequest {
                principal: known.principal(),
                endpoint: &context.endpoint,
                revision,
                info: info.as_ref(),
                session: key,
                time: session.began,
            });
            let result =
                lists::initialize_result(context, revision, !known.principal().is_anonymous())
                    .await;
            let mut answer = answer::json(StatusCode::OK, weir_wire::write::response(id, &result));
            if let Ok(value) = HeaderValue::from_str(&text) {
                answer.headers_mut().insert("mcp-session-id", value);
            }
            answer
        }
    }
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
        SessionOutcome::Message(RenderedMessage::ok(weir_wire::write::response(
            &request.id,
            result,
        )))
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
            match check_offered_or_ask(context, method, opened.class()).await {
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
        .store_changed(opened, &session, context.limits())
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
            router.task_result(call).await
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
        LegacySessions::register_call(&context.shared, opened.key, request, context.limits());
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
        asked.with_url_elicitation(opened.key)
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
) -> HttpAnswer {
    let opened = match load_session(context, known, headers).await {
        Ok(opened) => opened,
        Err(none @ (NoSession::Unknown | NoSession::Unreadable)) => {
            return none.answer(context, None);
        }
        Err(NoSession::Missing | NoSession::Version) => return batch_not_allowed(context),
    };
    if !opened.session.revision.has_batches() {
        return batch_not_allowed(context);
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
        let text = "`initialize` must not be in a batch: send it alone";
        return envelope_refusal(
            context,
            StatusCode::BAD_REQUEST,
            None,
            error_code::INVALID_REQUEST,
            text,
        );
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
        answer::empty(StatusCode::ACCEPTED)
    } else {
        let all = json_array(&answers);
        drop(answers);
        match budget.try_reserve_of(owner, all.len()) {
            Some(share) => {
                answer::with_outcome(answer::json(StatusCode::OK, share.hold(all)), worst)
            }
            None => answer::overloaded(),
        }
    };
    with_labels(answer, "batch", "legacy")
}

fn batch_not_allowed(context: &HttpRequestContext) -> HttpAnswer {
    let text = "batches exist in 2025-03-26 sessions only: send one message";
    envelope_refusal(
        context,
        StatusCode::BAD_REQUEST,
        None,
        error_code::INVALID_REQUEST,
        text,
    )
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
    let error = |id: Option<&RequestId>, number, text: String| {
        let message =
            weir_wire::write::error_response(id, true, &envelope_error(context, number, text));
        Some(RenderedMessage::new(
            StatusCode::OK,
            message,
            RequestOutcome::ProtocolError,
        ))
    };
    match item {
        Err(bad) => error(bad.id.as_ref(), bad.code, bad.text),
        Ok(Message::Request(request)) => {
            let id = request.id.clone();
            match Params::of(&request.method, request.params.as_ref()) {
                Err(bad) => error(Some(&id), error_code::INVALID_PARAMS, bad.to_string()),
                Ok(params) => match Span::begin(context, &request, &params, false) {
                    None => answer_batch_item(session, request, params, room).await,
                    Some((context, span)) => {
                        let session = SessionRequestContext {
                            context: &context,
                            ..session
                        };
                        span.run_item(answer_batch_item(session, request, params, room))
                            .await
                    }
                },
            }
        }
        Ok(Message::Notification(notification)) => {
            if let Err(bad) = Params::of(&notification.method, notification.params.as_ref()) {
                return error(None, error_code::INVALID_PARAMS, bad.to_string());
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
        SessionOutcome::List(response) => RenderedMessage::ok(response.joined()),
        SessionOutcome::Call(asked, owned) => {
            return encode::encode_for_batch(*asked, owned, room).await;
        }
    };
    Some(room.hold(said).unwrap_or_else(|failure| {
        let error = envelope_error(
            session.context,
            error_code::INTERNAL_ERROR,
            failure.message().to_owned(),
        );
        let message = weir_wire::write::error_response(Some(&id), true, &error);
        RenderedMessage::new(StatusCode::OK, message, RequestOutcome::Failed)
    }))
}

/// Handles a notification of a session. A modern client has no notifications over HTTP that have an
/// effect.
pub(crate) async fn notification(
    context: &HttpRequestContext,
    known: &Authenticated<()>,
    headers: &HeaderMap,
    notification: &Notification,
) -> HttpAnswer {
    let label = notification.method.known().map_or("other", Method::as_str);
    if !headers.contains_key(&crate::header_names::SESSION) {
        return with_labels(answer::empty(StatusCode::ACCEPTED), label, "none");
    }
    let answer = match load_session(context, known, headers).await {
        Ok(opened) => {
            handle_notification(context, known, &opened, notification).await;
            answer::empty(StatusCode::ACCEPTED)
        }
        Err(none) => none.answer(context, None),
    };
    with_labels(answer, label, "legacy")
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
                .mark_initialized(opened, context.limits())
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

/// Handles a client's response to a server's request within a call.
pub(crate) async fn response(
    context: &HttpRequestContext,
    known: &Authenticated<()>,
    headers: &HeaderMap,
    response: Response,
) -> HttpAnswer {
    match load_session(context, known, headers).await {
        Ok(opened) => {
            deliver_response(context, &opened, response);
            answer::empty(StatusCode::ACCEPTED)
        }
        Err(NoSession::Missing) => {
            let text = "responses are taken within a legacy session only";
            envelope_refusal(
                context,
                StatusCode::BAD_REQUEST,
                None,
                error_code::INVALID_REQUEST,
                text,
            )
        }
        Err(none) => none.answer(context, None),
    }
}

fn deliver_response(context: &HttpRequestContext, opened: &LoadedSession, response: Response) {
    match response.id {
        Some(id) => context
            .shared
            .sessions
            .answer(&opened.key, id.as_json(), response.outcome),
        None => instruments().unexpected_responses.add(1, &[]),
    }
}

/// Handles DELETE: ends the session.
pub(crate) async fn delete(
    context: &HttpRequestContext,
    known: &Authenticated<()>,
    headers: &HeaderMap,
) -> HttpAnswer {
    let answer = match load_session(context, known, headers).await {
        Ok(opened) => {
            context
                .shared
                .sessions
                .end(&opened.record, &opened.session)
                .await;
            answer::empty(StatusCode::NO_CONTENT)
        }
        Err(NoSession::Unknown) => {
            RequestRefusal::new(StatusCode::NOT_FOUND, "session", "no such session").into_answer()
        }
        Err(none) => none.answer(context, None),
    };
    with_labels(answer, "DELETE", "legacy")
}
