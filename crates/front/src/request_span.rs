//! The trace span of a request, from its decoding to the end of its answer.

use std::sync::Arc;

use tracing::Instrument as _;
use weir_core::call::TraceContext;
use weir_core::trace::{self, AttributeValue, ServerSpan, SpanContext};
use weir_era::lift;
use weir_wire::Revision;
use weir_wire::message::Request;
use weir_wire::method::Method;
use weir_wire::params::Params;

use crate::answer::RenderedMessage;
use crate::observe::HttpAnswer;
use crate::outcome::RequestOutcome;
use crate::stack::HttpRequestContext;

/// The most characters of a client's request id in a span.
const MAX_REQUEST_ID_CHARS: usize = 64;

/// The span. Dropped before its end, it ends as cancelled.
#[derive(Debug)]
pub(crate) struct RequestSpan(Arc<ServerSpan>);

impl RequestSpan {
    /// Begins a span if this request is traced; returns the context with it. Requests of a batch
    /// each have a span, all or none.
    pub(crate) fn begin(
        context: &HttpRequestContext,
        request: &Request,
        params: &Params,
        modern: bool,
    ) -> Option<(HttpRequestContext, Self)> {
        if !trace::may_sample(&context.name) {
            return None;
        }
        let trace = lift::trace_of(params).or(&context.trace);
        let method = request.method.known().map_or("other", Method::as_str);
        let random = &*context.shared.ports.random;
        let attributes = || attributes(context, request, modern);
        let span = ServerSpan::begin(&trace, method, &context.name, random, attributes)?;
        let trace = TraceContext {
            span: Some(span.clone()),
            ..trace
        };
        Some((
            HttpRequestContext {
                trace,
                ..context.clone()
            },
            Self(span),
        ))
    }

    /// Runs `answering` inside the span. Log lines in between name the trace; the answer's body
    /// takes the span along.
    pub(crate) async fn run(self, answering: impl Future<Output = HttpAnswer>) -> HttpAnswer {
        let mut answer = answering.instrument(self.0.log().clone()).await;
        answer.body_mut().labels.span = Some(self);
        answer
    }

    /// Runs `answering` for an item of a batch, which has no status of its own.
    pub(crate) async fn run_item(
        self,
        answering: impl Future<Output = Option<RenderedMessage>>,
    ) -> Option<RenderedMessage> {
        let said = answering.instrument(self.0.log().clone()).await;
        // A cancelled request has no answer.
        let tally = said
            .as_ref()
            .map_or(RequestOutcome::Cancelled, |said| said.tally);
        self.0
            .end(tally.as_str(), tally != RequestOutcome::Ok, Vec::new());
        said
    }

    /// Ends the span with the answer.
    pub(crate) fn end(&self, tally: RequestOutcome, status: u16) {
        let status = vec![(
            "http.response.status_code",
            AttributeValue::Number(status.into()),
        )];
        self.0
            .end(tally.as_str(), tally != RequestOutcome::Ok, status);
    }

    /// The trace and span ids.
    pub(crate) fn span_context(&self) -> SpanContext {
        self.0.context()
    }

    /// The span of the log.
    pub(crate) fn log_span(&self) -> &tracing::Span {
        self.0.log()
    }
}

impl Drop for RequestSpan {
    fn drop(&mut self) {
        self.0
            .end(RequestOutcome::Cancelled.as_str(), true, Vec::new());
    }
}

/// Attributes by the semantic conventions for MCP. The session id is left out, because it grants
/// access to the session. Resource URIs are left out, too: they are unbounded, and some contain
/// secrets.
fn attributes(
    context: &HttpRequestContext,
    request: &Request,
    modern: bool,
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
            AttributeValue::Text(context.endpoint.as_str().into()),
        ),
        (
            "weir.request.id",
            AttributeValue::Text(context.name.as_str().into()),
        ),
        (
            "weir.era",
            AttributeValue::Word(if modern { "modern" } else { "legacy" }),
        ),
    ];
    if modern {
        all.push((
            "mcp.protocol.version",
            AttributeValue::Word(Revision::MODERN.as_str()),
        ));
    }
    if method == Some(Method::ToolsCall) {
        all.push((
            "gen_ai.operation.name",
            AttributeValue::Word("execute_tool"),
        ));
    }
    all
}
