//! The route of a request to the instance that it continues something at: a text that a server with
//! several URLs gave has the name of its URL in front.

use std::sync::Arc;

use weir_core::call::CallResumption;
use weir_core::upstream::OutboundCall;
use weir_core::{Call, CapabilityClass};
use weir_wire::Revision;
use weir_wire::method::Method;

use crate::called_server::CalledServer;
use crate::instances::{InstanceRoute, RequiredInstance, ServerInstance, instance_name};

/// A call with its route over several URLs; absent for a server with one.
pub(crate) type RoutedCall = (OutboundCall, Option<Arc<InstanceRoute>>);

impl CalledServer {
    /// Finds the URL that a call continues something at, and removes the URL's name from the call.
    pub(crate) fn route(&self, outbound: OutboundCall) -> RoutedCall {
        let (required, outbound) = self.take_name(outbound);
        let route = match self {
            Self::One(_) => None,
            Self::Several(_) => Some(Arc::new(InstanceRoute::new(required))),
        };
        (outbound, route)
    }

    fn take_name(&self, outbound: OutboundCall) -> (RequiredInstance, OutboundCall) {
        if is_bound_to_task(outbound.call.method) {
            let (required, native) = self.split_task(&outbound.native);
            let native = native.map_or_else(|| outbound.native.clone(), Arc::from);
            return (required, OutboundCall { native, ..outbound });
        }
        let Some(CallResumption::Upstream(state)) = &outbound.call.resume else {
            return (RequiredInstance::Any, outbound);
        };
        let Some((required, state)) = self.split(state) else {
            return (RequiredInstance::Any, outbound);
        };
        let resume = state.map(|state| CallResumption::Upstream(state.to_owned()));
        let call = Arc::new(Call {
            resume,
            ..(*outbound.call).clone()
        });
        (required, OutboundCall { call, ..outbound })
    }

    /// Finds the instance of a task, and the server's own id of it if `native` has a name in front.
    /// A task without a name began when the server had one URL, which is likely to be the first
    /// still.
    fn split_task<'a>(&self, native: &'a str) -> (RequiredInstance, Option<&'a str>) {
        match self.split(native) {
            Some((required, text)) => (required, text),
            None => (RequiredInstance::At(0), None),
        }
    }

    /// Splits a text with a name of a URL in front; absent if there is none. A name that is not of
    /// a server's only URL is left to the server.
    fn split<'a>(&self, text: &'a str) -> Option<(RequiredInstance, Option<&'a str>)> {
        let named = instance_name::split(text)?;
        let required = match self {
            Self::One(one) => {
                let is_own = one.name.as_ref().is_some_and(|own| own.is(named.name));
                is_own.then_some(RequiredInstance::Any)?
            }
            Self::Several(all) => all
                .position(named.name)
                .map_or(RequiredInstance::Removed, RequiredInstance::At),
        };
        Some((required, named.text))
    }

    /// Returns the instance of several that has a task, and the server's own id of the task.
    pub(crate) fn find_task<'a>(&self, native: &'a str) -> (Option<&Arc<ServerInstance>>, &'a str) {
        let (required, own) = self.split_task(native);
        let instance = match self {
            Self::One(_) => None,
            Self::Several(all) => required.position().and_then(|index| all.iter().nth(index)),
        };
        (instance, own.unwrap_or(native))
    }

    /// Returns the revision in which a client of this class is served at the instance that has a
    /// task.
    pub(crate) fn revision_of_task(
        &self,
        class: CapabilityClass,
        native: &str,
    ) -> Option<Revision> {
        match self {
            Self::One(one) => one.transport.revision_for(class),
            Self::Several(_) => self.find_task(native).0?.http.revision_for(class),
        }
    }
}

/// True for a request that only the instance with the task can answer.
const fn is_bound_to_task(method: Method) -> bool {
    matches!(
        method,
        Method::TasksGet | Method::TasksUpdate | Method::TasksCancel | Method::TasksResult
    )
}
