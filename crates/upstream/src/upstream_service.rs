//! One upstream server, as core's port has it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tokio::sync::Semaphore;
use weir_core::call::{Call, TraceContext};
use weir_core::names::UpstreamId;
use weir_core::port::Fut;
use weir_core::reply::Reply;
use weir_core::upstream::{
    ClientSessionChange, HandoverSession, ListWatch, OutboundCall, ProgressReports,
    ResourceUpdates, TaskNotifications, Upstream, UpstreamHealth,
};
use weir_core::{CapabilityClass, Failure, FailureKind, Principal, SessionKey};
use weir_era::upstream_messages::ResendProof;

use crate::breaker::Breaker;
use crate::failed_attempt::FailedAttempt;
use crate::stack;
use crate::stdio::StdioUpstream;
use crate::streamable::HttpUpstream;
use crate::tasks;
use crate::upstream_context::UpstreamContext;

/// The grace time for the last tasks of a retired upstream, which end sessions and children.
const RETIRE_GRACE: Duration = Duration::from_secs(6);

/// One upstream.
#[derive(Debug)]
pub(crate) struct UpstreamService {
    pub(crate) site: Arc<UpstreamContext>,
    pub(crate) transport: ServerTransport,
    pub(crate) breaker: Breaker,
    /// The permits of calls in flight.
    pub(crate) call_permits: Arc<Semaphore>,
    /// True if the baggage of callers is forwarded.
    baggage: bool,
    /// The results of older servers' tasks, held open for their questions.
    pub(crate) task_results: tasks::TaskResultRequests,
    /// The permits of tasks with a subscription to their status.
    follow_permits: Arc<Semaphore>,
}

/// The most tasks with a subscription at the same time: each is a stream. Further tasks have no
/// subscription.
const MAX_FOLLOWED_TASKS: usize = 256;

/// The transport to the server.
#[derive(Debug)]
pub(crate) enum ServerTransport {
    Http(Box<HttpUpstream>),
    Stdio(Arc<StdioUpstream>),
}

impl ServerTransport {
    /// Makes one attempt at a call. `again` is the proof of the attempt before.
    pub(crate) async fn call(
        &self,
        outbound: &OutboundCall,
        again: Option<ResendProof>,
    ) -> Result<Reply, FailedAttempt> {
        match self {
            Self::Http(server) => server.call(outbound, again).await,
            Self::Stdio(server) => server.call(outbound).await,
        }
    }

    /// Returns the server's revision, once it is known.
    pub(crate) fn revision(&self) -> Option<&'static str> {
        match self {
            Self::Http(server) => server.revision(),
            Self::Stdio(server) => server.revision(),
        }
    }

    /// Returns the server's revision for a client of this class.
    pub(crate) fn revision_for(&self, class: CapabilityClass) -> Option<&'static str> {
        match self {
            Self::Http(server) => server.revision_for(class),
            Self::Stdio(server) => server.revision_for(class),
        }
    }

    /// Returns the older revision that the server speaks as well, if it is known to have one.
    fn second_revision(&self) -> Option<&'static str> {
        match self {
            Self::Http(server) => server.second_revision(),
            Self::Stdio(server) => server.second_revision(),
        }
    }

    fn doubt_era(&self) {
        match self {
            Self::Http(server) => server.doubt_era(),
            Self::Stdio(server) => server.doubt_era(),
        }
    }
}

impl UpstreamService {
    pub(crate) fn new(site: Arc<UpstreamContext>, line: ServerTransport, baggage: bool) -> Self {
        let places = Arc::new(Semaphore::new(site.bounds.in_flight));
        let held = tasks::TaskResultRequests::new(site.clone());
        let followed = Arc::new(Semaphore::new(MAX_FOLLOWED_TASKS));
        Self {
            site,
            transport: line,
            breaker: Breaker::default(),
            call_permits: places,
            baggage,
            task_results: held,
            follow_permits: followed,
        }
    }

    /// Removes the baggage from the call, unless this server may have it.
    pub(crate) fn strip_baggage(&self, outbound: OutboundCall) -> OutboundCall {
        if self.baggage || outbound.call.trace.baggage.is_none() {
            return outbound;
        }
        let trace = TraceContext {
            baggage: None,
            ..outbound.call.trace.clone()
        };
        OutboundCall {
            call: Arc::new(Call {
                trace,
                ..(*outbound.call).clone()
            }),
            ..outbound
        }
    }

    /// Records the outcome of an attempt.
    pub(crate) fn record_attempt(&self, refusal: Option<&FailedAttempt>) {
        match refusal {
            None => self.breaker.record_success(),
            Some(refusal) => {
                if refusal.era_in_doubt {
                    self.transport.doubt_era();
                }
                self.site.note_error(&refusal.failure);
                match (refusal.not_reached, refusal.not_attempted) {
                    (true, _) => self.breaker.record_failure(self.site.now()),
                    (false, true) => {}
                    (false, false) => self.breaker.record_success(),
                }
            }
        }
    }

    /// Records a timed-out call: the hard limit if `whole`, else the idle limit.
    pub(crate) fn timed_out(&self, whole: bool) -> Failure {
        let text = if whole {
            "The call took longer than it may: it was cancelled"
        } else {
            "The upstream showed no life for longer than it may: the call was cancelled"
        };
        let failure = self.site.fail(FailureKind::TimedOut, text);
        self.record_attempt(Some(
            &FailedAttempt::new(self.site.fail(FailureKind::TimedOut, text)).mark_not_reached(),
        ));
        failure
    }

    async fn open_watch(&self, class: CapabilityClass) -> Result<Box<dyn ListWatch>, Failure> {
        let opened = match &self.transport {
            ServerTransport::Http(server) => server.watch(class).await,
            ServerTransport::Stdio(server) => server.watch(class).await,
        };
        self.record_attempt(opened.as_ref().err());
        opened.map_err(|refusal| refusal.failure)
    }

    async fn open_updates(&self) -> Result<Box<dyn ResourceUpdates>, Failure> {
        let opened = match &self.transport {
            ServerTransport::Http(server) => server.updates().await,
            ServerTransport::Stdio(server) => server.updates().await,
        };
        self.record_attempt(opened.as_ref().err());
        opened.map_err(|refusal| refusal.failure)
    }
}

impl Upstream for UpstreamService {
    fn id(&self) -> &UpstreamId {
        &self.site.id
    }

    fn call(self: Arc<Self>, outbound: OutboundCall) -> Fut<'static, Reply> {
        if tasks::is_about_task(outbound.call.method) {
            return Box::pin(tasks::call(self, outbound));
        }
        Box::pin(stack::call(self, outbound))
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
        let ServerTransport::Http(_) = &self.transport else {
            return;
        };
        let Ok(place) = self.call_permits.clone().try_acquire_owned() else {
            return;
        };
        if self.breaker.is_open() {
            return;
        }
        let outbound = self.strip_baggage(outbound);
        let site = self.site.clone();
        site.spawn(async move {
            let _place = place;
            if let ServerTransport::Http(server) = &self.transport {
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
            let rings = match &self.transport {
                ServerTransport::Http(server) => server.follow(&outbound).await?,
                ServerTransport::Stdio(server) => server.follow(&outbound).await?,
            };
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
        match &self.transport {
            ServerTransport::Http(server) => server.carries(),
            ServerTransport::Stdio(server) => server.carries(),
        }
    }

    fn notify_sessions(&self, sessions: &HashSet<SessionKey>, news: ClientSessionChange) {
        match &self.transport {
            ServerTransport::Http(server) => server.forward_session_news(sessions, news),
            ServerTransport::Stdio(server) => server.forward_session_news(sessions, news),
        }
    }

    fn export_sessions(self: Arc<Self>) -> Fut<'static, Vec<HandoverSession>> {
        Box::pin(async move {
            match &self.transport {
                ServerTransport::Http(server) => server.export_sessions(),
                ServerTransport::Stdio(server) => server.export_children().await,
            }
        })
    }

    fn import_session(self: Arc<Self>, session: HandoverSession) -> Fut<'static, ()> {
        Box::pin(async move {
            match &self.transport {
                ServerTransport::Http(server) => server.import_session(&session.description),
                ServerTransport::Stdio(server) => server.import_child(session).await,
            }
        })
    }

    fn open_time(&self, usual: Duration) -> Duration {
        match &self.transport {
            ServerTransport::Http(_) => usual,
            // The requests after the start may take as long as with any server.
            ServerTransport::Stdio(server) => server.start_time() + usual,
        }
    }

    fn health(&self) -> UpstreamHealth {
        let starting = match &self.transport {
            ServerTransport::Http(_) => None,
            ServerTransport::Stdio(server) => server.starting(),
        };
        let (last_error, last_error_at) = self.site.last_error().unzip();
        let sessions = match &self.transport {
            ServerTransport::Http(server) => server.sessions(),
            ServerTransport::Stdio(server) => server.processes(),
        };
        UpstreamHealth {
            revision: self.transport.revision(),
            second_revision: self.transport.second_revision(),
            down: self.breaker.is_failing(),
            breaker_open: self.breaker.is_open(),
            last_error,
            last_error_at,
            starting,
            last_lines: self.site.last_lines(),
            in_flight: self
                .site
                .bounds
                .in_flight
                .saturating_sub(self.call_permits.available_permits()),
            sessions,
        }
    }

    fn retire(self: Arc<Self>, grace: Duration) -> Fut<'static, ()> {
        Box::pin(async move {
            let all = u32::try_from(self.site.bounds.in_flight).unwrap_or(u32::MAX);
            // Calls that still run after the grace lose their server.
            let _still_running =
                tokio::time::timeout(grace, self.call_permits.acquire_many(all)).await;
            match &self.transport {
                ServerTransport::Http(server) => server.close().await,
                ServerTransport::Stdio(server) => server.close().await,
            }
            self.site.stop(RETIRE_GRACE).await;
        })
    }
}

impl Drop for UpstreamService {
    fn drop(&mut self) {
        self.site.abort_tasks();
    }
}
