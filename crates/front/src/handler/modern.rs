//! Modern requests (2026-07-28): each request carries its whole state.

use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use weir_core::call::{CallResumption, InputMode, ParkedId};
use weir_core::{Call, Failure, FailureKind, Reply};
use weir_era::lift::{self, LiftedRequest};
use weir_era::request_state::{self, SealedResume, UrlVisits, VisitAnswers};
use weir_era::server_questions;
use weir_layers::failure;
use weir_layers::failure::message_refusal::MessageRefusal;
use weir_layers::failure::request_refusal::RequestRefusal;
use weir_layers::failure::{FailureCause, RequestFailure, RequestResult};
use weir_layers::http::body::ResponseBody;
use weir_layers::http::header_names;
use weir_layers::request::request_head::RequestHead;
use weir_listen::OtherProcess;
use weir_session::{ClientRequest, KnownClients};
use weir_wire::header::{self, HeaderTextError};
use weir_wire::message::Request;
use weir_wire::method::{Method, NameSource};
use weir_wire::params::Params;
use weir_wire::{RequestId, Revision};

use crate::method::canonical_call::canonical_call;
use crate::method::extensions;
use crate::method::lists::{self, ListRequest};
use crate::method::mirrored_headers;
use crate::method::offered_methods::{check_offered_or_ask, is_call, list_of_method};
use crate::method::open_listening;
use crate::method::tasks::{self, ModernTaskRequest};
use crate::reply::encode;
use crate::reply::encode::response_context::{BoundCall, ResponseContext, UrlElicitationForm};
use crate::reply::running_call::{OwnedCall, RunningCall};
use crate::reply::url_visits::{self, UrlVisitRepeats};

/// Serves a request with a protocol version in its `_meta`.
pub(crate) async fn serve(
    head: RequestHead<'_>,
    request: Request,
    params: Params,
) -> RequestResult {
    let lifted = read_request(head, &request, params)?;
    record_client(head, &lifted);
    dispatch(head, &request, lifted).await
}

/// Records the client's program, for one in several requests.
fn record_client(head: RequestHead<'_>, lifted: &LiftedRequest) {
    let context = head.context;
    if !KnownClients::is_to_examine(context.peer().activity.requests_begun()) {
        return;
    }
    let info = lifted
        .params
        .meta()
        .ok()
        .flatten()
        .and_then(|meta| meta.client_info().ok().flatten());
    context.shared().known_clients.record(&ClientRequest {
        principal: head.sender.principal(),
        endpoint: context.endpoint(),
        revision: Revision::MODERN,
        info: info.as_ref(),
        session: None,
        time: context.ports().clock.wall(),
    });
}

/// Reads a request, onto the heap: a future that takes it by value would hold and copy it at every
/// layer.
fn read_request(
    head: RequestHead<'_>,
    request: &Request,
    params: Params,
) -> Result<Box<LiftedRequest>, RequestFailure> {
    check_envelope(head, request, &params)
        .map_err(|refusal| RequestFailure::message(Some(&request.id), refusal))?;
    let lifted = lift::modern(params).map_err(|error| {
        let refusal = MessageRefusal::InvalidParams(error.to_string());
        RequestFailure::message(Some(&request.id), refusal)
    })?;
    Ok(Box::new(lifted))
}

/// Checks the rules of the envelope, in the order that the specification demands. The version is
/// first, because the other rules belong to this version alone: the client of a later one learns
/// the versions that it can use.
fn check_envelope(
    head: RequestHead<'_>,
    request: &Request,
    params: &Params,
) -> Result<(), MessageRefusal> {
    let mismatch = |text: &str| MessageRefusal::HeaderMismatch(text.to_owned());
    let bad = |text: &str| MessageRefusal::WrongParams(text.to_owned());
    let [version, method, name] = single_headers(
        head.headers,
        [
            &header_names::VERSION,
            &header_names::METHOD,
            &header_names::NAME,
        ],
    );
    let version = version.ok_or(NO_VERSION).map_err(mismatch)?;
    let meta = params.meta().map_err(MessageRefusal::wrong_params)?;
    let meta = meta.ok_or_else(|| bad("`_meta` is missing"))?;
    let says = meta
        .protocol_version()
        .map_err(MessageRefusal::wrong_params)?
        .unwrap_or_default();
    if says.as_bytes() != version {
        return Err(mismatch(
            "`MCP-Protocol-Version` differs from the version in `_meta`",
        ));
    }
    if !Revision::parse(&says).is_some_and(Revision::is_modern) {
        let requested = says.into();
        return Err(MessageRefusal::UnsupportedRevision { requested });
    }
    let method = method.ok_or(NO_METHOD).map_err(mismatch)?;
    if meta
        .client_capabilities()
        .map_err(MessageRefusal::wrong_params)?
        .is_none()
    {
        return Err(bad(
            "`_meta` has no `io.modelcontextprotocol/clientCapabilities`: send an object, `{}` for none",
        ));
    }
    if method != request.method.as_str().as_bytes() {
        return Err(mismatch("`Mcp-Method` differs from the method of the body"));
    }
    match request.method.known() {
        Some(known) if is_served(known) => check_name_header(name, known, params).map_err(mismatch),
        None if extensions::extension_method(head.context, &request.method).is_some() => Ok(()),
        _ => Err(MessageRefusal::MethodNotServed),
    }
}

/// Returns true for a method that weir serves to modern clients.
fn is_served(method: Method) -> bool {
    matches!(method, Method::Discover | Method::SubscriptionsListen)
        || list_of_method(method).is_some()
        || is_call(method)
        || method.is_about_task()
}

/// Checks that `Mcp-Name` mirrors its member of `params`.
fn check_name_header(
    given: Option<&[u8]>,
    method: Method,
    params: &Params,
) -> Result<(), &'static str> {
    let source = method.name_header();
    let differs = match source {
        NameSource::Name => "`Mcp-Name` differs from `params.name`",
        NameSource::Uri => "`Mcp-Name` differs from `params.uri`",
        NameSource::TaskId => "`Mcp-Name` differs from `params.taskId`",
        NameSource::None => return Ok(()),
    };
    let given = given.ok_or(NO_NAME)?;
    let given = header::decode(given).map_err(|error| match error {
        HeaderTextError::TooLong => "`Mcp-Name` is longer than 8 KiB",
        HeaderTextError::NotPrintable => {
            "`Mcp-Name` has a character that is no visible ASCII: send it as `=?base64?...?=`"
        }
        HeaderTextError::BadBase64 => "`Mcp-Name` has a broken base64 form",
        HeaderTextError::NotUtf8 => "`Mcp-Name` is no UTF-8 in its base64 form",
    })?;
    if params.is_named(source, &given) {
        Ok(())
    } else {
        Err(differs)
    }
}

const NO_VERSION: &str = "`MCP-Protocol-Version` is missing or given twice";
const NO_METHOD: &str = "`Mcp-Method` is missing or given twice";
const NO_NAME: &str = "`Mcp-Name` is missing or given twice";

/// The trimmed values of these headers; `None` for a header that is absent or given twice. One pass
/// finds all, which costs less than a lookup of each.
fn single_headers<'a, const N: usize>(
    headers: &'a HeaderMap,
    names: [&HeaderName; N],
) -> [Option<&'a [u8]>; N] {
    let mut found = [const { (0, None) }; N];
    for (name, value) in headers {
        if let Some(at) = names.iter().position(|wanted| *wanted == name) {
            found[at] = (found[at].0 + 1, Some(value));
        }
    }
    found.map(|(count, value)| Some(value.filter(|_| count == 1)?.as_bytes().trim_ascii()))
}

async fn dispatch(
    head: RequestHead<'_>,
    request: &Request,
    lifted: Box<LiftedRequest>,
) -> RequestResult {
    let (context, sender) = (head.context, head.sender);
    let revision = Revision::MODERN;
    let fail = |failure: Failure| RequestFailure::call(&request.id, revision, failure);
    match request.method.known() {
        Some(Method::Discover) => {
            let (class, principal) = (lifted.capabilities.class, sender.principal());
            let result = Box::pin(lists::discover_result(context, class, principal)).await;
            Ok(failure::ok(weir_wire::write::response(
                &request.id,
                &result,
            )))
        }
        Some(Method::SubscriptionsListen) => {
            open_listening::open_listen(head, &request.id, *lifted)
        }
        Some(method) if is_call(method) => {
            check_offered_or_ask(context, sender, None, method, lifted.capabilities.class)
                .await
                .map_err(fail)?;
            let mismatch = mirrored_headers::check_param_headers(head, method, &lifted);
            match mismatch.await {
                None => match make_call(head, &request.id, method, *lifted) {
                    Ok(answering) => answering.await,
                    Err(failure) => Err(failure),
                },
                Some(text) => {
                    let refusal = MessageRefusal::HeaderMismatch(text);
                    Err(RequestFailure::message(Some(&request.id), refusal))
                }
            }
        }
        // Boxed, like every future that calls do not need.
        Some(method) if method.is_about_task() => {
            let about = ModernTaskRequest {
                id: &request.id,
                method,
                headers: head.headers,
            };
            Box::pin(tasks::serve_modern(context, sender, about, *lifted)).await
        }
        Some(method) if list_of_method(method).is_some() => {
            let list = ListRequest {
                revision,
                method,
                class: lifted.capabilities.class,
                session: None,
                params: &lifted.params,
            };
            let result = Box::pin(lists::list_page(context, sender, list)).await;
            let response = result.map_err(fail)?.response(&request.id);
            Ok(failure::ok(ResponseBody::new(response)))
        }
        None => Box::pin(extensions::serve(context, sender, request, *lifted)).await,
        _ => Err(fail(Failure::new(
            FailureKind::MethodNotFound,
            "This method is not served",
        ))),
    }
}

/// Makes a call, and returns the future of its answer. The call's parts are gathered before the
/// future begins.
fn make_call(
    head: RequestHead<'_>,
    id: &RequestId,
    method: Method,
    lifted: LiftedRequest,
) -> Result<impl Future<Output = RequestResult> + Send + use<>, RequestFailure> {
    let (context, sender) = (head.context, head.sender);
    let fail = |failure: Failure| FailureCause::Call {
        id: id.clone(),
        failure,
        revision: Revision::MODERN,
        tool_call: method == Method::ToolsCall,
    };
    let (token, class) = (lifted.progress_token.clone(), lifted.capabilities.class);
    let (resume, visits) = match open_state(head, method, &lifted.params, fail)? {
        Some(origin) => (Some(origin.resume), origin.visits),
        None => (None, UrlVisits::default()),
    };
    let is_after_visits = resume == Some(CallResumption::Again);
    let answers = lifted.params.input_responses();
    let answers = answers.map_err(|error| fail(Failure::invalid_params(error.to_string())))?;
    let task_mode = tasks::task_mode_of_modern(class);
    let call = Arc::new(Call {
        input_mode: InputMode::Rounds,
        resume,
        task_mode,
        ..canonical_call(context, method, lifted)
    });
    let shared = context.shared();
    let (running, accepted) = match visits.read_answers(answers.as_deref()) {
        Ok(VisitAnswers::Accepted(accepted)) => {
            let (router, sent) = (shared.router.clone(), sender.for_payload(call.clone()));
            let repeats = is_after_visits
                .then(|| UrlVisitRepeats::new(shared.clone(), sender, &call, &accepted));
            let running = RunningCall::new(Box::pin(async move { router.call(sent).await }))
                .with_repeats(repeats);
            (running, accepted)
        }
        // The call has nothing to do at the server.
        Ok(VisitAnswers::Declined) => {
            let declined = Reply::ended(url_visits::end_of_declined(&call));
            let running = RunningCall::new(Box::pin(std::future::ready(declined)));
            (running, Vec::new())
        }
        Err(failure) => return Err(fail(failure).into()),
    };
    let response = ResponseContext::new(context, sender, id.clone(), Revision::MODERN, method)
        .with_progress_token(token)
        .with_bound_call(BoundCall {
            principal: sender.principal().clone(),
            call,
        })
        .with_accepted_visits(accepted)
        .with_url_elicitation(if server_questions::may_have_questions(method) {
            UrlElicitationForm::Questions(class)
        } else {
            UrlElicitationForm::Unsupported
        });
    Ok(encode::encode_reply(
        response,
        OwnedCall::by_connection(running),
    ))
}

/// The state to resume from, if the client brought a sealed state. The call goes on in this process,
/// or in any. `fail` makes the failure of the call.
///
/// # Errors
/// The state is not valid, or the call is parked in another process, or in one that has ended.
fn open_state(
    head: RequestHead<'_>,
    method: Method,
    params: &Params,
    fail: impl Fn(Failure) -> FailureCause,
) -> Result<Option<SealedResume>, RequestFailure> {
    let context = head.context;
    let state = params
        .request_state()
        .map_err(|error| fail(Failure::invalid_params(error.to_string())))?;
    let Some(state) = state else { return Ok(None) };
    let binding = encode::binding(head.sender.principal(), context.endpoint(), method, params);
    let binding = binding.map_err(&fail)?;
    let now = context.ports().clock.wall();
    let opened = request_state::open(&context.shared().sealer, &binding, &state, now);
    let origin = opened.map_err(|error| fail(Failure::invalid_params(error.to_string())))?;
    let ports = context.ports();
    let failure = match (origin.owner.clone(), &origin.resume) {
        (Some(owner), _) if ports.may_answer(&owner) => FailureCause::Elsewhere(owner).into(),
        (Some(owner), _) if owner != ports.replica => fail(lost_while_parked()).into(),
        (_, CallResumption::Parked(id)) if id.generation() != ports.generation => {
            let is_newer = id.generation() > ports.generation;
            let process = match is_newer {
                true => OtherProcess::Successor,
                false => OtherProcess::Predecessor,
            };
            if context.other_process(process).is_some() {
                FailureCause::InProcess(process).into()
            } else if is_of_successor(*id, ports.generation)
                || is_newer && context.shared().shutdown.is_draining()
            {
                RequestRefusal::OwnerUnreachable.into()
            } else {
                fail(lost_while_parked()).into()
            }
        }
        _ => return Ok(Some(origin)),
    };
    Err(failure)
}

/// True for a call that the direct successor of this process parked. It may serve before this
/// process drains.
fn is_of_successor(id: ParkedId, generation: u32) -> bool {
    generation.checked_add(1) == Some(id.generation())
}

/// The failure of a call that was parked in a process that has ended.
fn lost_while_parked() -> Failure {
    let text =
        "The call was lost while it waited for input: it may have run. Check before calling again";
    Failure::new(FailureKind::ResultUnknown, text)
}
