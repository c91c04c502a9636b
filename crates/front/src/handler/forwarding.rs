//! Requests that another process answers: the replica that owns their session, their parked call,
//! or the stream that they belong to; the process before this one, which has their parked call or
//! their stream; or the process after this one, which has these or their session.
//!
//! The whole request goes there, once: again only on proof that it did not run, or if it changes
//! nothing.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, header};
use tokio_util::sync::CancellationToken;
use weir_core::names::RequestName;
use weir_core::port::BoxFuture;
use weir_core::{Failure, FailureKind};
use weir_layers::failure::failure_data::FailureContext;
use weir_layers::failure::request_refusal::RequestRefusal;
use weir_layers::failure::{self, FailureCause, RequestFailure, RequestResult};
use weir_layers::http::body::{HttpAnswer, ResponseBody};
use weir_layers::http::forwarded_stream::ForwardedStream;
use weir_layers::http::header_names;
use weir_layers::request::endpoint_request::{AuthenticatedRequest, EndpointRequest};
use weir_layers::request::forwarded_tasks::count_forwarded;
use weir_layers::request::outcome::ResponseOutcome;
use weir_layers::request::request_context::HttpRequestContext;
use weir_listen::{
    ForwardError, ForwardedBody, ForwardedRequest, ForwardedSender, OtherProcess,
    answered_by_header, not_owner_header,
};
use weir_wire::method::Method as Rpc;
use weir_wire::{IncomingMessage, Message, RequestId, Revision, sse};

use crate::handler::message_decoding::decode;
use crate::method::offered_methods::is_call;

/// The text of a call whose answer was lost.
const LOST_CALL: &str =
    "The process that made the call ended: the call may have run. Check before calling again";

/// The most attempts for one request: an owner may end, and the next one too.
const MAX_ATTEMPTS: usize = 4;

/// Headers of an answer that this replica writes anew: those of the connection, and the layers'.
const OWN_HEADERS: [HeaderName; 3] = [
    header::CONNECTION,
    header::VARY,
    HeaderName::from_static("x-request-id"),
];
/// Headers with this beginning are written by the CORS layer.
const CORS_HEADERS: &str = "access-control-";

/// Answers a request through the replica that its failure names, or through the process after this
/// one. `again` tries this process once more after that one turned out to have ended.
pub(crate) async fn answer_elsewhere<'a>(
    authenticated: &AuthenticatedRequest,
    body: Bytes,
    failure: RequestFailure,
    again: impl Fn(Bytes) -> BoxFuture<'a, RequestResult>,
) -> RequestResult {
    let context = &authenticated.request.context;
    let ports = context.ports();
    let mut failure = failure;
    for _ in 0..MAX_ATTEMPTS {
        let replicas = ports.replicas.as_ref().map(|replicas| &replicas.forwarder);
        let (forwarder, owner) = match (failure.elsewhere(), failure.in_process()) {
            (Some(owner), _) if context.may_go_to_replica() => (replicas, owner.clone()),
            // A replica that forwarded the request hears of the owner, and sends the request there.
            (Some(_), _) => return Err(not_owner(context, failure)),
            (None, Some(OtherProcess::Successor)) => {
                (ports.successor.as_ref(), ports.replica.clone())
            }
            (None, Some(OtherProcess::Predecessor) | None) => return Err(failure),
        };
        let Some(forwarder) = forwarder else {
            return Err(failure);
        };
        let request = forwarded_request(authenticated, body.clone());
        match until_force(context, forwarder.forward(&owner, request)).await {
            Ok(answer) => {
                count_forwarded("answered");
                let end = match failure.in_process() {
                    // The stream of a call, which the drain waits for.
                    Some(_) => context.shared().shutdown.force(),
                    None => context.shared().shutdown.drain(),
                };
                let answer = answer_of(authenticated, &body, answer, end);
                return Ok(failure.label_answer(answer));
            }
            Err(ForwardError::NotOwner(Some(other))) if other != owner => {
                count_forwarded("not_owner");
                failure = failure.about_owner(other);
            }
            Err(error) => {
                if let ForwardError::Lost(why) = &error
                    && let Some(lost) = lost_for_good(authenticated, &body)
                {
                    count_forwarded("lost");
                    let error = why.as_str();
                    if failure.in_process().is_some() {
                        tracing::warn!(
                            error,
                            "graceful restart: request lost with the new process"
                        );
                    } else {
                        tracing::warn!(replica = %owner, error, "request lost on another replica");
                    }
                    return Err(failure.relabel(lost));
                }
                count_forwarded("unreachable");
                tracing::debug!(replica = %owner, %error, "request not forwarded");
                match again(body.clone()).await {
                    Ok(answer) => return Ok(answer),
                    Err(next) => failure = next,
                }
            }
        }
    }
    let unreachable = RequestFailure::from(RequestRefusal::OwnerUnreachable);
    Err(failure.relabel(unreachable))
}

/// The failure of a request whose answer was lost; absent if it may be sent again. The message is
/// read here alone: a request that is answered needs no second reading.
fn lost_for_good(authenticated: &AuthenticatedRequest, body: &Bytes) -> Option<RequestFailure> {
    let EndpointRequest { head, context } = &*authenticated.request;
    let message = PendingMessage::read(context, &head.method, &head.headers, body);
    (!message.is_repeatable).then(|| message.lost())
}

/// The failure of a request that another replica forwarded, with the name of this one: it may have
/// been started at the address of the replica that the request is for.
pub(crate) fn not_owner(context: &HttpRequestContext, failure: RequestFailure) -> RequestFailure {
    let Some(owner) = failure.elsewhere() else {
        return failure;
    };
    let headers = not_owner_header(owner)
        .into_iter()
        .chain(answered_by_header(&context.ports().replica));
    let cause = FailureCause::Refused {
        refusal: RequestRefusal::NotOwner,
        headers: headers.collect(),
    };
    failure.relabel(cause.into())
}

/// Answers a request through the process that a graceful restart replaced by this one, which has
/// its parked call or its HTTP+SSE connection. That process may be asked for another replica, and
/// may have to ask the one before it.
pub(crate) async fn answer_in_predecessor(
    authenticated: &AuthenticatedRequest,
    body: Bytes,
    failure: &RequestFailure,
) -> RequestResult {
    let EndpointRequest { head, context } = &*authenticated.request;
    let ports = context.ports();
    let forwarded = match &ports.predecessor {
        Some(predecessor) => {
            let request = forwarded_request(authenticated, body.clone());
            until_force(context, predecessor.forward(&ports.replica, request)).await
        }
        None => Err(ForwardError::NotSent("there is none".to_owned())),
    };
    match forwarded {
        Ok(answer) => {
            count_forwarded("answered");
            let drain = context.shared().shutdown.drain();
            let answer = answer_of(authenticated, &body, answer, drain);
            Ok(failure.label_answer(answer))
        }
        // The request did not run, and its call may still be parked there.
        Err(ForwardError::NotSent(why)) if ports.process(OtherProcess::Predecessor).is_some() => {
            count_forwarded("unreachable");
            tracing::debug!(
                error = why.as_str(),
                "request not forwarded to the previous process"
            );
            let unreachable = RequestFailure::from(RequestRefusal::OwnerUnreachable);
            Err(failure.relabel(unreachable))
        }
        // The connection has ended with its process, or is in the process after this one.
        Err(error) if context.is_over_http_sse => {
            let is_elsewhere = matches!(error, ForwardError::NotOwner(_));
            count_forwarded(if is_elsewhere { "not_owner" } else { "lost" });
            Err(failure.relabel(RequestRefusal::UnknownStream.into()))
        }
        // The parked call has ended with its process, with or without this request.
        Err(error) => {
            count_forwarded("lost");
            tracing::warn!(%error, "graceful restart: parked call lost with the previous process");
            let message = PendingMessage::read(context, &head.method, &head.headers, &body);
            Err(failure.relabel(message.lost()))
        }
    }
}

/// A message on its way to another replica.
struct PendingMessage {
    /// The request in it, if there is one.
    request: Option<(RequestId, Option<Rpc>)>,
    revision: Revision,
    is_repeatable: bool,
}

impl PendingMessage {
    fn read(
        context: &HttpRequestContext,
        method: &Method,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Self {
        let revision = headers
            .get(&header_names::VERSION)
            .and_then(|value| Revision::parse(value.to_str().ok()?.trim()))
            .unwrap_or(Revision::NEWEST_LEGACY);
        let parsed = (method == Method::POST).then(|| decode(context, body.clone()));
        let (request, is_repeatable) = match parsed {
            // A stream is opened anew, and a session ends once.
            None => (None, true),
            Some(Ok(IncomingMessage::One(Message::Request(request)))) => {
                let method = request.method.known();
                let reads = method.is_some_and(|method| !is_call(method));
                // The response to a POST of HTTP+SSE has no message.
                let answered = (!context.is_over_http_sse).then_some((request.id, method));
                (answered, reads)
            }
            // A question takes one answer: the second of two is late.
            Some(Ok(IncomingMessage::One(Message::Notification(_) | Message::Response(_)))) => {
                (None, true)
            }
            Some(Ok(IncomingMessage::Batch(_)) | Err(_)) => (None, false),
        };
        Self {
            request,
            revision,
            is_repeatable,
        }
    }

    /// The failure of a message whose answer was lost.
    fn lost(self) -> RequestFailure {
        let Some((id, method)) = self.request else {
            return RequestRefusal::OwnerLost.into();
        };
        FailureCause::Call {
            id,
            failure: Failure::new(FailureKind::ResultUnknown, LOST_CALL),
            revision: self.revision,
            tool_call: method == Some(Rpc::ToolsCall),
        }
        .into()
    }

    /// The event in the place of a lost answer.
    fn lost_event(self, request: &RequestName) -> Option<Bytes> {
        let (id, method) = self.request?;
        let failure = Failure::new(FailureKind::ResultUnknown, LOST_CALL);
        let context = FailureContext {
            revision: self.revision,
            tool_call: method == Some(Rpc::ToolsCall),
            request,
        };
        let rendered = failure::render_failure(&failure, context).rendered_message(&id);
        let mut out = BytesMut::new();
        sse::write_event(&mut out, None, None, &rendered.message);
        Some(out.freeze())
    }
}

/// Waits for the answer of another process, until this one ends.
async fn until_force(
    context: &HttpRequestContext,
    forwarding: impl Future<Output = Result<Response<ForwardedBody>, ForwardError>>,
) -> Result<Response<ForwardedBody>, ForwardError> {
    let force = context.shared().shutdown.force();
    let answered = force.run_until_cancelled(forwarding).await;
    answered.unwrap_or_else(|| Err(ForwardError::Lost("this process ends".to_owned())))
}

fn forwarded_request(authenticated: &AuthenticatedRequest, body: Bytes) -> ForwardedRequest {
    let EndpointRequest { head, context } = &*authenticated.request;
    let (mut copy, ()) = Request::new(()).into_parts();
    copy.method = head.method.clone();
    copy.uri = head.uri.clone();
    copy.headers = head.headers.clone();
    let span = context.trace.span.as_ref();
    if let Some(Ok(parent)) = span.map(|span| HeaderValue::try_from(span.traceparent())) {
        copy.headers.insert(&header_names::TRACEPARENT, parent);
    }
    ForwardedRequest {
        sender: ForwardedSender::Client,
        head: copy,
        body,
        client: context.forwarded_client(),
    }
}

/// The answer of another process, as this one passes it on. It counts there. A stream of a session
/// ends with `end`, and the stream of a call with this process.
fn answer_of(
    authenticated: &AuthenticatedRequest,
    posted: &Bytes,
    answer: Response<ForwardedBody>,
    end: &CancellationToken,
) -> HttpAnswer {
    let EndpointRequest { head, context } = &*authenticated.request;
    let (mut parts, body) = answer.into_parts();
    let own: Vec<_> = parts
        .headers
        .keys()
        .filter(|name| OWN_HEADERS.contains(name) || name.as_str().starts_with(CORS_HEADERS))
        .cloned()
        .collect();
    for name in own {
        parts.headers.remove(name);
    }
    let kind = parts.headers.get(header::CONTENT_TYPE);
    let is_stream = kind.is_some_and(|kind| kind == weir_wire::header::EVENTS);
    let body = if !is_stream {
        ResponseBody::new(body)
    } else if head.method == Method::GET {
        ResponseBody::new(ForwardedStream::new(body, end.clone()))
    } else {
        let message = PendingMessage::read(context, &head.method, &head.headers, posted);
        let force = context.shared().shutdown.force().clone();
        let stream = ForwardedStream::new(body, force);
        ResponseBody::new(stream.with_last_event(message.lost_event(context.name())))
    };
    let mut answer = HttpAnswer::from_parts(parts, body);
    answer.extensions_mut().insert(ResponseOutcome::Elsewhere);
    answer
}
