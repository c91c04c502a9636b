//! The steps of a request from its head to its era: guard, authentication, body, and the single
//! choice of the era.

use std::future::ready;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode};
use weir_core::Authenticated;
use weir_core::port::Fut;
use weir_wire::message::Request;
use weir_wire::method::Method as Rpc;
use weir_wire::params::Params;
use weir_wire::write::ObjectWriter;
use weir_wire::{
    ErrorObject, IncomingMessage, JsonLimits as ScanLimits, Message, MessageError, RequestId,
    Revision, error_code,
};

use crate::answer;
use crate::head_guard::HeadGuard;
use crate::observe::HttpAnswer;
use crate::outcome::RequestOutcome;
use crate::request_span::RequestSpan;
use crate::stack::{HttpRequestContext, IncomingRequest};
use crate::{authenticate, legacy, listening_stream, modern, request_body};

/// Serves a request of an endpoint.
pub(crate) async fn serve_at_endpoint(
    context: &HttpRequestContext,
    keeper: &HeadGuard,
    arrival: &mut IncomingRequest,
) -> HttpAnswer {
    // 5 guard: by the head alone.
    if let Err(refusal) = keeper.check_endpoint_request(&arrival.head) {
        return refusal.into_answer();
    }
    // 6 authn and 7 admit: before the body is paid for.
    let known = match authenticate::admit(context, &arrival.head).await {
        Ok(known) => known,
        Err(refusal) => return refusal.into_answer(),
    };
    let (headers, body) = (&arrival.head.headers, &mut arrival.body);
    match arrival.head.method {
        // Boxed here and below: futures that calls do not need must not enlarge theirs.
        Method::GET => Box::pin(listening_stream::open_get(context, &known, headers)).await,
        Method::DELETE => Box::pin(legacy::delete(context, &known, headers)).await,
        _ => match request_body::read_body(headers, body, context.limits(), context.bodies(&known))
            .await
        {
            Ok(body) => {
                context.meters.count_received(body.len());
                handle_message(context, &known, headers, decode(context, body)).await
            }
            Err(refusal) => refusal.into_answer(),
        },
    }
}

/// 8 decode.
pub(crate) fn decode(
    context: &HttpRequestContext,
    body: Bytes,
) -> Result<IncomingMessage, MessageError> {
    let limits = ScanLimits {
        max_batch: context.limits().batch_items,
        ..ScanLimits::default()
    };
    IncomingMessage::parse(body, &limits)
}

/// 9 door: chooses the handler of a message.
///
/// The message is sorted before the future begins, so that the future has no room for each of its
/// forms.
pub(crate) fn handle_message<'a>(
    context: &'a HttpRequestContext,
    known: &'a Authenticated<()>,
    headers: &'a HeaderMap,
    incoming: Result<IncomingMessage, MessageError>,
) -> Fut<'a, HttpAnswer> {
    let refused = |id: Option<&RequestId>, code: i64, text: &str| -> Fut<'a, HttpAnswer> {
        Box::pin(ready(envelope_refusal(
            context,
            StatusCode::BAD_REQUEST,
            id,
            code,
            text,
        )))
    };
    let message = match incoming {
        Ok(IncomingMessage::One(message)) => message,
        Ok(IncomingMessage::Batch(items)) => {
            return Box::pin(legacy::batch(context, known, headers, items));
        }
        Err(error) => return refused(error.id.as_ref(), error.code, &error.text),
    };
    match message {
        Message::Request(request) => match Params::of(&request.method, request.params.as_ref()) {
            Ok(params) => self::handle_request(context, known, headers, request, params),
            Err(error) => refused(
                Some(&request.id),
                error_code::INVALID_PARAMS,
                &error.to_string(),
            ),
        },
        Message::Notification(notification) => {
            if let Err(error) = Params::of(&notification.method, notification.params.as_ref()) {
                return refused(None, error_code::INVALID_PARAMS, &error.to_string());
            }
            Box::pin(
                async move { legacy::notification(context, known, headers, &notification).await },
            )
        }
        Message::Response(response) => {
            Box::pin(legacy::response(context, known, headers, response))
        }
    }
}

/// 9 door: in the era of the request.
fn handle_request<'a>(
    context: &'a HttpRequestContext,
    known: &'a Authenticated<()>,
    headers: &'a HeaderMap,
    request: Request,
    params: Params,
) -> Fut<'a, HttpAnswer> {
    let era = decide_era(
        context,
        headers,
        &request.id,
        request.method.known(),
        &params,
    );
    match RequestSpan::begin(
        context,
        &request,
        &params,
        matches!(era, EraDecision::Modern),
    ) {
        None => serve_in_era(
            context,
            known,
            headers,
            era,
            ParsedRequest { request, params },
        ),
        // Log lines from here on name the trace.
        Some((context, told)) => Box::pin(async move {
            let parsed = ParsedRequest { request, params };
            told.run(async { serve_in_era(&context, known, headers, era, parsed).await })
                .await
        }),
    }
}

/// A request and its parsed parameters.
struct ParsedRequest {
    request: Request,
    params: Params,
}

fn serve_in_era<'a>(
    context: &'a HttpRequestContext,
    known: &'a Authenticated<()>,
    headers: &'a HeaderMap,
    era: EraDecision,
    ParsedRequest { request, params }: ParsedRequest,
) -> Fut<'a, HttpAnswer> {
    match era {
        EraDecision::Modern => modern::serve(context, known, headers, request, params),
        EraDecision::Legacy => Box::pin(legacy::serve(context, known, headers, request, params)),
        EraDecision::Refused(answer) => Box::pin(ready(*answer)),
    }
}

enum EraDecision {
    Modern,
    Legacy,
    Refused(Box<HttpAnswer>),
}

/// Decides the era of a request. No other code decides it.
fn decide_era(
    context: &HttpRequestContext,
    headers: &HeaderMap,
    id: &RequestId,
    method: Option<Rpc>,
    params: &Params,
) -> EraDecision {
    let refused = |answer| EraDecision::Refused(Box::new(answer));
    let bad = |text: &str| {
        refused(envelope_refusal(
            context,
            StatusCode::BAD_REQUEST,
            Some(id),
            error_code::INVALID_PARAMS,
            text,
        ))
    };
    let says_modern = match params.has_meta_protocol_version() {
        Ok(says) => says,
        Err(error) => return bad(&error.to_string()),
    };
    if says_modern {
        return EraDecision::Modern;
    }
    let version = headers
        .get(&crate::header_names::VERSION)
        .map(|value| value.to_str().unwrap_or("?"));
    let revision = version.and_then(|text| Revision::parse(text.trim()));
    if revision.is_some_and(Revision::is_modern) {
        let text = "`_meta` with `io.modelcontextprotocol/protocolVersion` and `io.modelcontextprotocol/clientCapabilities` is missing";
        return bad(text);
    }
    if method == Some(Rpc::Initialize) {
        return EraDecision::Legacy;
    }
    if revision.is_none()
        && let Some(version) = version
    {
        return refused(unsupported_revision(context, id, version));
    }
    EraDecision::Legacy
}

/// -32022 with the supported revisions; the status satisfies both eras.
pub(crate) fn unsupported_revision(
    context: &HttpRequestContext,
    id: &RequestId,
    requested: &str,
) -> HttpAnswer {
    let supported = [Revision::MODERN.as_str()];
    let data = serde_json::json!({ "supported": supported, "requested": requested, "requestId": context.name.as_str() });
    let error = ErrorObject::new(
        error_code::UNSUPPORTED_PROTOCOL_VERSION,
        "Unsupported protocol version",
    )
    .with_data(Bytes::from(data.to_string()));
    let answer = answer::json(
        StatusCode::BAD_REQUEST,
        weir_wire::write::error_response(Some(id), false, &error),
    );
    answer::with_outcome(answer, RequestOutcome::ProtocolError)
}

/// A JSON-RPC error about the envelope as the whole answer: code and text, and the request's name,
/// by which its log lines are found.
pub(crate) fn envelope_refusal(
    context: &HttpRequestContext,
    status: StatusCode,
    id: Option<&RequestId>,
    code: i64,
    text: &str,
) -> HttpAnswer {
    let error = envelope_error(context, code, text.to_owned());
    answer::with_outcome(
        answer::json(status, weir_wire::write::error_response(id, false, &error)),
        RequestOutcome::ProtocolError,
    )
}

/// The error object of [`envelope_refusal`].
pub(crate) fn envelope_error(
    context: &HttpRequestContext,
    number: i64,
    text: String,
) -> ErrorObject {
    let mut data = BytesMut::with_capacity(48);
    ObjectWriter::new(&mut data)
        .string("requestId", context.name.as_str())
        .end();
    ErrorObject::new(number, text).with_data(data.freeze())
}
