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
use crate::column;
use crate::refusal::Refusal;
use crate::site::Site;
use crate::stdio::StdioServer;
use crate::streamable::HttpServer;
use crate::tasks;

/// The grace time for the last tasks of a retired upstream, which end sessions and children.
const FAREWELL: Duration = Duration::from_secs(6);

/// One upstream.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) site: Arc<Site>,
    pub(crate) line: Line,
    pub(crate) breaker: Breaker,
    /// The permits of calls in flight.
    pub(crate) places: Arc<Semaphore>,
    /// True if the baggage of callers is forwarded.
    baggage: bool,
    /// The results of older servers' tasks, held open for their questions.
    pub(crate) held: tasks::Desk,
    /// The permits of tasks with a subscription to their status.
    followed: Arc<Semaphore>,
}

/// The most tasks with a subscription at the same time: each is a stream. Further tasks have no
/// subscription.
const MOST_FOLLOWED: usize = 256;

/// The transport to the server.
#[derive(Debug)]
pub(crate) enum Line {
    Http(Box<HttpServer>),
    Stdio(Arc<StdioServer>),
}

impl Line {
    /// Makes one attempt at a call. `again` is the proof of the attempt before.
    pub(crate) async fn call(
        &self,
        outbound: &OutboundCall,
        again: Option<ResendProof>,
    ) -> Result<Reply, Refusal> {
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

    fn doubt(&self) {
        match self {
            Self::Http(server) => server.doubt(),
            Self::Stdio(server) => server.doubt(),
        }
    }
}

impl Server {
    pub(crate) fn new(site: Arc<Site>, line: Line, baggage: bool) -> Self {
        let places = Arc::new(Semaphore::new(site.bounds.in_flight));
        let held = tasks::Desk::new(site.clone());
        let followed = Arc::new(Semaphore::new(MOST_FOLLOWED));
        Self {
            site,
            line,
            breaker: Breaker::default(),
            places,
            baggage,
            held,
            followed,
        }
    }

    /// Removes the baggage from the call, unless this server may have it.
    pub(crate) fn at_border(&self, outbound: OutboundCall) -> OutboundCall {
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
    pub(crate) fn record(&self, refusal: Option<&Refusal>) {
        match refusal {
            None => self.breaker.succeeded(),
            Some(refusal) => {
                if refusal.doubtful {
                    self.line.doubt();
                }
                self.site.note_error(&refusal.failure);
                match (refusal.unreached, refusal.unasked) {
                    (true, _) => self.breaker.failed(self.site.now()),
                    (false, true) => {}
                    (false, false) => self.breaker.succeeded(),
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
        self.record(Some(
            &Refusal::new(self.site.fail(FailureKind::TimedOut, text)).unreached(),
        ));
        failure
    }

    async fn open_watch(&self, class: CapabilityClass) -> Result<Box<dyn ListWatch>, Failure> {
        let opened = match &self.line {
            Line::Http(server) => server.watch(class).await,
            Line::Stdio(server) => server.watch(class).await,
        };
        self.record(opened.as_ref().err());
        opened.map_err(|refusal| refusal.failure)
    }

    async fn open_updates(&self) -> Result<Box<dyn ResourceUpdates>, Failure> {
        let opened = match &self.line {
            Line::Http(server) => server.updates().await,
            Line::Stdio(server) => server.updates().await,
        };
        self.record(opened.as_ref().err());
        opened.map_err(|refusal| refusal.failure)
    }
}

impl Upstream for Server {
    fn id(&self) -> &UpstreamId {
        &self.site.id
    }

    fn call(self: Arc<Self>, outbound: OutboundCall) -> Fut<'static, Reply> {
        if tasks::is_about_task(outbound.call.method) {
            return Box::pin(tasks::call(self, outbound));
        }
        Box::pin(column::call(self, outbound))
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
        let Line::Http(_) = &self.line else { return };
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            return;
        };
        if self.breaker.is_open() {
            return;
        }
        let outbound = self.at_border(outbound);
        let site = self.site.clone();
        site.spawn(async move {
            let _place = place;
            if let Line::Http(server) = &self.line {
                server.welcome(&outbound).await;
            }
        });
    }

    fn follow_task(
        self: Arc<Self>,
        outbound: OutboundCall,
    ) -> Fut<'static, Option<TaskNotifications>> {
        Box::pin(async move {
            let place = self.followed.clone().try_acquire_owned().ok()?;
            let rings = match &self.line {
                Line::Http(server) => server.follow(&outbound).await?,
                Line::Stdio(server) => server.follow(&outbound).await?,
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
            .tracks
            .listen((principal.clone(), native.into()))?;
        Some(Box::pin(ear))
    }

    fn carries(&self) -> CapabilityClass {
        match &self.line {
            Line::Http(server) => server.carries(),
            Line::Stdio(server) => server.carries(),
        }
    }

    fn notify_sessions(&self, sessions: &HashSet<SessionKey>, news: ClientSessionChange) {
        match &self.line {
            Line::Http(server) => server.tell(sessions, news),
            Line::Stdio(server) => server.tell(sessions, news),
        }
    }

    fn export_sessions(self: Arc<Self>) -> Fut<'static, Vec<HandoverSession>> {
        Box::pin(async move {
            match &self.line {
                Line::Http(server) => server.export_sessions(),
                Line::Stdio(server) => server.export_children().await,
            }
        })
    }

    fn import_session(self: Arc<Self>, session: HandoverSession) -> Fut<'static, ()> {
        Box::pin(async move {
            match &self.line {
                Line::Http(server) => server.import_session(&session.description),
                Line::Stdio(server) => server.import_child(session).await,
            }
        })
    }

    fn open_time(&self, usual: Duration) -> Duration {
        match &self.line {
            Line::Http(_) => usual,
            // The requests after the start may take as long as with any server.
            Line::Stdio(server) => server.start_time() + usual,
        }
    }

    fn health(&self) -> UpstreamHealth {
        let starting = match &self.line {
            Line::Http(_) => None,
            Line::Stdio(server) => server.starting(),
        };
        let (last_error, last_error_at) = self.site.last_error().unzip();
        let sessions = match &self.line {
            Line::Http(server) => server.sessions(),
            Line::Stdio(server) => server.processes(),
        };
        UpstreamHealth {
            revision: self.line.revision(),
            second_revision: self.line.second_revision(),
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
                .saturating_sub(self.places.available_permits()),
            sessions,
        }
    }

    fn retire(self: Arc<Self>, grace: Duration) -> Fut<'static, ()> {
        Box::pin(async move {
            let all = u32::try_from(self.site.bounds.in_flight).unwrap_or(u32::MAX);
            // Calls that still run after the grace lose their server.
            let _still_running = tokio::time::timeout(grace, self.places.acquire_many(all)).await;
            match &self.line {
                Line::Http(server) => server.close().await,
                Line::Stdio(server) => server.close().await,
            }
            self.site.stop(FAREWELL).await;
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.site.abandon();
    }
}
