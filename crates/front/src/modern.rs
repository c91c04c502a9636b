//! Modern requests (2026-07-28): each request carries its whole state.

use std::future::ready;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, StatusCode};
use weir_core::call::{CallResumption, InputMode, TaskMode};
use weir_core::port::Fut;
use weir_core::upstream::ListKind;
use weir_core::{Authenticated, Call, CapabilityClass, Failure, FailureKind};
use weir_era::lift::{self, LiftedRequest};
use weir_era::request_state::{self, RequestStateBinding};
use weir_wire::message::Request;
use weir_wire::method::{Method, NameSource};
use weir_wire::params::Params;
use weir_wire::{RequestId, Revision, error_code, header};

use crate::answer::{self, with_labels};
use crate::body::ResponseBody;
use crate::encode::{self, ResponseContext};
use crate::header_names;
use crate::known_clients::{ClientRequest, KnownClients};
use crate::lists::{self, ListRequest};
use crate::mirrored_headers;
use crate::observe::HttpAnswer;
use crate::request_checks::{envelope_refusal, unsupported_revision};
use crate::rescue::{FailureContext, log_and_render};
use crate::running_call::{OwnedCall, RunningCall};
use crate::stack::HttpRequestContext;
use crate::{extensions, listening_stream, tasks};

/// Serves a request with a protocol version in its `_meta`. It is read before its future begins.
pub(crate) fn serve<'a>(
    context: &'a HttpRequestContext,
    known: &'a Authenticated<()>,
    headers: &'a HeaderMap,
    request: Request,
    params: Params,
) -> Fut<'a, HttpAnswer> {
    let label = request.method.known().map_or("other", Method::as_str);
    match read_request(context, headers, &request, params) {
        Err(answer) => Box::pin(ready(with_labels(*answer, label, "modern"))),
        Ok(lifted) => {
            record_client(context, known, &lifted);
            Box::pin(async move {
                let answer = dispatch(context, known, headers, &request, lifted).await;
                with_labels(answer, label, "modern")
            })
        }
    }
}

/// Records the client's program, for one in several requests.
fn record_client(context: &HttpRequestContext, known: &Authenticated<()>, lifted: &LiftedRequest) {
    if !KnownClients::is_to_examine(context.peer.pulse.requests_begun()) {
        return;
    }
    let info = lifted
        .params
        .meta()
        .ok()
        .flatten()
        .and_then(|meta| meta.client_info().ok().flatten());
    context.shared.known_clients.record(&ClientRequest {
        principal: known.principal(),
        endpoint: &context.endpoint,
        revision: Revision::MODERN,
        info: info.as_ref(),
        session: None,
        time: context.shared.ports.clock.wall(),
    });
}

/// Reads a request, onto the heap: a future that takes it by value would hold and copy it at every
/// layer.
fn read_request(
    context: &HttpRequestContext,
    headers: &HeaderMap,
    request: &Request,
    params: Params,
) -> Result<Box<LiftedRequest>, Box<HttpAnswer>> {
    check_envelope(context, headers, request, &params)?;
    let lifted = lift::modern(params).map_err(|error| {
        Box::new(envelope_refusal(
            context,
            StatusCode::OK,
            Some(&request.id),
            error_code::INVALID_PARAMS,
            &error.to_string(),
        ))
    })?;
    Ok(Box::new(lifted))
}

/// Checks the rules of the envelope, in the order that the specification demands.
fn check_envelope(
    context: &HttpRequestContext,
    headers: &HeaderMap,
    request: &Request,
    params: &Params,
) -> Result<(), Box<HttpAnswer>> {
    let id = &request.id;
    let refused = |status, number, text: &str| {
        Box::new(envelope_refusal(context, status, Some(id), number, text))
    };
    let mismatch = |text: &str| refused(StatusCode::BAD_REQUEST, error_code::HEADER_MISMATCH, text);
    let bad = |text: &str| refused(StatusCode::BAD_REQUEST, error_code::INVALID_PARAMS, text);
    let [version, method, name] = single_headers(
        headers,
        [
            &header_names::VERSION,
            &header_names::METHOD,
            &header_names::NAME,
        ],
    );
    let version = version.ok_or(NO_VERSION).map_err(mismatch)?;
    let method = method.ok_or(NO_METHOD).map_err(mismatch)?;
    let meta = params.meta().map_err(|error| bad(&error.to_string()))?;
    let meta = meta.ok_or_else(|| bad("`_meta` is missing"))?;
    let says = meta
        .protocol_version()
        .map_err(|error| bad(&error.to_string()))?
        .unwrap_or_default();
    if meta
        .client_capabilities()
        .map_err(|error| bad(&error.to_string()))?
        .is_none()
    {
        return Err(bad(
            "`_meta` has no `io.modelcontextprotocol/clientCapabilities`: send an object, `{}` for none",
        ));
    }
    if says != version {
        return Err(mismatch(
            "`MCP-Protocol-Version` differs from the version in `_meta`",
        ));
    }
    if !Revision::parse(&says).is_some_and(Revision::is_modern) {
        return Err(Box::new(unsupported_revision(context, id, &says)));
    }
    if method != request.method.as_str() {
        return Err(mismatch("`Mcp-Method` differs from the method of the body"));
    }
    match request.method.known() {
        Some(known) if is_served(known) => check_name_header(name, known, params).map_err(mismatch),
        None if extensions::extension_method(context, &request.method).is_some() => Ok(()),
        _ => {
            let text = "This method is not served in 2026-07-28";
            Err(refused(
                StatusCode::NOT_FOUND,
                error_code::METHOD_NOT_FOUND,
                text,
            ))
        }
    }
}

/// Returns true for a method that weir serves to modern clients.
fn is_served(method: Method) -> bool {
    matches!(method, Method::Discover | Method::SubscriptionsListen)
        || list_of_method(method).is_some()
        || is_call(method)
        || tasks::is_about_task(method)
}

/// The list that a method asks for.
pub(crate) fn list_of_method(method: Method) -> Option<ListKind> {
    ListKind::ALL
        .into_iter()
        .find(|kind| kind.method() == method)
}

/// Returns true if a method goes to one upstream.
pub(crate) fn is_call(method: Method) -> bool {
    matches!(
        method,
        Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead | Method::CompletionComplete
    )
}

/// Checks that the endpoint supports a method, as far as its servers declare it.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the other methods are about lists alone, or about none"
)]
pub(crate) fn check_offered(context: &HttpRequestContext, method: Method) -> Result<(), Failure> {
    let (catalog, endpoint) = (&context.shared.catalog, &context.endpoint);
    let has = match method {
        Method::CompletionComplete => catalog.completes(endpoint) || may_complete(context),
        Method::ResourcesSubscribe | Method::ResourcesUnsubscribe => catalog.subscribes(endpoint),
        Method::TasksGet
        | Method::TasksUpdate
        | Method::TasksCancel
        | Method::TasksResult
        | Method::TasksList => catalog.has_tasks(endpoint),
        _ => lists_of(method)
            .iter()
            .any(|kind| catalog.offers(endpoint, *kind)),
    };
    if has {
        Ok(())
    } else {
        Err(Failure::new(
            FailureKind::MethodNotFound,
            "No server of this endpoint has this",
        ))
    }
}

/// Checks that the endpoint supports a method; the server of a transparent endpoint is asked for a
/// list that it does not declare.
pub(crate) async fn check_offered_or_ask(
    context: &HttpRequestContext,
    method: Method,
    class: CapabilityClass,
) -> Result<(), Failure> {
    let Err(refused) = check_offered(context, method) else {
        return Ok(());
    };
    // Boxed, because calls rarely come here.
    if Box::pin(has_undeclared(context, method, class)).await {
        Ok(())
    } else {
        Err(refused)
    }
}

async fn has_undeclared(
    context: &HttpRequestContext,
    method: Method,
    class: CapabilityClass,
) -> bool {
    let (catalog, endpoint) = (&context.shared.catalog, &context.endpoint);
    for kind in lists_of(method) {
        if catalog.offers_undeclared(endpoint, *kind, class).await {
            return true;
        }
    }
    false
}

/// The lists that a method depends on.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the two dozen other methods depend on no list"
)]
const fn lists_of(method: Method) -> &'static [ListKind] {
    match method {
        Method::ToolsList | Method::ToolsCall => &[ListKind::Tools],
        Method::PromptsList | Method::PromptsGet => &[ListKind::Prompts],
        Method::ResourcesTemplatesList => &[ListKind::Templates, ListKind::Resources],
        Method::CompletionComplete => {
            &[ListKind::Prompts, ListKind::Templates, ListKind::Resources]
        }
        Method::ResourcesList | Method::ResourcesRead => {
            &[ListKind::Resources, ListKind::Templates]
        }
        _ => &[],
    }
}

/// Returns true if the server of a transparent endpoint has prompts or resources that could be
/// completed. The server itself then answers if it supports completion.
fn may_complete(context: &HttpRequestContext) -> bool {
    let (catalog, endpoint) = (&context.shared.catalog, &context.endpoint);
    let has_some = catalog.offers(endpoint, ListKind::Prompts)
        || catalog.offers(endpoint, ListKind::Resources);
    has_some && catalog.is_transparent(endpoint)
}

/// Checks that `Mcp-Name` mirrors its member of `params`.
fn check_name_header(
    given: Option<&str>,
    method: Method,
    params: &Params,
) -> Result<(), &'static str> {
    let own = match method.name_header() {
        NameSource::Name => params.name(),
        NameSource::Uri => params.uri(),
        NameSource::TaskId => params.task_id(),
        NameSource::None => return Ok(()),
    };
    let given = given.ok_or(NO_NAME)?;
    let given =
        header::decode(given.as_bytes()).map_err(|_| "`Mcp-Name` has a broken base64 form")?;
    match own {
        Ok(Some(name)) if name == given => Ok(()),
        _ if method.name_header() == NameSource::Uri => Err("`Mcp-Name` differs from `params.uri`"),
        _ if method.name_header() == NameSource::TaskId => {
            Err("`Mcp-Name` differs from `params.taskId`")
        }
        _ => Err("`Mcp-Name` differs from `params.name`"),
    }
}

const NO_VERSION: &str = "`MCP-Protocol-Version` is missing or given twice";
const NO_METHOD: &str = "`Mcp-Method` is missing or given twice";
const NO_NAME: &str = "`Mcp-Name` is missing or given twice";

/// The trimmed values of these headers; `None` for a header that is absent, given twice, or not
/// visible ASCII. One pass finds all, which costs less than a lookup of each.
fn single_headers<'a, const N: usize>(
    headers: &'a HeaderMap,
    names: [&HeaderName; N],
) -> [Option<&'a str>; N] {
    let mut found = [const { (0, None) }; N];
    for (name, value) in headers {
        if let Some(at) = names.iter().position(|wanted| *wanted == name) {
            found[at] = (found[at].0 + 1, Some(value));
        }
    }
    found.map(|(count, value)| value.filter(|_| count == 1)?.to_str().ok().map(str::trim))
}

async fn dispatch(
    context: &HttpRequestContext,
    known: &Authenticated<()>,
    headers: &HeaderMap,
    request: &Request,
    lifted: Box<LiftedRequest>,
) -> HttpAnswer {
    let revision = Revision::MODERN;
    let told = FailureContext {
        revision,
        tool_call: false,
        request: &context.name,
    };
    let fail = |failure: &Failure| log_and_render(failure, told).answer(&request.id);
    match request.method.known() {
        Some(Method::Discover) => {
            let result = Box::pin(lists::discover_result(context, lifted.capabilities.class)).await;
            answer::json(
                StatusCode::OK,
                weir_wire::write::response(&request.id, &result),
            )
        }
        Some(Method::SubscriptionsListen) => {
            listening_stream::open_listen(context, known, &request.id, *lifted)
        }
        Some(method) if is_call(method) => {
            match check_offered_or_ask(context, method, lifted.capabilities.class).await {
                Ok(()) => match mirrored_headers::check_param_headers(
                    context, known, headers, method, &lifted,
                )
                .await
                {
                    None => make_call(context, known, &request.id, method, *lifted).await,
                    Some(text) => envelope_refusal(
                        context,
                        StatusCode::BAD_REQUEST,
                        Some(&request.id),
                        error_code::HEADER_MISMATCH,
                        &text,
                    ),
                },
                Err(failure) => fail(&failure),
            }
        }
        // Boxed, like every future that calls do not need.
        Some(method) if tasks::is_about_task(method) => {
            Box::pin(tasks::serve_modern(
                context,
                known,
                &request.id,
                method,
                *lifted,
            ))
            .await
        }
        Some(method) if list_of_method(method).is_some() => {
            let asked = ListRequest {
                revision,
                method,
                class: lifted.capabilities.class,
                session: None,
                params: &lifted.params,
            };
            match Box::pin(lists::list_page(context, known, asked)).await {
                Ok(result) => answer::json_body(
                    StatusCode::OK,
                    ResponseBody::new(result.response(&request.id)),
                ),
                Err(failure) => fail(&failure),
            }
        }
        None => Box::pin(extensions::serve(context, known, request, *lifted)).await,
        _ => fail(&Failure::new(
            FailureKind::MethodNotFound,
            "This method is not served",
        )),
    }
}

/// Makes a call. Its parts are gathered before its future begins.
fn make_call(
    context: &HttpRequestContext,
    known: &Authenticated<()>,
    id: &RequestId,
    method: Method,
    lifted: LiftedRequest,
) -> Fut<'static, HttpAnswer> {
    let tool_call = method == Method::ToolsCall;
    let told = FailureContext {
        revision: Revision::MODERN,
        tool_call,
        request: &context.name,
    };
    let fail = |failure: &Failure| -> Fut<'static, HttpAnswer> {
        Box::pin(ready(log_and_render(failure, told).answer(id)))
    };
    let (token, class) = (lifted.progress_token.clone(), lifted.capabilities.class);
    let binding = match encode::binding(context, known, method, &lifted.params) {
        Ok(binding) => binding,
        Err(failure) => return fail(&failure),
    };
    let resume = match open_state(context, &binding.as_binding(), &lifted.params) {
        Ok(resume) => resume,
        Err(failure) => return fail(&failure),
    };
    let as_task = tasks::task_mode_of_modern(class);
    let call = Call {
        input_mode: InputMode::Rounds,
        resume,
        task_mode: as_task,
        ..canonical_call(context, method, lifted)
    };
    let (router, call) = (
        context.shared.router.clone(),
        known.for_item(Arc::new(call)),
    );
    let running = RunningCall::new(Box::pin(async move { router.call(call).await }));
    let asked = ResponseContext::new(context, known, id.clone(), Revision::MODERN, method)
        .with_progress_token(token)
        .with_binding(binding, class);
    encode::encode_reply(asked, OwnedCall::by_connection(running))
}

/// The state to resume from, if the client brought a sealed state.
fn open_state(
    context: &HttpRequestContext,
    binding: &RequestStateBinding<'_>,
    params: &Params,
) -> Result<Option<CallResumption>, Failure> {
    let state = params
        .request_state()
        .map_err(|error| Failure::invalid_params(error.to_string()))?;
    let Some(state) = state else { return Ok(None) };
    let now = context.shared.ports.clock.wall();
    let opened = request_state::open(&context.shared.sealer, binding, &state, now);
    let origin = opened.map_err(|error| Failure::invalid_params(error.to_string()))?;
    if origin
        .owner
        .as_ref()
        .is_some_and(|owner| owner != context.shared.ports.mailbox.own())
    {
        let text = "The call was lost while it waited for input: it may have run. Check before calling again";
        return Err(Failure::new(FailureKind::ResultUnknown, text));
    }
    Ok(Some(origin.resume))
}

/// The canonical call of a request of either era.
pub(crate) fn canonical_call(
    context: &HttpRequestContext,
    method: Method,
    lifted: LiftedRequest,
) -> Call {
    if lifted.log_level.is_some() {
        answer::count_deprecated("logging");
    }
    Call {
        endpoint: context.endpoint.clone(),
        method,
        params: lifted.params,
        capabilities: lifted.capabilities,
        wants_progress: lifted.progress_token.is_some(),
        log_level: lifted.log_level,
        session: None,
        input_mode: InputMode::Requests,
        resume: None,
        input_responses: None,
        task_mode: TaskMode::Never,
        extension: None,
        request: context.name.clone(),
        trace: lifted
            .trace
            .or(&context.trace)
            .next_hop(&*context.shared.ports.random),
    }
}
