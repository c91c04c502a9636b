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
use crate::guard::Gatekeeper;
use crate::observe::Answer;
use crate::stack::{Arrival, Context};
use crate::tally::Tally;
use crate::told::Told;
use crate::{admission, intake, legacy, modern, streams};

/// Serves a request of an endpoint.
pub(crate) async fn enter(context: &Context, keeper: &Gatekeeper, arrival: &mut Arrival) -> Answer {
    // 5 guard: by the head alone.
    if let Err(refusal) = keeper.check(&arrival.head) {
        return refusal.answer();
    }
    // 6 authn and 7 admit: before the body is paid for.
    let known = match admission::enter(context, &arrival.head).await {
        Ok(known) => known,
        Err(refusal) => return refusal.answer(),
    };
    let (headers, body) = (&arrival.head.headers, &mut arrival.body);
    match arrival.head.method {
        // Boxed here and below: futures that calls do not need must not enlarge theirs.
        Method::GET => Box::pin(streams::open_get(context, &known, headers)).await,
        Method::DELETE => Box::pin(legacy::delete(context, &known, headers)).await,
        _ => match intake::read(headers, body, context.limits(), context.bodies(&known)).await {
            Ok(body) => {
                context.meters.received(body.len());
                post(context, &known, headers, decode(context, body)).await
            }
            Err(refusal) => refusal.answer(),
        },
    }
}

/// 8 decode.
pub(crate) fn decode(context: &Context, body: Bytes) -> Result<IncomingMessage, MessageError> {
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
pub(crate) fn post<'a>(
    context: &'a Context,
    known: &'a Authenticated<()>,
    headers: &'a HeaderMap,
    incoming: Result<IncomingMessage, MessageError>,
) -> Fut<'a, Answer> {
    let refused = |id: Option<&RequestId>, error: (i64, &str)| -> Fut<'a, Answer> {
        Box::pin(ready(refuse(context, StatusCode::BAD_REQUEST, id, error)))
    };
    let message = match incoming {
        Ok(IncomingMessage::One(message)) => message,
        Ok(IncomingMessage::Batch(items)) => {
            return Box::pin(legacy::batch(context, known, headers, items));
        }
        Err(error) => return refused(error.id.as_ref(), (error.code, &error.text)),
    };
    match message {
        Message::Request(request) => match Params::of(&request.method, request.params.as_ref()) {
            Ok(params) => self::request(context, (known, headers), request, params),
            Err(error) => refused(
                Some(&request.id),
                (error_code::INVALID_PARAMS, &error.to_string()),
            ),
        },
        Message::Notification(notification) => {
            if let Err(error) = Params::of(&notification.method, notification.params.as_ref()) {
                return refused(None, (error_code::INVALID_PARAMS, &error.to_string()));
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
fn request<'a>(
    context: &'a Context,
    (known, headers): (&'a Authenticated<()>, &'a HeaderMap),
    request: Request,
    params: Params,
) -> Fut<'a, Answer> {
    let era = era(
        context,
        headers,
        &request.id,
        request.method.known(),
        &params,
    );
    match Told::begin(context, &request, &params, matches!(era, Era::Modern)) {
        None => serve(context, (known, headers), era, request, params),
        // Log lines from here on name the trace.
        Some((context, told)) => Box::pin(async move {
            told.over(async { serve(&context, (known, headers), era, request, params).await })
                .await
        }),
    }
}

fn serve<'a>(
    context: &'a Context,
    (known, headers): (&'a Authenticated<()>, &'a HeaderMap),
    era: Era,
    request: Request,
    params: Params,
) -> Fut<'a, Answer> {
    match era {
        Era::Modern => modern::serve(context, known, headers, request, params),
        Era::Legacy => Box::pin(legacy::serve(context, known, headers, request, params)),
        Era::Refused(answer) => Box::pin(ready(*answer)),
    }
}

enum Era {
    Modern,
    Legacy,
    Refused(Box<Answer>),
}

/// Decides the era of a request. No other code decides it.
fn era(
    context: &Context,
    headers: &HeaderMap,
    id: &RequestId,
    method: Option<Rpc>,
    params: &Params,
) -> Era {
    let refused = |answer| Era::Refused(Box::new(answer));
    let bad = |text: &str| {
        refused(refuse(
            context,
            StatusCode::BAD_REQUEST,
            Some(id),
            (error_code::INVALID_PARAMS, text),
        ))
    };
    let says_modern = match params.has_meta_protocol_version() {
        Ok(says) => says,
        Err(error) => return bad(&error.to_string()),
    };
    if says_modern {
        return Era::Modern;
    }
    let version = headers
        .get(&crate::head::VERSION)
        .map(|value| value.to_str().unwrap_or("?"));
    let revision = version.and_then(|text| Revision::parse(text.trim()));
    if revision.is_some_and(Revision::is_modern) {
        let text = "`_meta` with `io.modelcontextprotocol/protocolVersion` and `io.modelcontextprotocol/clientCapabilities` is missing";
        return bad(text);
    }
    if method == Some(Rpc::Initialize) {
        return Era::Legacy;
    }
    if revision.is_none()
        && let Some(version) = version
    {
        return refused(unsupported(context, id, version));
    }
    Era::Legacy
}

/// -32022 with the supported revisions; the status satisfies both eras.
pub(crate) fn unsupported(context: &Context, id: &RequestId, requested: &str) -> Answer {
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
    answer::counted(answer, Tally::ProtocolError)
}

/// A JSON-RPC error about the envelope as the whole answer: code and text, and the request's name,
/// by which its log lines are found.
pub(crate) fn refuse(
    context: &Context,
    status: StatusCode,
    id: Option<&RequestId>,
    error: (i64, &str),
) -> Answer {
    let error = envelope_error(context, error.0, error.1.to_owned());
    answer::counted(
        answer::json(status, weir_wire::write::error_response(id, false, &error)),
        Tally::ProtocolError,
    )
}

/// The error object of [`refuse`].
pub(crate) fn envelope_error(context: &Context, number: i64, text: String) -> ErrorObject {
    let mut data = BytesMut::with_capacity(48);
    ObjectWriter::new(&mut data)
        .string("requestId", context.name.as_str())
        .end();
    ErrorObject::new(number, text).with_data(data.freeze())
}
