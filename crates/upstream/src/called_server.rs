//! The server of an upstream as a whole: requests that are no calls, and its state.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use weir_core::call::CallResumption;
use weir_core::upstream::{
    ClientSessionChange, HandoverSession, InstanceHealth, ListWatch, OutboundCall, ProcessStart,
    ResourceUpdates, TaskNotifications,
};
use weir_core::{Call, CapabilityClass, Failure, SessionKey};
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_wire::Revision;
use weir_wire::method::Method;

use crate::call_attempts::{CallAttempts, CalledServer};
use crate::instances::{InstanceRoute, RequiredInstance, instance_name};
use crate::server_transport::ServerTransport;
use crate::single_server::SingleServerWatch;

/// A call with its way over several URLs; absent for a server with one.
pub(crate) type RoutedCall = (OutboundCall, Option<Arc<InstanceRoute>>);

impl CallAttempts {
    /// Finds the URL that a call continues something at, and removes the URL's name from the call.
    pub(crate) fn route(&self, outbound: OutboundCall) -> RoutedCall {
        let (required, outbound) = self.take_name(outbound);
        let route = match &self.server {
            CalledServer::One(_) => None,
            CalledServer::Several(_) => Some(Arc::new(InstanceRoute::new(required))),
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
        let required = match &self.server {
            CalledServer::One(one) => {
                let is_own = one.name.as_ref().is_some_and(|own| own.is(named.name));
                is_own.then_some(RequiredInstance::Any)?
            }
            CalledServer::Several(all) => all
                .position(named.name)
                .map_or(RequiredInstance::Removed, RequiredInstance::At),
        };
        Some((required, named.text))
    }

    /// Returns the handles of the instance that has a task, and the server's own id of the task.
    pub(crate) fn of_task<'a>(&'a self, native: &'a str) -> (&'a UpstreamContext, &'a str) {
        let (required, own) = self.split_task(native);
        let context = match (&self.server, required) {
            (CalledServer::Several(all), RequiredInstance::At(index)) => all
                .iter()
                .nth(index)
                .map_or(&self.context, |one| &one.context),
            _ => &self.context,
        };
        (context, own.unwrap_or(native))
    }

    /// Opens a watch of the server's lists, and records the outcome.
    pub(crate) async fn watch(
        &self,
        class: CapabilityClass,
    ) -> Result<Box<dyn ListWatch>, Failure> {
        let opened = match &self.server {
            CalledServer::One(one) => {
                let start = one.breaker.begin();
                let opened = one.transport.watch(class).await;
                one.record_opened(&self.context, start, opened.as_ref().err());
                opened.map(|inner| {
                    Box::new(SingleServerWatch {
                        inner,
                        server: one.clone(),
                        context: self.context.clone(),
                    }) as Box<dyn ListWatch>
                })
            }
            CalledServer::Several(all) => all.watch(class).await,
        };
        opened.map_err(failure_of)
    }

    /// Opens a subscription to updates of single resources, and records the outcome.
    pub(crate) async fn updates(&self) -> Result<Box<dyn ResourceUpdates>, Failure> {
        let opened = match &self.server {
            CalledServer::One(one) => {
                let start = one.breaker.begin();
                let opened = one.transport.updates().await;
                one.record_opened(&self.context, start, opened.as_ref().err());
                opened
            }
            CalledServer::Several(all) => all.updates().await,
        };
        opened.map_err(failure_of)
    }

    /// Subscribes to a task's status; absent if the server has no such subscription.
    pub(crate) async fn follow(&self, outbound: OutboundCall) -> Option<TaskNotifications> {
        let (outbound, route) = self.route(outbound);
        match &self.server {
            CalledServer::One(one) => one.transport.follow(&outbound).await,
            CalledServer::Several(all) => all.follow(&outbound, route.as_deref()?).await,
        }
    }

    /// Opens the session for the calls of a client's session, at a server over HTTP.
    pub(crate) async fn welcome(&self, outbound: OutboundCall) {
        let (outbound, route) = self.route(outbound);
        match (&self.server, route) {
            (CalledServer::One(one), _) => {
                if let ServerTransport::Http(server) = &one.transport {
                    server.welcome(&outbound).await;
                }
            }
            (CalledServer::Several(all), Some(route)) => all.welcome(&outbound, &route).await,
            (CalledServer::Several(_), None) => {}
        }
    }
}

impl CalledServer {
    /// True for a server behind URLs, false for a child process.
    pub(crate) fn is_http(&self) -> bool {
        match self {
            Self::One(one) => matches!(one.transport, ServerTransport::Http(_)),
            Self::Several(_) => true,
        }
    }

    /// True while calls fail at once.
    pub(crate) fn fails_at_once(&self) -> bool {
        match self {
            Self::One(one) => one.breaker.is_open(),
            Self::Several(all) => all.fail_at_once(),
        }
    }

    /// True if the server cannot be reached, or hangs; of several URLs, if none of them takes calls.
    pub(crate) fn is_down(&self) -> bool {
        match self {
            Self::One(one) => one.breaker.is_down(),
            Self::Several(all) => all.are_down(),
        }
    }

    /// Returns the time at which [`Self::is_down`] changed last.
    pub(crate) fn down_changed(&self, context: &UpstreamContext) -> Option<SystemTime> {
        let changed = match self {
            Self::One(one) => one.breaker.changed(),
            Self::Several(all) => all.down_changed(),
        }?;
        let age = context.clock.now().saturating_sub(changed);
        context.clock.wall().checked_sub(age)
    }

    /// Returns the server's revision, once it is known; of several URLs, that of the watched one.
    pub(crate) fn revision(&self) -> Option<Revision> {
        match self {
            Self::One(one) => one.transport.revision(),
            Self::Several(all) => all.watched()?.http.revision(),
        }
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
            Self::Several(all) => {
                let named = instance_name::split(native);
                let index = named.map_or(Some(0), |named| all.position(named.name));
                all.iter().nth(index?)?.http.revision_for(class)
            }
        }
    }

    /// Returns the older revision that the server speaks as well, if it is known to have one.
    pub(crate) fn second_revision(&self) -> Option<Revision> {
        match self {
            Self::One(one) => one.transport.second_revision(),
            Self::Several(all) => all.watched()?.http.second_revision(),
        }
    }

    /// Returns the capabilities that are carried to the server, by its known eras.
    pub(crate) fn carries(&self) -> CapabilityClass {
        match self {
            Self::One(one) => one.transport.carries(),
            Self::Several(all) => all
                .watched()
                .map_or(CapabilityClass::BASE, |watched| watched.http.carries()),
        }
    }

    /// True while it is unknown if a server without sessions so far has sessions as well; of
    /// several URLs, the watched one.
    pub(crate) fn may_find_sessions(&self) -> bool {
        match self {
            Self::One(one) => one.transport.may_find_sessions(),
            Self::Several(all) => all
                .watched()
                .is_some_and(|watched| watched.http.may_find_sessions()),
        }
    }

    /// Finds that out as this call would.
    pub(crate) async fn find_sessions(&self, outbound: &OutboundCall) {
        match self {
            Self::One(one) => one.transport.find_sessions(outbound).await,
            Self::Several(all) => {
                if let Some(watched) = all.watched() {
                    watched.http.find_sessions(outbound).await;
                }
            }
        }
    }

    /// Forwards news of client sessions.
    pub(crate) fn forward_session_news(
        &self,
        sessions: &HashSet<SessionKey>,
        news: ClientSessionChange,
    ) {
        match self {
            Self::One(one) => one.transport.forward_session_news(sessions, news),
            Self::Several(all) => all.forward_session_news(sessions, news),
        }
    }

    /// Returns the number of open sessions or processes.
    pub(crate) fn sessions(&self) -> usize {
        match self {
            Self::One(one) => one.transport.sessions(),
            Self::Several(all) => all.iter().map(|one| one.http.sessions()).sum(),
        }
    }

    /// Implements [`weir_core::upstream::Upstream::export_sessions`].
    pub(crate) async fn export_sessions(&self) -> Vec<HandoverSession> {
        match self {
            Self::One(one) => one.transport.export_sessions().await,
            Self::Several(all) => all.export_sessions(),
        }
    }

    /// Implements [`weir_core::upstream::Upstream::import_session`].
    pub(crate) async fn import_session(&self, session: HandoverSession) {
        match self {
            Self::One(one) => one.transport.import_session(session).await,
            Self::Several(all) => all.import_session(&session.description),
        }
    }

    /// Returns the time limit for opening a session of a usual server, or a process.
    pub(crate) fn open_time(&self, usual: Duration) -> Duration {
        match self {
            Self::One(one) => one.transport.open_time(usual),
            Self::Several(_) => usual,
        }
    }

    /// Returns the process that has not answered yet, for operators.
    pub(crate) fn starting(&self) -> Option<ProcessStart> {
        match self {
            Self::One(one) => one.transport.starting(),
            Self::Several(_) => None,
        }
    }

    /// Returns the last failure's cause and its time: of several URLs, the latest of all.
    pub(crate) fn last_error(&self, context: &UpstreamContext) -> Option<(String, SystemTime)> {
        match self {
            Self::One(_) => context.record.last_error(),
            Self::Several(all) => {
                let all = all.iter().filter_map(|one| one.context.record.last_error());
                all.max_by_key(|(_, at)| *at)
            }
        }
    }

    /// Describes the instances of a server with several URLs, for operators.
    pub(crate) fn instances(&self) -> Vec<InstanceHealth> {
        match self {
            Self::One(_) => Vec::new(),
            Self::Several(all) => all.health(),
        }
    }

    /// Ends all sessions or processes.
    pub(crate) async fn close(&self) {
        match self {
            Self::One(one) => one.transport.close().await,
            Self::Several(all) => all.close().await,
        }
    }
}

fn failure_of(refusal: FailedAttempt) -> Failure {
    refusal.failure
}

/// True for a request that only the instance with the task can answer.
const fn is_bound_to_task(method: Method) -> bool {
    matches!(
        method,
        Method::TasksGet | Method::TasksUpdate | Method::TasksCancel | Method::TasksResult
    )
}
