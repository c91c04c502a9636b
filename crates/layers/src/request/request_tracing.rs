//! Traces requests: a span for each that is sampled, from its decoding to the end of its answer.

use tracing::Instrument as _;
use weir_core::call::TraceContext;
use weir_core::trace::{self, AttributeValue, ServerSpan};
use weir_era::lift;
use weir_wire::message::Request;
use weir_wire::method::Method;
use weir_wire::params::Params;
use weir_wire::{Era, Revision};

use crate::failure::RequestResult;
use crate::http::answer::RenderedMessage;
use crate::request::outcome::RequestOutcome;
use crate::request::request_context::HttpRequestContext;
use crate::request::request_span::RequestSpan;

/// The most characters of a client's request id in a span.
const MAX_REQUEST_ID_CHARS: usize = 64;

/// Begins a span if this request is traced; returns the context with it. Requests of a batch each
/// have a span, all or none. A request that has a span gets no second one when it is tried again,
/// after the replica that it was forwarded to has ended.
pub fn begin_span(
    context: &HttpRequestContext,
    request: &Request,
    params: &Params,
    era: Era,
) -> Option<(HttpRequestContext, RequestSpan)> {
    if context.trace.span.is_some() || !trace::may_sample(context.name()) {
        return None;
    }
    let trace = lift::trace_of(params).or(&context.trace);
    // The replica that forwarded the request put its own span into the head.
    let trace = if context.is_forwarded() {
        trace.below(&context.trace)
    } else {
        trace
    };
    let method = request.method.known().map_or("other", Method::as_str);
    let random = &*context.ports().random;
    let attributes = || attributes(context, request, era);
    let span = ServerSpan::begin(&trace, method, context.name(), random, attributes)?;
    let trace = TraceContext {
        span: Some(span.clone()),
        ..trace
    };
    Some((
        HttpRequestContext {
            trace,
            ..context.clone()
        },
        RequestSpan::new(span),
    ))
}

/// Runs `answering` inside the span. Log lines in between name the trace; the answer's body or the
/// failure takes the span along. The failure is not rendered here: another replica may have to
/// answer the request.
pub async fn run_in_span(
    span: RequestSpan,
    answering: impl Future<Output = RequestResult>,
) -> RequestResult {
    match answering.instrument(span.log_span().clone()).await {
        Ok(mut answer) => {
            answer.body_mut().labels.span = Some(span);
            Ok(answer)
        }
        Err(failure) => Err(failure.in_span(span)),
    }
}

/// Runs `answering` for an item of a batch inside the span.
pub async fn run_item_in_span(
    span: RequestSpan,
    answering: impl Future<Output = Option<RenderedMessage>>,
) -> Option<RenderedMessage> {
    let answer = answering.instrument(span.log_span().clone()).await;
    // A cancelled request has no answer.
    let outcome = answer
        .as_ref()
        .map_or(RequestOutcome::Cancelled, |answer| answer.outcome);
    span.end_item(outcome);
    answer
}

/// Attributes by the semantic conventions for MCP. The session id is left out, because it grants
/// access to the session. Resource URIs are left out, too: they are unbounded, and some contain
/// secrets.
fn attributes(
    context: &HttpRequestContext,
    request: &Request,
    era: Era,
) -> Vec<(&'static str, AttributeValue)> {
    let id: String = String::from_utf8_lossy(request.id.as_json())
        .trim_matches('"')
        .chars()
        .take(MAX_REQUEST_ID_CHARS)
        .collect();
    let method = request.method.known();
    let mut all = vec![
        (
            "mcp.method.name",
            AttributeValue::Word(method.map_or("other", Method::as_str)),
        ),
        ("jsonrpc.request.id", AttributeValue::Text(id.into())),
        ("network.transport", AttributeValue::Word("tcp")),
        ("network.protocol.name", AttributeValue::Word("http")),
        (
            "weir.endpoint",
            AttributeValue::Text(context.endpoint().as_str().into()),
        ),
        (
            "weir.request.id",
            AttributeValue::Text(context.name().as_str().into()),
        ),
    ];
    all.push(("weir.era", AttributeValue::Word(era.as_str())));
    // The revision of a legacy request is that of its session, which is not known yet.
    if era == Era::Modern {
        let revision = AttributeValue::Word(Revision::MODERN.as_str());
        all.push(("mcp.protocol.version", revision));
    }
    if method == Some(Method::ToolsCall) {
        all.push((
            "gen_ai.operation.name",
            AttributeValue::Word("execute_tool"),
        ));
    }
    all
}
