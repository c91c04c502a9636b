//! One upstream server, as core's port has it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tokio::sync::Semaphore;
use weir_core::names::UpstreamId;
use weir_core::port::Fut;
use weir_core::reply::Reply;
use weir_core::upstream::{
    ClientSessionChange, HandoverSession, ListWatch, OutboundCall, ProgressReports,
    ResourceUpdates, TaskNotifications, Upstream, UpstreamHealth,
};
use weir_core::{CapabilityClass, Failure, Principal, SessionKey};
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_wire::Revision;

use crate::server_transport::ServerTransport;
use crate::stack::CallStack;
use crate::tasks::{self, TaskRequests};

/// The grace time for the last tasks of a retired upstream, which end sessions and children.
const RETIRE_GRACE: Duration = Duration::from_secs(6);

/// One upstream.
#[derive(Debug)]
pub(crate) struct UpstreamService {
    site: Arc<UpstreamContext>,
    stack: Arc<CallStack>,
    tasks: Arc<TaskRequests>,
    /// The permits of tasks with a subscription to their status.
    follow_permits: Arc<Semaphore>,
}

/// The most tasks with a subscription at the same time: each is a stream. Further tasks have no
/// subscription.
const MAX_FOLLOWED_TASKS: usize = 256;

impl UpstreamService {
    pub(crate) fn new(
        site: Arc<UpstreamContext>,
        transport: ServerTransport,
        baggage: bool,
    ) -> Self {
        let stack = Arc::new(CallStack::new(site.clone(), transport, baggage));
        Self {
            tasks: Arc::new(TaskRequests::new(site.clone(), stack.clone())),
            site,
            stack,
            follow_permits: Arc::new(Semaphore::new(MAX_FOLLOWED_TASKS)),
        }
    }

    fn transport(&self) -> &ServerTransport {
        &self.stack.attempts.transport
    }

    async fn open_watch(&self, class: CapabilityClass) -> Result<Box<dyn ListWatch>, Failure> {
        let opened = self.transport().watch(class).await;
        self.stack.attempts.record(opened.as_ref().err());
        opened.map_err(|refusal| refusal.failure)
    }

    async fn open_updates(&self) -> Result<Box<dyn ResourceUpdates>, Failure> {
        let opened = self.transport().updates().await;
        self.stack.attempts.record(opened.as_ref().err());
        opened.map_err(|refusal| refusal.failure)
    }
}

impl Upstream for UpstreamService {
    fn id(&self) -> &UpstreamId {
        &self.site.label.id
    }

    fn call(self: Arc<Self>, outbound: OutboundCall) -> Fut<'static, Reply> {
        if tasks::is_about_task(outbound.call.method) {
            return Box::pin(tasks::call(self.tasks.clone(), outbound));
        }
        Box::pin(self.stack.call(outbound))
    }

    fn watch(
        self: Arc<Self>,
        class: CapabilityClass,
    ) -> Fut<'static, Result<Box<dyn ListWatch>, Failure>> {
        Box::pin(async move { self.open_watch(class).await })
    }

    fn updates(self: Arc<Self>) -> Fut<'static, Result<Box<dyn ResourceUpdates>, Failure>> {
        Box::pin(async move { self.open_updates().await })
    }

    fn open_client_session(self: Arc<Self>, outbound: OutboundCall) {
        // A child is for a principal and not for a session: its first call starts it. A permit
        // keeps many clients that begin at once from opening more connections than calls may.
        let ServerTransport::Http(_) = self.transport() else {
            return;
        };
        let Some(place) = self.stack.in_flight.try_acquire() else {
            return;
        };
        if self.stack.attempts.breaker.is_open() {
            return;
        }
        let outbound = self.stack.strip_baggage(outbound);
        let site = self.site.clone();
        site.tasks.spawn(async move {
            let _place = place;
            if let ServerTransport::Http(server) = self.transport() {
                server.welcome(&outbound).await;
            }
        });
    }

    fn follow_task(
        self: Arc<Self>,
        outbound: OutboundCall,
    ) -> Fut<'static, Option<TaskNotifications>> {
        Box::pin(async move {
            let place = self.follow_permits.clone().try_acquire_owned().ok()?;
            let rings = self.transport().follow(&outbound).await?;
            let held = stream::unfold((rings, place), |(mut rings, place)| async move {
                rings.next().await.map(|()| ((), (rings, place)))
            });
            Some(Box::pin(held) as TaskNotifications)
        })
    }

    fn task_progress(&self, principal: &Principal, native: &str) -> Option<ProgressReports> {
        let ear = self
            .site
            .task_progress
            .listen((principal.clone(), native.into()))?;
        Some(Box::pin(ear))
    }

    fn carries(&self) -> CapabilityClass {
        self.transport().carries()
    }

    fn notify_sessions(&self, sessions: &HashSet<SessionKey>, news: ClientSessionChange) {
        self.transport().forward_session_news(sessions, news);
    }

    fn export_sessions(self: Arc<Self>) -> Fut<'static, Vec<HandoverSession>> {
        Box::pin(async move { self.transport().export_sessions().await })
    }

    fn import_session(self: Arc<Self>, session: HandoverSession) -> Fut<'static, ()> {
        Box::pin(async move { self.transport().import_session(session).await })
    }

    fn open_time(&self, usual: Duration) -> Duration {
        self.transport().open_time(usual)
    }

    fn health(&self) -> UpstreamHealth {
        let (transport, breaker) = (self.transport(), &self.stack.attempts.breaker);
        let (last_error, last_error_at) = self.site.record.last_error().unzip();
        UpstreamHealth {
            revision: transport.revision().map(Revision::as_str),
            second_revision: transport.second_revision().map(Revision::as_str),
            down: breaker.is_failing(),
            breaker_open: breaker.is_open(),
            last_error,
            last_error_at,
            starting: transport.starting(),
            last_lines: self.site.record.last_lines(),
            in_flight: self.stack.in_flight.count(),
            sessions: transport.sessions(),
        }
    }

    fn retire(self: Arc<Self>, grace: Duration) -> Fut<'static, ()> {
        Box::pin(async move {
            // Calls that still run after the grace lose their server.
            self.stack.in_flight.wait_for_end(grace).await;
            self.transport().close().await;
            self.site.tasks.stop(RETIRE_GRACE).await;
        })
    }
}
