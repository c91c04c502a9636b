//! One upstream server, as core's port has it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use weir_core::names::UpstreamId;
use weir_core::port::BoxFuture;
use weir_core::reply::Reply;
use weir_core::upstream::{
    ClientSessionChange, HandoverSession, ListWatch, OutboundCall, ProgressReports,
    ResourceUpdates, TaskDescriptions, TaskNotifications, Upstream, UpstreamHealth,
};
use weir_core::{CapabilityClass, Failure, Principal, SessionKey};
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_wire::Revision;

use crate::called_server::CalledServer;
use crate::stack::CallStack;
use crate::tasks::{self, UpstreamTaskRequests};

/// The grace time for the last tasks of a retired upstream, which end sessions and children.
const RETIRE_GRACE: Duration = Duration::from_secs(6);

/// The time in which clients can read the state of a retired upstream's last task once more.
const ENDED_TASK_GRACE: Duration = Duration::from_secs(5);

/// One upstream.
#[derive(Debug)]
pub(crate) struct UpstreamService {
    stack: Arc<CallStack>,
    tasks: Arc<UpstreamTaskRequests>,
    /// The permits of tasks with a subscription to their status.
    follow_permits: Arc<Semaphore>,
}

/// The most tasks with a subscription at the same time: each is a stream. Further tasks have no
/// subscription.
const MAX_FOLLOWED_TASKS: usize = 256;

impl UpstreamService {
    pub(crate) fn new(server: CalledServer, baggage: bool) -> Self {
        let context = server.context().clone();
        let stack = Arc::new(CallStack::new(server, baggage));
        Self {
            tasks: Arc::new(UpstreamTaskRequests::new(context, stack.clone())),
            stack,
            follow_permits: Arc::new(Semaphore::new(MAX_FOLLOWED_TASKS)),
        }
    }

    fn context(&self) -> &Arc<UpstreamContext> {
        self.server().context()
    }

    fn server(&self) -> &CalledServer {
        &self.stack.attempts.server
    }
}

impl Upstream for UpstreamService {
    fn id(&self) -> &UpstreamId {
        &self.context().label.id
    }

    fn call(self: Arc<Self>, outbound: OutboundCall) -> BoxFuture<'static, Reply> {
        if outbound.call.method.is_about_task() {
            return Box::pin(tasks::call(self.tasks.clone(), outbound));
        }
        Box::pin(self.stack.call(outbound))
    }

    fn watch(
        self: Arc<Self>,
        class: CapabilityClass,
    ) -> BoxFuture<'static, Result<Box<dyn ListWatch>, Failure>> {
        Box::pin(async move { self.stack.attempts.watch(class).await })
    }

    fn updates(self: Arc<Self>) -> BoxFuture<'static, Result<Box<dyn ResourceUpdates>, Failure>> {
        Box::pin(async move { self.stack.attempts.updates().await })
    }

    fn open_client_session(self: Arc<Self>, outbound: OutboundCall) {
        // A child is for a principal and not for a session: its first call starts it. A permit
        // keeps many clients that begin at once from opening more connections than calls may.
        if !self.server().is_http() {
            return;
        }
        let Some(permit) = self.stack.in_flight.try_acquire() else {
            return;
        };
        if self.server().fails_at_once() {
            return;
        }
        let outbound = self.stack.strip_baggage(outbound);
        let context = self.context().clone();
        context.tasks.spawn(async move {
            let _permit = permit;
            self.stack.attempts.open_client_session(outbound).await;
        });
    }

    fn find_sessions(
        self: Arc<Self>,
        call: &dyn Fn() -> OutboundCall,
    ) -> Option<BoxFuture<'static, ()>> {
        if !self.server().may_find_sessions() || self.server().fails_at_once() {
            return None;
        }
        let outbound = self.stack.strip_baggage(call());
        Some(Box::pin(async move {
            self.server().find_sessions(&outbound).await;
        }))
    }

    fn follow_task(
        self: Arc<Self>,
        outbound: OutboundCall,
    ) -> BoxFuture<'static, Option<TaskNotifications>> {
        Box::pin(async move {
            let permit = self.follow_permits.clone().try_acquire_owned().ok()?;
            let changes = self.stack.attempts.follow(outbound).await?;
            let held = stream::unfold((changes, permit), |(mut changes, permit)| async move {
                changes.next().await.map(|()| ((), (changes, permit)))
            });
            Some(Box::pin(held) as TaskNotifications)
        })
    }

    fn cancel_task(self: Arc<Self>, outbound: OutboundCall) {
        let context = self.context().clone();
        context.tasks.spawn(async move {
            // It is cancelled as well as can be: nothing reads the answer.
            drop(tasks::call(self.tasks.clone(), outbound).await);
        });
    }

    fn task_progress(&self, principal: &Principal, native: &str) -> Option<ProgressReports> {
        let (context, native) = self.stack.attempts.of_task(native);
        let reports = context
            .task_progress
            .listen((principal.clone(), native.into()))?;
        Some(Box::pin(reports))
    }

    fn carries(&self) -> CapabilityClass {
        self.server().carries()
    }

    fn notify_sessions(&self, sessions: &HashSet<SessionKey>, change: ClientSessionChange) {
        self.server().forward_session_change(sessions, change);
    }

    fn export_sessions(self: Arc<Self>) -> BoxFuture<'static, Vec<HandoverSession>> {
        Box::pin(async move { self.server().export_sessions().await })
    }

    fn tasks_after_export(&self) -> Option<TaskDescriptions> {
        if let CalledServer::Several(all) = self.server() {
            return Some(all.tasks_after_export());
        }
        let mut later = self.context().task_holds.tasks_after_export();
        Some(Box::pin(stream::poll_fn(move |cx| later.poll_recv(cx))))
    }

    fn import_session(self: Arc<Self>, session: HandoverSession) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.server().import_session(session).await })
    }

    fn set_predecessor_running(&self, runs: bool) {
        self.context().predecessor_calls.set_running(runs);
    }

    fn open_time(&self, usual: Duration) -> Duration {
        self.server().open_time(usual)
    }

    fn own_request_time(&self) -> Duration {
        self.context().own_requests.deadlines.list
    }

    fn uses_callers_accounts(&self) -> bool {
        self.server().uses_callers_accounts()
    }

    fn health(&self) -> UpstreamHealth {
        let server = self.server();
        let (last_error, last_error_at) = server.last_error().unzip();
        UpstreamHealth {
            revision: server.revision().map(Revision::as_str),
            second_revision: server.second_revision().map(Revision::as_str),
            down: server.is_down(),
            down_changed: server.down_changed(),
            breaker_open: server.fails_at_once(),
            last_error,
            last_error_at,
            starting: server.starting(),
            last_lines: self.context().record.last_lines(),
            in_flight: self.stack.in_flight.count(),
            predecessor_runs: self.context().predecessor_calls.may_run(),
            sessions: server.sessions(),
            instances: server.instances(),
            owner: None,
        }
    }

    fn replace_processes(self: Arc<Self>, grace: Duration) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if let CalledServer::One(one) = self.server() {
                one.transport.replace_processes(grace).await;
            }
        })
    }

    fn holds_task(&self, principal: &Principal, native: &str) -> bool {
        let (context, native) = self.stack.attempts.of_task(native);
        context.task_holds.knows(principal, native)
    }

    fn run_out(self: Arc<Self>, grace: Duration) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let predecessor = &self.context().predecessor_calls;
            tokio::join!(
                self.stack.in_flight.wait_until_idle(grace),
                predecessor.wait_for_end(Instant::now() + grace),
            );
            let mut contexts = vec![self.context()];
            if let CalledServer::Several(all) = self.server() {
                contexts.extend(all.iter().map(|one| &one.context));
            }
            if contexts.iter().all(|context| context.task_holds.is_empty()) {
                return;
            }
            for context in contexts {
                context.task_holds.wait_for_end().await;
            }
            tokio::time::sleep(ENDED_TASK_GRACE).await;
        })
    }

    fn retire(self: Arc<Self>, grace: Duration) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            // Calls that still run after the grace lose their server, also those of the previous
            // process.
            let due = Instant::now() + grace;
            self.context().predecessor_calls.wait_for_end(due).await;
            let left = due.saturating_duration_since(Instant::now());
            self.stack.in_flight.wait_for_end(left).await;
            self.server().close().await;
            self.context().predecessor_calls.set_running(false);
            self.context().tasks.stop(RETIRE_GRACE).await;
        })
    }
}
