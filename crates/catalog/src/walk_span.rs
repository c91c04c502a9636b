//! Tracing of a walk over an upstream's lists: one span for the walk, and one for each page.

use tokio::time::Instant;
use weir_core::CallOutcome;
use weir_core::capability::CapabilityClass;
use weir_core::failure::Failure;
use weir_core::names::UpstreamId;
use weir_core::port::BoxFuture;
use weir_core::trace::own_span::OwnSpan;
use weir_core::trace::{AttributeValue, FinishedCall};
use weir_core::upstream::{ListKind, ListKinds, ListPage, ListWatch, ServerDescription};

use crate::context::CatalogContext;

/// The name of the span of a walk.
const SPAN_NAME: &str = "catalog walk";

/// The span of a walk, if it is recorded.
pub(super) struct WalkSpan(Option<OwnSpan>);

impl WalkSpan {
    pub(super) fn begin(context: &CatalogContext) -> Self {
        Self(OwnSpan::begin(SPAN_NAME, &*context.ports.random))
    }

    /// Wraps a watch so that its pages are recorded as spans.
    pub(super) fn wrap_watch<'a>(
        &'a self,
        context: &'a CatalogContext,
        upstream: &'a UpstreamId,
        watch: &'a mut dyn ListWatch,
    ) -> TracedPages<'a> {
        TracedPages {
            span: self.0.as_ref(),
            context,
            upstream,
            watch,
        }
    }

    /// Ends the span of the walk.
    pub(super) fn end(
        self,
        upstream: &UpstreamId,
        class: CapabilityClass,
        result: &Result<(), Failure>,
    ) {
        let Some(span) = self.0 else { return };
        let attributes = vec![
            (
                "weir.upstream",
                AttributeValue::Text(upstream.as_str().into()),
            ),
            ("weir.class", AttributeValue::Text(class.to_string().into())),
        ];
        span.end(outcome(result), attributes);
    }
}

/// A watch with a span for each page, if the walk has a span.
pub(super) struct TracedPages<'a> {
    span: Option<&'a OwnSpan>,
    context: &'a CatalogContext,
    upstream: &'a UpstreamId,
    watch: &'a mut dyn ListWatch,
}

impl ListWatch for TracedPages<'_> {
    fn about(&self) -> &ServerDescription {
        self.watch.about()
    }

    fn list(
        &mut self,
        kind: ListKind,
        cursor: Option<String>,
    ) -> BoxFuture<'_, Result<ListPage, Failure>> {
        let Some(span) = self.span else {
            return self.watch.list(kind, cursor);
        };
        Box::pin(async move {
            let began = Instant::now();
            let page = self.watch.list(kind, cursor).await;
            let method = kind.method().as_str();
            let attributes = vec![
                ("mcp.method.name", AttributeValue::Word(method)),
                (
                    "weir.upstream",
                    AttributeValue::Text(self.upstream.as_str().into()),
                ),
            ];
            let finished = FinishedCall {
                method,
                took: began.elapsed(),
                outcome: outcome(&page),
                attributes,
            };
            span.record_call(&*self.context.ports.random, finished);
            page
        })
    }

    fn next_change(&mut self) -> BoxFuture<'_, Result<ListKinds, Failure>> {
        self.watch.next_change()
    }
}

fn outcome<T>(result: &Result<T, Failure>) -> CallOutcome {
    result
        .as_ref()
        .map_or_else(CallOutcome::from, |_| CallOutcome::Complete)
}
