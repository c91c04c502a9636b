//! An upstream whose child processes one replica runs: it is called here while this replica holds
//! the lease, and at the holder otherwise.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::stream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::TaskTracker;
use weir_core::names::UpstreamId;
use weir_core::port::{BoxFuture, Random, ReplicaId};
use weir_core::reply::{Reply, ReplyEnd, ReplyEvent};
use weir_core::upstream::{
    ClientSessionChange, HandoverSession, ListWatch, OutboundCall, ProgressReports,
    ResourceUpdates, TaskDescriptions, TaskNotifications, Upstream, UpstreamHealth, UpstreamOwner,
};
use weir_core::{Budgets, CapabilityClass, Failure, FailureKind, Principal, SessionKey};
use weir_upstream_core::settings::UpstreamBounds;

use crate::call_form::call_frame;
use crate::forwarded_reply::{
    ForwardedCall, ForwardedReply, call_lost, count_forwarded, start_forwarded_at_zero,
};
use crate::frame::{Frame, FrameKind};
use crate::frame_stream::OwnerClient;
use crate::lease_handover::{exported_lease, import_session};
use crate::lease_view::{LeaseHolder, LeaseOwner};
use crate::moving_watch::MovingWatch;
use crate::owner_search::{BeginError, OwnerAccess, OwnerRoute, OwnerSearch};
use crate::progress_relay::{PendingRelay, ProgressRelays};
use crate::remote_progress::remote_progress;
use crate::remote_record::RemoteRecord;
use crate::remote_watch::RemoteUpdates;
use crate::singleton_lease::SingletonLease;
use crate::singleton_ports::SingletonPorts;
use crate::stream_form::session_change_frame;

/// The time between two looks at the calls that still run, at the end of this replica.
const CALLS_LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// One upstream with `instances: one`.
pub(crate) struct SingletonUpstream {
    /// The upstream as this replica runs it.
    pub(crate) local: Arc<dyn Upstream>,
    pub(crate) lease: Arc<SingletonLease>,
    access: Arc<OwnerAccess>,
    budgets: Budgets,
    random: Arc<dyn Random>,
    bounds: UpstreamBounds,
    in_flight: Arc<Semaphore>,
    /// This object, for streams that outlive a call of it.
    shared: Weak<Self>,
    own: ReplicaId,
    tasks: TaskTracker,
    relays: Arc<ProgressRelays>,
}

impl SingletonUpstream {
    pub(crate) fn new(
        local: Arc<dyn Upstream>,
        lease: Arc<SingletonLease>,
        bounds: UpstreamBounds,
        ports: &SingletonPorts,
        tasks: TaskTracker,
    ) -> Arc<Self> {
        let upstream = local.id().clone();
        for result in ["answered", "refused", "unreachable", "lost"] {
            start_forwarded_at_zero(&upstream, result);
        }
        let relays = ProgressRelays::new(upstream.clone(), ports.notifier.clone());
        Arc::new_cyclic(|shared| Self {
            access: Arc::new(OwnerAccess {
                lease: lease.clone(),
                client: OwnerClient {
                    forwarder: ports.forwarder.clone(),
                    upstream,
                    most: bounds.max_reply,
                },
                record: RemoteRecord::default(),
            }),
            local,
            lease,
            budgets: ports.budgets.clone(),
            random: ports.random.clone(),
            bounds,
            in_flight: Arc::new(Semaphore::new(bounds.in_flight)),
            shared: shared.clone(),
            own: ports.own.clone(),
            tasks,
            relays,
        })
    }

    /// The most bytes of a frame.
    pub(crate) fn max_frame(&self) -> usize {
        self.bounds.max_reply
    }

    async fn call_somewhere(self: Arc<Self>, outbound: OutboundCall) -> Reply {
        let left = outbound
            .deadlines
            .hard
            .saturating_sub(outbound.begun.elapsed());
        let mut search = self.access.search(left);
        let mut is_repeated = false;
        loop {
            let owner = match self.access.route(&mut search).await {
                Ok(OwnerRoute::Here) => return self.local.clone().call(outbound).await,
                Ok(OwnerRoute::Other(owner)) => owner,
                Err(failure) => return Reply::ended(failure),
            };
            let lost = match self.call_at(&mut search, &owner, &outbound).await {
                Ok(Some(reply)) => match lost_at_once(reply) {
                    Ok(reply) => return reply,
                    Err(failure) => failure,
                },
                Ok(None) => continue,
                Err(failure) => failure,
            };
            if !lost.is_connection_lost() || is_repeated || !outbound.may_repeat() {
                self.access.record.note_failure(&lost);
                return Reply::ended(lost);
            }
            is_repeated = true;
        }
    }

    /// Makes a call at the replica that runs the upstream. `None` if it did not run there.
    async fn call_at(
        &self,
        search: &mut OwnerSearch,
        owner: &LeaseOwner,
        outbound: &OutboundCall,
    ) -> Result<Option<Reply>, Failure> {
        let upstream = self.local.id();
        let Ok(permit) = self.in_flight.clone().try_acquire_owned() else {
            let text = "The upstream has as many calls in flight as it may: try again shortly";
            return Err(Failure::new(FailureKind::Busy, text).with_upstream(upstream));
        };
        let request = call_frame(FrameKind::Call, outbound, &*self.random);
        let (stream, first) = match self.access.begin(search, owner, &request).await {
            Ok(begun) => begun,
            Err(error) => {
                count_forwarded(upstream, error.label());
                return match error {
                    BeginError::Unreachable | BeginError::Refused => Ok(None),
                    BeginError::Lost(lost) => Err(call_lost(upstream, lost)),
                };
            }
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
            relay: self.prepare_relay(outbound),
        };
        let reply = Reply::started(ForwardedReply::new(call, stream, first)).await;
        Ok(Some(reply.with_deadline(until)))
    }

    /// Prepares the relay of the progress of the task that a call becomes at another replica.
    fn prepare_relay(&self, outbound: &OutboundCall) -> Option<PendingRelay> {
        let (local, access) = (self.local.clone(), self.access.clone());
        let principal = outbound.principal.clone();
        self.relays.prepare(outbound, move |native| {
            remote_progress(local, access, &principal, native)
        })
    }

    async fn open_updates(&self) -> Result<Box<dyn ResourceUpdates>, Failure> {
        let request = Frame::empty(FrameKind::Updates);
        let search = self.access.patient_search();
        match self.access.open(&request, search).await? {
            Some((stream, _)) => {
                let upstream = self.local.id().clone();
                Ok(Box::new(RemoteUpdates::new(upstream, stream)))
            }
            None => self.local.clone().updates().await,
        }
    }

    async fn follow(self: Arc<Self>, outbound: OutboundCall) -> Option<TaskNotifications> {
        let request = call_frame(FrameKind::FollowTask, &outbound, &*self.random);
        let search = self.access.longest_search();
        let Some((stream, _)) = self.access.open(&request, search).await.ok()? else {
            return self.local.clone().follow_task(outbound).await;
        };
        let items = stream::unfold(stream, |mut stream| async move {
            let frame = stream.next_frame().await.ok()?;
            (frame.kind == FrameKind::Item).then_some(((), stream))
        });
        Some(Box::pin(items))
    }

    /// Sends a change of client sessions to the replica that runs the upstream. It may miss it: then
    /// the sessions' state there ends by its own limits.
    pub(crate) async fn send_session_change(&self, request: Frame) {
        let LeaseHolder::Other(owner) = self.lease.view().holder else {
            return;
        };
        if let Ok(mut stream) = self.access.client.open(&owner, &request).await {
            // It ends once the change is taken.
            let _ended = stream.next_frame().await;
        }
    }

    /// Ends the use of the lease at the end of this replica: once the calls here have ended, the
    /// children end, and another replica can run the upstream.
    pub(crate) async fn drain(&self) {
        self.drain_calls().await;
        self.lease.release(false).await;
    }

    /// Takes no further calls of other replicas, and waits until those that run have ended, also
    /// those of the process before this one.
    async fn drain_calls(&self) {
        self.lease.begin_drain();
        loop {
            let health = self.local.health();
            if health.in_flight == 0 && !health.predecessor_runs {
                return;
            }
            sleep(CALLS_LOOK_INTERVAL).await;
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

    fn call(self: Arc<Self>, outbound: OutboundCall) -> BoxFuture<'static, Reply> {
        if self.lease.own_epoch().is_some() {
            return self.local.clone().call(outbound);
        }
        Box::pin(self.call_somewhere(outbound))
    }

    fn watch(
        self: Arc<Self>,
        class: CapabilityClass,
    ) -> BoxFuture<'static, Result<Box<dyn ListWatch>, Failure>> {
        Box::pin(MovingWatch::open(
            self.local.clone(),
            self.access.clone(),
            class,
        ))
    }

    fn open_time(&self, usual: Duration) -> Duration {
        self.local.open_time(usual) + self.access.max_wait()
    }

    fn own_request_time(&self) -> Duration {
        self.local.own_request_time()
    }

    fn uses_callers_accounts(&self) -> bool {
        self.local.uses_callers_accounts()
    }

    fn updates(self: Arc<Self>) -> BoxFuture<'static, Result<Box<dyn ResourceUpdates>, Failure>> {
        Box::pin(async move { self.open_updates().await })
    }

    fn follow_task(
        self: Arc<Self>,
        outbound: OutboundCall,
    ) -> BoxFuture<'static, Option<TaskNotifications>> {
        Box::pin(self.follow(outbound))
    }

    fn cancel_task(self: Arc<Self>, outbound: OutboundCall) {
        if self.lease.own_epoch().is_some() {
            return self.local.clone().cancel_task(outbound);
        }
        let tasks = self.tasks.clone();
        tasks.spawn(async move {
            let mut reply = self.call_somewhere(outbound).await;
            while reply.next().await.is_some() {}
        });
    }

    fn task_progress(&self, principal: &Principal, native: &str) -> Option<ProgressReports> {
        if self.lease.own_epoch().is_some() {
            return self.local.task_progress(principal, native);
        }
        if let Some(relayed) = self.relays.listen(principal, native) {
            return Some(relayed);
        }
        let (local, access) = (self.local.clone(), self.access.clone());
        Some(remote_progress(local, access, principal, native))
    }

    fn carries(&self) -> CapabilityClass {
        match self.lease.own_epoch() {
            Some(_) => self.local.carries(),
            None => self.access.record.carries(),
        }
    }

    fn notify_sessions(&self, sessions: &HashSet<SessionKey>, change: ClientSessionChange) {
        if change.is_end() {
            self.relays.end_sessions(sessions);
        }
        // Sessions that ended at this replica alone may go on at another one, whose calls reach
        // the same child. If they do not, their state at the child ends by its own limits.
        let Some(frame) = session_change_frame(sessions, change) else {
            return;
        };
        self.local.notify_sessions(sessions, change);
        if self.lease.own_epoch().is_none()
            && let Some(this) = self.shared.upgrade()
        {
            self.tasks
                .spawn(async move { this.send_session_change(frame).await });
        }
    }

    fn export_sessions(self: Arc<Self>) -> BoxFuture<'static, Vec<HandoverSession>> {
        Box::pin(async move {
            let lease = self.lease.hand_over();
            // The lease comes first: without it the successor may not have the children, whose
            // imports wait for it.
            let mut all: Vec<_> = lease
                .and_then(|(token, epoch)| exported_lease(token, epoch))
                .into_iter()
                .collect();
            all.extend(self.local.clone().export_sessions().await);
            all
        })
    }

    fn tasks_after_export(&self) -> Option<TaskDescriptions> {
        self.local.tasks_after_export()
    }

    fn import_session(self: Arc<Self>, session: HandoverSession) -> BoxFuture<'static, ()> {
        Box::pin(async move { import_session(&self.lease, self.local.clone(), session).await })
    }

    fn set_predecessor_running(&self, runs: bool) {
        self.local.set_predecessor_running(runs);
    }

    fn health(&self) -> UpstreamHealth {
        let in_flight = self.bounds.in_flight - self.in_flight.available_permits();
        let local = self.local.health();
        let predecessor_runs = local.predecessor_runs;
        let (LeaseOwner { replica, epoch }, is_own) = match self.lease.view().holder {
            LeaseHolder::Own { epoch } => {
                let replica = self.own.clone();
                (LeaseOwner { replica, epoch }, true)
            }
            LeaseHolder::Other(owner) => (owner, false),
            LeaseHolder::Unknown | LeaseHolder::Free => {
                return UpstreamHealth {
                    predecessor_runs,
                    ..self.access.record.health(in_flight, None)
                };
            }
        };
        let owner = Some(UpstreamOwner {
            replica,
            is_own,
            epoch,
        });
        if is_own {
            UpstreamHealth { owner, ..local }
        } else {
            UpstreamHealth {
                predecessor_runs,
                ..self.access.record.health(in_flight, owner)
            }
        }
    }

    fn replace_processes(self: Arc<Self>, grace: Duration) -> BoxFuture<'static, ()> {
        // The operator's change reaches every replica, and so the one that runs them.
        self.local.clone().replace_processes(grace)
    }

    fn retire(self: Arc<Self>, grace: Duration) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let due = Instant::now() + grace;
            let _in_time = timeout_at(due, self.drain_calls()).await;
            // Before the children end: the streams of other replicas go on elsewhere.
            self.lease.end_streams();
            self.relays.end_all();
            let left = due.saturating_duration_since(Instant::now());
            self.local.clone().retire(left).await;
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
