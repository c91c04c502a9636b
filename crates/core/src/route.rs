//! The router: from an admitted call to the upstream that has the tool, and back.
//!
//! It takes calls whose sender is known, sends nothing but [`Admitted`] ones, checks arguments against the tool's schema
//! before any upstream hears of the call, and sees to it that every call leaves one record.

mod check;
mod record;

use std::fmt;
use std::sync::Arc;

use weir_wire::method::Method;

use crate::admit::{Admitted, Authenticated, Gates, Parts, admit};
use crate::call::Call;
use crate::catalog::{Catalog, Item, Tool, View};
use crate::endpoint::Mode;
use crate::failure::{Failure, FailureKind};
use crate::port::{Attempt, Decision, Sight};
use crate::principal::Principal;
use crate::reply::{End, Event, Reply};
use crate::upstream::Outbound;
use record::{Begun, Record};

/// The router. One for all endpoints; it holds no state of its own.
pub struct Router {
    catalog: Arc<Catalog>,
    gates: Gates,
}

impl Router {
    /// Routes by what `catalog` knows and `gates` let through.
    #[must_use]
    pub fn new(catalog: Arc<Catalog>, gates: Gates) -> Self {
        Self { catalog, gates }
    }

    /// Makes a call, if its sender may. The reply is given as soon as its first event is known or the wait for it begins;
    /// whatever goes wrong is its end. Dropping the future or the reply cancels the call, at the upstream too.
    pub async fn call(&self, call: Authenticated<Call>) -> Reply {
        let call = call.map(Arc::new);
        let item = match self.find(call.principal(), call.inner()).await {
            Ok(item) => item,
            Err(failure) => return self.refused(&call, failure),
        };
        match admit(&self.gates, call, item).await {
            Ok(call) => self.send(call).await,
            Err(failure) => Reply::ended(failure),
        }
    }

    /// Sends an admitted call to the upstream that has the tool.
    async fn send(&self, call: Admitted) -> Reply {
        let Parts { principal, token, call, item, verdict, permit } = call.into_parts();
        let begun = Begun { principal: principal.clone(), call: call.clone(), item: item.clone(), verdict, permit };
        let record = Record::begin(self.gates.audit.clone(), begun);
        if let Err(failure) = check::arguments(&item, &call) {
            return record.on(Reply::ended(failure), None);
        }
        let Some(upstream) = self.catalog.upstream(&item.tool.upstream) else {
            return record.on(Reply::ended(Failure::unknown_tool(&item.exposed)), None);
        };
        let own = self.catalog.endpoint(&call.endpoint).and_then(|endpoint| endpoint.deadlines);
        let deadlines = own.map_or(item.terms.deadlines, |own| item.terms.deadlines.cut(own));
        let outbound = Outbound {
            principal,
            token,
            call,
            native: item.tool.native.clone(),
            tool: Some(item.tool.clone()),
            deadlines,
        };
        let reply = upstream.call(outbound).await;
        record.on(reply, check::Results::of(&item))
    }

    /// A call of nothing that its sender can see. It is on record like every other refusal.
    fn refused(&self, call: &Authenticated<Arc<Call>>, failure: Failure) -> Reply {
        let attempt = Attempt { principal: call.principal(), call: call.inner(), item: None };
        match self.gates.audit.decided(&attempt, Decision::Refused(&failure)) {
            Ok(()) => Reply::ended(failure),
            Err(unrecorded) => Reply::ended(unrecorded),
        }
    }

    /// The tool a call names, as its sender sees it.
    async fn find(&self, principal: &Principal, call: &Call) -> Result<Item, Failure> {
        if call.method != Method::ToolsCall {
            return Err(Failure::new(FailureKind::MethodNotFound, "This method is not served"));
        }
        let name = call.params.name().map_err(|error| Failure::invalid_params(error.to_string()))?;
        let name = name.ok_or_else(|| Failure::invalid_params("`name` is missing: say which tool to call"))?;
        let (endpoint, class) = (&call.endpoint, call.capabilities.class);
        let gone = || Failure::new(FailureKind::Unavailable, "This endpoint is not served any more");
        let mut whole = self.catalog.view(endpoint, class).ok_or_else(gone)?;
        let mut view = self.catalog.part(endpoint, whole.clone(), principal);
        if view.find(&name).item().is_none() && !whole.settled {
            // Right after a start nothing is known yet: the tool may well be there in a moment.
            whole = self.catalog.settled(endpoint, class).await;
            view = self.catalog.part(endpoint, whole.clone(), principal);
        }
        match view.find(&name).item() {
            Some(item) => Ok(item.clone()),
            None => Err(self.unseen(principal, call, (&whole, &view), &name)),
        }
    }

    /// A name under which the sender sees nothing: scopes it could ask for may show it.
    fn unseen(&self, principal: &Principal, call: &Call, (whole, view): (&View, &View), name: &str) -> Failure {
        let hidden = whole.find(name).item().map(|item| self.gates.authorizer.may_see(principal, &call.endpoint, item));
        match hidden {
            Some(Sight::Scopes(scopes)) => {
                Failure::new(FailureKind::InsufficientScope(scopes), "This tool takes scopes that your token lacks")
            }
            // One that may not be seen looks like one that is not there.
            Some(Sight::Hidden | Sight::Seen) => Failure::unknown_tool(name),
            None => self.missing(view, call, name),
        }
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
