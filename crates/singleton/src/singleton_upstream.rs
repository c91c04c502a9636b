//! An upstream whose child processes one replica runs: it is called here while this replica holds
//! the lease, and at the holder otherwise.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use futures_util::stream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};
use tokio_util::task::TaskTracker;
use weir_core::names::UpstreamId;
use weir_core::port::{Fut, Random, ReplicaId};
use weir_core::reply::{Reply, ReplyEnd, ReplyEvent};
use weir_core::upstream::{
    ClientSessionChange, HandoverSession, ListWatch, OutboundCall, ProgressReports,
    ResourceUpdates, TaskNotifications, Upstream, UpstreamHealth, UpstreamOwner,
};
use weir_core::{Budgets, CapabilityClass, Failure, FailureKind, Principal, SessionKey};
use weir_upstream_core::settings::UpstreamBounds;
use weir_upstream_core::started_reply::wait_for_first_event;
use weir_wire::Revision;

use crate::call_form::{call_frame, owned_name};
use crate::event_form::RefusalForm;
use crate::forwarded_reply::{
    ForwardedCall, ForwardedReply, call_lost, count_forwarded, read_failure,
    start_forwarded_at_zero,
};
use crate::frame::{Frame, FrameKind};
use crate::frame_stream::{FrameStream, OpenError, OwnerClient, StreamLost};
use crate::lease_handover::{exported_lease, imported_lease};
use crate::lease_view::LeaseHolder;
use crate::remote_watch::{RemoteUpdates, RemoteWatch};
use crate::singleton_lease::SingletonLease;
use crate::singletons::Singletons;
use crate::stream_form::{ProgressForm, news_frame};
use crate::watch_form::{UpstreamFacts, WatchForm, read_description};

/// The time beyond that of a lease in which a request waits for a replica that runs the upstream: a
/// killed one is replaced after its lease.
const OWNER_WAIT: Duration = Duration::from_secs(5);
/// The pause before the next attempt at the same holder, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// The longest wait for the lease of the process before.
const ADOPTION_WAIT: Duration = Duration::from_secs(2);
/// The longest wait for calls that run at the end of this replica, before children are ended.
const CALLS_LOOK_INTERVAL: Duration = Duration::from_millis(20);

const NO_OWNER: &str = "No replica can run the upstream now: try again shortly";
const NO_STORE: &str = "No replica is known to run the upstream while the shared store does not answer: try again shortly";

/// One upstream with `instances: one`.
pub(crate) struct SingletonUpstream {
    /// The upstream as this replica runs it.
    pub(crate) local: Arc<dyn Upstream>,
    pub(crate) lease: Arc<SingletonLease>,
    client: OwnerClient,
    budgets: Budgets,
    random: Arc<dyn Random>,
    bounds: UpstreamBounds,
    in_flight: Arc<Semaphore>,
    remote: Mutex<RemoteRecord>,
    /// The bits of the classes that are carried to the server, as its owner last told.
    carries: AtomicU16,
    /// This object, for streams that outlive a call of it.
    shared: Weak<Self>,
    own: ReplicaId,
    tasks: TaskTracker,
}

/// The upstream as another replica runs it.
#[derive(Debug, Default)]
struct RemoteRecord {
    facts: UpstreamFacts,
    /// True if the last attempt to reach it failed.
    is_down: bool,
    last_error: Option<(String, SystemTime)>,
}

/// The replica that a request goes to.
enum CallRoute {
    Here,
    Other { replica: ReplicaId, epoch: u64 },
}

/// The search for the replica that runs the upstream, of one request.
struct RouteSearch {
    deadline: Instant,
    pause: Duration,
    /// The version of the view that the last attempt was made by.
    seen: Option<u64>,
    /// The reason that the last attempt did not run, for operators.
    last: Option<String>,
}

impl SingletonUpstream {
    pub(crate) fn new(
        local: Arc<dyn Upstream>,
        lease: Arc<SingletonLease>,
        bounds: UpstreamBounds,
        all: &Singletons,
    ) -> Arc<Self> {
        let ports = &all.ports;
        let upstream = local.id().clone();
        for result in ["answered", "refused", "unreachable", "lost"] {
            start_forwarded_at_zero(&upstream, result);
        }
        Arc::new_cyclic(|shared| Self {
            client: OwnerClient {
                forwarder: ports.forwarder.clone(),
                upstream,
                most: bounds.max_reply,
            },
            local,
            lease,
            budgets: ports.budgets.clone(),
            random: ports.random.clone(),
            bounds,
            in_flight: Arc::new(Semaphore::new(bounds.in_flight)),
            remote: Mutex::default(),
            carries: AtomicU16::new(0),
            shared: shared.clone(),
            own: ports.own.clone(),
            tasks: all.tasks.clone(),
        })
    }

    /// The most bytes of a frame.
    pub(crate) fn max_frame(&self) -> usize {
        self.bounds.max_reply
    }

    fn search(&self, most: Duration) -> RouteSearch {
        let most = most.min(self.lease.time() + OWNER_WAIT);
        RouteSearch {
            deadline: Instant::now() + most,
            pause: FIRST_PAUSE,
            seen: None,
            last: None,
        }
    }

    /// Returns the replica that runs the upstream. Waits while there is none, or the last attempt at
    /// it did not run.
    ///
    /// # Errors
    /// There is none in time, or the store does not tell.
    async fn route(&self, search: &mut RouteSearch) -> Result<CallRoute, Failure> {
        loop {
            if self.lease.own_epoch().is_some() {
                return Ok(CallRoute::Here);
            }
            let view = self.lease.view();
            let is_new = search.seen != Some(view.version);
            // After a failed attempt, the last known holder is of no use without an answer of the
            // store.
            let is_usable = view.error.is_none() || search.last.is_none();
            if let LeaseHolder::Other { replica, epoch } = &view.holder
                && is_new
                && is_usable
            {
                search.seen = Some(view.version);
                return Ok(CallRoute::Other {
                    replica: replica.clone(),
                    epoch: *epoch,
                });
            }
            let left = search.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || is_new && view.error.is_some() {
                return Err(self.no_owner(search, view.error.as_deref()));
            }
            sleep(search.pause.min(left)).await;
            search.pause = (search.pause * 2).min(LONGEST_PAUSE);
            self.lease.refresh(view.version, left).await;
        }
    }

    fn no_owner(&self, search: &mut RouteSearch, store: Option<&str>) -> Failure {
        let text = if store.is_some() { NO_STORE } else { NO_OWNER };
        let failure = Failure::new(FailureKind::Unavailable, text)
            .with_upstream(self.local.id())
            .retry_after(self.lease.time() / 3);
        let cause = match (search.last.take(), store) {
            (Some(last), Some(store)) => format!("{last}; {store}"),
            (Some(cause), None) => cause,
            (None, Some(store)) => store.to_owned(),
            (None, None) => "the lease of the upstream has no holder".to_owned(),
        };
        let failure = failure.because(cause);
        self.note_failure(&failure);
        failure
    }

    /// Opens a stream to the replica that runs the upstream, and reads its first frame. `None` if the
    /// request did not run there.
    async fn begin(
        &self,
        search: &mut RouteSearch,
        (replica, epoch): (&ReplicaId, u64),
        request: &Frame,
    ) -> Result<Option<(FrameStream, Frame)>, StreamLost> {
        let upstream = self.local.id();
        let mut stream = match self.client.open(replica, epoch, request).await {
            Ok(stream) => stream,
            Err(OpenError::NotRun(cause)) => {
                count_forwarded(upstream, "unreachable");
                search.last = Some(cause);
                return Ok(None);
            }
            Err(OpenError::Lost(cause)) => return Err(StreamLost(cause)),
        };
        let first = stream.next_frame().await?;
        if first.kind == FrameKind::Refused {
            count_forwarded(upstream, "refused");
            let refusal: RefusalForm = first.facts().unwrap_or_default();
            search.last = Some(refusal.reason);
            return Ok(None);
        }
        self.remote().is_down = false;
        Ok(Some((stream, first)))
    }

    async fn call_somewhere(self: Arc<Self>, outbound: OutboundCall) -> Reply {
        let left = outbound
            .deadlines
            .hard
            .saturating_sub(outbound.begun.elapsed());
        let mut search = self.search(left);
        let mut is_repeated = false;
        loop {
            let (replica, epoch) = match self.route(&mut search).await {
                Ok(CallRoute::Here) => return self.local.clone().call(outbound).await,
                Ok(CallRoute::Other { replica, epoch }) => (replica, epoch),
                Err(failure) => return Reply::ended(failure),
            };
            let lost = match self
                .call_at(&mut search, (&replica, epoch), &outbound)
                .await
            {
                Ok(Some(reply)) => match lost_at_once(reply) {
                    Ok(reply) => return reply,
                    Err(failure) => failure,
                },
                Ok(None) => continue,
                Err(failure) => failure,
            };
            if !lost.is_connection_lost() || is_repeated || !outbound.may_repeat() {
                self.note_failure(&lost);
                return Reply::ended(lost);
            }
            is_repeated = true;
        }
    }

    /// Makes a call at the replica that runs the upstream. `None` if it did not run there.
    async fn call_at(
        &self,
        search: &mut RouteSearch,
        owner: (&ReplicaId, u64),
        outbound: &OutboundCall,
    ) -> Result<Option<Reply>, Failure> {
        let upstream = self.local.id();
        let Ok(permit) = self.in_flight.clone().try_acquire_owned() else {
            let text = "The upstream has as many calls in flight as it may: try again shortly";
            return Err(Failure::new(FailureKind::Busy, text).with_upstream(upstream));
        };
        let request = call_frame(FrameKind::Call, outbound, &*self.random);
        let begun = self.begin(search, owner, &request).await;
        let begun = begun.map_err(|lost| {
            count_forwarded(upstream, "lost");
            call_lost(upstream, lost)
        })?;
        let Some((stream, first)) = begun else {
            return Ok(None);
        };
        let until = outbound.begun + outbound.deadlines.hard;
        let call = ForwardedCall {
            upstream: upstream.clone(),
            budgets: self.budgets.clone(),
            whole: outbound.whole,
            carried: outbound.carried_revision.clone(),
            until,
            permit: Some(permit),
            max_reply: self.bounds.max_reply,
        };
        let reply = wait_for_first_event(ForwardedReply::new(call, stream, first)).await;
        Ok(Some(reply.with_deadline(until)))
    }

    /// Opens a stream for a request other than a call: at this replica (`None`), or at the holder.
    async fn open(&self, request: &Frame) -> Result<Option<(FrameStream, Frame)>, Failure> {
        let mut search = self.search(self.lease.time() + OWNER_WAIT);
        loop {
            let (replica, epoch) = match self.route(&mut search).await? {
                CallRoute::Here => return Ok(None),
                CallRoute::Other { replica, epoch } => (replica, epoch),
            };
            match self.begin(&mut search, (&replica, epoch), request).await {
                Ok(Some((_, first))) if first.kind == FrameKind::Failed => {
                    let failure = read_failure(&first, self.local.id());
                    self.note_failure(&failure);
                    return Err(failure);
                }
                Ok(Some(opened)) => return Ok(Some(opened)),
                Ok(None) => {}
                Err(StreamLost(cause)) => search.last = Some(cause),
            }
        }
    }

    async fn open_watch(&self, class: CapabilityClass) -> Result<Box<dyn ListWatch>, Failure> {
        let form = WatchForm {
            class: class.bits(),
        };
        let request = Frame::new(FrameKind::Watch, &form);
        let Some((stream, first)) = self.open(&request).await? else {
            return self.local.clone().watch(class).await;
        };
        let upstream = self.local.id();
        let Ok((about, facts)) = read_description(&first) else {
            let text = "The replica that runs the upstream sent an invalid message";
            return Err(Failure::new(FailureKind::BadAnswer, text).with_upstream(upstream));
        };
        self.carries.store(facts.carries, Ordering::Relaxed);
        self.remote().facts = facts;
        Ok(Box::new(RemoteWatch::new(upstream.clone(), stream, about)))
    }

    async fn open_updates(&self) -> Result<Box<dyn ResourceUpdates>, Failure> {
        let request = Frame::empty(FrameKind::Updates);
        match self.open(&request).await? {
            Some((stream, _)) => {
                let upstream = self.local.id().clone();
                Ok(Box::new(RemoteUpdates::new(upstream, stream)))
            }
            None => self.local.clone().updates().await,
        }
    }

    async fn follow(self: Arc<Self>, outbound: OutboundCall) -> Option<TaskNotifications> {
        let request = call_frame(FrameKind::FollowTask, &outbound, &*self.random);
        let Some((stream, _)) = self.open(&request).await.ok()? else {
            return self.local.clone().follow_task(outbound).await;
        };
        let items = stream::unfold(stream, |mut stream| async move {
            let frame = stream.next_frame().await.ok()?;
            (frame.kind == FrameKind::Item).then_some(((), stream))
        });
        Some(Box::pin(items))
    }

    /// The progress of a task at another replica. The stream is opened with its first poll.
    fn remote_progress(self: Arc<Self>, principal: &Principal, native: &str) -> ProgressReports {
        let form = ProgressForm {
            principal: owned_name(principal),
            native: native.to_owned(),
        };
        let request = Frame::new(FrameKind::TaskProgress, &form);
        let reports = stream::unfold(None, move |opened: Option<FrameStream>| {
            let (this, request) = (self.clone(), request.clone());
            async move {
                let mut stream = match opened {
                    Some(stream) => stream,
                    None => this.open(&request).await.ok()??.0,
                };
                let frame = stream.next_frame().await.ok()?;
                (frame.kind == FrameKind::Item).then(|| (frame.part(0), Some(stream)))
            }
        });
        Box::pin(reports)
    }

    /// Sends news of client sessions to the replica that runs the upstream. It may miss them: then
    /// the sessions' state there ends by its own limits.
    pub(crate) async fn send_news(&self, request: Frame) {
        let LeaseHolder::Other { replica, epoch } = self.lease.view().holder else {
            return;
        };
        if let Ok(mut stream) = self.client.open(&replica, epoch, &request).await {
            // It ends once the news are taken.
            let _ended = stream.next_frame().await;
        }
    }

    /// Ends the use of the lease at the end of this replica: once the calls here have ended, the
    /// children end, and another replica can run the upstream.
    pub(crate) async fn drain(&self) {
        self.lease.begin_drain();
        while self.local.health().in_flight > 0 {
            sleep(CALLS_LOOK_INTERVAL).await;
        }
        self.lease.release(false).await;
    }

    fn note_failure(&self, failure: &Failure) {
        let mut remote = self.remote();
        remote.is_down = true;
        remote.last_error = Some((failure.cause(), SystemTime::now()));
    }

    fn remote(&self) -> MutexGuard<'_, RemoteRecord> {
        self.remote.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The health as another replica runs it.
    fn remote_health(&self, owner: Option<UpstreamOwner>) -> UpstreamHealth {
        let remote = self.remote();
        let revision = |text: &Option<String>| {
            let revision = text.as_deref().and_then(Revision::parse);
            revision.map(Revision::as_str)
        };
        let (last_error, last_error_at) = remote.last_error.clone().unzip();
        UpstreamHealth {
            revision: revision(&remote.facts.revision),
            second_revision: revision(&remote.facts.second_revision),
            down: remote.is_down,
            last_error,
            last_error_at,
            in_flight: self.bounds.in_flight - self.in_flight.available_permits(),
            owner,
            ..UpstreamHealth::default()
        }
    }
}

/// The failure of a reply that ended with the loss of its replica, before anything else.
fn lost_at_once(mut reply: Reply) -> Result<Reply, Failure> {
    if !reply.is_ended() {
        return Ok(reply);
    }
    let first = futures_util::FutureExt::now_or_never(reply.next());
    match first.flatten() {
        Some(ReplyEvent::End(ReplyEnd::Failed(failure))) if failure.is_connection_lost() => {
            Err(*failure)
        }
        Some(ReplyEvent::End(end)) => Ok(Reply::ended(end)),
        Some(ReplyEvent::Note(_) | ReplyEvent::Ask(_)) | None => Ok(reply),
    }
}

impl Upstream for SingletonUpstream {
    fn id(&self) -> &UpstreamId {
        self.local.id()
    }

    fn call(self: Arc<Self>, outbound: OutboundCall) -> Fut<'static, Reply> {
        if self.lease.own_epoch().is_some() {
            return self.local.clone().call(outbound);
        }
        Box::pin(self.call_somewhere(outbound))
    }

    fn watch(
        self: Arc<Self>,
        class: CapabilityClass,
    ) -> Fut<'static, Result<Box<dyn ListWatch>, Failure>> {
        Box::pin(async move { self.open_watch(class).await })
    }

    fn open_time(&self, usual: Duration) -> Duration {
        self.local.open_time(usual) + self.lease.time() + OWNER_WAIT
    }

    fn updates(self: Arc<Self>) -> Fut<'static, Result<Box<dyn ResourceUpdates>, Failure>> {
        Box::pin(async move { self.open_updates().await })
    }

    fn follow_task(
        self: Arc<Self>,
        outbound: OutboundCall,
    ) -> Fut<'static, Option<TaskNotifications>> {
        Box::pin(self.follow(outbound))
    }

    fn task_progress(&self, principal: &Principal, native: &str) -> Option<ProgressReports> {
        if self.lease.own_epoch().is_some() {
            return self.local.task_progress(principal, native);
        }
        // The stream needs a share of this object.
        Some(self.shared.upgrade()?.remote_progress(principal, native))
    }

    fn carries(&self) -> CapabilityClass {
        match self.lease.own_epoch() {
            Some(_) => self.local.carries(),
            None => CapabilityClass::from_bits(self.carries.load(Ordering::Relaxed)),
        }
    }

    fn notify_sessions(&self, sessions: &HashSet<SessionKey>, news: ClientSessionChange) {
        self.local.notify_sessions(sessions, news);
        if self.lease.own_epoch().is_none()
            && let Some(this) = self.shared.upgrade()
        {
            let news = news_frame(sessions, news);
            self.tasks.spawn(async move { this.send_news(news).await });
        }
    }

    fn export_sessions(self: Arc<Self>) -> Fut<'static, Vec<HandoverSession>> {
        Box::pin(async move {
            let lease = self.lease.hand_over();
            // The lease comes first: without it the successor may not have the children.
            let mut all: Vec<_> = lease.and_then(exported_lease).into_iter().collect();
            all.extend(self.local.clone().export_sessions().await);
            all
        })
    }

    fn import_session(self: Arc<Self>, session: HandoverSession) -> Fut<'static, ()> {
        Box::pin(async move {
            match imported_lease(&session) {
                Some((token, epoch)) => {
                    if !self.lease.adopt(token, epoch, ADOPTION_WAIT).await {
                        tracing::warn!(upstream = %self.local.id(), "upstream lease of the previous process not confirmed: its child processes end");
                    }
                }
                None => self.local.clone().import_session(session).await,
            }
        })
    }

    fn health(&self) -> UpstreamHealth {
        match self.lease.view().holder {
            LeaseHolder::Own { epoch } => UpstreamHealth {
                owner: Some(UpstreamOwner {
                    replica: self.own.clone(),
                    is_own: true,
                    epoch,
                }),
                ..self.local.health()
            },
            LeaseHolder::Other { replica, epoch } => self.remote_health(Some(UpstreamOwner {
                is_own: false,
                replica,
                epoch,
            })),
            LeaseHolder::Unknown | LeaseHolder::Free => self.remote_health(None),
        }
    }

    fn retire(self: Arc<Self>, grace: Duration) -> Fut<'static, ()> {
        Box::pin(async move {
            self.lease.begin_drain();
            self.local.clone().retire(grace).await;
            self.lease.release(true).await;
        })
    }
}

impl fmt::Debug for SingletonUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingletonUpstream")
            .field("upstream", self.local.id())
            .finish_non_exhaustive()
    }
}
