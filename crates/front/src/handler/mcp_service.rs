//! The MCP service of an endpoint: decodes a whole request, and decides its era once.

use std::future::ready;

use bytes::Bytes;
use http::{HeaderMap, Method};
use weir_core::port::BoxFuture;
use weir_layers::failure::message_refusal::MessageRefusal;
use weir_layers::failure::{self, RequestFailure, RequestResult};
use weir_layers::layer::answer_request::AnswerRequest;
use weir_layers::request::endpoint_request::{AuthenticatedRequest, CompleteRequest};
use weir_layers::request::message_labels::MessageLabels;
use weir_layers::request::request_head::RequestHead;
use weir_layers::request::request_span::RequestSpan;
use weir_layers::request::request_tracing::{begin_span, run_in_span};
use weir_listen::OtherProcess;
use weir_wire::message::Request;
use weir_wire::method::Method as Rpc;
use weir_wire::params::Params;
use weir_wire::{Era, IncomingMessage, Message, MessageError, RequestId, Revision};

use crate::handler::client_response;
use crate::handler::forwarding;
use crate::handler::legacy;
use crate::handler::legacy_batch;
use crate::handler::legacy_notification;
use crate::handler::legacy_session;
use crate::handler::message_decoding::decode;
use crate::handler::modern;
use crate::method::open_listening;

/// The service below all layers of an endpoint.
#[derive(Clone, Copy)]
pub(crate) struct McpService;

impl AnswerRequest<CompleteRequest> for McpService {
    async fn answer(self, complete: CompleteRequest) -> RequestResult {
        let CompleteRequest {
            authenticated,
            body,
        } = complete;
        let ports = authenticated.request.context.ports();
        // A process that has no other one to forward to keeps no copy.
        let copy = ports.may_forward().then(|| body.clone());
        let answered = answer_here(&authenticated, body).await;
        match (answered, copy) {
            (Err(failure), Some(body)) if failure.is_of_another_process() => {
                Box::pin(answer_there(authenticated, body, failure)).await
            }
            (answered, _) => answered,
        }
    }
}

/// Answers a request through the process that its failure names. The span of a traced request goes
/// on, and records the answer of that process.
async fn answer_there(
    mut authenticated: AuthenticatedRequest,
    body: Bytes,
    mut failure: RequestFailure,
) -> RequestResult {
    let span = failure.take_span();
    authenticated.request.context.trace.span = span.as_ref().map(RequestSpan::server_span);
    let answering = async {
        if failure.in_process() == Some(OtherProcess::Predecessor) {
            return forwarding::answer_in_predecessor(&authenticated, body, &failure).await;
        }
        let again =
            |body| -> BoxFuture<'_, RequestResult> { Box::pin(answer_here(&authenticated, body)) };
        forwarding::answer_elsewhere(&authenticated, body, failure, again).await
    };
    match span {
        Some(span) => run_in_span(span, answering).await,
        None => answering.await,
    }
}

/// Answers a request on this replica, or fails with the one that owns its subject.
async fn answer_here(authenticated: &AuthenticatedRequest, body: Bytes) -> RequestResult {
    let head = authenticated.head();
    match authenticated.request.head.method {
        // Boxed here and below: futures that calls do not need must not enlarge theirs.
        Method::GET => Box::pin(open_listening::open_get(head)).await,
        Method::DELETE => Box::pin(legacy_session::delete(head)).await,
        _ => {
            let incoming = decode(head.context, body);
            handle_message(head, incoming).await
        }
    }
}

/// Handles a message.
///
/// The message is sorted before the future begins, so that the future has no room for each of its
/// forms.
pub(crate) fn handle_message<'a>(
    head: RequestHead<'a>,
    incoming: Result<IncomingMessage, MessageError>,
) -> impl Future<Output = RequestResult> + Send + 'a {
    let handler = MessageHandler::choose(head, incoming);
    async move {
        match handler {
            MessageHandler::Request(request) => serve_in_era(head, request).await,
            MessageHandler::Boxed(handling) => handling.await,
        }
    }
}

/// The handler of a message.
#[expect(
    clippy::large_enum_variant,
    reason = "most messages are requests, and a box is what this saves"
)]
enum MessageHandler<'a> {
    /// A request. Its future is part of the caller's, without an allocation.
    Request(EraRequest),
    /// Any other message, and a traced request.
    Boxed(BoxFuture<'a, RequestResult>),
}

impl<'a> MessageHandler<'a> {
    fn choose(head: RequestHead<'a>, incoming: Result<IncomingMessage, MessageError>) -> Self {
        let refused = |id: Option<&RequestId>, refusal| {
            Self::Boxed(Box::pin(ready(Err(RequestFailure::message(id, refusal)))))
        };
        let message = match incoming {
            Ok(IncomingMessage::One(message)) => message,
            Ok(IncomingMessage::Batch(items)) => {
                return Self::Boxed(Box::pin(legacy_batch::batch(head, items)));
            }
            Err(error) => return refused(error.id.clone().as_ref(), error.into()),
        };
        match message {
            Message::Request(request) => {
                match Params::of(&request.method, request.params.as_ref()) {
                    Ok(params) => Self::of_request(head, request, params),
                    Err(error) => refused(Some(&request.id), MessageRefusal::wrong_params(error)),
                }
            }
            Message::Notification(notification) => {
                if let Err(error) = Params::of(&notification.method, notification.params.as_ref()) {
                    return refused(None, MessageRefusal::wrong_params(error));
                }
                Self::Boxed(Box::pin(async move {
                    legacy_notification::notification(head, &notification).await
                }))
            }
            Message::Response(response) => {
                Self::Boxed(Box::pin(client_response::response(head, response)))
            }
        }
    }

    /// The handler of a request in its era.
    fn of_request(head: RequestHead<'a>, request: Request, params: Params) -> Self {
        let era = decide_era(head.headers, &request.id, request.method.known(), &params);
        let traced_as = *era.as_ref().unwrap_or(&Era::Legacy);
        let tracing = begin_span(head.context, &request, &params, traced_as);
        let request = EraRequest {
            era,
            request,
            params,
        };
        match tracing {
            None => Self::Request(request),
            // Log lines from here on name the trace.
            Some((context, span)) => Self::Boxed(Box::pin(async move {
                let head = RequestHead {
                    context: &context,
                    ..head
                };
                run_in_span(span, serve_in_era(head, request)).await
            })),
        }
    }
}

/// A request whose era is decided, and its parsed parameters.
struct EraRequest {
    era: Result<Era, RequestFailure>,
    request: Request,
    params: Params,
}

async fn serve_in_era(
    head: RequestHead<'_>,
    EraRequest {
        era,
        request,
        params,
    }: EraRequest,
) -> RequestResult {
    let era = era?;
    let method = request.method.known().map_or("other", Rpc::as_str);
    let labels = MessageLabels::of(era, method);
    head.context.facts.leave_decoded(labels);
    let answered = match era {
        Era::Modern => modern::serve(head, request, params).await,
        Era::Legacy => legacy::serve(head, request, params).await,
    };
    failure::with_labels(answered, labels)
}

/// Decides the era of a request. No other code decides it.
fn decide_era(
    headers: &HeaderMap,
    id: &RequestId,
    method: Option<Rpc>,
    params: &Params,
) -> Result<Era, RequestFailure> {
    let refused = |refusal| Err(RequestFailure::message(Some(id), refusal));
    let bad = |text: String| refused(MessageRefusal::WrongParams(text));
    let says_modern = match params.has_meta_protocol_version() {
        Ok(says) => says,
        Err(error) => return bad(error.to_string()),
    };
    if says_modern {
        return Ok(Era::Modern);
    }
    let version = headers
        .get(&weir_layers::http::header_names::VERSION)
        .map(|value| value.to_str().unwrap_or("?"));
    let revision = version.and_then(|text| Revision::parse(text.trim()));
    if revision.is_some_and(Revision::is_modern) {
        let text = "`_meta` with `io.modelcontextprotocol/protocolVersion` and `io.modelcontextprotocol/clientCapabilities` is missing";
        return bad(text.to_owned());
    }
    if method == Some(Rpc::Initialize) {
        return Ok(Era::Legacy);
    }
    if revision.is_none()
        && let Some(version) = version
    {
        let requested = version.to_owned();
        return refused(MessageRefusal::UnsupportedRevision { requested });
    }
    Ok(Era::Legacy)
}
