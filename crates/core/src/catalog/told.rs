//! Tracing of a walk over an upstream's lists: one span for the walk, and one for each page.

use tokio::time::Instant;

use super::works::Works;
use crate::capability::CapabilityClass;
use crate::failure::Failure;
use crate::names::UpstreamId;
use crate::port::Fut;
use crate::trace::{Asked, OwnSpan, Value};
use crate::upstream::{About, Kinds, ListKind, ListPage, Watch};

/// The name of the span of a walk.
const NAME: &str = "catalog walk";

/// The span of a walk, if it is recorded.
pub(super) struct Walking(Option<OwnSpan>);

impl Walking {
    pub(super) fn begin(works: &Works) -> Self {
        Self(OwnSpan::begin(NAME, &*works.ports.random))
    }

    /// Wraps a watch so that its pages are recorded as spans.
    pub(super) fn over<'a>(
        &'a self,
        works: &'a Works,
        upstream: &'a UpstreamId,
        watch: &'a mut dyn Watch,
    ) -> Pages<'a> {
        Pages {
            span: self.0.as_ref(),
            works,
            upstream,
            watch,
        }
    }

    /// Ends the span of the walk.
    pub(super) fn end(
        self,
        (upstream, class): (&UpstreamId, CapabilityClass),
        result: &Result<(), Failure>,
    ) {
        let Some(span) = self.0 else { return };
        let attributes = vec![
            ("weir.upstream", Value::Text(upstream.as_str().into())),
            ("weir.class", Value::Text(class.to_string().into())),
        ];
        span.end(outcome(result), result.is_err(), attributes);
    }
}

/// A watch with a span for each page, if the walk has a span.
pub(super) struct Pages<'a> {
    span: Option<&'a OwnSpan>,
    works: &'a Works,
    upstream: &'a UpstreamId,
    watch: &'a mut dyn Watch,
}

impl Watch for Pages<'_> {
    fn about(&self) -> &About {
        self.watch.about()
    }

    fn list(
        &mut self,
        kind: ListKind,
        cursor: Option<String>,
    ) -> Fut<'_, Result<ListPage, Failure>> {
        let Some(span) = self.span else {
            return self.watch.list(kind, cursor);
        };
        Box::pin(async move {
            let began = Instant::now();
            let page = self.watch.list(kind, cursor).await;
            let method = kind.method().as_str();
            let attributes = vec![
                ("mcp.method.name", Value::Word(method)),
                ("weir.upstream", Value::Text(self.upstream.as_str().into())),
            ];
            let (outcome, failed) = (outcome(&page), page.is_err());
            let asked = Asked {
                method,
                took: began.elapsed(),
                outcome,
                failed,
                attributes,
            };
            span.asked(&*self.works.ports.random, asked);
            page
        })
    }

    fn changed(&mut self) -> Fut<'_, Result<Kinds, Failure>> {
        self.watch.changed()
    }
}

fn outcome<T>(result: &Result<T, Failure>) -> &'static str {
    result.as_ref().map_or_else(Failure::reason, |_| "complete")
}
