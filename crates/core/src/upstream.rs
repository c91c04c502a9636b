//! The port of an upstream server, implemented by the upstream crate: one object for each server.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::time::Instant;
use weir_wire::method::Method;
use weir_wire::{LogLevel, Revision, scan};

pub use crate::call_deadlines::CallDeadlines;
pub use crate::list_kind::{ListKind, ListKinds};

use crate::call::{Call, SessionKey, TaskMode};
use crate::capability::CapabilityClass;
use crate::failure::Failure;
use crate::names::UpstreamId;
use crate::port::{BoxFuture, ReplicaId};
use crate::principal::Principal;
use crate::reply::Reply;
use crate::server_item::ServerItem;
use crate::token::ClientToken;

/// A call that has found its upstream.
#[derive(Debug)]
pub struct OutboundCall {
    /// The principal that makes it.
    pub principal: Principal,
    /// The token that it came with, if front keeps those. For the authorization server alone, never
    /// for the upstream.
    pub token: Option<ClientToken>,
    /// The call as the client made it. Shared with the record that is written when it ends.
    pub call: Arc<Call>,
    /// The upstream's own name, or URI, of the call's target.
    pub native: Arc<str>,
    /// The catalog's entry of it.
    pub tool: Option<Arc<ServerItem>>,
    /// The time from which its limits count.
    pub begun: Instant,
    /// The time limits of its parts.
    pub deadlines: CallDeadlines,
    /// True if its result is wanted whole ([`crate::Payload::Whole`]), or not at all.
    pub whole: bool,
    /// The operator's permission to call the tool twice.
    pub safe_to_repeat: bool,
    /// The cell to which the upstream writes the protocol revision that the call is carried in.
    pub carried_revision: CarriedRevision,
}

/// The protocol revision that a call is carried in to its server: noted by the upstream when it
/// sends the call, read when the call is recorded. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct CarriedRevision(Arc<AtomicU8>);

impl CarriedRevision {
    /// Notes the revision. Of a call that is sent again the last one counts.
    pub fn note(&self, revision: Revision) {
        // 0 is the absent value.
        self.0.store(revision as u8 + 1, Ordering::Relaxed);
    }

    /// The revision; absent if the call was not sent.
    #[must_use]
    pub fn revision(&self) -> Option<Revision> {
        let number = usize::from(self.0.load(Ordering::Relaxed));
        Revision::ALL.get(number.checked_sub(1)?).copied()
    }
}

impl OutboundCall {
    /// True if the call may be made a second time although the first may have been executed: it
    /// only reads, or is of a tool that the operator declares safe to repeat. A call with an answer
    /// to a question, or one that resumes an ended call, is never sent twice.
    #[must_use]
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "four of the 38 methods may be repeated"
    )]
    pub fn may_repeat(&self) -> bool {
        let call = &self.call;
        let is_safe = match call.method {
            Method::ResourcesRead | Method::PromptsGet | Method::CompletionComplete => true,
            // Each of two calls would become a task.
            Method::ToolsCall => {
                self.safe_to_repeat && !matches!(call.task_mode, TaskMode::Wanted { .. })
            }
            _ => false,
        };
        let goes_on = call.resume.is_some()
            || call.input_responses.is_some()
            || call.input_refusals.is_some()
            || !matches!(call.params.input_responses(), Ok(None))
            || !matches!(call.params.request_state(), Ok(None));
        is_safe && !goes_on
    }
}

/// One upstream server.
pub trait Upstream: std::fmt::Debug + Send + Sync {
    /// Its configured id.
    fn id(&self) -> &UpstreamId;

    /// Makes a call. The reply is returned as soon as its first event is known or the wait begins;
    /// dropping the future or the reply cancels the call at the server.
    fn call(self: Arc<Self>, outbound: OutboundCall) -> BoxFuture<'static, Reply>;

    /// Opens a watch: a connection of its own that lists and receives change notifications, carries
    /// no calls and refuses every request of the server. Includes detecting the server's protocol
    /// revision.
    ///
    /// # Errors
    ///
    /// The server cannot be reached or does not speak MCP.
    fn watch(
        self: Arc<Self>,
        class: CapabilityClass,
    ) -> BoxFuture<'static, Result<Box<dyn ListWatch>, Failure>>;

    /// The time limit for opening a watch or a stream of updates: for a process more than `usual`.
    fn open_time(&self, usual: Duration) -> Duration {
        usual
    }

    /// The longest time for one of weir's own requests, such as a page of a list or a subscription.
    fn own_request_time(&self) -> Duration {
        CallDeadlines::LIST.hard
    }

    /// True if calls use the accounts of their callers. Each of these may be permitted to read other
    /// resources than weir's own account.
    fn uses_callers_accounts(&self) -> bool {
        false
    }

    /// Opens a stream of updates of single resources: in weir's own name, apart from every call.
    ///
    /// # Errors
    ///
    /// The server cannot be reached, or has no subscriptions (see
    /// [`ServerDescription::subscribes`]).
    fn updates(self: Arc<Self>) -> BoxFuture<'static, Result<Box<dyn ResourceUpdates>, Failure>>;

    /// Opens the server's session for a client that began a session at an endpoint of this server
    /// alone, as the client's first call would, so that the server may change the lists of the
    /// session before that call. Returns no result: without room, or if the server refuses, the
    /// first call opens it. The call has the client's identity and capabilities.
    fn open_client_session(self: Arc<Self>, _outbound: OutboundCall) {}

    /// Finds out if a server whose lists are watched without a session has sessions as well, as this
    /// call of a client with a session would: it may have other items there. The future ends once
    /// [`Self::carries`] has the outcome, or the server could not be asked. Absent if that is known.
    fn find_sessions(
        self: Arc<Self>,
        _call: &dyn Fn() -> OutboundCall,
    ) -> Option<BoxFuture<'static, ()>> {
        None
    }

    /// Subscribes to the status notifications of a task; the call is a request about the task by
    /// its native id. No value if the server sends none; its state can be polled all the same.
    fn follow_task(
        self: Arc<Self>,
        _outbound: OutboundCall,
    ) -> BoxFuture<'static, Option<TaskNotifications>> {
        Box::pin(std::future::ready(None))
    }

    /// Cancels a task in the background. The call is a `tasks/cancel` by the task's native id.
    fn cancel_task(self: Arc<Self>, _outbound: OutboundCall) {}

    /// The progress notifications of a task of this principal's, by its native id. A new receiver
    /// replaces an earlier one. Absent if the upstream cannot deliver them.
    fn task_progress(&self, _principal: &Principal, _native: &str) -> Option<ProgressReports> {
        None
    }

    /// The part of a client's class that weir carries to this server, as far as the server is known
    /// now. Classes that are cut to the same rest share a watch.
    fn carries(&self) -> CapabilityClass;

    /// Notifies of a change of client sessions: state that is held for one of them alone is
    /// updated. Many may end at once.
    fn notify_sessions(&self, _sessions: &HashSet<SessionKey>, _change: ClientSessionChange) {}

    /// Describes the open sessions and child processes, for the process that takes this one's
    /// place. From now on the other process ends them; calls that run here go on.
    fn export_sessions(self: Arc<Self>) -> BoxFuture<'static, Vec<HandoverSession>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// The tasks that begin, or are over, in exported sessions and child processes after their
    /// export: descriptions for [`Self::import_session`] of the other process. To be called before
    /// the export.
    fn tasks_after_export(&self) -> Option<TaskDescriptions> {
        None
    }

    /// Goes on with a session that another process described. Unusable parts are left out. Imports
    /// of several sessions run at the same time.
    fn import_session(self: Arc<Self>, _session: HandoverSession) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Notes that the process before this one runs, whose sessions are imported, or has ended.
    fn set_predecessor_running(&self, _runs: bool) {}

    /// Its health.
    fn health(&self) -> UpstreamHealth;

    /// Ends its child processes once their running calls are done, at most `grace` from now. Later
    /// calls and watches start others. Sessions at a URL stay.
    fn replace_processes(self: Arc<Self>, _grace: Duration) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    /// True if a task of this principal's, by its native id, began in a call of this upstream and
    /// runs, or has ended lately. Other servers, sessions and child processes may not know it.
    fn holds_task(&self, _principal: &Principal, _native: &str) -> bool {
        false
    }

    /// Waits until its running calls are done, at most `grace`, then until no task of its calls runs
    /// and clients could read the end of the last one. Requests about tasks work meanwhile.
    fn run_out(self: Arc<Self>, _grace: Duration) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Ends its sessions and child processes once its running calls are done, at most `grace` from
    /// now.
    fn retire(self: Arc<Self>, grace: Duration) -> BoxFuture<'static, ()>;
}

/// A session or child process that another process goes on with. Opaque, and for the same upstream
/// alone; it holds session ids, which are secrets.
#[derive(Debug)]
pub struct HandoverSession {
    /// The description.
    pub description: Bytes,
    /// The descriptors of a child process, at most [`HandoverSession::MAX_DESCRIPTORS`].
    pub descriptors: Vec<OwnedFd>,
}

impl HandoverSession {
    /// The most descriptors of one.
    pub const MAX_DESCRIPTORS: usize = 6;
}

/// An item for each status notification of a task; several may come as one. It ends when there will
/// be no more, and dropping it ends the subscription.
pub type TaskNotifications = Pin<Box<dyn futures_util::Stream<Item = ()> + Send>>;

/// Descriptions of tasks in sessions and child processes that another process has, as they come.
pub type TaskDescriptions = Pin<Box<dyn futures_util::Stream<Item = Bytes> + Send>>;

/// `params` of `notifications/progress` under the client's own token, as they come. Dropping it
/// ends the listening.
pub type ProgressReports = Pin<Box<dyn futures_util::Stream<Item = Bytes> + Send>>;

/// A change of a client's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientSessionChange {
    /// It is over.
    Ended,
    /// It is over at this replica. It may live on at another one, which took it over.
    EndedHere,
    /// The client's roots changed.
    RootsChanged,
    /// The client asked for the log messages from this level up.
    LogLevel(LogLevel),
}

impl ClientSessionChange {
    /// Returns true if this replica gets no more calls of the session.
    #[must_use]
    pub fn is_end(self) -> bool {
        matches!(self, Self::Ended | Self::EndedHere)
    }
}

/// The health of an upstream, for the admin view and the metrics.
#[derive(Clone, Debug, Default)]
pub struct UpstreamHealth {
    /// The protocol revision it was found to speak.
    pub revision: Option<&'static str>,
    /// The older revision that it was found to speak beside that.
    pub second_revision: Option<&'static str>,
    /// True while the breaker is open, or if the last attempt did not reach the server.
    pub down: bool,
    /// The time at which `down` changed last; absent if it never did.
    pub down_changed: Option<SystemTime>,
    /// True while calls fail at once, since several in a row did not reach it.
    pub breaker_open: bool,
    /// The cause of the last failure, for operators ([`Failure::cause`]). It stays when the
    /// upstream works again.
    pub last_error: Option<String>,
    /// The time of that failure.
    pub last_error_at: Option<SystemTime>,
    /// The start of a process that has not answered yet.
    pub starting: Option<ProcessStart>,
    /// The last lines that a process printed before its start failed, without secrets of the
    /// config.
    pub last_lines: Vec<String>,
    /// Calls in flight now.
    pub in_flight: usize,
    /// True while the process before this one may have further calls in flight.
    pub predecessor_runs: bool,
    /// Sessions or child processes held open now.
    pub sessions: usize,
    /// The instances of a server that has several URLs, in the order of the config; else empty.
    pub instances: Vec<InstanceHealth>,
    /// The replica that runs its child processes for all, once known. Absent if each replica runs
    /// its own.
    pub owner: Option<UpstreamOwner>,
}

/// The health of one instance of a server that has several URLs.
#[derive(Clone, Debug)]
pub struct InstanceHealth {
    /// Its URL, without user and query.
    pub url: Arc<str>,
    /// Its part of the calls, in relation to the weights of the others.
    pub weight: u32,
    /// Its circuit breaker.
    pub breaker: InstanceBreakerState,
    /// True if weir reads the upstream's lists there.
    pub watched: bool,
    /// Calls in flight there now.
    pub in_flight: usize,
    /// Sessions held open there now.
    pub sessions: usize,
    /// The recent time until the first sign of life of a call: peaks count at once and fade within
    /// half a minute. Absent before the first call.
    pub latency: Option<Duration>,
    /// The cause of its last failure, which stays when it works again.
    pub last_error: Option<String>,
}

/// The state of the circuit breaker of one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceBreakerState {
    /// It takes calls.
    Closed,
    /// It answers again, and takes a few calls at a time until some of them were answered.
    HalfOpen,
    /// It takes no calls while another instance does.
    Open,
}

impl InstanceBreakerState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Closed, Self::HalfOpen, Self::Open];

    /// The word for operators.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half_open",
            Self::Open => "open",
        }
    }
}

/// The replica that runs the child processes of an upstream for all replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamOwner {
    /// The replica.
    pub replica: ReplicaId,
    /// True if it is this one.
    pub is_own: bool,
    /// The epoch of its lease.
    pub epoch: u64,
}

/// The start of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStart {
    /// The time since its beginning.
    pub time: Duration,
    /// The last line of its error stream, without secrets of the config.
    pub last_line: Option<String>,
}

/// A watch on an upstream's lists. Dropping it closes its connection.
pub trait ListWatch: Send {
    /// The server's information about itself.
    fn about(&self) -> &ServerDescription;

    /// One page. The cursor is the upstream's own, unaltered; the empty string is a cursor.
    ///
    /// # Errors
    ///
    /// As for any request to the upstream; its -32601 if it has no such list.
    fn list(
        &mut self,
        kind: ListKind,
        cursor: Option<String>,
    ) -> BoxFuture<'_, Result<ListPage, Failure>>;

    /// Waits for change notifications of the server, and returns the changed lists; the empty set
    /// if a notification may have been missed. Notifications during a walk are kept, as one. For a
    /// server without notifications ([`ServerDescription::notifies_of`] is empty) this waits only
    /// for the connection's end.
    ///
    /// # Errors
    ///
    /// The watch is lost: changes may have been missed, and a new watch is needed. Cancel safe.
    fn next_change(&mut self) -> BoxFuture<'_, Result<ListKinds, Failure>>;
}

/// A stream of a server's updates of single resources. Dropping it ends its subscriptions.
pub trait ResourceUpdates: Send {
    /// Subscribes to exactly these resources, by the server's own URIs, and returns those that the
    /// server refuses, each with its reason. Updates of earlier subscriptions go on in between, and
    /// `deliver` takes those that come meanwhile.
    ///
    /// # Errors
    ///
    /// The stream is lost: a new one is needed.
    fn set_subscriptions<'a>(
        &'a mut self,
        uris: &'a [Arc<str>],
        deliver: DeliverUpdate<'a>,
    ) -> BoxFuture<'a, Result<RefusedSubscriptions, Failure>>;

    /// Waits for the next update. Several of one resource may come as one. Cancel safe.
    ///
    /// # Errors
    ///
    /// The stream is lost: updates may have been missed, and a new one is needed.
    fn next_update(&mut self) -> BoxFuture<'_, Result<ResourceUpdate, Failure>>;
}

/// Takes an update that comes while subscriptions are changed.
pub type DeliverUpdate<'a> = &'a (dyn Fn(ResourceUpdate) + Sync);

/// Resources for which a server refuses a subscription, each with the reason.
pub type RefusedSubscriptions = Vec<(Arc<str>, Failure)>;

/// A server's update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceUpdate {
    /// The resource of this URI; it may be part of a subscribed one.
    Resource(Arc<str>),
    /// Any of them: an update may have been missed.
    Any,
}

/// An extension by its identifier, with its settings: a JSON object.
pub type DeclaredExtension = (Arc<str>, Bytes);

/// A server's information about itself from the opening of the watch.
#[derive(Clone, Debug, Default)]
pub struct ServerDescription {
    /// `serverInfo`, raw.
    pub server_info: Option<Bytes>,
    /// `instructions`.
    pub instructions: Option<String>,
    /// `capabilities`, raw.
    pub capabilities: Option<Bytes>,
    /// The lists it offers.
    pub offers: ListKinds,
    /// The lists for which it sends change notifications.
    pub notifies_of: ListKinds,
    /// True if it sends updates of single resources.
    pub subscribes: bool,
    /// True if it completes arguments.
    pub completes: bool,
    /// True if calls of its tools can become tasks.
    pub tasks: bool,
    /// True if it declares that its tools have interfaces (MCP Apps).
    pub apps: bool,
    /// The extensions it has beside those that weir understands.
    pub extensions: Vec<DeclaredExtension>,
}

impl ServerDescription {
    /// True if the server declares the `logging` capability.
    #[must_use]
    pub fn declares_logging(&self) -> bool {
        self.capabilities
            .as_ref()
            .is_some_and(|all| scan::find(all, "logging").is_some())
    }
}

/// One page of an upstream's list.
#[derive(Clone, Debug, Default)]
pub struct ListPage {
    /// The items' own bytes, in the upstream's order.
    pub items: Vec<Bytes>,
    /// The cursor of the next page.
    pub next_cursor: Option<String>,
    /// `ttlMs`; absent or negative is 0.
    pub ttl_ms: u64,
    /// True if this server's protocol revision has cache hints at all. Otherwise `ttl_ms` is unused
    /// and the catalog makes its own small promise for a list it watches.
    pub hinted: bool,
    /// True if the page may be shown to all clients (`cacheScope: "public"`); absent is private.
    pub public: bool,
}
