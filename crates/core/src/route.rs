//! The router: from an admitted call to the upstream that has the tool, and back.
//!
//! It accepts nothing but [`Admitted`] calls, checks arguments against the tool's schema before any upstream hears of
//! the call, and sees to it that every call leaves one record of how it ended.

mod check;
mod record;

use std::fmt;
use std::sync::Arc;

use weir_wire::method::Method;

use crate::admit::Admitted;
use crate::call::Call;
use crate::catalog::{Catalog, Item, Tool, View};
use crate::endpoint::Mode;
use crate::failure::{Failure, FailureKind};
use crate::port::Audit;
use crate::reply::{End, Event, Reply};
use crate::upstream::{Outbound, Upstream};
use record::Record;

/// The router. One for all endpoints; it holds no state of its own.
pub struct Router {
    catalog: Arc<Catalog>,
    audit: Arc<dyn Audit>,
}

impl Router {
    /// Routes by what `catalog` knows, and tells `audit` how calls end.
    #[must_use]
    pub fn new(catalog: Arc<Catalog>, audit: Arc<dyn Audit>) -> Self {
        Self { catalog, audit }
    }

    /// Makes a call. The reply is given as soon as its first event is known or the wait for it begins; whatever goes wrong
    /// is its end. Dropping the future or the reply cancels the call at the upstream.
    pub async fn call(&self, call: Admitted<Call>) -> Reply {
        let (principal, call) = call.into_parts();
        let call = Arc::new(call);
        let mut record = Record::begin(self.audit.clone(), principal.clone(), call.clone());
        let (item, upstream) = match self.find(&call).await {
            Ok(found) => found,
            Err(failure) => return record.on(Reply::ended(failure), None),
        };
        record.labels = Some(item.tool.labels.clone());
        if let Err(failure) = check::arguments(&item, &call) {
            return record.on(Reply::ended(failure), None);
        }
        let own = self.catalog.endpoint(&call.endpoint).and_then(|endpoint| endpoint.deadlines);
        let deadlines = own.map_or(item.terms.deadlines, |own| item.terms.deadlines.cut(own));
        let outbound =
            Outbound { principal, call, native: item.tool.native.clone(), tool: Some(item.tool.clone()), deadlines };
        let reply = upstream.call(outbound).await;
        record.on(reply, check::Results::of(&item))
    }

    /// The tool a call names and the upstream that has it.
    async fn find(&self, call: &Call) -> Result<(Item, Arc<dyn Upstream>), Failure> {
        if call.method != Method::ToolsCall {
            return Err(Failure::new(FailureKind::MethodNotFound, "This method is not served"));
        }
        let name = call.params.name().map_err(|error| Failure::invalid_params(error.to_string()))?;
        let name = name.ok_or_else(|| Failure::invalid_params("`name` is missing: say which tool to call"))?;
        let class = call.capabilities.class;
        let gone = || Failure::new(FailureKind::Unavailable, "This endpoint is not served any more");
        let mut view = self.catalog.view(&call.endpoint, class).ok_or_else(gone)?;
        if view.find(&name).item().is_none() && !view.settled {
            // Right after a start nothing is known yet: the tool may well be there in a moment.
            view = self.catalog.settled(&call.endpoint, class).await;
        }
        let item = view.find(&name).item().ok_or_else(|| self.missing(&view, call, &name))?;
        let upstream = self.catalog.upstream(&item.tool.upstream).ok_or_else(|| Failure::unknown_tool(&name))?;
        Ok((item.clone(), upstream))
    }

    /// A name that nothing has now. Where it can only be of an upstream whose tools are not known, that is the answer: a
    /// model that is told "unknown tool" would give it up for good.
    fn missing(&self, view: &View, call: &Call, name: &str) -> Failure {
        let transparent = self.catalog.endpoint(&call.endpoint).is_some_and(|e| matches!(e.mode, Mode::Transparent(_)));
        let down = view.missing.iter().filter(|missing| matches!(missing.reason, "pending" | "down"));
        let owner = down.map(|missing| &missing.upstream).find(|id| {
            transparent
                || name
                    .strip_prefix(id.as_str())
                    .is_some_and(|rest| !rest.is_empty() && !rest.starts_with(char::is_alphanumeric))
        });
        match owner {
            Some(id) => Failure::new(
                FailureKind::Unavailable,
                "The server that has this tool cannot be reached now; try again later",
            )
            .at(id),
            None => Failure::unknown_tool(name),
        }
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Router").field(&self.catalog).finish()
    }
}

/// Passes an end through the checks of the tool's results, if there are any.
fn checked(end: End, results: Option<&check::Results>) -> End {
    match results {
        Some(results) => results.check(end),
        None => end,
    }
}

/// For the metrics of checks.
fn upstream_label(tool: &Tool) -> opentelemetry::KeyValue {
    tool.labels.first().cloned().unwrap_or_else(|| opentelemetry::KeyValue::new("upstream", ""))
}

fn is_end(event: &Event) -> bool {
    matches!(event, Event::End(_))
}
